/* gpu_bits.cu - scores of rows from their one-bit keys, on tensor cores (FIER; kv-snapshot(5),
 * 4.15); of one query head, and of up to four in the commonest shape: gpu_bits_lines.cu
 *
 * The score of a row is q.zero, the same for all rows of an entry, plus the sum over channels of
 * q * scale where the row's bit is set. The a operand of mma is bit * scale, made from entries
 * as they are stored; the b operand is q:
 *
 * - A lane's part of the a operand is one row and pairs of channels. A *piece*, 16 rows of an
 *   entry, has 16 bits of each channel. With the bits of two channels in a word, a mask selects
 *   the bits of one row; each half is then a power of two, if read as f16. Its product with the
 *   channel's scale, which is exact, is the operand: two instructions for two elements.
 * - The rows of the operand belong to 8 pieces. Each lane has the bits and scales of one piece
 *   and a quarter of the channels, from which it selects all 16 rows. Nothing is computed twice,
 *   and lanes exchange nothing.
 * - q has 22 bits, two parts of 11 in neighbouring columns of the b operand (gpu_index.h), so
 *   that 8 columns are 4 query heads. Both parts of a score end up in the same lane.
 *
 * Each row of the product has a factor of its own, the power of two that its bit stands for.
 * To keep all elements in the range of f16, scales are multiplied by a power of two for each
 * piece, so that the greatest is about 2^14, and q by one for each head. A channel loses less
 * than 2^-22 of the greatest by that. */
#include "gpu/gpu_bits.h"
#include "gpu/gpu_quantised.h"

static constexpr uint32_t
	PIECE = 16,                  /* rows */
	OUT_STRIDE = TILE + 4;       /* of a head's scores in shared memory: no bank conflicts */

static_assert(TILE == 8 * PIECE);

/* ---- shared memory ---- */

/* The stride of entries in shared memory: bytes rounded to an odd multiple of 32, so that
 * lanes that read the same channels of different entries have no bank conflicts */
static inline __host__ __device__ uint32_t
entry_stride(uint32_t E, uint32_t u)
{
	return E * (4 + u / 8) | 32;
}

static inline __host__ __device__ uint32_t
tile_bytes(uint32_t E, uint32_t u)
{
	return TILE / u * entry_stride(E, u);
}

static size_t
shared_bytes(uint32_t E, uint32_t u, uint32_t sets)
{
	return query_bytes(E / 16, sets, 1) +
	    WARPS * (SET * OUT_STRIDE * sizeof(float) + 2 * tile_bytes(E, u));
}

/* ---- the a operand: entries ---- */

/* Starts the copy of those of the entries that are in a tile, by a warp; zeros behind the last. */
template <uint32_t U>
DEVICE void
load_tile(unsigned char *to, const struct index &x, uint32_t entries, uint32_t g, size_t tile)
{
	const uint32_t stride = entry_stride(x.E, U), bytes = (uint32_t)x.bytes;
	const size_t entry = tile * (TILE / U);
	const unsigned char *const from = x.data + (x.start[g] + entry) * bytes;

ROLLED	for (uint32_t b = threadIdx.x % 32 * 16; b < bytes; b += 32 * 16)
UNROLL		for (uint32_t i = 0; i < TILE / U; i++)
			cp_async16(to + i * stride + b, from + i * bytes + b, entry + i < entries);
	cp_async_commit();
}

/* The piece's bits of four channels from `channel` on: two channels in a word, and the same
 * with the bytes of each half swapped */
struct pairs {
	uint32_t low, high, swapped_low, swapped_high;
};

