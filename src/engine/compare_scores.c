/* compare_scores.c - compares the scores of a layer of two snapshots
 *
 * Sums are in f64 and in the order of the rows, so that the same rows always have the same sum. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compare_scores.h"
#include "methods/agreement.h"
#include "methods/methods.h"

int
layer_agreement_init(struct layer_agreement *l, const struct kv_model *m, const double *rate,
    uint32_t rates, struct engine_error *e)
{
	*l = (struct layer_agreement){ .G = m->kv_heads, .rate = rate, .rates = rates };
	if ((l->head = engine_alloc(l->G, sizeof *l->head, e)) == NULL ||
	    (l->mass_rows = engine_alloc(l->G, sizeof *l->mass_rows, e)) == NULL ||
	    (l->mass_kept = engine_alloc(l->G, sizeof *l->mass_kept, e)) == NULL)
		return e->code;
	return ENGINE_OK;
}

static void
free_rows(struct layer_agreement *l)
{
	free(l->pair);
	free(l->a);
	free(l->b);
	free(l->best);
	l->pair = NULL;
	l->a = l->b = NULL;
	l->best = NULL;
	l->capacity = 0;
}

void
layer_agreement_free(struct layer_agreement *l)
{
	free_rows(l);
	free(l->head);
	free(l->mass);
	free(l->mass_rows);
	free(l->mass_kept);
	*l = (struct layer_agreement){ .head = NULL };
}

/* Makes room for the rows of a. */
static int
reserve(struct layer_agreement *l, const struct kv_rows *a, struct engine_error *e)
{
	const uint64_t total = kv_rows_total(a);
	uint64_t most = 1;
	uint32_t g;

	for (g = 0; g < l->G; g++)
		most = a->count[g] > most ? a->count[g] : most;
	if (most > l->capacity) {
		free_rows(l);
		if ((l->pair = engine_alloc(most, sizeof *l->pair, e)) == NULL ||
		    (l->a = engine_alloc(most, sizeof *l->a, e)) == NULL ||
		    (l->b = engine_alloc(most, sizeof *l->b, e)) == NULL ||
		    (l->best = engine_alloc(2 * most, sizeof *l->best, e)) == NULL)
			return e->code;
		l->capacity = most;
	}
	if (total > l->mass_capacity || l->mass == NULL) {
		free(l->mass);
		l->mass_capacity = 0;
		if ((l->mass = engine_alloc(total, sizeof *l->mass, e)) == NULL)
			return e->code;
		l->mass_capacity = total;
	}
	return ENGINE_OK;
}

/* ---- a KV head ---- */

/* Positions and scores of the rows of a KV head; scores NULL: none */
struct scored_rows {
	const uint32_t *pos;
	const float *score;
	uint32_t n;
};

static struct scored_rows
rows_of(const struct layer_reader *s, uint32_t g)
{
	return (struct scored_rows){ s->rows->pos[g], s->score != NULL ?
	    s->score + s->on_device.start[g] : NULL, s->rows->count[g] };
}

/* Adds a row of a to the mass. */
static void
add_mass(struct layer_agreement *l, uint32_t g, float *mass, float score, int kept)
{
	struct agreement *to = &l->head[g];

	if (score == INFINITY) {
		to->infinite++;
		return;
	}
	l->negative |= score < 0;
	mass[l->mass_rows[g]++] = score;
	l->mass_kept[g] += kept;
	to->mass.whole += score;
	if (kept)
		to->mass.kept += score;
}

/* Appends the scores of rows of both to l->a and l->b, and all rows of a to `mass`. */
static void
match_rows(struct layer_agreement *l, uint32_t g, float *mass, const struct scored_rows *a,
    const struct scored_rows *b)
{
	struct agreement *to = &l->head[g];
	uint32_t i, j = 0;
	int both;

	for (i = 0; i < a->n; i++) {
		while (j < b->n && b->pos[j] < a->pos[i])
			j++;
		both = j < b->n && b->pos[j] == a->pos[i];
		if (both && a->score != NULL && b->score != NULL) {
			l->a[to->both] = a->score[i];
			l->b[to->both] = b->score[j];
		}
		to->both += both;
		if (a->score != NULL)
			add_mass(l, g, mass, a->score[i], both);
	}
	to->only_a = a->n - to->both;
	to->only_b = b->n - to->both;
}

/* Compares the scores of the rows of both, l->a and l->b. */
static void
compare_orders(struct layer_agreement *l, struct agreement *to)
{
	const uint32_t n = (uint32_t)to->both;
	uint32_t i;
	double tau;

	if (n == 0)
		return;
	for (i = 0; i < l->rates; i++)
		to->recall[i] = score_recall(l->a, l->b, n, l->rate[i], l->best);
	to->recalls = 1;
	for (i = 0; i < n; i++)
		l->pair[i] = (struct score_pair){ l->a[i], l->b[i] };
	tau = kendall_tau(l->pair, l->a, n);
	if (!isnan(tau)) {
		to->tau = tau;
		to->taus = 1;
	}
}

