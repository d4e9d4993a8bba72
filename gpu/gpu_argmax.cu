/* gpu_argmax.cu - argmax: the lowest index of the greatest finite score
 *
 * Score and index are packed into one integer that orders by score first: its maximum is the
 * answer, and the order of comparisons does not matter. A two-stage reduction: each block
 * writes its maximum, a second launch of one block reduces these. A single launch would save
 * a microsecond of a step of some thousand, and need fences that the emulator cannot check. */
#include "gpu/gpu_internal.h"

constexpr unsigned THREADS = 256, MOST_PARTS = THREADS;

/* Orders by score, then by lower index; 0, the least, for scores that are not finite */
DEVICE uint64_t
rank_of(float score, uint32_t index)
{
	const uint32_t bits = __float_as_uint(score + 0.0f);      /* -0 becomes 0 */
	const uint32_t order = bits >> 31 ? ~bits : bits | 1u << 31;

	return (bits & 0x7f800000) == 0x7f800000 ? 0 : (uint64_t)order << 32 | (uint32_t)~index;
}

DEVICE uint32_t
index_of(uint64_t rank)
{
	return rank == 0 ? UINT32_MAX : ~(uint32_t)rank;
}

/* ---- the naive kernel ---- */

static __global__ void __launch_bounds__(THREADS)
reference_argmax(uint32_t *tok, const float *x, uint32_t n)
{
	SHARED(uint64_t[THREADS], best);
	uint64_t mine = 0;

	x += (size_t)blockIdx.x * n;
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		mine = max(mine, rank_of(x[i], i));
	best[threadIdx.x] = mine;
	__syncthreads();
	for (uint32_t i = 0; i < THREADS && threadIdx.x == 0; i++)
		mine = max(mine, best[i]);
	if (threadIdx.x == 0)
		tok[blockIdx.x] = index_of(mine);
}

/* ---- the two-stage reduction ---- */

/* The maximum over the block, in thread 0 */
DEVICE uint64_t
block_max_rank(uint64_t mine)
{
	SHARED(uint64_t[THREADS / 32], of_warp);

	for (int bit = 16; bit > 0; bit /= 2)
		mine = max(mine, __shfl_xor_sync(ALL_LANES, mine, bit));
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = mine;
	__syncthreads();
	for (uint32_t i = 0; i < THREADS / 32 && threadIdx.x == 0; i++)
		mine = max(mine, of_warp[i]);
	return mine;
}

/* First stage: part[blockIdx.y][blockIdx.x] <- the maximum of a grid-stride loop over row
 * blockIdx.y. A thread reads V scores at a time. */
template <int V>
static __global__ void __launch_bounds__(THREADS)
argmax_blocks(uint64_t *part, const float *x, uint32_t n)
{
	uint64_t mine = 0;

	x += (size_t)blockIdx.y * n;
	for (size_t i = V * ((size_t)blockIdx.x * THREADS + threadIdx.x); i < n;
	    i += (size_t)V * gridDim.x * THREADS) {
		const pack<float, V> p = *(const pack<float, V> *)(x + i);

		for (uint32_t e = 0; e < V; e++)
			mine = max(mine, rank_of(p.at[e], (uint32_t)i + e));
	}
	mine = block_max_rank(mine);
	if (threadIdx.x == 0)
		part[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = mine;
}

/* Second stage, one block for each row; parts <= THREADS */
static __global__ void __launch_bounds__(THREADS)
argmax_parts(uint32_t *tok, const uint64_t *part, uint32_t parts)
{
	part += (size_t)blockIdx.x * parts;
	const uint64_t all = block_max_rank(threadIdx.x < parts ? part[threadIdx.x] : 0);

	if (threadIdx.x == 0)
		tok[blockIdx.x] = index_of(all);
}

void
gpu_argmax(struct dev *d, uint32_t *tok, const float *x, uint32_t n, uint32_t N)
{
	const bool fours = (uintptr_t)x % 16 == 0 && n % 4 == 0;
	const unsigned want = parts_of(n, THREADS * (fours ? 4 : 1));
	const unsigned parts = want < MOST_PARTS ? want : MOST_PARTS;
	uint64_t *part;

	if (N == 0)
		return;
	if (d->reference || n == 0) {
		LAUNCH(d, reference_argmax, N, THREADS, 0, tok, x, n);
		return;
	}
	if ((part = (uint64_t *)gpu_scratch(d, SCRATCH_PARTS,
	    (size_t)N * parts * sizeof *part)) == NULL)
		return;
	if (fours)
		LAUNCH(d, argmax_blocks<4>, dim3(parts, N), THREADS, 0, part, x, n);
	else
		LAUNCH(d, argmax_blocks<1>, dim3(parts, N), THREADS, 0, part, x, n);
	LAUNCH(d, argmax_parts, N, THREADS, 0, tok, part, parts);
}
