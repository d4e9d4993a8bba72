/* retrieval_audit.c - the choice of a step compared with that by exact logits, and with that of the
 * step before
 *
 * Both comparisons copy the choice to the host and wait for the device, so steps with them are not
 * launched from a captured graph (retrieval_graph.c). */
#include <math.h>
#include <string.h>

#include "retrieval/retrieval_internal.h"

/* t->list <- the rows of list c of the candidates, below len. Returns their number. */
static uint32_t
list_rows(struct retrieval *t, const struct chosen *chosen, uint32_t c, uint32_t len)
{
	uint32_t n = chosen->n[c], u = chosen->rows, i, j, row, out = 0, *at = t->best_list;

	t->ops->get(t->dev, at, chosen->at + c * chosen->stride, n * sizeof *at);
	for (i = 0; i < n; i++)
		for (j = 0; j < u && (row = at[i] * u + j) < len; j++)
			t->list[out++] = row;
	return out;
}

/* Returns the share of its softmax that a query head gives to the n listed rows. */
static double
softmax_share(const float *logit, uint32_t len, const uint32_t *list, uint32_t n)
{
	double most = -INFINITY, all = 0, part = 0;
	uint32_t i;

	for (i = 0; i < len; i++)
		most = logit[i] > most ? logit[i] : most;
	for (i = 0; i < len; i++)
		all += exp(logit[i] - most);
	for (i = 0; i < n; i++)
		part += exp(logit[list[i]] - most);
	return part / all;
}

/* Returns how many numbers two ascending lists of n have in common. */
static uint32_t
in_both(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	uint32_t i = 0, j = 0, both = 0;

	while (i < n && j < n) {
		both += a[i] == b[j];
		if (a[i] < b[j])
			i++;
		else if (a[i] > b[j])
			j++;
		else
			i++, j++;
	}
	return both;
}

/* Adds what choice c, of len rows, has found to the sums, which are of `of` choices. */
static void
add_found(struct retrieval *t, struct retrieval_stats *s, uint32_t c, uint32_t len, uint32_t of)
{
	const uint32_t R = t->H / t->lists, k = list_rows(t, &t->chosen, c, len);
	double share = 0;
	uint32_t h;

	if (k == 0) {
		s->recall += 1.0 / of;
		s->mass += 1.0 / of;
		return;
	}
	t->ops->get(t->dev, t->best_list, t->best.at + c * t->best.stride,
	    k * sizeof *t->best_list);
	s->recall += (double)in_both(t->list, t->best_list, k) / k / of;
	for (h = c * R; h < (c + 1) * R; h++)
		share += softmax_share(t->logits + h * t->stride, len, t->list, k);
	s->mass += share / R / of;
}

/* Compares the choice with that by exact logits. */
void
retrieve_audit(struct retrieval *t, uint32_t l, const struct query *query,
    const struct layer_rows *rows)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	const struct layer_rows *each = retrieve_each(t, rows);
	const struct counts all = { each->len, 0 };
	const uint32_t of = t->lists / t->G;
	uint32_t c;

	t->ops->key_scores(t->dev, t->score, t->stride, query, rows);
	t->ops->get(t->dev, t->logits, t->score, t->H * t->stride * sizeof *t->logits);
	t->ops->group_reduce(t->dev, t->joint + 1, t->score, t->stride, all,
	    query->sinks, t->H, t->lists, t->opt.reduce);
	for (c = 0; c < t->lists; c++)
		t->best.n[c] = (uint32_t)retrieve_chosen_rows(t, c);
	t->ops->topk(t->dev, &t->best, t->joint + 1, t->stride, all, t->lists);
	for (c = 0; c < t->lists; c++)
		add_found(t, s + c / of, c, each->len[c], of);
}

/* bits[] <- the n listed rows, and no others. Returns how many of them were set before. */
static uint32_t
replace_rows(uint32_t *bits, size_t words, const uint32_t *list, uint32_t n)
{
	uint32_t i, both = 0;

	for (i = 0; i < n; i++)
		both += bits[list[i] / 32] >> list[i] % 32 & 1;
	memset(bits, 0, words * sizeof *bits);
	for (i = 0; i < n; i++)
		bits[list[i] / 32] |= 1u << list[i] % 32;
	return both;
}

/* Compares the choice with that of the step before, row by row, because the last page or chunk may
 * have grown since. */
void
retrieve_compare_steps(struct retrieval *t, uint32_t l, const struct layer_rows *rows)
{
	const struct chosen *read = retrieve_read(t);
	struct last_read *before = &t->before;
	uint32_t g, n, both;
	size_t i;
	int chose;

	for (g = 0; g < t->G; g++) {
		i = (size_t)l * t->G + g;
		chose = !t->whole && read->n[g] > 0 && read->n[g] < t->n[g];
		if (chose) {
			n = list_rows(t, read, g, rows->len[g]);
			both = replace_rows(before->bits + i * before->words, before->words,
			    t->list, n);
			if (before->chose[i]) {
				t->stats[i].pairs++;
				t->stats[i].overlap += (double)both / n;
			}
		}
		before->chose[i] = (uint8_t)chose;
	}
}
