/* rowtype.h - how a row of keys or values is stored: as elements of a dtype, or quantised
 *
 * Part of libkvfile. C11 and C++. Each type but KIVI's is row-local: a row is quantised by itself,
 * so rows can be moved, dropped and joined as bytes. kv-snapshot(5), 4.20.
 *
 * Blocks of 32 channels, as ggml's reference functions make them (llama.cpp, ggml-quants.c): d is
 * stored in f16, codes are computed with d in f32, x/d as x * (1 / d), each operation rounded by
 * itself. Of 4-bit codes byte j has channel j in its low half and channel j + 16 in the high one.
 *
 *   q8_0  34 bytes: d, i8[32]. d = max |x| / 127; code: nearest to x/d, ties away from 0
 *   q4_0  18 bytes: d, u8[16]. d = m / -8, m the x of largest magnitude, the first of equals;
 *         code = min(15, trunc(x/d + 8.5)); x is about (code - 8) d
 *   q4_1  20 bytes: d, least x in f16, u8[16]. d = (most - least) / 15;
 *         code = min(15, trunc((x - least)/d + 0.5)); x is about code d + least
 *   q5_0  22 bytes: d, u32 with the fifth bit of channel i as bit i, u8[16]. d = m / -16;
 *         code = min(31, trunc(x/d + 16.5)); x is about (code - 16) d
 *
 * The whole row, scale s in f32, then a byte for each channel; ties to even:
 *
 *   int8  s = max |x| / 127; code: nearest to x / s
 *   fp8   s = max |x| / 448; code: e4m3 (OCP 8-bit floating point, E4M3) nearest to x / s
 *
 * The last rows of a KV head may be left as elements, kv_coded_keys().
 *
 * KIVI (Liu et al. 2024; kv-snapshot(5), 4.21): blocks of 32 numbers with 2 or 4 bits.
 *
 *   kivi2, kivi4  12 and 20 bytes: scale and least number in f16, u8[8 or 16] with the codes from
 *         the lowest bit on. All operations are rounded to f16: s = (most - least) / (2^bits - 1);
 *         code: nearest to (x - least) / s, ties to even; x is about code s + least. A value has
 *         a block for each 32 channels of its row. Keys have a block for each channel of a group
 *         of 32 rows.
 *
 * A quantised type | KV_ROW_HADAMARD stores the Walsh-Hadamard transform of the row,
 * kv_rows_rotate(): it spreads channels of large magnitude over the row (QuaRot, Ashkboos et al.
 * 2024). The numbers that a row stands for are those before the transform, so a program that reads
 * rows by kv_rows_to_f32() need not know of it. The transform is its own inverse, and keeps q.k:
 * attention may transform the queries and its output instead of the rows. */
#ifndef KVFILE_ROWTYPE_H
#define KVFILE_ROWTYPE_H

#include "dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q8_0 to q5_0: ggml's block types, blocks of 32 channels with a scale in f16. int8, fp8 (e4m3): a
 * scale in f32 for the whole row. kivi2, kivi4: not row-local, above. */
enum kv_row_type {
	KV_ROW_F32 = KV_F32,
	KV_ROW_F16 = KV_F16,
	KV_ROW_BF16 = KV_BF16,
	KV_ROW_Q8_0 = 4,
	KV_ROW_Q4_0 = 5,
	KV_ROW_Q4_1 = 6,
	KV_ROW_Q5_0 = 7,
	KV_ROW_INT8 = 8,
	KV_ROW_FP8 = 9,
	KV_ROW_KIVI2 = 10,
	KV_ROW_KIVI4 = 11,
	KV_ROW_HADAMARD = 16    /* a flag */
};

/* The greatest width of a row that is transformed; rows of a group of KIVI's keys; the greatest
 * number of rows that KIVI leaves full */
enum { KV_ROW_WIDTH_MOST = 1024, KV_GROUP_ROWS = 32, KV_RESIDUAL_MOST = 4096 };

/* Returns "f32", "q8_0", "q8_0-hadamard", ...; NULL for an invalid type. */
const char *kv_row_type_name(enum kv_row_type type);

/* Returns the type with that name; 0 if there is none. */
enum kv_row_type kv_row_type_named(const char *name);

/* Returns the type without KV_ROW_HADAMARD. */
enum kv_row_type kv_row_type_base(enum kv_row_type type);

/* Returns 1 for the types that store codes and scales, 0 for element types. */
int kv_row_type_quantised(enum kv_row_type type);

/* Returns 1 for KIVI's types. Functions below whose names begin with kv_rows_ take them as they
 * store values, a row by itself. */
int kv_row_type_kivi(enum kv_row_type type);

/* Returns the bits of a code: 2 to 8; 16 or 32 for element types; 0 for an invalid type. */
unsigned kv_row_type_bits(enum kv_row_type type);

/* Returns what the width of a row must be a multiple of: 32 or 1; 0 for an invalid type. With
 * KV_ROW_HADAMARD the width must be a power of 2, too, at most KV_ROW_WIDTH_MOST. */
uint32_t kv_row_type_multiple(enum kv_row_type type);

/* Returns the bytes of a row of `width` channels; 0 for an invalid type, and for a width that it
 * does not allow. Of KIVI's types: of a coded row; KV_GROUP_ROWS times that is a group of keys. */
size_t kv_row_bytes(enum kv_row_type type, size_t width);

/* Returns the element size in the header of a section with such rows, kv-snapshot(5), 4.4: that of
 * a dtype, 1 of a quantised type. */
unsigned kv_row_element(enum kv_row_type type);

/* rows[n][width] <- the Walsh-Hadamard transform of each, in the natural (Hadamard) order, over
 * sqrt(width): for h = 1, 2, 4, ... width/2 the pairs (i, i + h), i with bit h clear, become
 * (a + b, a - b); then each number is multiplied by 1/sqrt(width) in f32. width is a power of 2. */
void kv_rows_rotate(float *rows, size_t width, size_t n);

/* dst[n][width] f32 <- rows[n]. Exact, but for the one rounding of scale times code, and of the
 * minimum that q4_1 adds. rows may be unaligned. */
void kv_rows_to_f32(float *dst, const void *rows, enum kv_row_type type, size_t width, size_t n);

/* rows[n] <- src[n][width] f32. Returns n, or the first row that the type cannot store, because a
 * number in it is not finite or is so large that the scale would not be: rows are undefined from
 * there on. The element types store every row. */
size_t kv_rows_from_f32(void *rows, const float *src, enum kv_row_type type, size_t width,
    size_t n);

/* Returns how many rows of a KV head with this many rows are coded, the first ones: of KIVI's keys
 * those in front of the last multiple of residual, else all but the last `residual`. An element
 * type has no full rows behind others: all. residual: not 0 with KIVI's types. */
uint32_t kv_coded_keys(enum kv_row_type type, uint32_t rows, uint32_t residual);
uint32_t kv_coded_values(enum kv_row_type type, uint32_t rows, uint32_t residual);

/* dst[KV_GROUP_ROWS][width] f32 <- a group of KIVI's keys, and back. The second returns 1, or 0
 * where a number is not finite, or too large. */
void kv_group_to_f32(float *dst, const void *group, enum kv_row_type type, size_t width);
int kv_group_from_f32(void *group, const float *src, enum kv_row_type type, size_t width);

/* Returns n, or the first of rows[n] that no writer makes: it has a scale or a minimum that is not
 * finite, or the code of a NaN. An element type has no such row. */
size_t kv_rows_check(const void *rows, enum kv_row_type type, size_t width, size_t n);

#ifdef __cplusplus
}
#endif
#endif
