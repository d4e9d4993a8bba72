/* gpu_block.h - reductions and prefix sums over the threads of a block */
#ifndef GPU_BLOCK_H
#define GPU_BLOCK_H

#include "gpu/port.h"

/* The maximum over the block, in all threads. A kernel may call it once. */
DEVICE float
block_max(float x)
{
	SHARED(float[32], part);

	x = warp_max(x);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		x = fmaxf(x, part[i]);
	return x;
}

/* Exclusive prefix sum of x over the block of T threads; *all <- the total. part: [T / 32],
 * free again after the next barrier */
template <int T>
DEVICE uint32_t
prefix_sum(uint32_t x, uint32_t *part, uint32_t *all)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t sum = warp_scan(x);

	if (lane == 31)
		part[warp] = sum;
	__syncthreads();
	const uint32_t others = lane < T / 32 ? part[lane] : 0;
	*all = warp_sum_u32(others);
	return warp_sum_u32(lane < warp ? others : 0) + sum - x;
}

#endif