template <uint32_t U>
DEVICE struct pairs
load_bits(const unsigned char *bits, uint32_t channel, uint32_t piece)
{
	if (U == 16) {
		const uint2 w = *(const uint2 *)(bits + channel * 2);

		return { w.x, w.y, __byte_perm(w.x, 0, 0x2301), __byte_perm(w.y, 0, 0x2301) };
	}
	const uint32_t half = piece % 2 == 0 ? 0x5410 : 0x7632;
	const uint32_t swapped = piece % 2 == 0 ? 0x4501 : 0x6723;
	const unsigned char *at = bits + channel * (U / 8) + piece / 2 * 4;
	uint4 w;

	if (U == 32)
		w = *(const uint4 *)at;
	else
		w = make_uint4(*(const uint32_t *)at, *(const uint32_t *)(at + U / 8),
		    *(const uint32_t *)(at + 2 * (U / 8)), *(const uint32_t *)(at + 3 * (U / 8)));
	return { __byte_perm(w.x, w.y, half), __byte_perm(w.z, w.w, half),
		__byte_perm(w.x, w.y, swapped), __byte_perm(w.z, w.w, swapped) };
}

/* The power of two that scales the greatest scale of a piece to 2^14 .. 2^15. It can exceed
 * the range of f16, so it is a product of two, each as a pair in a word. */
struct factors {
	uint32_t first, second;
	int power;
};

DEVICE struct factors
factors_for(const unsigned char *scale, uint32_t E)
{
	uint32_t most = 0;
	int exponent;

	for (uint32_t k = 0; k < E / 16; k++) {
		const uint2 w = *(const uint2 *)(scale + 32 * k + threadIdx.x % 4 * 8);

		most = max_f16x2(most, max_f16x2(w.x, w.y));
	}
	most = max_f16x2(most, most >> 16);
	most = max_f16x2(most, __shfl_xor_sync(ALL_LANES, most, 1));
	most = max_f16x2(most, __shfl_xor_sync(ALL_LANES, most, 2));
	exponent = (int)(most >> 10 & 31);
	const int power = 14 + 15 - (exponent > 1 ? exponent : 1), part = power / 2;
	return { (uint32_t)(15 + part) << 10 | (uint32_t)(15 + part) << 26,
		(uint32_t)(15 + power - part) << 10 | (uint32_t)(15 + power - part) << 26, power };
}

/* Step t selects rows t and t + 8 of each piece. Both have their bit at this position, one in
 * the words as they are, the other in the words with swapped bytes. Not higher: bit 15 is the
 * sign. Not lower: the product with the scale would be below the range of f16. */
DEVICE constexpr int
bit_of(int t)
{
	return t < 7 ? 8 + t : 7;
}

/* The exponent of an f16 in which only this bit is set */
DEVICE constexpr int
bit_exponent(int bit)
{
	return bit < 10 ? bit - 24 : (1 << (bit - 10)) - 15;
}

/* The product for a tile, by a warp. sum[t][set] <- the unscaled scores of rows t (elements
 * 0, 1) and t + 8 (2, 3) of each piece; base[set] <- q.zero. Returns the exponent of the
 * pieces' scale. */
template <uint32_t U, uint32_t SETS>
DEVICE int
multiply(float sum[8][SETS][4], float base[SETS][4], const unsigned char *tile,
    const uint2 *queries, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
	const unsigned char *const entry = tile + g / (U / PIECE) * entry_stride(E, U);
	const unsigned char *const scale = entry + 2 * E, *const bits = entry + 4 * E;
	const struct factors f = factors_for(scale, E);

	for (uint32_t k = 0; k < E / 16; k++, queries += SETS * 32) {
		const uint32_t e = 16 * k + 4 * c;
		const struct pairs w = load_bits<U>(bits, e, g % (U / PIECE));
		const uint2 z = *(const uint2 *)(entry + 2 * e);
		const uint2 s = *(const uint2 *)(scale + 2 * e);
		const uint32_t low = mul_f16x2(mul_f16x2(s.x, f.first), f.second);
		const uint32_t high = mul_f16x2(mul_f16x2(s.y, f.first), f.second);
		const uint32_t zero[4] = { z.x, 0, z.y, 0 };
		uint32_t b[SETS][2];

UNROLL		for (uint32_t set = 0; set < SETS; set++) {
			const uint2 q = queries[set * 32 + lane];

			b[set][0] = q.x;
			b[set][1] = q.y;
			mma(f16{}, base[set], zero, b[set]);
		}
UNROLL		for (int t = 0; t < 8; t++) {
			const uint32_t mask = 0x00010001u << bit_of(t);
			const uint32_t a[4] = {
				mul_f16x2((t < 7 ? w.swapped_low : w.low) & mask, low),
				mul_f16x2((t < 7 ? w.low : w.swapped_low) & mask, low),
				mul_f16x2((t < 7 ? w.swapped_high : w.high) & mask, high),
				mul_f16x2((t < 7 ? w.high : w.swapped_high) & mask, high),
			};

UNROLL			for (uint32_t set = 0; set < SETS; set++)
				mma(f16{}, sum[t][set], a, b[set]);
		}
	}
	return f.power;
}

