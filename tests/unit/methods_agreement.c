/* methods_agreement.c - Kendall's tau-b against all pairs of rows, recall and sums by hand */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/agreement.h"
#include "tests/unit/methods_check.h"

#define MOST 700

static uint32_t
any(uint32_t below)
{
	static uint32_t x = 1;

	x = x * 1664525 + 1013904223;
	return (x >> 8) % below;
}

static int
sign(float x, float y)
{
	return (x > y) - (x < y);
}

/* By the definition. */
static double
tau_of_all_pairs(const struct score_pair *p, uint32_t n)
{
	double agree = 0, in_a = 0, in_b = 0;
	uint32_t i, j;
	int a, b;

	for (i = 0; i < n; i++)
		for (j = i + 1; j < n; j++) {
			a = sign(p[i].a, p[j].a);
			b = sign(p[i].b, p[j].b);
			agree += a * b;
			in_a += a != 0;
			in_b += b != 0;
		}
	return in_a > 0 && in_b > 0 ? agree / sqrt(in_a * in_b) : NAN;
}

static void
compare(const struct score_pair *p, uint32_t n, const char *what)
{
	static struct score_pair copy[MOST];
	static float scratch[MOST + 1];
	const double want = tau_of_all_pairs(p, n);
	double got;

	memcpy(copy, p, n * sizeof *p);
	scratch[n] = 7;
	got = kendall_tau(copy, scratch, n);
	check(isnan(want) ? isnan(got) : fabs(got - want) < 1e-14, "%s: tau of %u rows is %.17g, "
	    "want %.17g", what, n, got, want);
	check(scratch[n] == 7, "%s: more than %u elements were written", what, n);
}

/* Each of the two takes one of so many values: the fewer, the more ties. */
static void
check_ties(uint32_t values_a, uint32_t values_b)
{
	static struct score_pair p[MOST];
	uint32_t n, i;

	for (i = 0; i < MOST; i++)
		p[i] = (struct score_pair){ (float)any(values_a), (float)any(values_b) };
	for (n = 0; n < 40; n++)
		compare(p, n, "chance");
	compare(p, MOST, "chance");
	for (i = 0; i < MOST; i++)
		p[i].b = p[i].a;
	compare(p, MOST, "a list and itself");
	for (i = 0; i < MOST; i++)
		p[i].b = -p[i].a;
	compare(p, MOST, "a list and its reverse");
}

static void
check_exact(void)
{
	struct score_pair same[] = { { 1, 5 }, { 3, 9 }, { 2, 6 } };
	struct score_pair reverse[] = { { 1, 9 }, { 3, 5 }, { 2, 6 } };
	struct score_pair infinite[] = { { INFINITY, 1 }, { INFINITY, 2 }, { 0, -INFINITY },
		{ -0.0f, 0 } };
	float scratch[4];

	check(kendall_tau(same, scratch, 3) == 1, "the same order is not 1");
	check(kendall_tau(reverse, scratch, 3) == -1, "the reverse is not -1");
	check(isnan(kendall_tau(same, scratch, 1)), "one row has an order");
	check(isnan(kendall_tau(same, scratch, 0)), "no row has an order");
	/* 4 of 6 pairs are no tie in the first list, all of them agree */
	check(fabs(kendall_tau(infinite, scratch, 4) - 4 / sqrt(24)) < 1e-15,
	    "infinite scores or zeros do not tie");
}

static void
check_best(void)
{
	static const float a[] = { 5, 1, 5, 0, 5, 2 }, b[] = { 5, 5, 0, 0, 4, INFINITY };
	uint32_t best[12];

	/* 2 of 6: rows 0, 2 and 0, 5; 3 of 6: rows 0, 2, 4 and 0, 1, 5 */
	check(score_recall(a, b, 6, 0.34, best) == 0.5, "recall of 2 rows");
	check(score_recall(a, b, 6, 0.5, best) == 1.0 / 3, "recall of 3 rows");
	check(score_recall(a, b, 6, 0.01, best) == 0, "less than a row is not one row");
	check(score_recall(a, b, 6, 1, best) == 1, "recall of all rows");
	check(sum_of_greatest(a, 6, 4, best) == 17, "the sum of 4 rows");
	check(sum_of_greatest(a, 6, 0, best) == 0, "the sum of no row");
}

int
main(void)
{
	check_ties(1000000, 1000000);
	check_ties(5, 1000);
	check_ties(3, 2);
	check_ties(1, 9);
	check_exact();
	check_best();
	return failures > 0;
}
