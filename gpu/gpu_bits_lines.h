/* gpu_bits_lines.h - scores of a tile of rows from their one-bit keys, by a warp, on tensor cores
 * (kv-snapshot(5), 4.15), for gpu_bits_lines.cu
 *
 * The score of a row is q.zero, the same for all rows of an entry, plus the sum over channels of
 * q * scale where the row's bit is set. That sum is of integers, and exact:
 *
 * - The a operand is bits: with the bits of four channels, 8 rows of each, in a word, a mask
 *   selects one row, and each byte is 0 or a power of two: one instruction for four elements.
 * - The b operand is q * scale, made for each entry: rounded to a multiple of a power of two, so
 *   that the greatest has 22 bits, by adding 1.5 * 2^23 times this power. The three bytes in which
 *   the sum then has it are three columns.
 * - The lowest two bytes are those of two's complement. The third is greater by the same number
 *   for all channels: a fourth column counts the bits that are set, and so many times this number
 *   are taken away.
 *
 * In shared memory a *line* has a byte for each of 64 channels: bits of 8 rows, or a byte of the
 * products of a head. Entries have the bits of a channel next to each other: those of four
 * channels are transposed by permuting bytes. A warp does both, one entry after the other, and
 * then multiplies. 32 rows are a *unit*, two products of 16 rows.
 *
 * Columns are pairs: of four query heads, with entries of 32 rows; or, where a KV head has one, of
 * the four units of a tile, with entries of any size. Each unit is then multiplied by its own pair,
 * with zeros in the others, and all are added up in the same registers, so that no lane has a
 * result that nobody wants.
 *
 * q.zero is a product in f16: q in two parts of 11 bits (gpu_index.h). */
#ifndef GPU_BITS_LINES_H
#define GPU_BITS_LINES_H

#include "gpu/gpu_bits.h"
#include "gpu/port_codes.h"

static constexpr uint32_t
	UNIT = 32,                   /* rows */
	LINE = 64,                   /* channels */
	MOST_WIDTH = 496;            /* channels: sums of two bytes fit in 32 bits */

/* ---- shared memory ---- */

static inline __host__ __device__ uint32_t
entry_bytes(uint32_t E, uint32_t u)
{
	return E * (4 + u / 8);
}

static inline __host__ __device__ uint32_t
tile_bytes(uint32_t E, uint32_t u)
{
	return TILE / u * entry_bytes(E, u);
}

/* The lines of a warp for LINE channels, a *chunk*: bits of ROWS rows, row by row of bytes;
 * products of their entries, [entries][heads][3]; one of zeros and one of ones. HEADS: 1, or SET
 * for up to so many query heads */
template <uint32_t U, uint32_t HEADS>
struct lines {
	static_assert(HEADS == 1 || (HEADS == SET && U == UNIT));
	static constexpr uint32_t
		ROWS = HEADS == 1 ? TILE : UNIT,       /* that are multiplied at a time */
		UNITS = ROWS / UNIT, ENTRIES = ROWS / U,
		PRODUCTS = ROWS / 8,                   /* the first line of products */
		ZEROS = PRODUCTS + ENTRIES * HEADS * 3, ONES = ZEROS + 1,
		CHUNK = (ONES + 1) * LINE;             /* bytes */
};

/* Entries that have rows of a unit */
template <uint32_t U>
static constexpr uint32_t OF_UNIT = U == 16 ? 2 : 1;

/* Lanes that compute for an entry of a tile: from entry * LANES on */
template <uint32_t U>
static constexpr uint32_t LANES = 32 * U / TILE;

static inline __host__ __device__ uint32_t
chunks_of(uint32_t E)
{
	return (E + LINE - 1) / LINE;
}

/* Steps of 16 channels of q.zero, which takes two at a time */
static inline __host__ __device__ uint32_t
steps_of(uint32_t E)
{
	return (E + 31) / 32 * 2;
}

template <uint32_t U, uint32_t HEADS>
static size_t
shared_bytes(uint32_t E)
{
	using L = lines<U, HEADS>;

	return query_bytes(steps_of(E), 1, 1) + HEADS * E * sizeof(float) +
	    WARPS * (2 * (size_t)tile_bytes(E, U) + chunks_of(E) * L::CHUNK);
}

