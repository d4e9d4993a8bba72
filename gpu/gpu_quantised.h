/* gpu_quantised.h - rows of any type (libkvfile/rowtype.h) on the device: one channel, and pieces
 * of 8 channels
 *
 * A row is read where it lies and widened in registers. The numbers are those of kv_rows_to_f32(),
 * to the bit, but before the Walsh-Hadamard transform is undone: kernels transform queries and
 * outputs instead of rows, where they can (gpu_transform()).
 *
 * Alignment: rows of the types with blocks, and their blocks, begin at even addresses, so their
 * parts are read in 16 bits. Rows of int8 and fp8 begin at multiples of 4 if E is one, else
 * anywhere. */
#ifndef GPU_QUANTISED_H
#define GPU_QUANTISED_H

#include "gpu/gpu_internal.h"

/* How the rows of a tensor are stored, as a kernel's argument */
struct row_format {
	uint32_t type;               /* enum kv_row_type without KV_ROW_HADAMARD */
	uint32_t bytes;              /* of a row */
};

/* Of keys and of values */
struct row_formats {
	struct row_format k, v;
};

static inline bool
is_transformed(enum kv_row_type type)
{
	return ((unsigned)type & KV_ROW_HADAMARD) != 0;
}

static inline enum kv_row_type
untransformed(enum kv_row_type type)
{
	return (enum kv_row_type)((unsigned)type & ~(unsigned)KV_ROW_HADAMARD);
}

static inline bool
is_quantised(enum kv_row_type type)
{
	return untransformed(type) >= KV_ROW_Q8_0;
}

/* Are keys or values quantised? */
static inline bool
has_quantised(const struct layer_rows *l)
{
	return is_quantised(rows_k_type(l)) || is_quantised(rows_v_type(l));
}

static inline __host__ __device__ constexpr bool
has_blocks(uint32_t type)
{
	return type >= KV_ROW_Q8_0 && type <= KV_ROW_Q5_0;
}

/* Bytes of a block of 32 channels, and those of them before the codes */
static inline __host__ __device__ constexpr uint32_t
block_bytes(uint32_t type)
{
	return type == KV_ROW_Q8_0 ? 34 : type == KV_ROW_Q4_0 ? 18 : type == KV_ROW_Q4_1 ? 20 : 22;
}

static inline __host__ __device__ constexpr uint32_t
head_bytes(uint32_t type)
{
	return type == KV_ROW_Q4_1 ? 4 : type == KV_ROW_Q5_0 ? 6 : 2;
}

/* work(t) with the type as the constant t.value, of the quantised types */
template <class F>
DEVICE void
with_code_type(uint32_t type, F &&work)
{
	switch (type) {
	case KV_ROW_Q8_0:
		work(std::integral_constant<uint32_t, KV_ROW_Q8_0>{});
		break;
	case KV_ROW_Q4_0:
		work(std::integral_constant<uint32_t, KV_ROW_Q4_0>{});
		break;
	case KV_ROW_Q4_1:
		work(std::integral_constant<uint32_t, KV_ROW_Q4_1>{});
		break;
	case KV_ROW_Q5_0:
		work(std::integral_constant<uint32_t, KV_ROW_Q5_0>{});
		break;
	case KV_ROW_INT8:
		work(std::integral_constant<uint32_t, KV_ROW_INT8>{});
		break;
	default:
		work(std::integral_constant<uint32_t, KV_ROW_FP8>{});
	}
}

/* work(t) with the type as the constant t.value, for every type but f32 */
template <class F>
DEVICE void
with_piece_type(uint32_t type, F &&work)
{
	switch (type) {
	case KV_ROW_F16:
		work(std::integral_constant<uint32_t, KV_ROW_F16>{});
		break;
	case KV_ROW_BF16:
		work(std::integral_constant<uint32_t, KV_ROW_BF16>{});
		break;
	default:
		with_code_type(type, work);
	}
}

