/* gpu_quantised_mma.h - the main loop of a warp of gpu_decode_quantised.cu on tensor cores, for
 * keys and values of quantised types and widths E of 64 and 128
 *
 * With FMAs on CUDA cores each code costs a conversion and a product with each query, more
 * instructions than a GPU can issue while memory brings the code. Here two codes are converted at
 * once, and tensor cores multiply (m16n8k16): codes are the a operand, queries and weights the b
 * operand. Codes are exact in f16; the scale of a row's block is applied in f32, to the products
 * with keys, and to the weights before they are multiplied with values. Queries and weights are two
 * parts of f16, the second the remainder of the first: 22 bits.
 *
 * - logits: a is the keys, 16 rows of the cache, b the queries. The result of each block of 32
 *   channels is scaled and added up.
 * - output: a is the values, 16 channels of 16 rows of the cache, b the weights times the scales of
 *   a block. Weights are made where the logits are, and movmatrix turns them into a b operand.
 *
 * The 8 columns of b are 8 query rows (M == 8, two products for the two parts), or 4: then keys are
 * multiplied with the first parts in columns 0 .. 3 and the second ones in 4 .. 7, and values with
 * the weights for a block in columns 0 .. 3 and for the next one in 4 .. 7, of which the product
 * with one block has use for the half.
 *
 * f16 has few exponents: weights times scales are in units of the greatest scale so far, as they
 * are in units of the greatest weight by the softmax. What is lost is at most 2^-40 of the greatest
 * of both, or 2^-23 of the number. q4_1's minima are multiplied in f32: with the sum over a block
 * of the query, and with weights.
 *
 * Rows of a tile are copied as they are, 16 aligned bytes at a time, with cp.async: one piece of
 * memory for a tile of neighbouring rows, one for each row where rows are chosen. A warp has its
 * own ring of tiles and needs no barrier of the block. Row 2g of a tile is row g of an operand, row
 * 2g + 1 is row g + 8: so rows of most types are read without bank conflicts. */
#ifndef GPU_QUANTISED_MMA_H
#define GPU_QUANTISED_MMA_H

#include "gpu/gpu_decode_split.h"
#include "gpu/gpu_quantised_codes.h"
#include "gpu/gpu_quantised_tiles.h"

/* The scale unit at the beginning, smaller than what has a meaning; the power of two that the
 * greatest weight has */
constexpr float LEAST_UNIT = 0x1p-100f;
constexpr float WEIGHT_UNIT = 0x1p15f;

template <int WIDTH, int QUERIES> struct code_state;

/* Tiles of 16 rows. A warp's shared memory: the sums of queries over blocks, [WIDTH / 32][8]
 * floats; then slots, each with the places of 16 rows (chosen ones), keys, values. */
template <int WIDTH, int QUERIES>
struct code_tile {
	using state = code_state<WIDTH, QUERIES>;
	using sums = warp_sums<QUERIES, WIDTH>;
	static constexpr int E = WIDTH, M = QUERIES, B = WIDTH / 32;
	static constexpr int WEIGHTS = B * M / 8;        /* b operands of a tile's values */
	static constexpr uint32_t BLOCKS = 2;            /* of an SM */
	static constexpr int ROWS = 16;
	static constexpr int SLOTS = 4;
	static constexpr size_t PLACES = ROWS * sizeof(uint32_t);
	static constexpr size_t QUERY_SUMS = B * 8 * sizeof(float);

	static inline __host__ __device__ size_t
	slot_bytes(uint32_t k, uint32_t v)
	{
		return PLACES + ROWS * (k + v);
	}
	/* The dynamic shared memory of a block */
	static inline size_t
	shared(const struct row_formats &f, bool values)
	{
		const size_t slot = slot_bytes(room_of_row(f.k.bytes),
		    values ? room_of_row(f.v.bytes) : 0);

		return max(WARPS * (QUERY_SUMS + SLOTS * slot), sizeof(sums));
	}
};

