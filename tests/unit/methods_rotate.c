/* methods_rotate.c - rotating a stored key equals rotary embedding at the other position
 *
 * Raw keys are rotated to their old and to their new positions by the definition, in long
 * double; what rotate_keys() makes of the first must be the second, within the rounding of the
 * stored type. */
#include <math.h>
#include <stdlib.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

enum { N = 7, MOST = 128 };

static const uint32_t from[N] = { 0, 1, 2, 40, 41, 130999, 4294967290u };
static const uint32_t to[N] = { 0, 1, 0, 3, 4, 131071, 6 };

static uint32_t state = 1;

/* -1/2 .. 1/2 */
static float
next_random(void)
{
	state = state * 1664525 + 1013904223;
	return (float)((int32_t)state / 4294967296.0);
}

/* y[E] <- the definition of rotary embedding of x[E] at position p */
static void
rotate_at(float *y, const float *x, uint32_t p, const double *freq, uint32_t E)
{
	long double c, s;
	uint32_t i;

	for (i = 0; i < E / 2; i++) {
		c = cosl((long double)p * freq[i]);
		s = sinl((long double)p * freq[i]);
		y[i] = (float)(x[i] * c - x[i + E / 2] * s);
		y[i + E / 2] = (float)(x[i + E / 2] * c + x[i] * s);
	}
}

/* A result below 0.71 is rounded once, and so were the two numbers that it is made of. */
static void
check_type(uint32_t E, enum kv_dtype dtype, double tolerance)
{
	float raw[MOST], old[MOST], want[N * MOST], have[N * MOST];
	double freq[MOST / 2];
	char keys[N * MOST * sizeof(float)];
	uint32_t i, n;

	for (i = 0; i < E / 2; i++)
		/* as llama3 scaling: slow ones are slower */
		freq[i] = pow(500000, -2.0 * i / E) / (i > E / 4 ? 32 : 1);
	for (n = 0; n < N; n++) {
		for (i = 0; i < E; i++)
			raw[i] = next_random();
		rotate_at(old, raw, from[n], freq, E);
		kv_from_f32(keys + n * E * kv_dtype_size(dtype), old, dtype, E);
		rotate_at(want + n * E, raw, to[n], freq, E);
	}
	check(rotate_keys(keys, from, to, freq, 0, E, N, E, (enum kv_row_type)dtype) == 0,
	    "rotate_keys failed");
	kv_to_f32(have, keys, dtype, N * E);
	for (i = 0; i < N * E; i++)
		check(fabs(have[i] - want[i]) <= tolerance,
		    "%s, width %u, row %u element %u: %.9g, want %.9g", kv_dtype_name(dtype), E,
		    i / E, i % E, have[i], want[i]);
}

/* There and back, and nowhere: f32 to the last bits, rows that stay to the last bit. */
static void
check_back(void)
{
	static const double freq[2] = { 1, 0.01 };
	float keys[N][4], before[N][4];
	uint32_t i;

	for (i = 0; i < N * 4; i++)
		before[i / 4][i % 4] = keys[i / 4][i % 4] = next_random();
	check(rotate_keys(keys, from, from, freq, 0, 4, N, 4, KV_ROW_F32) == 0,
	    "rotate_keys failed");
	for (i = 0; i < N * 4; i++)
		check(keys[i / 4][i % 4] == before[i / 4][i % 4], "row %u was touched", i / 4);
	check(rotate_keys(keys, from, to, freq, 0, 4, N, 4, KV_ROW_F32) == 0, "rotate_keys failed");
	check(fabsf(keys[3][0] - before[3][0]) > 1e-3f, "row 3 was not rotated");
	check(rotate_keys(keys, to, from, freq, 0, 4, N, 4, KV_ROW_F32) == 0, "rotate_keys failed");
	for (i = 0; i < N * 4; i++)
		check(fabsf(keys[i / 4][i % 4] - before[i / 4][i % 4]) <= 3e-7f,
		    "row %u does not come back: %.9g, was %.9g", i / 4, keys[i / 4][i % 4],
		    before[i / 4][i % 4]);
}

/* Two channels are rotated, as they would be alone: the first ones, or with latent attention the
 * last ones. Where none is, nothing changes. */
static void
check_part(uint32_t first)
{
	static const double freq[1] = { 0.01 };
	float keys[N][4], before[N][4], two[N][2];
	uint32_t i, e;

	for (i = 0; i < N; i++) {
		for (e = 0; e < 4; e++)
			keys[i][e] = before[i][e] = next_random();
		memcpy(two[i], keys[i] + first, sizeof two[i]);
	}
	check(rotate_keys(keys, from, to, freq, first, 0, N, 4, KV_ROW_F32) == 0 &&
	    memcmp(keys, before, sizeof keys) == 0, "no channel is rotated, and some changed");
	check(rotate_keys(keys, from, to, freq, first, 2, N, 4, KV_ROW_F32) == 0 &&
	    rotate_keys(two, from, to, freq, 0, 2, N, 2, KV_ROW_F32) == 0, "rotate_keys failed");
	for (i = 0; i < N; i++)
		for (e = 0; e < 4; e++)
			check(keys[i][e] == (e - first < 2 ? two[i][e - first] : before[i][e]),
			    "row %u, channel %u", i, e);
}

int
main(void)
{
	static const uint32_t widths[] = { 2, 6, 80, 96, 128 };
	size_t i;

	check_part(0);
	check_part(2);
	for (i = 0; i < sizeof widths / sizeof *widths; i++) {
		check_type(widths[i], KV_F32, 2e-7);
		check_type(widths[i], KV_F16, 1e-3);
		check_type(widths[i], KV_BF16, 5e-3);
	}
	check_back();
	return failures > 0;
}