/* ---- epilogue ---- */

/* Scales the scores of lane 4g + c, which are of query head c and piece g, and writes them to
 * score[n] of `heads` heads; through shared memory, so that stores are coalesced. */
template <uint32_t SETS>
DEVICE void
write_scores(const struct bits_call &call, float *score, float *out, uint32_t heads, uint32_t n,
    const float sum[8][SETS][4], const float base[SETS][4], uint32_t set, int power, float unit)
{
	const uint32_t lane = threadIdx.x % 32;
	float *const mine = out + lane % 4 * OUT_STRIDE + lane / 4 * PIECE;
	const float first = base[set][0] + base[set][1];
	const int one = (127 - power) << 23;
	float s[PIECE];

	/* Multiplied by unit only here: the sums cancel, and f is a power of two. */
UNROLL	for (int t = 0; t < 8; t++) {
		const float *const d = sum[t][set];
		const float f = __int_as_float(one - bit_exponent(bit_of(t)) * (1 << 23));

		s[t] = ((d[0] + d[1]) * f + first) * unit;
		s[t + 8] = ((d[2] + d[3]) * f + first) * unit;
	}
UNROLL	for (uint32_t r = 0; r < PIECE; r += 4)
		*(float4 *)(mine + r) = make_float4(s[r], s[r + 1], s[r + 2], s[r + 3]);
	__syncwarp();
	if (call.wide && n == TILE) {
UNROLL		for (uint32_t h = 0; h < SET; h++)
			if (h < heads)
				*(float4 *)(score + h * call.stride + 4 * lane) =
				    *(const float4 *)(out + h * OUT_STRIDE + 4 * lane);
	} else {
ROLLED		for (uint32_t h = 0; h < heads; h++)
ROLLED			for (uint32_t i = lane; i < n; i += 32)
				score[h * call.stride + i] = out[h * OUT_STRIDE + i];
	}
	__syncwarp();
}

/* One-bit scores: warps take tiles round-robin, double-buffered: the next tile is loaded
 * while one is scored. */