/* ---- a layer ---- */

/* Limits best from below by kept: with equal scores, rounding may make the sum of the best rows
 * less than that of the kept ones. */
static double
at_least(double best, double kept)
{
	return best > kept ? best : kept;
}

/* Finds the best choices of as many rows as are kept: in each KV head, and in the layer. */
static int
find_best(struct layer_agreement *l, struct engine_error *e)
{
	uint32_t *count = engine_alloc(l->G, sizeof *count, e);
	const float *mass = l->mass;
	struct mass_kept *to;
	size_t kept = 0;
	uint32_t g;

	if (count == NULL)
		return e->code;
	for (g = 0; g < l->G; g++)
		kept += l->mass_kept[g];
	select_counts(l->mass, l->mass_rows, l->G, kept, count);
	for (g = 0; g < l->G; mass += l->mass_rows[g++]) {
		to = &l->head[g].mass;
		to->best = at_least(sum_of_greatest(mass, l->mass_rows[g], l->mass_kept[g],
		    l->best), to->kept);
		l->all.mass.shared += sum_of_greatest(mass, l->mass_rows[g], count[g], l->best);
	}
	free(count);
	return ENGINE_OK;
}

int
compare_scores(struct layer_agreement *out, const struct layer_reader *a,
    const struct layer_reader *b, struct engine_error *e)
{
	struct scored_rows x, y;
	float *mass;
	uint32_t g;

	if (reserve(out, a->rows, e) != ENGINE_OK)
		return e->code;
	memset(out->head, 0, out->G * sizeof *out->head);
	memset(out->mass_rows, 0, out->G * sizeof *out->mass_rows);
	memset(out->mass_kept, 0, out->G * sizeof *out->mass_kept);
	out->all = (struct agreement){ .both = 0 };
	out->negative = 0;
	for (g = 0, mass = out->mass; g < out->G; mass += out->mass_rows[g++]) {
		x = rows_of(a, g);
		y = rows_of(b, g);
		match_rows(out, g, mass, &x, &y);
		if (x.score != NULL && y.score != NULL)
			compare_orders(out, &out->head[g]);
	}
	if (!out->negative && find_best(out, e) != ENGINE_OK)
		return e->code;
	for (g = 0; g < out->G; g++) {
		if (out->negative)
			out->head[g].mass = (struct mass_kept){ .whole = 0 };
		agreement_add(&out->all, &out->head[g]);
	}
	out->all.mass.shared = at_least(out->all.mass.shared, out->all.mass.best);
	return ENGINE_OK;
}

/* ---- sums ---- */

void
agreement_add(struct agreement *sum, const struct agreement *more)
{
	uint32_t i;

	sum->both += more->both;
	sum->only_a += more->only_a;
	sum->only_b += more->only_b;
	sum->infinite += more->infinite;
	sum->tau += more->tau;
	sum->taus += more->taus;
	for (i = 0; i < AGREEMENT_RATES; i++)
		sum->recall[i] += more->recall[i];
	sum->recalls += more->recalls;
	sum->mass.whole += more->mass.whole;
	sum->mass.kept += more->mass.kept;
	sum->mass.best += more->mass.best;
	sum->mass.shared += more->mass.shared;
}

double
agreement_tau(const struct agreement *x)
{
	return x->taus > 0 ? x->tau / (double)x->taus : NAN;
}

double
agreement_recall(const struct agreement *x, uint32_t rate)
{
	return x->recalls > 0 ? x->recall[rate] / (double)x->recalls : NAN;
}

static double
share_of_mass(const struct agreement *x, double part)
{
	return x->mass.whole > 0 ? part / x->mass.whole : NAN;
}

double
agreement_kept(const struct agreement *x)
{
	return share_of_mass(x, x->mass.kept);
}

double
agreement_best(const struct agreement *x)
{
	return share_of_mass(x, x->mass.best);
}

double
agreement_shared(const struct agreement *x)
{
	return share_of_mass(x, x->mass.shared);
}

static double
regret(const struct agreement *x, double best)
{
	if (!(x->mass.whole > 0))
		return NAN;
	return best > 0 ? (best - x->mass.kept) / best : 0;
}

double
agreement_regret(const struct agreement *x)
{
	return regret(x, x->mass.best);
}

double
agreement_shared_regret(const struct agreement *x)
{
	return regret(x, x->mass.shared);
}