/* The query heads of a block, in shared memory */
struct block_queries {
	const uint2 *fragments;      /* of make_queries(), two parts of 11 bits */
	const float *normal;         /* [heads][E], the greatest of each head is 1 */
	uint32_t heads, E;
};

/* ---- entries ---- */

/* Starts the copy of those of the entries that are in a tile, by a warp; zeros behind the last. */
template <uint32_t U>
DEVICE void
load_tile(unsigned char *to, const struct index &x, uint32_t E, uint32_t entries, uint32_t g,
    size_t tile)
{
	constexpr uint32_t STEP = 32 * 16;     /* bytes */
	const size_t entry = tile * (TILE / U);
	const uint32_t bytes = entry_bytes(E, U), all = tile_bytes(E, U);
	const uint32_t there = entry < entries ? at_most(entries - entry, TILE / U) * bytes : 0;
	const uint32_t mine = threadIdx.x % 32 * 16;
	const unsigned char *const from = x.data + (x.start[g] + entry) * bytes + mine;

UNROLL_BY(8)
	for (uint32_t b = 0; b < all; b += STEP)
		if (all % STEP == 0 || b + mine < all)
			cp_async16(to + mine + b, from + b, b + mine < there);
	cp_async_commit();
}

/* ---- lines: the bits and the products of entries ---- */

/* to[k] <- byte k of four words, the first word's in the lowest byte */
DEVICE void
transpose(uint32_t to[4], const uint32_t w[4])
{
	const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
	const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);

	to[0] = __byte_perm(a, b, 0x5410);
	to[1] = __byte_perm(a, b, 0x7632);
	to[2] = __byte_perm(c, d, 0x5410);
	to[3] = __byte_perm(c, d, 0x7632);
}

/* Four channels of an entry's bits, to the same place of its lines */
template <uint32_t U>
DEVICE void
transpose_bits(unsigned char *to, const unsigned char *bits)
{
	if (U == 16) {
		const uint2 w = *(const uint2 *)bits;

		*(uint32_t *)to = __byte_perm(w.x, w.y, 0x6420);
		*(uint32_t *)(to + LINE) = __byte_perm(w.x, w.y, 0x7531);
		return;
	}
	constexpr uint32_t WORDS = U < 32 ? 1 : U / 32;        /* of a channel */
	uint32_t w[4 * WORDS];

UNROLL	for (uint32_t i = 0; i < WORDS; i++) {
		const uint4 v = *(const uint4 *)(bits + 16 * i);

		w[4 * i] = v.x;
		w[4 * i + 1] = v.y;
		w[4 * i + 2] = v.z;
		w[4 * i + 3] = v.w;
	}
UNROLL	for (uint32_t i = 0; i < WORDS; i++) {
		const uint32_t from[4] = { w[i], w[WORDS + i], w[2 * WORDS + i], w[3 * WORDS + i] };
		uint32_t byte[4];

		transpose(byte, from);
UNROLL		for (uint32_t k = 0; k < 4; k++)
			*(uint32_t *)(to + (4 * i + k) * LINE) = byte[k];
	}
}

/* Returns the rounder of this lane's entry: what is added to products to round them, 1.5 * 2^23
 * units, where the greatest scale is less than 2^22 units and the greatest q is 1. */
template <uint32_t U>
DEVICE uint32_t
make_rounders(const unsigned char *tile, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32;
	const unsigned char *const scale = tile + lane / LANES<U> * entry_bytes(E, U) + 2 * E;
	uint32_t most = 0;

UNROLL_BY(2)
	for (uint32_t i = lane % LANES<U>; i < E / 8; i += LANES<U>) {
		const uint4 w = *(const uint4 *)(scale + 16 * i);

		most = max_f16x2(max_f16x2(most, max_f16x2(w.x, w.y)), max_f16x2(w.z, w.w));
	}
	/* The lower half has the greatest of both, and at least the least of f16, 2^-24. */
	most = max_f16x2(most, most >> 16 | 1);
UNROLL	for (uint32_t by = 1; by < LANES<U>; by *= 2)
		most = max_f16x2(most, __shfl_xor_sync(ALL_LANES, most, by));
	return (__float_as_uint(widen(f16{ (uint16_t)most })) & 0x7f800000) + (2u << 23 | 0x400000);
}

