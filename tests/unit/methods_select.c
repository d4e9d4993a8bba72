/* methods_select.c - select_top() against sorting */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

#define MOST 3000

static const float *sorting;

/* Greatest score first, equal scores by row. */
static int
by_score(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

	if (sorting[i] != sorting[j])
		return sorting[i] > sorting[j] ? -1 : 1;
	return i < j ? -1 : i > j;
}

static int
by_row(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

	return i < j ? -1 : i > j;
}

static void
compare(const float *score, uint32_t n, uint32_t k, const char *what)
{
	static uint32_t want[MOST], got[MOST + 1];
	uint32_t i;

	for (i = 0; i < n; i++)
		want[i] = i;
	sorting = score;
	qsort(want, n, sizeof *want, by_score);
	qsort(want, k, sizeof *want, by_row);
	got[k] = 0xdeadbeef;
	select_top(score, n, k, got);
	check(memcmp(want, got, k * sizeof *want) == 0, "%s: the best %u of %u differ", what, k, n);
	check(got[k] == 0xdeadbeef, "%s: more than %u of %u rows came out", what, k, n);
}

static void
compare_all(const float *score, uint32_t n, const char *what)
{
	static const uint32_t some[] = { 0, 1, 2, 3, 100, 1000, 2047 };
	size_t i;

	for (i = 0; i < sizeof some / sizeof *some; i++)
		if (some[i] <= n)
			compare(score, n, some[i], what);
	compare(score, n, n / 2, what);
	for (i = 0; i < 12 && i <= n; i++)
		compare(score, n, n - (uint32_t)i, what);
}

int
main(void)
{
	static const float special[] = { -0.0f, 0.0f, INFINITY, -INFINITY, 1e-45f, -1e-45f, 3.4e38f,
	    -3.4e38f, 0.0f, INFINITY, -0.0f, 1.0f, 1.0000001f, 0.99999994f, -1.0f, -1.0000001f };
	static float score[MOST];
	uint32_t bits, i, n, round;

	srand(1);
	for (round = 0; round < 50; round++) {
		n = (uint32_t)rand() % MOST;
		for (i = 0; i < n; i++) {               /* all finite bit patterns */
			bits = (uint32_t)rand() << 16 ^ (uint32_t)rand();
			memcpy(&score[i], &bits, sizeof bits);
			if (isnan(score[i]))
				score[i] = 0;
		}
		compare_all(score, n, "any f32");
		for (i = 0; i < n; i++)
			score[i] = (float)(rand() % 5 - 2);
		compare_all(score, n, "ties");
		for (i = 0; i < n; i++)
			score[i] = 0.5f + 0x1p-22f * (float)(rand() % 3);
		compare_all(score, n, "last bits");
	}
	n = sizeof special / sizeof *special;
	for (i = 0; i <= n; i++)
		compare(special, n, i, "special values");
	return failures != 0;
}
