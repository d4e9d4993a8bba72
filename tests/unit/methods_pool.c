/* methods_pool.c - pooling, reduction and rates, with the numbers worked out by hand */
#include <math.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

static void
expect_pool(const float *x, uint32_t n, uint32_t kernel, enum pool pool, const float *want)
{
	float y[8];
	uint32_t i;

	pool_rows(y, x, n, kernel, pool);
	for (i = 0; i < n; i++)
		check(fabsf(y[i] - want[i]) < 1e-6f, "kernel %u, pool %d: row %u is %g, must be %g",
		    kernel, pool, i, y[i], want[i]);
}

static void
test_pool(void)
{
	static const float x[] = { 0.7f, 0, 0.1f, 0, 0.2f };
	static const float avg3[] = { 0.7f / 3, 0.8f / 3, 0.1f / 3, 0.1f, 0.2f / 3 };
	static const float max3[] = { 0.7f, 0.7f, 0.1f, 0.2f, 0.2f };
	static const float avg9[] = { 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9 };
	static const float below[] = { -3, -1, -2 }, below3[] = { -1, -1, -1 };
	static const float low[] = { -4.0f / 3, -2, -1 };

	expect_pool(x, 5, 1, POOL_AVG, x);
	expect_pool(x, 5, 1, POOL_MAX, x);
	expect_pool(x, 5, 3, POOL_AVG, avg3);
	expect_pool(x, 5, 3, POOL_MAX, max3);
	expect_pool(x, 5, 9, POOL_AVG, avg9);           /* wider than the list: still / 9 */
	expect_pool(x, 5, UINT32_MAX, POOL_MAX, (const float[]){ 0.7f, 0.7f, 0.7f, 0.7f, 0.7f });
	expect_pool(below, 3, 3, POOL_MAX, below3);     /* padded with -inf, not 0 */
	expect_pool(below, 3, 3, POOL_AVG, low);
	expect_pool(x, 1, 5, POOL_AVG, (const float[]){ 0.14f });
	expect_pool(x, 0, 5, POOL_AVG, NULL);
}

/* Each output of a long list is the sum of its own kernel, from the first row to the last. */
static void
test_long(uint32_t kernel, enum pool pool)
{
	enum { N = 1300 };
	float x[N], y[N + 1], want;
	uint32_t i, j;

	for (i = 0; i < N; i++)
		x[i] = (float)((i * 2654435761u >> 8) % 10007) / 10007 - 0.3f;
	y[N] = 7;
	pool_rows(y, x, N, kernel, pool);
	for (i = 0; i < N; i++) {
		want = pool == POOL_AVG ? 0 : -INFINITY;
		for (j = i > kernel / 2 ? i - kernel / 2 : 0; j < N && j <= i + kernel / 2; j++)
			want = pool == POOL_AVG ? want + x[j] : fmaxf(want, x[j]);
		want = pool == POOL_AVG ? want / (float)kernel : want;
		check(y[i] == want, "kernel %u, pool %d: row %u of many is %.9g, must be %.9g",
		    kernel, pool, i, y[i], want);
	}
	check(y[N] == 7, "kernel %u, pool %d: behind the rows", kernel, pool);
}

static void
expect_reduce(const float *x, size_t stride, uint32_t R, enum reduce how, const float *want)
{
	float y[2];

	reduce_group(y, x, stride, R, 2, how);
	check(memcmp(y, want, sizeof y) == 0, "reduction %d of %u: %g %g, must be %g %g", how, R,
	    y[0], y[1], want[0], want[1]);
}

static void
test_reduce(void)
{
	static const float x[] = { 1, 2, 3, 6, 10, 0, 20, 4 };
	static const float apart[] = { 1, 2, -9, -9, 3, 6, -9, -9 };
	float in_place[] = { 1, 2, 3, 6 };

	expect_reduce(x, 2, 2, REDUCE_MEAN, (const float[]){ 2, 4 });
	expect_reduce(x + 4, 2, 2, REDUCE_MEAN, (const float[]){ 15, 2 });
	expect_reduce(x, 2, 2, REDUCE_MAX, (const float[]){ 3, 6 });
	expect_reduce(x + 4, 2, 2, REDUCE_MAX, (const float[]){ 20, 4 });
	expect_reduce(x, 2, 2, REDUCE_SUM, (const float[]){ 4, 8 });
	expect_reduce(x + 4, 2, 2, REDUCE_SUM, (const float[]){ 30, 4 });
	expect_reduce(x, 2, 1, REDUCE_MEAN, (const float[]){ 1, 2 });
	expect_reduce(apart, 4, 2, REDUCE_SUM, (const float[]){ 4, 8 });
	reduce_group(in_place, in_place, 2, 2, 2, REDUCE_SUM);
	check(in_place[0] == 4 && in_place[1] == 8, "in place: %g %g", in_place[0], in_place[1]);
}

static void
expect_rate(uint32_t rows, double rate, uint32_t want)
{
	uint64_t got = budget_of_rate(rows, rate);

	check(got == want, "%g of %u rows is %u, must be %u", rate, rows, (unsigned)got, want);
}

static void
test_rate(void)
{
	expect_rate(10, 0.2, 2);
	expect_rate(10, 1 - 0.8, 2);                    /* 1.9999999999999996 */
	expect_rate(10, 0.29, 2);
	expect_rate(100, 0.29, 29);                     /* 28.999999999999996 */
	expect_rate(7, 1, 7);
	expect_rate(0, 0.5, 0);
	expect_rate(3, 0.1, 0);
	expect_rate(UINT32_MAX, 1, UINT32_MAX);
	expect_rate(32768, 0.1, 3276);
}

int
main(void)
{
	uint32_t k;

	test_pool();
	for (k = 3; k < 2700; k = 3 * k - 2) {
		test_long(k, POOL_AVG);
		test_long(k, POOL_MAX);
	}
	test_reduce();
	test_rate();
	return failures != 0;
}