DEVICE float
unit_of(uint32_t rounder)
{
	return __uint_as_float((rounder & 0x7f800000) - (23 << 23));
}

/* By how much the third byte is too great */
DEVICE int
excess_of(uint32_t rounder)
{
	return rounder >> 16 & 0xff;
}

/* Three lines of the products of four channels */
DEVICE void
store_products(unsigned char *to, const float4 &q, const float s[4], float rounder)
{
	const uint32_t p[4] = {
		__float_as_uint(fmaf(q.x, s[0], rounder)),
		__float_as_uint(fmaf(q.y, s[1], rounder)),
		__float_as_uint(fmaf(q.z, s[2], rounder)),
		__float_as_uint(fmaf(q.w, s[3], rounder)),
	};
	uint32_t byte[4];

	transpose(byte, p);
UNROLL	for (uint32_t k = 0; k < 3; k++)
		*(uint32_t *)(to + k * LINE) = byte[k];
}

/* Makes the lines of entries, by a warp; each lane has four channels at a time. rounder: of the
 * entries */
template <uint32_t U, uint32_t HEADS>
DEVICE void
make_lines(unsigned char *to, const unsigned char *entries, const uint32_t *rounder,
    const struct block_queries &queries)
{
	using L = lines<U, HEADS>;
	const uint32_t E = queries.E;

ROLLED	for (uint32_t i = threadIdx.x % 32; i < E / 4; i += 32) {
		unsigned char *const at = to + i / (LINE / 4) * L::CHUNK + i % (LINE / 4) * 4;
		unsigned char *const products = at + L::PRODUCTS * LINE;
		const unsigned char *const scale = entries + 2 * E + 8 * i;
		const unsigned char *const bits = entries + 4 * E + i * (U / 2);
		const float *const q = queries.normal + 4 * i;
		const float4 first = *(const float4 *)q;

UNROLL		for (uint32_t k = 0; k < L::ENTRIES; k++) {
			const uint2 w = *(const uint2 *)(scale + k * entry_bytes(E, U));
			const float s[4] = {
				widen(f16{ (uint16_t)w.x }), widen(f16{ (uint16_t)(w.x >> 16) }),
				widen(f16{ (uint16_t)w.y }), widen(f16{ (uint16_t)(w.y >> 16) }),
			};

			transpose_bits<U>(at + k * (U / 8) * LINE, bits + k * entry_bytes(E, U));
UNROLL			for (uint32_t h = 0; h < HEADS; h++)
				if (h == 0 || h < queries.heads)
					store_products(products + (k * HEADS + h) * 3 * LINE,
					    h == 0 ? first : *(const float4 *)(q + h * E), s,
					    __uint_as_float(rounder[k]));
		}
	}
}

/* ---- products ---- */

/* The bits that lane 4g + c multiplies: of each byte of line `line`, those from `bit` on */
struct place {
	uint32_t g, c, line, bit;
};

template <uint32_t U>
DEVICE struct place
my_place(void)
{
	constexpr uint32_t N = U == 16 ? 2 : 4;        /* lines of 16 or 32 rows */
	const uint32_t g = threadIdx.x % 32 / 4;

	return { g, threadIdx.x % 4, g % N, g / N * N };
}

/* Sums of a lane over channels, of two products of 16 rows each: of the lower two bytes; of the
 * third, and the number of bits. Row g has the first two of four, row g + 8 the others. */
struct sums {
	uint32_t low[2][4], high[2][4];
};

/* The lines of a lane for the products: of bits, and of each unit's and entry's columns, its own or
 * one of zeros or ones. Offsets from the first chunk */