/* Online softmax, this lane's part, g = lane / 4, c = lane % 4. Its queries are those of columns 2c
 * and 2c + 1; with M == 4 it weighs for block c / 2 of each two. */
template <int WIDTH, int QUERIES>
struct code_state {
	static constexpr int B = WIDTH / 32;
	uint32_t query[QUERIES / 4][2 * B][2];   /* parts of column g, b fragments */
	float unit[2];               /* logits are in this unit */
	float top[2], base[2];       /* the greatest logit; 0 instead of -inf */
	float sum[2];                /* of the weights of its rows */
	float scale, factor;         /* of values, a power of two; WEIGHT_UNIT / scale */
	float out[B][2][4];          /* times factor */
	float least[B * QUERIES / 8][2];         /* sums of weights times minima, of its rows */
};

/* ---- queries ---- */

/* query <- the parts of this lane's channels of a query (NULL: zeros), in units of the greatest;
 * sums[WIDTH / 32][8] <- of blocks. Returns the unit, a power of two. */
template <uint32_t TYPE, class W>
DEVICE float
split_query(uint32_t query[W::M / 4][2 * W::B][2], float *sums, const float *from, float scale)
{
	const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const bool second = W::M == 4 && g >= 4;
	float x[4 * W::B][2], most = 0;

UNROLL	for (uint32_t i = 0; i < 8 * W::B; i++) {
		const uint32_t e = key_channel<TYPE, W::E>(i / 8, c, i / 2 % 4, i % 2);

		x[i / 2][i % 2] = from == NULL ? 0 : from[e] * scale;
		most = fmaxf(most, fabsf(x[i / 2][i % 2]));
	}
	most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
	most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
	/* 2^-126 .. 2^126, and its inverse */
	const uint32_t power = min(max(__float_as_uint(most) >> 23, 1u), 253u);
	const float by = __uint_as_float((254 - power) << 23);
UNROLL	for (uint32_t b = 0; b < W::B; b++) {
		float sum = 0;

UNROLL		for (uint32_t i = 4 * b; i < 4 * b + 4; i++) {
			x[i][0] *= by;
			x[i][1] *= by;
			sum += x[i][0] + x[i][1];
			const uint32_t hi = take_part<f16>(x[i][0], x[i][1]);
			const uint32_t lo = pair<f16>(x[i][0], x[i][1]);
			query[0][i / 2][i % 2] = second ? lo : hi;
			if constexpr (W::M == 8)
				query[1][i / 2][i % 2] = lo;
		}
		sum += __shfl_xor_sync(ALL_LANES, sum, 1);
		sum += __shfl_xor_sync(ALL_LANES, sum, 2);
		if (c == 0)
			sums[b * 8 + g] = second ? 0 : sum;
	}
	return __uint_as_float(power << 23);
}

/* Loads the queries of a group and initialises the softmax state. */
template <class W>
DEVICE void
load_queries(typename W::state &r, float *sums, const struct decode_call &w, uint32_t type,
    uint32_t g, uint32_t group)
{
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32;
	const uint32_t i = group * W::M + lane / 4 % W::M;
	const float *const from = w.q + ((size_t)(i / R) * w.H + g * R + i % R) * w.c.E;
	float unit = 0;

	with_code_type(type, [&](auto t) {
		unit = split_query<t.value, W>(r.query, sums, i < w.N * R ? from : NULL, w.scale);
	});
UNROLL	for (uint32_t j = 0; j < 2; j++) {
		const uint32_t column = 2 * (lane % 4) + j;

		r.unit[j] = __shfl_sync(ALL_LANES, unit, column * 4);
		r.top[j] = -INFINITY;
		r.base[j] = r.sum[j] = 0;
UNROLL		for (int n = 0; n < W::WEIGHTS; n++)
			r.least[n][j] = 0;
	}
	r.scale = LEAST_UNIT;
	r.factor = WEIGHT_UNIT / LEAST_UNIT;
UNROLL	for (int n = 0; n < W::B * 8; n++)
		r.out[n / 8][n / 4 % 2][n % 4] = 0;
	__syncwarp();
}

