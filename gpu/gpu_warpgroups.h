/* gpu_warpgroups.h - what the kernels of warpgroups (gpu_attend_wgmma.cu, gpu_mass_wgmma.cu) share:
 * lines of a matrix in shared memory, rings of tiles that some warps fill and others multiply, and
 * turns */
#ifndef GPU_WARPGROUPS_H
#define GPU_WARPGROUPS_H

#include "gpu/port_hopper.h"

enum { LINE = 128, ATOM = 1024 };              /* bytes, of matrix_descriptor() */

/* A place in a ring of N, and the parity of how often it has gone around */
template <unsigned N> struct cursor {
	unsigned at, parity;

	__device__ __forceinline__ void
	next(void)
	{
		at = at + 1 == N ? 0 : at + 1;
		parity ^= at == 0;
	}
};

/* The item of this block in a round: of each round of all blocks it takes one, the rounds in turn
 * forwards and backwards, since items are longest first */
DEVICE uint32_t
item_of_round(uint32_t round)
{
	return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

/* Waits for the tile that this warp has copied before the last OTHERS tiles, and lets others have
 * it: place `before` of the ring, N: none. */
template <int OTHERS, unsigned N>
DEVICE void
hand_over(uint64_t (&full)[N], unsigned before)
{
	cp_async_wait<OTHERS>();
	fence_proxy_async();
	__syncwarp();
	if (before < N && threadIdx.x % 32 == 0)
		mbarrier_arrive(&full[before]);
}

/* This warp no longer reads it. */
DEVICE void
give_back(uint64_t *empty)
{
	if (threadIdx.x % 32 == 0)
		mbarrier_arrive(empty);
}

/* The turns of warpgroups in issuing products: a barrier for each, of the threads that wait at it
 * and of those that had the turn before. Group 0 has the first. */
enum { BAR_TURN = 1 };

DEVICE void
first_turn(unsigned group)
{
	if (group == 0)
		bar_arrive(BAR_TURN, 256);
}

DEVICE void
wait_turn(unsigned group)
{
	bar_sync(BAR_TURN + group, 256);
}

template <unsigned GROUPS>
DEVICE void
pass_turn(unsigned group)
{
	bar_arrive(BAR_TURN + (group + 1 == GROUPS ? 0 : group + 1), 256);
}

#endif