template <uint32_t U, uint32_t HEADS>
struct operands {
	static constexpr uint32_t UNITS = lines<U, HEADS>::UNITS;
	uint32_t mask[4];
	uint32_t bits, low[UNITS][OF_UNIT<U>], high[UNITS][OF_UNIT<U>];
};

template <uint32_t U, uint32_t HEADS>
DEVICE struct operands<U, HEADS>
my_operands(uint32_t heads, const struct place &p)
{
	using L = lines<U, HEADS>;
	const uint32_t pair = p.g / 2, odd = p.g % 2, at = 16 * p.c;
	const uint32_t head = min(pair, heads - 1);
	struct operands<U, HEADS> o;

UNROLL	for (uint32_t i = 0; i < 4; i++)
		o.mask[i] = kept(0x01010101u << (p.bit + i) % 8);
	o.bits = p.line * LINE + at;
UNROLL	for (uint32_t n = 0; n < L::UNITS; n++)
UNROLL		for (uint32_t k = 0; k < OF_UNIT<U>; k++) {
			const uint32_t entry = n * UNIT / U + k;
			const uint32_t first = L::PRODUCTS + 3 * (entry * HEADS + head);
			const bool mine = HEADS > 1 || pair == n;
			const uint32_t low = mine ? first + odd : L::ZEROS;
			const uint32_t high = !mine ? L::ZEROS : odd ? L::ONES : first + 2;

			o.low[n][k] = kept(low * LINE + at);
			o.high[n][k] = kept(high * LINE + at);
		}
	return o;
}

/* Adds up the products of each unit with its columns. from: the lines, [chunks] */
template <uint32_t U, uint32_t HEADS>
DEVICE void
multiply(struct sums &sum, const unsigned char *from, uint32_t chunks,
    const struct operands<U, HEADS> &o)
{
	using L = lines<U, HEADS>;

UNROLL_BY(2)
	for (uint32_t chunk = 0; chunk < chunks; chunk++, from += L::CHUNK)
UNROLL		for (uint32_t n = 0; n < L::UNITS; n++)
UNROLL			for (uint32_t m = 0; m < 2; m++) {
				const uint32_t k = m % OF_UNIT<U>, i = U == 16 ? 0 : 2 * m;
				const unsigned char *const bits = from + (4 * n + 2 * k) * LINE;
				const uint4 w = *(const uint4 *)(bits + o.bits);
				const uint4 l = *(const uint4 *)(from + o.low[n][k]);
				const uint4 u = *(const uint4 *)(from + o.high[n][k]);
				const uint32_t a[4] = { w.x, w.y, w.z, w.w };
				const uint32_t low[4] = { l.x, l.y, l.z, l.w };
				const uint32_t high[4] = { u.x, u.y, u.z, u.w };

UNROLL				for (uint32_t j = 0; j < 4; j += 2) {
					const uint32_t rows[4] = {
						a[j] & o.mask[i], a[j] & o.mask[i + 1],
						a[j + 1] & o.mask[i], a[j + 1] & o.mask[i + 1],
					};

					mma_u8(sum.low[m], rows, low + j);
					mma_u8(sum.high[m], rows, high + j);
				}
			}
}

/* Returns q.zero of this lane's entry and head c. */
template <uint32_t U>
DEVICE float
multiply_zeros(const unsigned char *tile, const struct block_queries &queries)
{
	const uint32_t E = queries.E, lane = threadIdx.x % 32;
	const uint2 *fragments = queries.fragments + lane;
	const unsigned char *at = tile + lane / LANES<U> * entry_bytes(E, U) + lane % 4 * 16;
	float sum[2][4] = {};

UNROLL_BY(4)
	for (uint32_t k = 0; k < steps_of(E); k += 2, at += 64, fragments += 2 * 32) {
		/* The zeros of 8 channels. Rows g have the first and the third pair, rows g + 8 the
		 * others: half of each product is of use. What is behind the last channel, scales,
		 * is multiplied by zeros. */
		const uint4 z = *(const uint4 *)at;
		const uint32_t a[4] = { z.x, z.y, z.z, z.w };
		const uint2 q = fragments[0], r = fragments[32];
		const uint32_t even[2] = { q.x, r.x }, odd[2] = { q.y, r.y };

		mma(f16{}, sum[0], a, even);
		mma(f16{}, sum[1], a, odd);
	}
	return (sum[0][0] + sum[1][2]) + (sum[0][1] + sum[1][3]);
}

