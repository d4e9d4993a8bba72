/* emulator_pdl.cc - programmatic dependent launch
 *
 * The emulator runs kernels one after another. To find kernels that read or write device
 * memory before pdl_wait(), device memory is protected from the start of a block until all
 * its threads have called it; a thread that ends without the call ends the program.
 *
 * A launch with the attribute ends the program, too, when the stream's last work is no kernel of
 * ours: the reasoning in gpu/port.h holds for these. Of others CUDA promises nothing: in a graph
 * such an edge may only be between kernels (cudaGraphDependencyTypeProgrammatic), and what a
 * capture makes of one behind a copy, it does not say. */
#include "tests/cuda/emulator.h"

/* For tests: launches so far with the attribute */
extern "C" unsigned long cuda_early_starts;
unsigned long cuda_early_starts;

namespace emulator {

bool pdl_covered;                      /* for the block that runs */
static bool called[MAX_THREADS];

void
starts_early(cudaStream_t s, const char *name)
{
	ALONE();
	if (last_of(s) != NULL)
		die("%s would start early behind %s", name, last_of(s));
	cuda_early_starts++;
}

void
pdl_begin(void)
{
	if (!pdl_covered)
		cover();
	pdl_covered = true;
	called[current->number] = false;
}

void
pdl_wait(void)
{
	called[current->number] = true;
	sync_block();
	if (pdl_covered)
		uncover();
	pdl_covered = false;
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
