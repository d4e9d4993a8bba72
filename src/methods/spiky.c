/* spiky.c - chunks of rows of which some keep only their best rows (kvpress's EntropyGatedChunkKV)
 *
 * ChunkKV keeps chunks as a whole, since neighbours belong together. A chunk with a high mean may
 * owe it to one row, and costs as many rows as any other. So a chunk that is important (its mean is
 * at least the median of all) and spiky (the entropy of its scores is below the median) keeps only
 * its `spiky` best rows, and further chunks get the others. The rule is that of kvpress's
 * EntropyGatedChunkKVPress:
 *
 * The entropy of a chunk of n rows is e = -sum p ln(p + 1e-8) / ln n, within 0 .. 1, where the p
 * are its scores over their sum + 1e-8, first moved up so that none is below 0; e = 0 for one row.
 * Medians are those of all chunks, the lower one of two. From the greatest mean on (of equal ones
 * the first) chunks take their rows, as long as some are left; the last one gets its best rows.
 * If all have taken theirs and some of the budget is left, the best of the other rows stay, too. So
 * exactly as many rows stay as the budget says, also where its end is within a chunk.
 *
 * Ours differs in this: rows that are always kept (+inf) stay first of all. A chunk that has m of
 * them is first in order, has the entropy ln m / ln n, to which the formula tends when they grow,
 * and keeps all of them, spiky or not. Scores of -inf are no weight beside others. In double
 * precision; of equal scores the lower row stays. */
#include <math.h>
#include <stdlib.h>

#include "methods/budgets.h"

#define EPSILON 1e-8

struct chunk {
	uint32_t first, n;      /* rows */
	uint32_t always;        /* of them always kept */
	double mean, entropy;
};

static double
entropy(const float *score, uint32_t n, uint32_t always)
{
	uint32_t i, none = 0;
	double least = 0, sum = 0, e = 0, p;

	for (i = 0; i < n; i++) {
		none += score[i] == -INFINITY;
		least = score[i] < least ? score[i] : least;
	}
	if (n == 1 || none == n)
		return 0;
	if (always > 0 || none > 0)
		return log(always > 0 ? always : n - none) / log(n);
	for (i = 0; i < n; i++)
		sum += score[i] - least;
	for (i = 0; i < n; i++) {
		p = (score[i] - least) / (sum + EPSILON);
		e -= p * log(p + EPSILON);
	}
	e /= log(n);
	return e < 0 ? 0 : e > 1 ? 1 : e;
}

static void
judge(struct chunk *c, const float *score, uint32_t first, uint32_t n)
{
	uint32_t i;

	*c = (struct chunk){ .first = first, .n = n };
	for (i = 0; i < n; i++) {
		c->always += score[first + i] == INFINITY;
		c->mean += score[first + i];
	}
	c->mean = c->always > 0 ? INFINITY : c->mean / n;
	c->entropy = entropy(score + first, n, c->always);
}

static int
by_mean(const void *x, const void *y)
{
	const struct chunk *a = x, *b = y;

	if (a->mean != b->mean)
		return a->mean < b->mean ? 1 : -1;
	return a->first < b->first ? -1 : 1;
}

static int
rising(const void *x, const void *y)
{
	const double a = *(const double *)x, b = *(const double *)y;

	return (a > b) - (a < b);
}

/* Marks the rows of a chunk that are always kept, and `more` others, the best ones. */
static void
take(uint8_t *stay, const struct chunk *c, const float *score, uint32_t more, uint32_t *row)
{
	uint32_t i;

	select_top(score + c->first, c->n, c->always + more, row);
	for (i = 0; i < c->always + more; i++)
		stay[c->first + row[i]] = 1;
}

/* Marks the rows that chunks take, in the order of these; `left` rows at most besides those that
 * are always kept. Returns how many are left over. */
static uint32_t
take_all(uint8_t *stay, const struct chunk *chunk, uint32_t chunks, double middle,
    const float *score, uint32_t spiky, uint32_t left, uint32_t *row)
{
	const double median = chunk[chunks - 1 - (chunks - 1) / 2].mean;
	const struct chunk *c;
	uint32_t most, more;

	for (c = chunk; c < chunk + chunks; c++) {
		most = c->mean >= median && c->entropy < middle && spiky < c->n ? spiky : c->n;
		more = most > c->always ? most - c->always : 0;
		more = more < left ? more : left;
		take(stay, c, score, more, row);
		left -= more;
	}
	return left;
}

/* Marks the `left` best rows that are not marked. */
static void
take_rest(uint8_t *stay, const float *score, uint32_t n, uint32_t left, float *rest, uint32_t *row)
{
	uint32_t i, j, at, m = 0;

	for (i = 0; i < n; i++)
		if (!stay[i])
			rest[m++] = score[i];
	select_top(rest, m, left, row);
	for (i = 0, j = 0, at = 0; j < left; i++)
		if (!stay[i] && at++ == row[j]) {
			stay[i] = 1;
			j++;
		}
}

int
select_spiky(const float *score, uint32_t n, uint32_t k, uint32_t size, uint32_t spiky,
    uint32_t *keep)
{
	const uint32_t chunks = n / size + (n % size != 0);
	struct chunk *chunk = malloc(chunks * sizeof *chunk + 1);
	double *entropies = malloc(chunks * sizeof *entropies + 1);
	uint8_t *stay = calloc((size_t)n + 1, 1);
	float *rest = malloc(n * sizeof *rest + 1);
	uint32_t *row = malloc(n * sizeof *row + 1);
	const int room = chunk && entropies && stay && rest && row;
	uint32_t i, left = k;

	for (i = 0; room && i < chunks; i++) {
		judge(&chunk[i], score, i * size, n - i * size < size ? n - i * size : size);
		entropies[i] = chunk[i].entropy;
		left -= chunk[i].always;
	}
	if (room && k > 0) {
		qsort(chunk, chunks, sizeof *chunk, by_mean);
		qsort(entropies, chunks, sizeof *entropies, rising);
		left = take_all(stay, chunk, chunks, entropies[(chunks - 1) / 2], score, spiky,
		    left, row);
		take_rest(stay, score, n, left, rest, row);
	}
	for (i = 0; room && i < n; i++)
		if (stay[i])
			*keep++ = i;
	free(chunk);
	free(entropies);
	free(stay);
	free(rest);
	free(row);
	return room ? EVICT_OK : EVICT_ENOMEM;
}