/* ---- logits ---- */

/* d += the products of this lane's codes of a block of two rows and the queries */
template <class W>
DEVICE void
multiply_keys(float d[4], const typename W::state &r, uint32_t block, const uint32_t first[4],
    const uint32_t second[4])
{
UNROLL	for (int k = 0; k < 2; k++) {
		const uint32_t a[4] = { first[2 * k], second[2 * k], first[2 * k + 1],
			second[2 * k + 1] };

UNROLL		for (int part = W::M / 4; part-- > 0;)
			mma(f16{}, d, a, r.query[part][2 * block + k]);
	}
}

/* s[2i + j] <- the logit of row 2g + i of the tile and this lane's query j */
template <uint32_t TYPE, class W>
DEVICE void
logits_of(float s[4], const typename W::state &r, const float *sums, const unsigned char *first,
    const unsigned char *second)
{
	const uint32_t c = threadIdx.x % 4;

	s[0] = s[1] = s[2] = s[3] = 0;
UNROLL	for (uint32_t b = 0; b < W::B; b++) {
		uint32_t x[4], y[4];
		float d[4] = { 0, 0, 0, 0 }, scale[2] = { 1, 1 }, least[2] = { 0, 0 };

		codes_of_key<TYPE, W::E>(x, scale[0], least[0], first, b, c);
		codes_of_key<TYPE, W::E>(y, scale[1], least[1], second, b, c);
		multiply_keys<W>(d, r, b, x, y);
UNROLL		for (int i = 0; i < 4; i++)
			s[i] = has_blocks(TYPE) ? fmaf(d[i], scale[i / 2], s[i]) : s[i] + d[i];
		if constexpr (TYPE == KV_ROW_Q4_1) {
			const float2 sum = *(const float2 *)(sums + b * 8 + 2 * c);

UNROLL			for (int i = 0; i < 4; i++)
				s[i] = fmaf(i % 2 == 0 ? sum.x : sum.y, least[i / 2], s[i]);
		}
	}
	if constexpr (!has_blocks(TYPE))
UNROLL		for (int i = 0; i < 4; i++)
			s[i] *= __uint_as_float(word_at(i < 2 ? first : second));
}

template <class W>
DEVICE void
logits(float s[4], const typename W::state &r, const float *sums, uint32_t type,
    const unsigned char *keys, const struct places &p)
{
	with_code_type(type, [&](auto t) {
		logits_of<t.value, W>(s, r, sums, keys + p.key[0], keys + p.key[1]);
	});
UNROLL	for (int i = 0; i < 4; i++) {
		if constexpr (W::M == 4)
			s[i] += __shfl_xor_sync(ALL_LANES, s[i], 2);
		s[i] *= r.unit[i % 2];
	}
}

/* Hides the logits of rows behind the end and of rows that a query does not see; here[j]: the
 * position of this lane's query j, pos NULL: all are seen. */
DEVICE void
hide_unseen(float s[4], uint32_t at, uint32_t end, const uint32_t *pos, const uint32_t here[2],
    uint32_t reach)
{
UNROLL	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t mine = at + threadIdx.x % 32 / 4 * 2 + i / 2;

		if (mine >= end || (pos != NULL && !in_reach(here[i % 2], pos[mine], reach)))
			s[i] = -INFINITY;
	}
}

/* ---- softmax ---- */

/* One step of the online softmax: s[] <- the weights 2^(s - maximum) of this lane's logits. The
 * maximum is looked for only where a logit is greater than it; then sums and outputs are
 * rescaled. */