/* As with_piece_type(), of all types, f32 too */
template <class F>
DEVICE void
with_row_type(uint32_t type, F &&work)
{
	if (type == KV_ROW_F32)
		work(std::integral_constant<uint32_t, KV_ROW_F32>{});
	else
		with_piece_type(type, work);
}

DEVICE uint32_t
load_16(const unsigned char *p)
{
	return *(const uint16_t *)p;
}

/* 32 bits at an even address */
DEVICE uint32_t
load_32(const unsigned char *p)
{
	return load_16(p) | load_16(p + 2) << 16;
}

/* 32 bits at any address */
DEVICE uint32_t
load_bytes(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

DEVICE float
widen_half(uint32_t bits)
{
	return widen(f16{ (uint16_t)bits });
}

/* e4m3 is the upper bits of an f32 without the upper bits of its exponent: 2^120 too small, also
 * where it is subnormal. A NaN, which no writer makes, becomes 480. */
DEVICE float
e4m3(uint32_t code)
{
	return __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f;
}

DEVICE float
signed_byte(uint32_t code)
{
	return (float)(signed char)code;
}

/* ---- one channel ---- */

/* Channel i of a block */
template <uint32_t TYPE>
DEVICE float
channel_of_block(const unsigned char *block, uint32_t i)
{
	const float scale = widen_half(load_16(block));

	if constexpr (TYPE == KV_ROW_Q8_0) {
		return signed_byte(block[2 + i]) * scale;
	} else {
		const int four = block[head_bytes(TYPE) + i % 16] >> (i < 16 ? 0 : 4) & 15;

		if constexpr (TYPE == KV_ROW_Q4_0)
			return (float)(four - 8) * scale;
		else if constexpr (TYPE == KV_ROW_Q4_1)
			return __fadd_rn(__fmul_rn((float)four, scale),
			    widen_half(load_16(block + 2)));
		else
			return (float)((four | (int)(load_32(block + 2) >> i & 1) << 4) - 16) *
			    scale;
	}
}

/* Channel e of a row */
template <uint32_t TYPE>
DEVICE float
channel(const unsigned char *row, uint32_t e)
{
	if constexpr (TYPE == KV_ROW_F32)
		return ((const float *)row)[e];
	else if constexpr (TYPE == KV_ROW_F16)
		return widen(((const f16 *)row)[e]);
	else if constexpr (TYPE == KV_ROW_BF16)
		return widen(((const bf16 *)row)[e]);
	else if constexpr (TYPE == KV_ROW_INT8)
		return signed_byte(row[4 + e]) * __uint_as_float(load_bytes(row));
	else if constexpr (TYPE == KV_ROW_FP8)
		return e4m3(row[4 + e]) * __uint_as_float(load_bytes(row));
	else
		return channel_of_block<TYPE>(row + e / 32 * block_bytes(TYPE), e % 32);
}

/* work(i, x) with each channel x of a row; lanes of a group of `lanes`, of which this is number
 * `lane`, share the channels. */
template <class F>
DEVICE void
for_channels(const unsigned char *row, const struct row_format &f, uint32_t E, uint32_t lane,
    uint32_t lanes, F &&work)
{
	with_row_type(f.type, [&](auto t) {
		for (uint32_t e = lane; e < E; e += lanes)
			work(e, channel<t.value>(row, e));
	});
}

/* ---- pieces of 8 channels, for widths that are a multiple of 8 ----
 *
 * A block of 32 channels has 4 pieces. Piece c has channels 4c .. 4c + 3 and 16 + 4c .. 19 + 4c,
 * since one byte has the 4-bit codes of channels i and i + 16. In types without blocks a piece has
 * 8 neighbouring channels. */

/* A piece as it is stored: 16 bytes of elements; else codes, then the scale, then of q4_1 the
 * minimum, of q5_0 the fifth bits */
struct alignas(16) raw_piece {
	uint32_t word[4];
};

/* The first channel of half `upper` of a piece, 4 channels */
DEVICE uint32_t
half_piece(uint32_t type, uint32_t piece, uint32_t upper)
{
	return has_blocks(type) ? piece / 4 * 32 + piece % 4 * 4 + 16 * upper :
	    piece * 8 + 4 * upper;
}

/* row: of elements, aligned to 16 bytes; of int8 and fp8, to 4. f32 has no pieces. */
template <uint32_t TYPE>
DEVICE struct raw_piece
load_raw(const unsigned char *row, uint32_t piece)
{
	struct raw_piece r = {};

	static_assert(TYPE != KV_ROW_F32);
	if constexpr (TYPE < KV_ROW_Q8_0) {
		*(uint4 *)r.word = *(const uint4 *)(row + piece * 16);
	} else if constexpr (has_blocks(TYPE)) {
		const unsigned char *const block = row + piece / 4 * block_bytes(TYPE);
		const unsigned char *const code = block + head_bytes(TYPE) + piece % 4 * 4;

		r.word[0] = load_32(code);
		if constexpr (TYPE == KV_ROW_Q8_0)
			r.word[1] = load_32(code + 16);
		r.word[2] = load_16(block);
		if constexpr (TYPE == KV_ROW_Q4_1)
			r.word[3] = load_16(block + 2);
		if constexpr (TYPE == KV_ROW_Q5_0)
			r.word[3] = load_32(block + 2) >> piece % 4 * 4;
	} else {
		r.word[0] = *(const uint32_t *)(row + 4 + piece * 8);
		r.word[1] = *(const uint32_t *)(row + 8 + piece * 8);
		r.word[2] = *(const uint32_t *)row;
	}
	return r;
}

/* Channel e of a piece, e a compile-time constant; scale, least: of the piece */
template <uint32_t TYPE>
DEVICE float
channel_of_piece(const struct raw_piece &r, uint32_t e, float scale, float least)
{
	[[maybe_unused]] const uint32_t two = r.word[e / 2] >> 16 * (e % 2);
	[[maybe_unused]] const uint32_t byte = r.word[e / 4] >> 8 * (e % 4);
	[[maybe_unused]] const uint32_t four = r.word[0] >> (8 * (e % 4) + 4 * (e / 4)) & 15;
	[[maybe_unused]] const uint32_t fifth = r.word[3] >> (e % 4 + 16 * (e / 4)) & 1;

	if constexpr (TYPE == KV_ROW_F16)
		return widen(f16{ (uint16_t)two });
	else if constexpr (TYPE == KV_ROW_BF16)
		return widen(bf16{ (uint16_t)two });
	else if constexpr (TYPE == KV_ROW_Q4_0)
		return (float)((int)four - 8) * scale;
	else if constexpr (TYPE == KV_ROW_Q4_1)
		return __fadd_rn(__fmul_rn((float)four, scale), least);
	else if constexpr (TYPE == KV_ROW_Q5_0)
		return (float)((int)(four | fifth << 4) - 16) * scale;
	else if constexpr (TYPE == KV_ROW_FP8)
		return e4m3(byte) * scale;
	else
		return signed_byte(byte) * scale;
}

/* x[8] <- the channels of a piece */
template <uint32_t TYPE>
DEVICE void
widen_raw(float x[8], const struct raw_piece &r)
{
	const float scale = has_blocks(TYPE) ? widen_half(r.word[2]) : __uint_as_float(r.word[2]);
	const float least = TYPE == KV_ROW_Q4_1 ? widen_half(r.word[3]) : 0;

UNROLL	for (uint32_t e = 0; e < 8; e++)
		x[e] = channel_of_piece<TYPE>(r, e, scale, least);
}

/* Can a tensor be read in pieces? */
static inline bool
in_pieces(const void *rows, const struct row_format &f, uint32_t E)
{
	const uintptr_t at = (uintptr_t)rows | f.bytes;

	return E % 8 == 0 && f.type != KV_ROW_F32 &&
	    at % (f.type < KV_ROW_Q8_0 ? 16 : has_blocks(f.type) ? 2 : 4) == 0;
}

/* ---- Walsh-Hadamard transform ---- */

/* 1 / sqrt(width) as kv_rows_rotate() computes it */
DEVICE float
root_of(uint32_t width)
{
	float scale = 1;
	uint32_t h;

	for (h = width; h >= 4; h /= 4)
		scale /= 2;
	return h == 2 ? __fmul_rn(scale, 0.70710678f) : scale;
}

/* x[E] <- its transform, by a warp */
DEVICE void
transform_row(float *x, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32;
	const float scale = root_of(E);

	for (uint32_t h = 1; h < E; h *= 2) {
		__syncwarp();
		for (uint32_t pair = lane; pair < E / 2; pair += 32) {
			const uint32_t i = pair / h * 2 * h + pair % h;
			const float a = x[i], b = x[i + h];

			x[i] = a + b;
			x[i + h] = a - b;
		}
	}
	__syncwarp();
	for (uint32_t e = lane; e < E; e += 32)
		x[e] = __fmul_rn(x[e], scale);
	__syncwarp();
}

/* ---- on the host ---- */

/* work(U{}) with the widest unit in which things of this alignment are copied */
template <class F>
static inline void
with_unit(const struct dev *d, uintptr_t alignment, F &&work)
{
	if (!d->reference && alignment % sizeof(uint4) == 0)
		work(uint4{});
	else if (!d->reference && alignment % sizeof(uint32_t) == 0)
		work(uint32_t{});
	else if (alignment % sizeof(uint16_t) == 0)
		work(uint16_t{});
	else
		work(uint8_t{});
}

/* f <- the formats of a layer's rows. Returns 0 after remembering a failure: the width is none of
 * a type. */
int gpu_formats_of(struct dev *, struct row_formats *f, const struct layer_rows *, const char *op);

/* to[n][E] <- the Walsh-Hadamard transform of x, as kv_rows_rotate() does it; to may be x. */
void gpu_transform(struct dev *, float *to, const float *x, uint32_t E, size_t n);
/* Returns query->q, or where keys of this type are transformed, its transform in
 * SCRATCH_QUERIES; NULL after a failure. */
const float *gpu_queries_for(struct dev *, const struct query *, enum kv_row_type, uint32_t E);
/* Undoes the transform of o[n][E] where values of this type are transformed; o may be NULL. */
void gpu_transform_back(struct dev *, float *o, enum kv_row_type, uint32_t E, size_t n);

/* ---- what the ops do where rows are quantised ---- */

/* gpu_quantised_append.cu */
void gpu_append_quantised(struct dev *, const struct rows *to, uint32_t *to_pos, const float *k,
    const float *v, const uint32_t *pos, uint32_t N, const struct layer_rows *);

/* gpu_naive.cu: attention by the naive kernel, for all shapes and types. All queries see the rows
 * of a list; then pos is not read. */
void gpu_attend_naive(struct dev *, float *o, float *lse, const struct query *, const struct rows *,
    const struct row_list *, const struct row_formats *);

/* gpu_quantised_scores.cu: score[h * stride + s] <- q.k / sqrt(E) for each row s of keys. x: with
 * one-bit keys, of which the rows that have none are scored, at most `most` of a KV head; NULL: all
 * are */
struct index;
void gpu_scores_quantised(struct dev *, float *score, size_t stride, const struct query *,
    const struct rows *, const struct layer_rows *, const struct index *x, uint32_t most);

/* gpu_quantised_index.cu: entries of keys of quantised types, at most `most` of a KV head */
void gpu_pack_quantised(struct dev *, const struct index *, const struct rows *,
    const struct layer_rows *, int pages, uint32_t most);

/* gpu_attend_plain.cu: attend() in f32 without tensor cores. Returns 0 where it does not take the
 * shape, and has done nothing. */
int gpu_attend_plain_quantised(struct dev *, float *o, float *lse, const struct query *,
    const struct rows *, const struct row_formats *);

/* gpu_quantised_attend.cu: attend() of more than DECODE_QUERIES query rows */
void gpu_attend_quantised(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *, const struct rows *);

#endif
