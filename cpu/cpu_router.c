/* cpu_router.c - which experts the rows of a mixture take, and in which order they are computed
 *
 * Scores are f32 sums of the stored weights with x as it is, whatever other products do, and do not
 * depend on the other rows: so a row takes the same experts in any chunk, batch or step. */
#include <math.h>

#include "cpu/cpu_experts.h"

#define ROWS 64              /* of one product: so many have the sums of one alone */

/* logits[N][M] <- products in f32 */
static void
make_logits(const struct mixing *j)
{
	struct dev *d = j->d;
	const struct router *r = &j->e->router;
	const struct bf16_products *bf16 = d->bf16;
	const int exact = d->exact;
	size_t n;

	d->bf16 = NULL;
	d->exact = 1;
	for (n = 0; n < j->N; n += ROWS)
		cpu_matmul(d, j->r.logits + n * r->experts, j->x + n * r->w.in, &r->w, r->bias,
		    (uint32_t)(j->N - n < ROWS ? j->N - n : ROWS), 0);
	d->bf16 = bf16;
	d->exact = exact;
}

/* s[M] <- scores of logits; returns 0 where one is not a number */
static int
make_scores(float *s, const struct router *r)
{
	float most = -INFINITY, sum = 0;
	uint32_t e;
	int good = 1;

	for (e = 0; e < r->experts; e++) {
		good &= !isnan(s[e]);
		most = s[e] > most ? s[e] : most;
	}
	for (e = 0; r->scores != ROUTER_NEAR && e < r->experts; e++) {
		s[e] = r->scores == ROUTER_SIGMOID ? 1 / (1 + expf(-s[e])) : expf(s[e] - most);
		sum += s[e];
	}
	for (e = 0; r->scores == ROUTER_SOFTMAX && e < r->experts; e++)
		s[e] /= sum;
	return good;
}

/* Does a rank before b, which stands in front of it? A NaN ranks behind all numbers. */
static int
is_better(float a, float b)
{
	return a > b || (isnan(b) && !isnan(a));
}

/* Returns the first of the best of by[n] that are not taken. */
static uint32_t
best_of(const float *by, const uint8_t *taken, uint32_t n)
{
	uint32_t i, best = UINT32_MAX;

	for (i = 0; i < n; i++)
		if (!taken[i] && (best == UINT32_MAX || is_better(by[i], by[best])))
			best = i;
	return best;
}

/* Returns the weight of expert e among those near it that are not taken. */
static float
share_of(const struct router *r, const float *s, const uint8_t *taken, uint32_t e)
{
	float sum = 0;
	uint32_t i;

	for (i = 0; i < r->experts; i++)
		if (!taken[i] && !((s[e] - s[i]) / fmaxf(fabsf(s[i]), s[e]) > r->margin))
			sum += expf(s[i] - s[e]);
	return 1 / sum;
}

/* Takes all experts of groups that are not among the best. */
static void
leave_groups(const struct router *r, const float *by, uint8_t *taken)
{
	const uint32_t size = r->experts / r->groups;
	float score[EXPERTS_MOST];
	uint8_t chosen[EXPERTS_MOST] = { 0 };
	uint32_t g, i, one, two;

	for (g = 0; g < r->groups; g++) {
		const float *mine = by + g * size;

		one = best_of(mine, taken + g * size, size);
		score[g] = mine[one];
		if (!r->two_best || size < 2)
			continue;
		taken[g * size + one] = 1;
		two = best_of(mine, taken + g * size, size);
		taken[g * size + one] = 0;
		score[g] += mine[two];
	}
	for (i = 0; i < r->groups_chosen; i++)
		chosen[best_of(score, chosen, r->groups)] = 1;
	for (g = 0; g < r->groups; g++)
		for (i = 0; !chosen[g] && i < size; i++)
			taken[g * size + i] = 1;
}

/* The experts and weights of one row. Where a score is not a number no weight is, so that the row
 * is not, whichever experts it takes. */
static void
choose_row(void *arg, size_t n, int thread)
{
	const struct mixing *j = arg;
	const struct router *r = &j->e->router;
	float *s = j->r.logits + n * r->experts, by[EXPERTS_MOST], sum = 0;
	float *weight = j->r.weight + n * r->chosen;
	uint32_t *expert = j->r.expert + n * r->chosen, e, k;
	uint8_t taken[EXPERTS_MOST] = { 0 };
	int good = make_scores(s, r);

	(void)thread;
	for (e = 0; e < r->experts; e++) {
		by[e] = s[e] + (r->correction != NULL ? r->correction[e] : 0);
		good &= !isnan(by[e]);
	}
	if (r->groups > 1)
		leave_groups(r, by, taken);
	for (k = 0; k < r->chosen; k++) {
		expert[k] = best_of(by, taken, r->experts);
		weight[k] = r->scores == ROUTER_NEAR ? share_of(r, s, taken, expert[k]) :
		    s[expert[k]];
		taken[expert[k]] = 1;
		sum += weight[k];
	}
	for (k = 0; k < r->chosen; k++)
		weight[k] = !good ? NAN : (r->renormalise ? weight[k] / (sum + 1e-20F) :
		    weight[k]) * r->scale;
}

/* Numbers the places: experts in order, of each the rows in order. */
static void
order_places(const struct mixing *j)
{
	const struct expert_rows *r = &j->r;
	const uint32_t M = j->e->router.experts, K = j->e->router.chosen;
	const size_t all = j->N * K;
	uint32_t at = 0, busy = 0, e, n;
	size_t i;

	memset(r->first, 0, (M + 1) * sizeof *r->first);
	for (i = 0; i < all; i++)
		r->first[r->expert[i]]++;
	for (e = 0; e < M; e++) {
		n = r->first[e];
		if (n > 0)
			r->busy[1 + busy++] = e;
		r->first[e] = at;
		at += n;
	}
	r->busy[0] = busy;
	for (i = 0; i < all; i++) {
		e = r->expert[i];
		r->place[i] = r->first[e]++;
		r->row[r->place[i]] = (uint32_t)(i / K);
		r->of[r->place[i]] = e;
	}
	for (e = M; e > 0; e--)
		r->first[e] = r->first[e - 1];
	r->first[0] = 0;
}

void
cpu_route(struct mixing *j)
{
	const struct router *r = &j->e->router;

	make_logits(j);
	if (j->d->error[0] != '\0')
		return;
	cpu_run(j->d, choose_row, j, j->N, j->N * r->experts * (r->chosen + 8));
	order_places(j);
}