template <class W>
DEVICE void
softmax_step(typename W::state &r, float s[4])
{
	float top[2] = { fmaxf(s[0], s[2]), fmaxf(s[1], s[3]) };

	if (__any_sync(ALL_LANES, top[0] > r.top[0] || top[1] > r.top[1])) {
UNROLL		for (int j = 0; j < 2; j++) {
UNROLL			for (int bit = 4; bit < 32; bit *= 2)
				top[j] = fmaxf(top[j], __shfl_xor_sync(ALL_LANES, top[j], bit));
			top[j] = fmaxf(top[j], r.top[j]);
			const float less = top[j] == -INFINITY ? 1 : exp2_fast(r.top[j] - top[j]);

			r.top[j] = top[j];
			r.base[j] = top[j] == -INFINITY ? 0 : top[j];
			r.sum[j] *= less;
UNROLL			for (int n = 0; n < W::WEIGHTS; n++)
				r.least[n][j] *= less;
UNROLL			for (int n = 0; n < W::B * 4; n++)
				r.out[n / 4][n / 2 % 2][n % 2 * 2 + j] *= less;
		}
	}
UNROLL	for (int i = 0; i < 4; i++)
		s[i] = exp2_fast(s[i] - r.base[i % 2]);
	r.sum[0] += s[0] + s[2];
	r.sum[1] += s[1] + s[3];
}

/* ---- values ---- */

/* d[n][i] <- the scale of row 2g + i of the tile in the block whose weights this lane makes for
 * number n */
template <class W>
DEVICE void
scales_of_values(float d[W::WEIGHTS][2], uint32_t type, const unsigned char *values,
    const struct places &p)
{
	const uint32_t upper = W::M == 4 ? threadIdx.x % 4 / 2 : 0;

UNROLL	for (int i = 0; i < 2; i++) {
		const unsigned char *const row = values + p.scale[i];

		if (has_blocks(type)) {
			const unsigned char *block = row + upper * block_bytes(type);

UNROLL			for (int n = 0; n < W::WEIGHTS; n++) {
				d[n][i] = widen_half(load_16(block));
				block += 8 / W::M * block_bytes(type);
			}
		} else {
			d[0][i] = __uint_as_float(word_at(row));
UNROLL			for (int n = 1; n < W::WEIGHTS; n++)
				d[n][i] = d[0][i];
		}
	}
}

/* The unit of values grows with their scales: to a power of two that is greater. */
template <class W>
DEVICE void
unit_step(typename W::state &r, const float d[W::WEIGHTS][2])
{
	float most = 0;

UNROLL	for (int n = 0; n < W::WEIGHTS; n++)
		most = fmaxf(most, fmaxf(fabsf(d[n][0]), fabsf(d[n][1])));
	if (__any_sync(ALL_LANES, most > r.scale)) {
		const uint32_t exponent = __float_as_uint(warp_max(most)) >> 23;
		const float scale = __uint_as_float(min(exponent + 1, 254u) << 23);
		const float less = r.scale / scale;

UNROLL		for (int n = 0; n < W::B * 8; n++)
			r.out[n / 8][n / 4 % 2][n % 4] *= less;
		r.scale = scale;
		r.factor = WEIGHT_UNIT / scale;
	}
}

/* p[part] <- the weights of two rows times their scales, as b fragments */
DEVICE void
weights_of_block(uint32_t p[2][2], const float weight[4], const float d[2], float factor)
{
UNROLL	for (int i = 0; i < 2; i++) {
		const float scale = d[i] * factor;
		float x = weight[2 * i] * scale, y = weight[2 * i + 1] * scale;

		p[0][i] = transpose_8x8(take_part<f16>(x, y));
		p[1][i] = transpose_8x8(pair<f16>(x, y));
	}
}

/* out += weights . values of a block; row: rows 4c .. 4c + 3 */
template <uint32_t TYPE, class W>
DEVICE void
add_block(float out[2][4], const unsigned char *const row[4], uint32_t block,
    const uint32_t p[2][2])
{
	const uint32_t g = threadIdx.x % 32 / 4;
	uint32_t x[4], y[4];

	codes_of_values<TYPE, W::E>(x, row[0], row[2], block, g);
	codes_of_values<TYPE, W::E>(y, row[1], row[3], block, g);
UNROLL	for (int part = 2; part-- > 0;)
UNROLL		for (int t = 0; t < 2; t++) {
			const uint32_t a[4] = { x[2 * t], x[2 * t + 1], y[2 * t], y[2 * t + 1] };

			mma(f16{}, out[t], a, p[part]);
		}
}

