/* gpu_bits_lines.cu - scores of rows from their one-bit keys as products of bytes: the kernel, and
 * which calls it takes. How it works: gpu_bits_lines.h */
#include "gpu/gpu_bits_lines.h"

/* to[heads][E] <- q, the greatest of each head scaled to 1; greatest[heads] <- the greatest as
 * make_queries() scales it. By all warps of the block; a barrier must follow. */
DEVICE void
make_normal_queries(float *to, float *greatest, const float *q, uint32_t heads, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t h = threadIdx.x / 32; h < heads; h += WARPS) {
		const float *const row = q + (size_t)h * E;
		float most = 0;

		for (uint32_t e = lane; e < E; e += 32)
			most = fmaxf(most, fabsf(row[e]));
		most = warp_max(most);
		const int p = power_for(most);
		const float scaled = scalbnf(most, p), by = scaled > 0 ? 1 / scaled : 0;
		for (uint32_t e = lane; e < E; e += 32)
			to[h * E + e] = scalbnf(row[e], p) * by;
		if (lane == 0)
			greatest[h] = scaled;
	}
}

/* Blocks that an SM has registers for */
static constexpr uint32_t
resident(uint32_t u)
{
	return u == 16 ? 3 : 4;
}

/* One-bit scores: warps take tiles round-robin, double-buffered: the next tile is loaded
 * while one is scored. HEADS: as in struct lines; WIDTH: the width of heads, 0: any */
template <uint32_t U, uint32_t HEADS, uint32_t WIDTH>
static __global__ void __launch_bounds__(THREADS, resident(U))
bits_by_lines(const struct bits_call call, const struct index x, const struct rows r)
{
	using L = lines<U, HEADS>;
	DYN_SHARED(unsigned char, shared);
	SHARED(int[SET], power);
	SHARED(float[HEADS], greatest);
	const uint32_t E = WIDTH == 0 ? x.E : WIDTH, bytes = tile_bytes(E, U);
	const uint32_t heads = HEADS == 1 ? 1 : at_most(call.R, HEADS);
	const uint32_t g = blockIdx.y, warp = threadIdx.x / 32;
	const uint32_t appended = appended_rows(r), entries = existing_entries(x, r, g, appended);
	const size_t rows = (size_t)entries * U, tiles = (rows + TILE - 1) / TILE;
	float *const score = call.score + g * heads * call.stride;
	const float *const q = call.q + (size_t)g * heads * E;
	const uint32_t of_lines = chunks_of(E) * L::CHUNK;
	const struct place p = my_place<U>();
	uint2 *const fragments = (uint2 *)shared;
	float *const normal = (float *)(shared + query_bytes(steps_of(E), 1, 1));
	unsigned char *const stages = (unsigned char *)(normal + HEADS * E);
	unsigned char *const stage = stages + warp * 2 * bytes;
	unsigned char *const to = stages + WARPS * 2 * bytes + warp * of_lines;

	pdl_trigger();
	pdl_wait();
	if (blockIdx.x >= call.blocks) {
		score_rest(score, q, heads, call, r, r.len[g] + appended, g,
		    rows + ((blockIdx.x - call.blocks) * WARPS + warp) * REST);
		return;
	}
	if (blockIdx.x * WARPS >= tiles)
		return;
	size_t tile = blockIdx.x * WARPS + warp;
	load_tile<U>(stage, x, E, entries, g, tile);
	make_queries<f16, 1, 1, 2, false>(fragments, power, q, heads, E, steps_of(E), WARPS);
	make_normal_queries(normal, greatest, q, heads, E);
	/* Zeros are what lines have behind the last channel. */
ROLLED	for (uint32_t i = threadIdx.x % 32 * 16; i < of_lines; i += 32 * 16) {
		const uint32_t four = i % L::CHUNK / LINE == L::ONES ? 0x01010101 : 0;

		*(uint4 *)(to + i) = make_uint4(four, four, four, four);
	}
	__syncthreads();
	const uint32_t h = min(p.c, heads - 1);
	const struct head_scale scale = { greatest[h] / (float)(1 << p.bit),
		scalbnf(call.scale, -power[h]) };
	const struct block_queries queries = { fragments, normal, heads, E };
	const struct operands<U, HEADS> o = my_operands<U, HEADS>(heads, p);
	for (uint32_t now = 0; tile < tiles; tile += call.blocks * WARPS, now ^= 1) {
		const size_t first = tile * TILE;

		load_tile<U>(stage + (now ^ 1) * bytes, x, E, entries, g,
		    tile + call.blocks * WARPS);
		cp_async_wait<1>();
		__syncwarp();
		score_tile<U, HEADS>(score + first, call.stride, at_most(rows - first, TILE),
		    call.wide && rows - first >= TILE, to, stage + now * bytes, queries, scale, p,
		    o);
	}
	cp_async_wait<0>();
}

template <uint32_t U, uint32_t HEADS, uint32_t WIDTH>
static int
launch(struct dev *d, struct bits_call &c, const struct index &x, const struct rows &r,
    uint32_t entries, uint32_t rest)
{
	const size_t shared = shared_bytes<U, HEADS>(x.E);

	if (shared > d->most_shared)
		return 0;
	c.blocks = blocks_per_list(d, parts_of((size_t)entries * U, TILE * WARPS), x.G,
	    resident(U));
	if (c.blocks > 0 || rest > 0)
		LAUNCH_PDL(d, (bits_by_lines<U, HEADS, WIDTH>),
		    dim3(c.blocks + parts_of(rest, WARPS * REST), x.G), THREADS, shared, c, x, r);
	return 1;
}

/* Products of q and scale are made for each query head: with more than four, or four and entries of
 * 16 rows, gpu_bits.cu, which multiplies bits by scales for all heads together, takes fewer
 * instructions. With up to four and a width that is no constant it takes about as many. */
int
gpu_bits_by_lines(struct dev *d, struct bits_call &c, const struct index &x, const struct rows &r,
    uint32_t entries, uint32_t rest)
{
	const bool constant = x.rows == 32 && x.E == 128;

	if (x.E % 16 != 0 || x.E > MOST_WIDTH || c.R > (constant ? SET : 1u))
		return 0;
	if (c.R > 1)
		return launch<32, SET, 128>(d, c, x, r, entries, rest);
	if (constant)
		return launch<32, 1, 128>(d, c, x, r, entries, rest);
	if (x.rows == 16)
		return launch<16, 1, 0>(d, c, x, r, entries, rest);
	if (x.rows == 32)
		return launch<32, 1, 0>(d, c, x, r, entries, rest);
	if (x.rows == 64)
		return launch<64, 1, 0>(d, c, x, r, entries, rest);
	return launch<128, 1, 0>(d, c, x, r, entries, rest);
}