/* ---- epilogue ---- */

/* The factors that turn sums into scores, for the head of a lane */
struct head_scale {
	float greatest, unit;        /* 2^-bit times the greatest q, scaled; and what undoes that */
};

/* Writes the scores of a lane's rows of a unit: score[row], n rows from there to the last. zero[0],
 * rounder[0]: of the unit's entry; [1]: of its second one */
template <uint32_t U>
DEVICE void
write_scores(float *score, uint32_t n, int wide, const struct sums &sum, const float *zero,
    const uint32_t *rounder, const struct head_scale &scale, const struct place &p)
{
	const uint32_t row = 8 * p.line + p.bit;
	float s[4];

UNROLL	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t *const low = sum.low[i / 2] + i % 2 * 2;
		const uint32_t *const high = sum.high[i / 2] + i % 2 * 2;
		const uint32_t k = U == 16 ? i / 2 : 0, bit = U == 16 ? i % 2 : i;
		const float part = (float)((int)high[0] - excess_of(rounder[k]) * (int)high[1]);
		const float x = fmaf(part, 65536, (float)(low[0] + (low[1] << 8)));
		const float f = unit_of(rounder[k]) * scale.greatest * (1.0f / (1 << bit));

		/* Multiplied by the unit only here: the sums cancel, and f is exact. */
		s[i] = fmaf(x, f, zero[k]) * scale.unit;
	}
	if (wide && U == 16) {
		*(float2 *)(score + row) = make_float2(s[0], s[1]);
		*(float2 *)(score + 16 + row) = make_float2(s[2], s[3]);
	} else if (wide)
		store_four(score + row, s);
	else {
UNROLL		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t at = row + (U == 16 ? 16 * (i / 2) + i % 2 : i);

			if (at < n)
				score[at] = s[i];
		}
	}
}

/* The scores of a tile, by a warp. n: rows of it that exist; to: the warp's lines */
template <uint32_t U, uint32_t HEADS>
DEVICE void
score_tile(float *score, size_t stride, uint32_t n, int wide, unsigned char *to,
    const unsigned char *tile, const struct block_queries &queries, const struct head_scale &scale,
    const struct place &p, const struct operands<U, HEADS> &o)
{
	using L = lines<U, HEADS>;
	const uint32_t E = queries.E, head = HEADS == 1 ? 0 : p.c;
	const uint32_t rounders = make_rounders<U>(tile, E);
	const float zeros = multiply_zeros<U>(tile, queries);
	uint32_t rounder[L::ENTRIES], of_unit[OF_UNIT<U>];
	float zero[OF_UNIT<U>];

ROLLED	for (uint32_t i = 0; i < TILE && (i == 0 || i < n); i += L::ROWS) {
		const uint32_t row = HEADS == 1 ? UNIT * p.c : i;      /* of the lane's unit */
		struct sums sum = {};

UNROLL		for (uint32_t k = 0; k < L::ENTRIES; k++)
			rounder[k] = __shfl_sync(ALL_LANES, rounders, (i / U + k) * LANES<U>);
		make_lines<U, HEADS>(to, tile + i / U * entry_bytes(E, U), rounder, queries);
		__syncwarp();
		multiply<U, HEADS>(sum, to, chunks_of(E), o);
UNROLL		for (uint32_t k = 0; k < OF_UNIT<U>; k++) {
			const uint32_t lane = (row / U + k) * LANES<U>;

			of_unit[k] = __shfl_sync(ALL_LANES, rounders, lane);
			zero[k] = __shfl_sync(ALL_LANES, zeros, lane + head);
		}
		if (head < queries.heads && row < n)
			write_scores<U>(score + head * stride + row, n - row, wide, sum, zero,
			    of_unit, scale, p);
		__syncwarp();
	}
}

#endif
