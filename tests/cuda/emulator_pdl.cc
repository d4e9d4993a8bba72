/* emulator_pdl.cc - programmatic dependent launch
 *
 * The emulator runs kernels one after another. To find kernels that read or write device
 * memory before pdl_wait(), device memory is protected from the start of a block until all
 * its threads have called it; a thread that ends without the call ends the program. */
#include "tests/cuda/emulator.h"

namespace emulator {

static bool covered;                   /* for the block that runs */
static bool called[MAX_THREADS];

void
pdl_begin(void)
{
	if (!covered)
		cover();
	covered = true;
	called[current->number] = false;
}

void
pdl_wait(void)
{
	called[current->number] = true;
	sync_block();
	if (covered)
		uncover();
	covered = false;
}

void
pdl_end(void)
{
	if (!called[current->number])
		die("a thread has ended without pdl_wait()");
}

void
prefetch_l2(const void *p)
{
	if (!on_device(p, 1))
		die("prefetch_l2() of %p, which is not on the device", p);
}

uint32_t
load_l2(const uint32_t *p)
{
	uint32_t x;

	prefetch_l2(p);
	uncover();
	x = *p;
	cover();
	return x;
}

} // namespace emulator
