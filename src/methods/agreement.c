/* agreement.c - how far two lists of scores of the same rows agree
 *
 * Kendall's tau-b by Knight's algorithm (1966): after sorting by the first score, and by the
 * second one among ties, the discordant pairs are the exchanges of a merge sort by the second
 * score. Ties are counted in runs of equal numbers. Counts are exact: n < 2^32 rows have fewer
 * than 2^63 pairs. */
#include <math.h>
#include <stdlib.h>

#include "methods/agreement.h"
#include "methods/methods.h"

static int
in_order(const void *x, const void *y)
{
	const struct score_pair *p = x, *q = y;

	if (p->a != q->a)
		return p->a < q->a ? -1 : 1;
	return p->b < q->b ? -1 : p->b > q->b;
}

static int64_t
pairs_of(uint64_t n)
{
	return n < 2 ? 0 : (int64_t)(n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n);
}

/* Returns the pairs of rows with equal a; *joint <- those with equal b as well. The list is
 * sorted. */
static int64_t
ties_of_a(const struct score_pair *pair, uint32_t n, int64_t *joint)
{
	uint32_t i, same_a = 0, same = 0;
	int64_t ties = 0;

	*joint = 0;
	for (i = 0; i < n; i++) {
		same_a++;
		same++;
		if (i + 1 == n || pair[i].a != pair[i + 1].a) {
			ties += pairs_of(same_a);
			same_a = 0;
		}
		if (same_a == 0 || pair[i].b != pair[i + 1].b) {
			*joint += pairs_of(same);
			same = 0;
		}
	}
	return ties;
}

/* As ties_of_a(), for a sorted list of single scores. */
static int64_t
ties_of(const float *sorted, uint32_t n)
{
	uint32_t i, same = 0;
	int64_t ties = 0;

	for (i = 0; i < n; i++) {
		same++;
		if (i + 1 == n || sorted[i] != sorted[i + 1]) {
			ties += pairs_of(same);
			same = 0;
		}
	}
	return ties;
}

/* to[n] <- the merge of the sorted lists from[0 .. half-1] and from[half .. n-1]. Returns the
 * number of exchanges: pairs in which the second list's element is less than the first's. */
static int64_t
merge(float *to, const float *from, size_t half, size_t n)
{
	size_t i = 0, j = half;
	int64_t wrong = 0;

	while (i < half && j < n)
		if (from[j] < from[i]) {
			wrong += (int64_t)(half - i);
			*to++ = from[j++];
		} else
			*to++ = from[i++];
	while (i < half)
		*to++ = from[i++];
	while (j < n)
		*to++ = from[j++];
	return wrong;
}

/* Sorts *list[n] with *scratch[n], and may swap the two pointers. Returns the number of
 * exchanges. */
static int64_t
sort_counting(float **list, float **scratch, size_t n)
{
	size_t width, at, part;
	int64_t wrong = 0;
	float *swap;

	for (width = 1; width < n; width *= 2) {
		for (at = 0; at < n; at += 2 * width) {
			part = n - at < 2 * width ? n - at : 2 * width;
			wrong += merge(*scratch + at, *list + at, part < width ? part : width,
			    part);
		}
		swap = *list;
		*list = *scratch;
		*scratch = swap;
	}
	return wrong;
}

double
kendall_tau(struct score_pair *pair, float *scratch, uint32_t n)
{
	const int64_t all = pairs_of(n);
	int64_t in_a, in_b, joint, wrong;
	float *list = scratch, *other = (float *)pair;
	uint32_t i;

	qsort(pair, n, sizeof *pair, in_order);
	in_a = ties_of_a(pair, n, &joint);
	for (i = 0; i < n; i++)
		list[i] = pair[i].b;
	wrong = sort_counting(&list, &other, n);        /* the pairs are not used any more */
	in_b = ties_of(list, n);
	if (in_a == all || in_b == all)
		return NAN;
	return (double)(all - in_a - in_b + joint - 2 * wrong) /
	    sqrt((double)(all - in_a) * (double)(all - in_b));
}

double
score_recall(const float *a, const float *b, uint32_t n, double rate, uint32_t *best)
{
	uint32_t k = (uint32_t)budget_of_rate(n, rate), i = 0, j = 0, both = 0;
	uint32_t *const best_a = best, *const best_b = best + n;

	k = k > 0 ? k : 1;
	select_top(a, n, k, best_a);
	select_top(b, n, k, best_b);
	while (i < k && j < k)
		if (best_a[i] == best_b[j]) {
			both++;
			i++;
			j++;
		} else if (best_a[i] < best_b[j])
			i++;
		else
			j++;
	return (double)both / k;
}

double
sum_of_greatest(const float *score, uint32_t n, uint32_t k, uint32_t *best)
{
	double sum = 0;
	uint32_t i;

	select_top(score, n, k, best);
	for (i = 0; i < k; i++)
		sum += score[best[i]];
	return sum;
}