template <uint32_t U, uint32_t SETS>
static __global__ void __launch_bounds__(THREADS, SETS == 1 ? 5 : 3)
bits_scores(const struct bits_call call, const struct index x, const struct rows r)
{
	DYN_SHARED(unsigned char, shared);
	SHARED(int[SETS * SET], power);
	const uint32_t E = x.E, g = blockIdx.y / call.groups, warp = threadIdx.x / 32;
	const uint32_t group = blockIdx.y % call.groups * (SETS * SET), left = call.R - group;
	const uint32_t heads = at_most(left, SETS * SET), bytes = tile_bytes(E, U);
	const uint32_t appended = appended_rows(r), entries = existing_entries(x, r, g, appended);
	const size_t rows = (size_t)entries * U, tiles = (rows + TILE - 1) / TILE;
	float *const score = call.score + (g * call.R + group) * call.stride;
	const float *const q = call.q + (size_t)(g * call.R + group) * E;
	uint2 *const queries = (uint2 *)shared;
	unsigned char *const stages = shared + query_bytes(E / 16, SETS, 1);
	unsigned char *const stage = stages + warp * 2 * bytes;
	float *const out = (float *)(stages + WARPS * 2 * bytes) + warp * SET * OUT_STRIDE;

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
	load_tile<U>(stage, x, entries, g, tile);
	make_queries<f16, SETS, 1, 1, false>(queries, power, q, heads, E, E / 16, WARPS);
	__syncthreads();
	float unit[SETS];
UNROLL	for (uint32_t set = 0; set < SETS; set++)
		unit[set] = scalbnf(call.scale, -power[set * SET + threadIdx.x % 4]);
	for (uint32_t now = 0; tile < tiles; tile += call.blocks * WARPS, now ^= 1) {
		float sum[8][SETS][4] = {}, base[SETS][4] = {};
		const size_t first = tile * TILE;

		load_tile<U>(stage + (now ^ 1) * bytes, x, entries, g, tile + call.blocks * WARPS);
		cp_async_wait<1>();
		__syncwarp();
		const int p = multiply<U, SETS>(sum, base, stage + now * bytes, queries, E);
UNROLL		for (uint32_t set = 0; set < SETS; set++)
			if (set * SET < heads)
				write_scores<SETS>(call, score + set * SET * call.stride + first,
				    out, at_most(heads - set * SET, SET),
				    at_most(rows - first, TILE), sum, base, set, p, unit[set]);
		__syncwarp();
	}
	cp_async_wait<0>();
}

/* ---- the naive kernels ---- */

/* One block for each entry, one thread for each row; loops over the query heads */
static __global__ void __launch_bounds__(THREADS)
reference_bits(float *score, size_t stride, const float *q, const struct index x,
    const struct rows rows, uint32_t R, float scale)
{
	const uint32_t g = blockIdx.y, i = blockIdx.x, u = x.rows, E = x.E, r = threadIdx.x;

	if (i >= existing_entries(x, rows, g, appended_rows(rows)) || r >= u)
		return;
	const unsigned char *const entry = entry_at(x, g, i);
	const f16 *const zero = (const f16 *)entry, *const step = zero + E;
	const unsigned char *const bits = entry + 4 * E + r / 8;
	for (uint32_t h = g * R; h < (g + 1) * R; h++) {
		float sum = 0;

		for (uint32_t e = 0; e < E; e++) {
			const float k = bits[e * (u / 8)] >> r % 8 & 1 ? widen(step[e]) : 0;

			sum += q[(size_t)h * E + e] * (widen(zero[e]) + k);
		}
		score[h * stride + (size_t)i * u + r] = sum * scale;
	}
}

/* Rows without an entry, with their keys; one warp for each */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_bits_rest(float *score, size_t stride, const float *q, const struct index x,
    const struct rows r, uint32_t R, float scale)
{
	const uint32_t g = blockIdx.y, appended = appended_rows(r);
	const size_t i = (size_t)existing_entries(x, r, g, appended) * x.rows + blockIdx.x * WARPS +
	    threadIdx.x / 32;

	if (i < r.len[g] + appended)
		score_key(score + (size_t)g * R * stride + i, stride, q + (size_t)g * R * r.E, R,
		    (const T *)r.k + (r.start[g] + i) * r.E, r.E, scale);
}

static void
score_by_reference(struct dev *d, const struct bits_call &c, const struct index &x,
    const struct rows &r, uint32_t entries, uint32_t rest)
{
	if (entries > 0)
		LAUNCH(d, reference_bits, dim3(entries, x.G), THREADS, 0, c.score, c.stride, c.q, x,
		    r, c.R, c.scale);
	if (rest > 0)
		with_type(c.dtype, [&](auto t) {
			using T = decltype(t);

			LAUNCH(d, reference_bits_rest<T>, dim3(parts_of(rest, WARPS), x.G), THREADS,
			    0, c.score, c.stride, c.q, x, r, c.R, c.scale);
		});
}