template <uint32_t TYPE, class W>
DEVICE void
add_values_of(typename W::state &r, const float weight[4], const float d[W::WEIGHTS][2],
    const unsigned char *values, const struct places &at)
{
	const unsigned char *const row[4] = { values + at.value[0], values + at.value[1],
		values + at.value[2], values + at.value[3] };
	const uint32_t upper = W::M == 4 ? threadIdx.x % 4 / 2 : 0;
	uint32_t p[2][2];

UNROLL	for (uint32_t n = 0; n < W::WEIGHTS; n++) {
		if (has_blocks(TYPE) || n == 0)
			weights_of_block(p, weight, d[n], r.factor);
UNROLL		for (uint32_t b = n * 8 / W::M; b < (n + 1) * 8 / W::M; b++)
			add_block<TYPE, W>(r.out[b], row, b, p);
		if constexpr (TYPE == KV_ROW_Q4_1) {
			const uint32_t head = (n * 8 / W::M + upper) * block_bytes(TYPE) + 2;
			const float least[2] = { widen_half(load_16(values + at.scale[0] + head)),
				widen_half(load_16(values + at.scale[1] + head)) };

UNROLL			for (int i = 0; i < 4; i++)
				r.least[n][i % 2] =
				    fmaf(weight[i], least[i / 2], r.least[n][i % 2]);
		}
	}
}

/* out += weights . values of a tile */
template <class W>
DEVICE void
add_values(typename W::state &r, const float weight[4], uint32_t type,
    const unsigned char *values, const struct places &p)
{
	float d[W::WEIGHTS][2];

	scales_of_values<W>(d, type, values, p);
	unit_step<W>(r, d);
	with_code_type(type, [&](auto t) {
		add_values_of<t.value, W>(r, weight, d, values, p);
	});
}

/* ---- the rows of a split ---- */

/* The main loop over this warp's tiles. memory: what a warp has; p: the places of neighbours; pos,
 * here: as hide_unseen() */
template <class W>
DEVICE void
for_code_tiles(typename W::state &r, unsigned char *memory, struct cursor &cursor,
    const struct decode_call &w, struct code_rows &k, struct code_rows &v, struct places p,
    const uint32_t *pos, const uint32_t here[2])
{
	constexpr uint32_t STEP = WARPS * W::ROWS;
	const float *const sums = (const float *)memory;
	unsigned char *const ring = memory + W::QUERY_SUMS;
	const uint32_t bytes = W::PLACES + W::ROWS * (k.stride + v.stride);
	uint32_t at = cursor.first + threadIdx.x / 32 * W::ROWS, used = 0;
	uint32_t free = (W::SLOTS - 1) * bytes;

	for (; at < cursor.end; at += STEP) {
		const unsigned char *const slot = ring + used, *const keys = slot + W::PLACES;
		float s[4];

		cp_async_wait<W::SLOTS - 2>();
		__syncwarp();
		load_tile<W>(ring + free, cursor, w.list, k, v, at + (W::SLOTS - 1) * STEP);
		if (w.list.at != NULL)
			p = places_of_chosen(slot);
		logits<W>(s, r, sums, k.type, keys, p);
		if (w.limits.cap > 0)
UNROLL			for (int i = 0; i < 4; i++)
				s[i] = softcapped(s[i], w.limits);
		if (pos != NULL || at + W::ROWS > cursor.end)
			hide_unseen(s, at, cursor.end, pos, here, w.limits.reach);
		softmax_step<W>(r, s);
		if (v.first != 0)
			add_values<W>(r, s, v.type, keys + W::ROWS * k.stride, p);
		free = used;
		used = used + bytes == W::SLOTS * bytes ? 0 : used + bytes;
	}
	cp_async_wait<0>();
}

