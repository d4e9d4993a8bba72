/* kivi.c - KIVI's blocks, groups of keys, and which rows have them
 *
 * Everything is computed as on tensors in f16: in f32, and rounded (-std=c11 contracts none). */
#include "kivi.h"
#include "rowblock.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

static float
rounded_half(float x)
{
	unsigned char half[2];

	kv_put_half(half, x);
	return kv_get_half(half);
}

/* The authors' functions run on tensors in f16: torch computes each operation in f32 and rounds. */
float
kv_kivi_put(unsigned char *to, const float *from, size_t step, unsigned bits)
{
	const unsigned most_code = (1u << bits) - 1, in_byte = 8 / bits;
	float x[BLOCK], least, most, scale, code;
	unsigned i;

	for (i = 0; i < BLOCK; i++) {
		x[i] = rounded_half(from[i * step]);
		if (!isfinite(x[i]))
			return NAN;
	}
	least = most = x[0];
	for (i = 1; i < BLOCK; i++) {
		if (x[i] < least)
			least = x[i];
		if (x[i] > most)
			most = x[i];
	}
	scale = rounded_half(rounded_half(most - least) / (float)most_code);
	kv_put_half(to, scale);
	kv_put_half(to + 2, least);
	memset(to + 4, 0, BLOCK / in_byte);
	for (i = 0; i < BLOCK && isfinite(scale) && scale > 0; i++) {
		code = rounded_half(rounded_half(x[i] - least) / scale);
		code = kv_nearest_even(code < (float)most_code ? code : (float)most_code);
		to[4 + i / in_byte] |= (unsigned char)((unsigned)code << i % in_byte * bits);
	}
	return scale;
}

void
kv_kivi_get(float *x, size_t step, const unsigned char *from, unsigned bits)
{
	const float scale = kv_get_half(from), least = kv_get_half(from + 2);
	const unsigned in_byte = 8 / bits;
	unsigned i, code;

	for (i = 0; i < BLOCK; i++) {
		code = from[4 + i / in_byte] >> i % in_byte * bits & ((1u << bits) - 1);
		x[i * step] = (float)code * scale + least;
	}
}

void
kv_group_to_f32(float *dst, const void *group, enum kv_row_type type, size_t width)
{
	const size_t block = kv_row_bytes(type, BLOCK);
	size_t e;

	for (e = 0; e < width; e++)
		kv_kivi_get(dst + e, width, (const unsigned char *)group + e * block,
		    kv_row_type_bits(type));
}

int
kv_group_from_f32(void *group, const float *src, enum kv_row_type type, size_t width)
{
	const size_t block = kv_row_bytes(type, BLOCK);
	size_t e;

	for (e = 0; e < width; e++)
		if (!isfinite(kv_kivi_put((unsigned char *)group + e * block, src + e, width,
		    kv_row_type_bits(type))))
			return 0;
	return 1;
}

int
kv_row_type_kivi(enum kv_row_type type)
{
	return type == KV_ROW_KIVI2 || type == KV_ROW_KIVI4;
}

uint32_t
kv_coded_keys(enum kv_row_type type, uint32_t rows, uint32_t residual)
{
	return kv_row_type_kivi(type) ? rows - rows % residual :
	    kv_coded_values(type, rows, residual);
}

uint32_t
kv_coded_values(enum kv_row_type type, uint32_t rows, uint32_t residual)
{
	if (!kv_row_type_quantised(type))
		return rows;
	return rows > residual ? rows - residual : 0;
}
