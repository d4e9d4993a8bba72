/* kvfile_dtype.c - conversions between element types, every value of 16 bits */

#include "kvfile_sample.h"

#include <math.h>
#include <string.h>

/* By the definition of binary16. */
static double
half(uint16_t h)
{
	int e = h >> 10 & 31, f = h & 1023;
	double v = e == 31 ? (f ? NAN : INFINITY) : e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);

	return h & 0x8000 ? -v : v;
}

static void
check_halves(void)
{
	uint32_t i;
	uint16_t h, back;
	float f;
	int bad = 0, bad_back = 0;

	for (i = 0; i < 65536; i++) {
		h = (uint16_t)i;
		kv_to_f32(&f, &h, KV_F16, 1);
		if (isnan(half(h))) {
			kv_from_f32(&back, &f, KV_F16, 1);
			bad += !isnan(f);
			bad_back += !isnan(half(back));
			continue;
		}
		bad += f != half(h) || !signbit(f) != !signbit(half(h));
		kv_from_f32(&back, &f, KV_F16, 1);
		bad_back += back != h;
	}
	check(bad == 0, "%d f16 values become another f32", bad);
	check(bad_back == 0, "%d f16 values do not come back", bad_back);
}

/* Conversion of an array, which may use vector instructions, is that of each element. */
static void
check_arrays(enum kv_dtype type)
{
	enum { N = 65536 };
	static uint16_t h[N];
	static float all[N];
	float one;
	uint32_t i;
	int bad = 0;

	for (i = 0; i < N; i++)
		h[i] = (uint16_t)i;
	kv_to_f32(all, h, type, N);
	for (i = 0; i < N; i++) {
		kv_to_f32(&one, &h[i], type, 1);
		bad += memcmp(&one, &all[i], sizeof one) != 0;
	}
	check(bad == 0, "%d values of %s become another f32 in an array", bad, kv_dtype_name(type));
}

/* Between two neighbours: below the middle down, above it up, in the middle to the even one. */
static void
check_rounding(enum kv_dtype type, uint32_t last)
{
	uint32_t i;
	uint16_t lo, hi, got;
	float a, b, mid, below, above;
	int bad = 0;

	for (i = 0; i < last; i++) {
		lo = (uint16_t)i;
		hi = (uint16_t)(i + 1);
		kv_to_f32(&a, &lo, type, 1);
		kv_to_f32(&b, &hi, type, 1);
		mid = (float)(((double)a + b) / 2);
		below = nextafterf(mid, a);
		above = nextafterf(mid, b);
		kv_from_f32(&got, &mid, type, 1);
		bad += got != (i % 2 == 0 ? lo : hi);
		kv_from_f32(&got, &below, type, 1);
		bad += got != lo;
		kv_from_f32(&got, &above, type, 1);
		bad += got != hi;
	}
	check(bad == 0, "%s: %d values are rounded to the wrong side", kv_dtype_name(type), bad);
}

static void
check_edges(void)
{
	static const float big[] = { 65519.99f, 65520.0f, -65520.0f, 1e30f, INFINITY, 1e-30f,
	    -0.0f };
	static const uint16_t want[] = { 0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7c00, 0, 0x8000 };
	uint16_t got[7];
	float nan[2] = { NAN, NAN };
	uint32_t payload = 0x7f800001;          /* its upper half alone would be infinity */

	kv_from_f32(got, big, KV_F16, 7);
	check(memcmp(got, want, sizeof want) == 0, "f16: edges");
	memcpy(&nan[1], &payload, 4);
	kv_from_f32(got, nan, KV_BF16, 2);
	check(isnan(kv_bf16_to_f32(got[0])) && isnan(kv_bf16_to_f32(got[1])),
	    "bf16: a NaN is lost");
	kv_from_f32(got, nan, KV_F16, 2);
	check(isnan(half(got[0])) && isnan(half(got[1])), "f16: a NaN is lost");
}

static void
check_names(void)
{
	static const enum kv_dtype types[] = { KV_F32, KV_F16, KV_BF16 };
	static const char *const names[] = { "f32", "f16", "bf16" };
	int i;

	for (i = 0; i < 3; i++) {
		check(strcmp(kv_dtype_name(types[i]), names[i]) == 0, "name of %s", names[i]);
		check(kv_dtype_named(names[i]) == types[i], "type called %s", names[i]);
		check(kv_dtype_size(types[i]) == (i == 0 ? 4 : 2), "size of %s", names[i]);
	}
	check(kv_dtype_named("f64") == 0 && kv_dtype_named("") == 0, "a type that is none");
	check(kv_dtype_name((enum kv_dtype)0) == NULL && kv_dtype_name((enum kv_dtype)9) == NULL &&
	    kv_dtype_size((enum kv_dtype)9) == 0, "a name for a type that is none");
}

int
main(void)
{
	check_names();
	check_halves();
	check_arrays(KV_F16);
	check_arrays(KV_BF16);
	check_rounding(KV_F16, 0x7bff);
	check_rounding(KV_BF16, 0x7f7f);
	check_edges();
	return check_done();
}
