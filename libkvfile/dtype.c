/* dtype.c - element types: names, sizes, conversion to and from f32
 *
 * Bit arithmetic only, so that the results do not depend on the compiler, on F16C, or on
 * whether another library has enabled flush-to-zero. */

#include "dtype.h"

static const char *const names[] = { [KV_F32] = "f32", [KV_F16] = "f16", [KV_BF16] = "bf16" };
#define NTYPES (sizeof names / sizeof names[0])

size_t
kv_dtype_size(enum kv_dtype type)
{
	switch (type) {
	case KV_F32:
		return 4;
	case KV_F16:
	case KV_BF16:
		return 2;
	}
	return 0;
}

const char *
kv_dtype_name(enum kv_dtype type)
{
	return (size_t)type < NTYPES ? names[type] : NULL;
}

enum kv_dtype
kv_dtype_named(const char *name)
{
	size_t i;

	for (i = 1; i < NTYPES; i++)
		if (strcmp(name, names[i]) == 0)
			return (enum kv_dtype)i;
	return (enum kv_dtype)0;
}

static inline float
from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static inline uint32_t
to_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

/* Without branches, so that loops over it become vector instructions. */
static inline float
f16_to_f32(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
	const uint32_t exponent = rest & 0x0f800000, normal = rest + (112u << 23);
	/* m * 2^-24: as the fraction of 2^-14, whose leading one is then subtracted */
	const uint32_t small = to_bits(from_bits(rest + (113u << 23)) - from_bits(113u << 23));
	const uint32_t is_small = -(uint32_t)(exponent == 0);
	/* infinity, NaN: to the largest exponent */
	const uint32_t infinite = -(uint32_t)(exponent == 0x0f800000) & 0x7f800000;

	return from_bits(sign | (small & is_small) | (normal & ~is_small) | infinite);
}

static inline uint16_t
f32_to_f16(float f)
{
	uint32_t u = to_bits(f), a = u & 0x7fffffff, r;

	/* NaN: quiet, with the part of its payload that fits */
	if (a > 0x7f800000)
		r = 0x7e00 | (a >> 13 & 0x1ff);
	else if (a >= 0x477ff000)               /* 65520 and more rounds to infinity */
		r = 0x7c00;
	else if (a >= 0x38800000)               /* 2^-14 and more: normal */
		r = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
	else                                    /* 0.5 added: rounded to a multiple of 2^-24 */
		r = to_bits(from_bits(a) + 0.5f) - 0x3f000000;
	return (uint16_t)(u >> 16 & 0x8000) | (uint16_t)r;
}

void
kv_to_f32(float *dst, const void *src, enum kv_dtype type, size_t n)
{
	const unsigned char *s = src;
	uint16_t h;
	size_t i;

	switch (type) {
	case KV_F32:
		if (n > 0)
			memcpy(dst, src, n * sizeof *dst);
		break;
	case KV_F16:
		for (i = 0; i < n; i++) {
			memcpy(&h, s + 2 * i, 2);
			dst[i] = f16_to_f32(h);
		}
		break;
	case KV_BF16:
		for (i = 0; i < n; i++) {
			memcpy(&h, s + 2 * i, 2);
			dst[i] = kv_bf16_to_f32(h);
		}
		break;
	}
}

void
kv_from_f32(void *dst, const float *src, enum kv_dtype type, size_t n)
{
	unsigned char *d = dst;
	uint16_t h;
	size_t i;

	switch (type) {
	case KV_F32:
		if (n > 0)
			memcpy(dst, src, n * sizeof *src);
		break;
	case KV_F16:
		for (i = 0; i < n; i++) {
			h = f32_to_f16(src[i]);
			memcpy(d + 2 * i, &h, 2);
		}
		break;
	case KV_BF16:
		for (i = 0; i < n; i++) {
			h = kv_f32_to_bf16(src[i]);
			memcpy(d + 2 * i, &h, 2);
		}
		break;
	}
}