/* Stores the softmax state of this warp; type: of values */
template <uint32_t TYPE, class W>
DEVICE void
store_out(typename W::sums &to, const typename W::state &r)
{
	const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const bool upper = W::M == 4 && c >= 2;
	const float unit = r.scale / WEIGHT_UNIT;

UNROLL	for (uint32_t n = 0; n < W::WEIGHTS; n++)
UNROLL		for (uint32_t i = 0; i < 8; i++) {
			const uint32_t b = n * 8 / W::M, query = (2 * c + i % 2) % W::M;
			const float lower = r.out[b][i / 4][i % 4];
			const float x = upper ? r.out[(n + 1) * 8 / W::M - 1][i / 4][i % 4] : lower;

			to.out[warp][query][value_channel<TYPE, W::E>(b + upper, g, i / 2)] =
			    fmaf(x, unit, r.least[n][i % 2]);
		}
}

template <class W>
DEVICE void
store_warp_sums(typename W::sums &to, typename W::state &r, uint32_t type)
{
	const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;

UNROLL	for (int j = 0; j < 2; j++)
UNROLL		for (int bit = 4; bit < 32; bit *= 2) {
			r.sum[j] += __shfl_xor_sync(ALL_LANES, r.sum[j], bit);
UNROLL			for (int n = 0; n < W::WEIGHTS; n++)
				r.least[n][j] +=
				    __shfl_xor_sync(ALL_LANES, r.least[n][j], bit);
		}
UNROLL	for (uint32_t j = 0; j < 2; j++)
		if (g == 0 && c < W::M / 2) {
			to.top[warp][2 * c + j] = r.top[j];
			to.sum[warp][2 * c + j] = r.sum[j];
		}
	with_code_type(type, [&](auto t) {
		store_out<t.value, W>(to, r);
	});
}

/* The rows [first, end) of the list of KV head g, for a group of query rows; pos NULL: all are
 * seen */
template <class W>
DEVICE void
attend_code_rows(const struct decode_call &w, const struct row_formats &f, unsigned char *shared,
    uint32_t g, uint32_t first, uint32_t end, uint32_t part, uint32_t group, const uint32_t *pos)
{
	constexpr uint32_t STEP = WARPS * W::ROWS, M = W::M;
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t at = first + warp * W::ROWS;
	struct code_rows k = code_rows_of(w.c.k, w.c.start[g], f.k, at);
	struct code_rows v = code_rows_of(w.c.v, w.c.start[g], f.v, at);
	const uint32_t slot = W::PLACES + W::ROWS * (k.stride + v.stride);
	const struct places p = places_of_neighbours(k, v);
	unsigned char *const memory = shared + warp * (W::QUERY_SUMS + W::SLOTS * slot);
	struct cursor cursor = { g, first, end, at + lane % W::ROWS, 0, 0, NULL, NULL, 0 };
	uint32_t here[2] = { NO_ROW, NO_ROW };
	typename W::state r;

	cursor.entry = entry_of(cursor, w.list, cursor.next);
	cursor.later = entry_of(cursor, w.list, cursor.next + STEP);
	for (uint32_t i = 0; i + 1 < W::SLOTS; i++)
		load_tile<W>(memory + W::QUERY_SUMS + i * slot, cursor, w.list, k, v,
		    at + i * STEP);
	for (uint32_t j = 0; j < 2 && pos != NULL; j++)
		here[j] = w.qpos[min(group * M + (2 * (lane % 4) + j) % M, w.N * R - 1) / R];
	load_queries<W>(r, (float *)memory, w, k.type, g, group);
	for_code_tiles<W>(r, memory, cursor, w, k, v, p, pos, here);
	__syncthreads();
	store_warp_sums<W>(*(typename W::sums *)shared, r, f.v.type);
	__syncthreads();
	write_part(w, *(const typename W::sums *)shared, part, group);
	__syncthreads();
}

#endif
