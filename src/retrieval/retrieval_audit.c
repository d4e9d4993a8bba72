/* retrieval_audit.c - the choice of a step compared with that by exact logits, and with that of the
 * step before
 *
 * Both comparisons copy the choice to the host and wait for the device, so steps with them are not
 * launched from a captured graph (retrieval_graph.c). */
#include <math.h>
#include <string.h>

#include "retrieval/retrieval_internal.h"

/* list[] <- the rows of the chosen candidates of KV head g. Returns their number. */
static uint32_t
list_rows(struct retrieval *t, const struct layer_rows *rows, uint32_t g)
{
	uint32_t n = t->chosen.n[g], u = t->chosen.rows, i, j, row, out = 0, *at = t->best_list;

	t->ops->get(t->dev, at, t->chosen.at + g * t->chosen.stride, n * sizeof *at);
	for (i = 0; i < n; i++)
		for (j = 0; j < u && (row = at[i] * u + j) < rows->len[g]; j++)
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

/* Compares the choice with that by exact logits. */
void
retrieve_audit(struct retrieval *t, uint32_t l, const struct query *query,
    const struct layer_rows *rows)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	const struct counts all = { rows->len, 0 };
	uint32_t R = t->H / t->G, g, h, k;
	double share;

	t->ops->key_scores(t->dev, t->score, t->stride, query, rows);
	t->ops->get(t->dev, t->logits, t->score, t->H * t->stride * sizeof *t->logits);
	t->ops->group_reduce(t->dev, t->joint + 1, t->score, t->stride, all,
	    query->sinks, t->H, t->G, t->opt.reduce);
	for (g = 0; g < t->G; g++)
		t->best.n[g] = (uint32_t)retrieve_chosen_rows(t, g);
	t->ops->topk(t->dev, &t->best, t->joint + 1, t->stride, all, t->G);
	for (g = 0; g < t->G; g++, s++) {
		if ((k = list_rows(t, rows, g)) == 0) {
			s->recall += 1;
			s->mass += 1;
			continue;
		}
		t->ops->get(t->dev, t->best_list, t->best.at + g * t->best.stride,
		    k * sizeof *t->best_list);
		s->recall += (double)in_both(t->list, t->best_list, k) / k;
		for (share = 0, h = g * R; h < (g + 1) * R; h++)
			share += softmax_share(t->logits + h * t->stride, rows->len[g], t->list,
			    k);
		s->mass += share / R;
	}
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
	struct last_read *before = &t->before;
	uint32_t g, n, both;
	size_t i;
	int chose;

	for (g = 0; g < t->G; g++) {
		i = (size_t)l * t->G + g;
		chose = !t->whole && t->chosen.n[g] > 0 && t->chosen.n[g] < t->n[g];
		if (chose) {
			n = list_rows(t, rows, g);
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
