/* select.c - the k greatest of n scores, in linear time
 *
 * A radix search finds the k-th greatest score, 11 bits at a time: count how many scores have each
 * value of the upper 11 bits, find which of the 2048 bins holds the k-th greatest, look only into
 * that bin for the next 11 bits, and again for the last 10. Three passes over the scores, whatever
 * they are; a fourth picks everything above the threshold, and of those equal to it the first
 * ones. So the answer is exact, ties go to the lower row, and the row numbers are ascending
 * without a sort.
 *
 * If all but a few are wanted, as in the eviction after each decoded token, one pass finds the
 * lowest instead. */
#include <string.h>

#include "methods/methods.h"

#define FEW 8

/* Maps an f32 to an integer of the same order. */
static uint32_t
ordered(float score)
{
	uint32_t u;

	score += 0.0f;                  /* -0 becomes +0: they are equal, so they tie */
	memcpy(&u, &score, sizeof u);
	return u & 0x80000000 ? ~u : u | 0x80000000;
}

/* Returns the k-th greatest (k >= 1), mapped; *equal <- how many scores of that value are among
 * the k. */
static uint32_t
threshold(const float *score, size_t n, size_t k, size_t *equal)
{
	static const struct {
		unsigned shift, bits;
	} digit[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
	size_t bin[2048], i;
	uint32_t found = 0, known = 0, u, b;
	unsigned d;

	for (d = 0; d < 3; d++) {
		memset(bin, 0, sizeof bin);
		for (i = 0; i < n; i++) {
			u = ordered(score[i]);
			if ((u & known) == found)
				bin[u >> digit[d].shift & ((1u << digit[d].bits) - 1)]++;
		}
		for (b = (1u << digit[d].bits) - 1; bin[b] < k; b--)
			k -= bin[b];
		found |= b << digit[d].shift;
		known |= ((1u << digit[d].bits) - 1) << digit[d].shift;
	}
	*equal = k;
	return found;
}

/* ---- all but a few ---- */

/* Rows to drop, the lowest score first, of equal ones the later row */
struct lowest {
	uint32_t score[FEW], row[FEW];
	uint32_t n;
};

static void
insert(struct lowest *low, uint32_t score, uint32_t row, uint32_t most)
{
	uint32_t i = low->n < most ? low->n++ : most - 1;

	for (; i > 0 && low->score[i - 1] >= score; i--) {
		low->score[i] = low->score[i - 1];
		low->row[i] = low->row[i - 1];
	}
	low->score[i] = score;
	low->row[i] = row;
}

/* keep[n - few] <- all rows but the `few` lowest; few <= FEW. */
static void
drop_few(const float *score, uint32_t n, uint32_t few, uint32_t *keep)
{
	struct lowest low = { .n = 0 };
	uint32_t u, i, j, limit = UINT32_MAX, goes, from = 0;

	for (i = 0; i < n && few > 0; i++)
		if ((u = ordered(score[i])) <= limit) {
			insert(&low, u, i, few);
			if (low.n == few)
				limit = low.score[few - 1];
		}
	for (j = 0; j < few; j++) {             /* each time the first of those that are left */
		for (goes = n, i = 0; i < few; i++)
			if (low.row[i] >= from && low.row[i] < goes)
				goes = low.row[i];
		for (; from < goes; from++)
			*keep++ = from;
		from++;
	}
	for (; from < n; from++)
		*keep++ = from;
}

/* ---- */

void
select_top(const float *score, uint32_t n, uint32_t k, uint32_t *keep)
{
	uint32_t limit, u, i;
	size_t equal;

	if (k == 0)
		return;
	if (n - k <= FEW) {
		drop_few(score, n, n - k, keep);
		return;
	}
	limit = threshold(score, n, k, &equal);
	for (i = 0; i < n; i++) {
		u = ordered(score[i]);
		if (u > limit)
			*keep++ = i;
		else if (u == limit && equal > 0) {
			*keep++ = i;
			equal--;
		}
	}
}

void
select_counts(const float *score, const uint32_t *n, size_t parts, size_t k, uint32_t *count)
{
	size_t equal, total = 0, p;
	uint32_t limit, u, i;

	for (p = 0; p < parts; total += n[p++])
		count[p] = 0;
	if (k == 0)
		return;
	limit = threshold(score, total, k, &equal);
	for (p = 0; p < parts; score += n[p++])
		for (i = 0; i < n[p]; i++) {
			u = ordered(score[i]);
			if (u > limit)
				count[p]++;
			else if (u == limit && equal > 0) {
				count[p]++;
				equal--;
			}
		}
}
