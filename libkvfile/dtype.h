/* dtype.h - element types of tensors and conversions between them
 *
 * Part of libkvfile, installed beside kvfile.h. C11 and C++. */
#ifndef KVFILE_DTYPE_H
#define KVFILE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kv_dtype {
	KV_F32 = 1,
	KV_F16 = 2,   /* IEEE 754 binary16 */
	KV_BF16 = 3   /* upper half of an f32 */
};

/* Returns the bytes of one element; 0 for an invalid type. */
size_t kv_dtype_size(enum kv_dtype type);

/* Returns "f32", "f16" or "bf16"; NULL for an invalid type. */
const char *kv_dtype_name(enum kv_dtype type);

/* Returns the type with that name; 0 if there is none. */
enum kv_dtype kv_dtype_named(const char *name);

/* dst[n] f32 <- src[n] of the given type. Exact. src may be unaligned. */
void kv_to_f32(float *dst, const void *src, enum kv_dtype type, size_t n);

/* dst[n] of the given type <- src[n] f32, rounded to nearest, ties to even; a NaN stays a NaN. */
void kv_from_f32(void *dst, const float *src, enum kv_dtype type, size_t n);

static inline float
kv_bf16_to_f32(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static inline uint16_t
kv_f32_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	if ((u & 0x7fffffff) > 0x7f800000)             /* NaN: keep it one */
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#ifdef __cplusplus
}
#endif
#endif
