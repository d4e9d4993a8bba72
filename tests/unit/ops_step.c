/* ops_step.c - a step of decoding that stays on the device: the next token, and its row */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

/* ---- greatest ---- */

/* What sample() takes at temperature 0 */
static uint32_t
ref_greatest(const float *x, uint32_t n)
{
	uint32_t i, best = UINT32_MAX;

	for (i = 0; i < n; i++)
		if (isfinite(x[i]) && (best == UINT32_MAX || x[i] > x[best]))
			best = i;
	return best;
}

/* offset: of the first score, in floats */
static void
check_greatest(const float *x, uint32_t n, uint32_t offset, const char *what)
{
	uint32_t want = ref_greatest(x, n), got[3];
	int k;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = d->ops->alloc(d->dev, (n + offset + 1) * 4);
		uint32_t *tok = to_device(d, (uint32_t[]){ 7, 7, 7 }, 12);

		d->ops->put(d->dev, dx + offset, x, n * 4);
		d->ops->greatest(d->dev, tok + 1, dx + offset, n);
		d->ops->get(d->dev, got, tok, 12);
		verdict(d->ops->sync(d->dev) == NULL && got[1] == want && got[0] == 7 &&
		    got[2] == 7, "%s: greatest of %u, %s: %u, not %u", d->name, n, what, got[1],
		    want);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, tok);
	}
}

static void
test_greatest(uint32_t n)
{
	float *x = floats(n + 1, 30);
	uint32_t i;

	check_greatest(x, n, 0, "random");
	check_greatest(x, n, 1, "at an odd place");
	for (i = 0; i < n; i++)
		x[i] = -3 - x[i] * x[i];
	check_greatest(x, n, 0, "all negative");
	for (i = 0; i < 5 && n > 0; i++)
		x[draw(n)] = i % 2 == 0 ? 0.0f : -0.0f;
	check_greatest(x, n, 0, "zeros of both signs");
	for (i = 0; i < 9 && n > 0; i++)
		x[draw(n)] = 4e-39f;
	check_greatest(x, n, 0, "equal and subnormal");
	for (i = 0; i < n; i++)
		if (draw(3) > 0)
			x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
	check_greatest(x, n, 0, "many not finite");
	for (i = 0; i < n; i++)
		x[i] = i % 3 == 0 ? -NAN : i % 3 == 1 ? INFINITY : -INFINITY;
	check_greatest(x, n, 0, "none finite");
	if (n > 0)
		x[n - 1] = -3.4028235e38f;
	check_greatest(x, n, 0, "one finite, the last");
	free(x);
}

/* ---- look_up ---- */

/* As embed(), and an id that is none gives NaN. */
static void
test_look_up(enum kv_dtype type, uint32_t D, int offset)
{
	enum { V = 11, N = 5 };
	static const uint32_t tok[N] = { 3, V, 10, UINT32_MAX, 0 };
	float *table = floats((size_t)V * D, 3), *got;
	uint32_t n, i, wrong;
	int k;

	round_to(table, type, (size_t)V * D);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct mat m = { to_device_as(d, table, type, (size_t)V * D), type, V, D };
		float *x = d->ops->alloc(d->dev, (N * D + offset) * 4);
		uint32_t *at = to_device(d, tok, sizeof tok);

		d->ops->look_up(d->dev, x + offset, &m, at, N);
		got = from_device(d, x + offset, N * D);
		for (n = 0, wrong = 0; n < N; n++)
			for (i = 0; i < D; i++)
				wrong += tok[n] < V ? got[n * D + i] != table[tok[n] * D + i] :
				    !isnan(got[n * D + i]);
		verdict(d->ops->sync(d->dev) == NULL && wrong == 0, "%s: look_up %s %u: %u wrong",
		    d->name, kv_dtype_name(type), D, wrong);
		free(got);
		d->ops->free(d->dev, (void *)m.data);
		d->ops->free(d->dev, x);
		d->ops->free(d->dev, at);
	}
	free(table);
}

void
test_step(void)
{
	static const uint32_t n[] = { 0, 1, 3, 4, 31, 32, 1000, 1023, 1024, 1028, 65537, 262144 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t i;

	for (i = 0; i < sizeof n / sizeof n[0]; i++)
		test_greatest(n[i]);
	for (i = 0; i < 3; i++) {
		test_look_up(type[i], 70, 0);
		test_look_up(type[i], 2056, 0);
		test_look_up(type[i], 64, 1);
	}
}
