/* rowblock.h - scales in f16, and rounding, for the blocks of quantised rows
 *
 * Internal to libkvfile. */
#ifndef KVFILE_ROWBLOCK_H
#define KVFILE_ROWBLOCK_H

#include "dtype.h"

#include <float.h>

/* 80387 instructions round later, or twice, and codes become others. */
#if FLT_EVAL_METHOD != 0
#error "every operation on a float must be rounded by itself: on i386 -msse2 -mfpmath=sse"
#endif

static inline void
kv_put_half(unsigned char *to, float x)
{
	kv_from_f32(to, &x, KV_F16, 1);
}

static inline float
kv_get_half(const unsigned char *from)
{
	float x;

	kv_to_f32(&x, from, KV_F16, 1);
	return x;
}

/* To the nearest integer, ties to even; |x| is below 2^22. */
static inline float
kv_nearest_even(float x)
{
	const float units = 12582912;          /* 1.5 2^23: floats there are 1 apart */

	return x + units - units;
}

#endif
