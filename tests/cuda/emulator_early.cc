/* emulator_early.cc - kernels that may start before those ahead of them have ended
 *
 * Kernels run one after another here. So that one which reads or writes too early is noticed
 * nevertheless, device memory is covered from the start of a block until all its threads have
 * called earlier_done(), and a thread that ends without it ends the program. */
#include "tests/cuda/emulator.h"

namespace emulator {

static bool covered;                   /* for the block that runs */
static bool called[MAX_THREADS];

void
start_early(void)
{
	if (!covered)
		cover();
	covered = true;
	called[current->number] = false;
}

void
earlier_done(void)
{
	called[current->number] = true;
	sync_block();
	if (covered)
		uncover();
	covered = false;
}

void
end_early(void)
{
	if (!called[current->number])
		die("a thread has ended without earlier_done()");
}

void
load_ahead(const void *p)
{
	if (!on_device(p, 1))
		die("load_ahead() of %p, which is not on the device", p);
}

uint32_t
load_settled(const uint32_t *p)
{
	uint32_t x;

	load_ahead(p);
	uncover();
	x = *p;
	cover();
	return x;
}

} // namespace emulator