/* ---- the op ---- */

template <uint32_t U, uint32_t SETS>
static void
launch(struct dev *d, const struct bits_call &c, const struct index &x, const struct rows &r,
    uint32_t rest, size_t shared)
{
	LAUNCH_PDL(d, (bits_scores<U, SETS>), dim3(c.blocks + parts_of(rest, WARPS * REST),
	    x.G * c.groups), THREADS, shared, c, x, r);
}

template <uint32_t SETS>
static void
launch_for(struct dev *d, struct bits_call &c, const struct index &x, const struct rows &r,
    uint32_t entries, uint32_t rest, size_t shared)
{
	c.groups = parts_of(c.R, SETS * SET);
	c.blocks = blocks_per_list(d, parts_of((size_t)entries * x.rows, TILE * WARPS),
	    x.G * c.groups, SETS == 1 ? 5 : 3);
	if (c.blocks == 0 && rest == 0)
		return;
	if (x.rows == 16)
		launch<16, SETS>(d, c, x, r, rest, shared);
	else if (x.rows == 32)
		launch<32, SETS>(d, c, x, r, rest, shared);
	else if (x.rows == 64)
		launch<64, SETS>(d, c, x, r, rest, shared);
	else
		launch<128, SETS>(d, c, x, r, rest, shared);
}

/* The most entries, and rows without one, that a KV head has; while a graph is launched no
 * more rows than an entry needs are without, if that is so now. */
static void
find_most(struct dev *d, uint32_t *entries, uint32_t *rest, const struct index &x,
    const struct rows &r, const struct layer_rows *rows)
{
	const uint32_t to_come = gpu_rows_to_come(d, rows);
	uint32_t g;

	*rest = 0;
	for (g = 0; g < x.G; g++)
		*rest = max(*rest, r.len[g] - x.len[g] * x.rows);
	*entries = max(longest_list(x.len, x.G), to_come / x.rows);
	if (to_come == 0 || *rest >= x.rows)
		gpu_fixes_lengths(d);
	else
		*rest = x.rows - 1;
}

void
gpu_bits_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct entries *bits, const struct layer_rows *rows)
{
	struct bits_call c = { .score = score, .stride = stride, .q = query->q, .R = 0, .groups = 0,
		.blocks = 0, .dtype = rows->dtype,
		.wide = stride % 4 == 0 && (uintptr_t)score % 16 == 0,
		.scale = (float)(1 / sqrt((double)rows->width)) };
	struct index x;
	struct rows r;
	const bool quantised = is_quantised(rows_k_type(rows));
	uint32_t entries, rest, with_keys;

	if (!gpu_ok(d) || !gpu_bits_fit(d, bits, rows) || !gpu_one_query_row(d, query) ||
	    !gpu_index_of(d, &x, bits, query->H) ||
	    !gpu_capturable_rows_of(d, &r, rows, query->H, "scores"))
		return;
	find_most(d, &entries, &with_keys, x, r, rows);
	rest = quantised ? 0 : with_keys;
	c.R = query->H / x.G;
	const uint32_t sets = c.R <= SET ? 1 : 2;
	const size_t shared = shared_bytes(x.E, x.rows, sets);
	if (d->reference || x.E % 16 != 0 || shared > d->most_shared)
		score_by_reference(d, c, x, r, entries, rest);
	else if (gpu_bits_by_lines(d, c, x, r, entries, rest))
		;
	else if (sets == 1)
		launch_for<1>(d, c, x, r, entries, rest, shared);
	else
		launch_for<2>(d, c, x, r, entries, rest, shared);
	if (quantised)
		gpu_scores_quantised(d, score, stride, query, &r, rows, &x, with_keys);
	gpu_cap_scores(d, score, stride, query, { rows->len, gpu_rows_to_come(d, rows) }, x.G);
}
