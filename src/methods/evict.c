/* evict.c - which rows of a layer stay: the one driver under all methods
 *
 * First the rows are ranked by score, with the always-kept ones (sinks, recent rows, scores of
 * +inf) before all others. Then each KV head gets a number of rows: the budget, or a policy's
 * share of it (pyramid.c, adaptive.c, global.c). It keeps that many rows, the first in rank.
 * Chooses row numbers and moves no data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/budgets.h"

/* ---- ranking ---- */

uint32_t
always_kept(const struct always *a)
{
	return a->sink + a->recent + a->infinite;
}

void
ranked_free(struct ranked *r)
{
	free(r->old);
	free(r->n);
	free(r->always);
	free(r->rank);
	memset(r, 0, sizeof *r);
}

static int
is_streaming(const struct evict_input *in, uint32_t g)
{
	return in->streaming != NULL && in->streaming[g];
}

/* Returns the sinks and recent rows of KV head g, whose n rows from r->old[g] on are ranked.
 * Positions are ascending: sinks are first, recent rows last. */
static struct always
count_always(const struct ranked *r, uint32_t g, const struct evict_input *in,
    const struct evict_options *opt)
{
	const uint32_t sink = is_streaming(in, g) ? opt->stream_sink : opt->sink;
	const uint32_t recent = is_streaming(in, g) ? opt->stream_recent : opt->recent;
	const uint32_t from = recent < in->next_position ? in->next_position - recent : 0;
	const uint32_t *pos = in->rows->pos[g] + r->old[g];
	const uint32_t n = r->n[g], sinks = kv_rows_before(pos, n, sink);
	const uint32_t first = kv_rows_before(pos, n, from > sink ? from : sink);

	return (struct always){ .sink = sinks, .recent = n - first };
}

/* Ranks the rows of KV head g; a streaming head ignores scores. */
static void
rank_one(struct ranked *r, float *rank, uint32_t g, const float *score,
    const struct evict_input *in, const struct evict_options *opt)
{
	const int scored = score != NULL && !is_streaming(in, g);
	struct always *always = &r->always[g];
	uint32_t i, end;

	if (r->n[g] == 0)
		return;
	*always = count_always(r, g, in, opt);
	end = r->n[g] - always->recent;
	for (i = 0; i < r->n[g]; i++) {
		if (i < always->sink || i >= end) {
			rank[i] = INFINITY;
			continue;
		}
		rank[i] = scored ? score[r->old[g] + i] : 0;
		always->infinite += rank[i] == INFINITY;
	}
}

/* Sets the ranks of all heads to their mean, with +inf for rows that any head always keeps. */
static int
share_rank(struct ranked *r, const struct kv_rows *rows, char *why, size_t size)
{
	uint32_t n = r->n[0], g, i, infinite = 0;
	double sum;

	for (g = 1; g < r->heads; g++)
		if (rows->count[g] != rows->count[0] || (n > 0 && memcmp(rows->pos[g],
		    rows->pos[0], rows->count[0] * sizeof *rows->pos[0]) != 0)) {
			snprintf(why, size, "KV heads 0 and %u have different rows: they cannot "
			    "keep the same ones", g);
			return EVICT_EINPUT;
		}
	for (i = 0; i < n; i++) {
		for (sum = 0, g = 0; g < r->heads; g++)
			sum += r->rank[(size_t)g * n + i];
		for (g = 0; g < r->heads && sum != INFINITY; g++)
			if (r->rank[(size_t)g * n + i] == INFINITY)     /* -inf + inf */
				sum = INFINITY;
		infinite += sum == INFINITY;
		for (g = 0; g < r->heads; g++)
			r->rank[(size_t)g * n + i] = (float)(sum / r->heads);
	}
	for (g = 0; g < r->heads; g++)
		r->always[g].infinite = infinite - r->always[g].sink - r->always[g].recent;
	return EVICT_OK;
}

/* Gives the rows of a chunk their mean rank. All heads have the same ranks; with fewer rows than a
 * chunk they stay as they are, as in kvpress's ChunkKVPress. */
static void
rank_chunks(struct ranked *r, uint32_t chunk)
{
	const uint32_t n = r->n[0];
	uint32_t first, i, g, rows, stays, infinite = 0;
	double sum;

	if (n < chunk)
		return;
	r->chunk = chunk;
	for (first = 0; first < n; first += rows) {
		rows = n - first < chunk ? n - first : chunk;
		for (sum = 0, stays = 0, i = first; i < first + rows; i++) {
			stays |= r->rank[i] == INFINITY;
			sum += r->rank[i];
		}
		if (stays) {                            /* also beside -inf */
			sum = INFINITY;
			infinite += rows;
		}
		for (i = first; i < first + rows; i++)
			for (g = 0; g < r->heads; g++)
				r->rank[(size_t)g * n + i] = (float)(sum / rows);
	}
	for (g = 0; g < r->heads; g++)
		r->always[g].infinite = infinite - r->always[g].sink - r->always[g].recent;
}

int
rank_layer(struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size)
{
	const struct kv_rows *rows = in->rows;
	const float *score = in->score;
	float *rank;
	uint32_t g;
	int code;

	r->heads = rows->heads;
	r->old = calloc(rows->heads, sizeof *r->old);
	r->n = calloc(rows->heads, sizeof *r->n);
	r->always = calloc(rows->heads, sizeof *r->always);
	r->rank = malloc(kv_rows_total(rows) * sizeof *r->rank + 1);
	if (r->old == NULL || r->n == NULL || r->always == NULL || r->rank == NULL)
		return EVICT_ENOMEM;
	for (g = 0, rank = r->rank; g < rows->heads; rank += r->n[g++]) {
		if (!is_streaming(in, g))
			r->old[g] = kv_rows_before(rows->pos[g], rows->count[g], opt->since);
		r->n[g] = rows->count[g] - r->old[g];
		rank_one(r, rank, g, score, in, opt);
		if (score != NULL)
			score += rows->count[g];
	}
	r->chunk = 1;
	if (!opt->same_rows)
		return EVICT_OK;
	if ((code = share_rank(r, rows, why, size)) == EVICT_OK && opt->chunk != 0 &&
	    opt->spiky == 0)
		rank_chunks(r, opt->chunk);
	return code;
}

/* ---- budgets ---- */

static uint32_t
chunks_of(uint32_t rows, uint32_t chunk)
{
	return rows / chunk + (rows % chunk != 0);
}

uint32_t
budget_wanted(const struct evict_options *opt, const struct evict_input *in, uint32_t g,
    uint32_t n, uint32_t chunk, double *real)
{
	const struct head_budget *own = in->head_budget != NULL ? &in->head_budget[g] : NULL;
	const uint32_t rows = own == NULL ? opt->budget : own->rate < 0 ? own->rows : 0;
	const double rate = own == NULL ? opt->rate : own->rate;
	const uint32_t base = in->tokens == 0 ? n : chunks_of(in->tokens, chunk);
	const int by_rows = own == NULL ? rows != 0 : own->rate < 0;

	if (real != NULL)
		*real = by_rows ? (double)rows / chunk : base * rate;
	return by_rows ? rows / chunk : (uint32_t)budget_of_rate(base, rate);
}

/* Returns the numbers from which the budget of KV head g is computed: of rows, or of chunks. */
static struct layer_share
share_of(const struct ranked *r, uint32_t g, const struct evict_input *in,
    const struct evict_options *opt)
{
	struct layer_share share = { .l = in->layer, .L = in->layers,
		.skipped_before = in->skipped_before, .skipped = in->skipped,
		.n = chunks_of(r->n[g], r->chunk),
		.always = chunks_of(always_kept(&r->always[g]), r->chunk) };

	share.wanted = budget_wanted(opt, in, g, share.n, r->chunk, &share.wanted_real);
	return share;
}

static int
refuse_small(const struct ranked *r, uint32_t g, uint32_t count, char *why, size_t size)
{
	const struct always *a = &r->always[g];

	snprintf(why, size, "KV head %u: a budget of %u of %u rows is too small: %u are always "
	    "kept (%u sink, %u recent, %u scored +inf)", g, count, r->n[g], always_kept(a), a->sink,
	    a->recent, a->infinite);
	return EVICT_EBUDGET;
}

/* Returns the rows of the k first chunks in rank: the last chunk may be shorter. */
static uint32_t
rows_of_chunks(const struct ranked *r, uint32_t k)
{
	const uint32_t n = r->n[0], c = r->chunk, last = (chunks_of(n, c) - 1) * c;
	uint32_t i, before = 0;

	if (n % c == 0 || k == 0)
		return k * c;
	for (i = 0; i < last; i += c)
		before += r->rank[i] >= r->rank[last];
	return k * c - (before < k ? c - n % c : 0);
}

/* out->count[g] <- rows of KV head g before heads share, at most all: at least the always-kept
 * rows, and a budget of zero does not empty a head. */
static int
set_budget(struct kept *out, const struct ranked *r, uint32_t g, const struct evict_input *in,
    const struct evict_options *opt, char *why, size_t size)
{
	const struct layer_share share = share_of(r, g, in, opt);
	const int none = share.wanted == 0 && share.n > 0;
	const uint32_t least = none && share.always == 0 && r->old[g] == 0 ? 1 : share.always;
	uint32_t *count = &out->count[g];

	if (is_streaming(in, g)) {
		*count = share.always;
		return EVICT_OK;
	}
	*count = opt->policy != NULL ? opt->policy->layers(&share) : layers_uniform(&share);
	if (opt->refuse_small && (*count < least || none))
		return refuse_small(r, g, *count * r->chunk, why, size);
	if (share.n > share.wanted) {
		out->given += *count * r->chunk;
		out->budget += share.wanted_real * r->chunk;
		out->budgets++;
	}
	if (*count < least) {
		if (out->beyond < (least - *count) * r->chunk)
			out->beyond = (least - *count) * r->chunk;
		*count = least;
	}
	if (r->chunk > 1)
		*count = rows_of_chunks(r, *count);
	return EVICT_OK;
}

/* out->count[G] <- how many rows have at least the threshold, or are always kept; one, or one
 * chunk, where a head would have none. */
static void
count_above(struct kept *out, const struct ranked *r, double threshold)
{
	const float *rank = r->rank;
	uint32_t g, i;

	for (g = 0; g < r->heads; rank += r->n[g++]) {
		for (out->count[g] = 0, i = 0; i < r->n[g]; i++)
			out->count[g] += rank[i] >= threshold;
		if (out->count[g] == 0 && r->old[g] == 0 && r->n[g] > 0)
			out->count[g] = rows_of_chunks(r, 1);
	}
}

/* out->count[G] <- how many of the ranked rows stay. */
static int
share_budget(struct kept *out, const struct ranked *r, const struct evict_input *in,
    const struct evict_options *opt, char *why, size_t size)
{
	uint32_t g;
	int code;

	if (in->count != NULL) {
		memcpy(out->count, in->count, r->heads * sizeof *out->count);
		return EVICT_OK;
	}
	if (opt->by_threshold) {
		count_above(out, r, opt->threshold);
		return EVICT_OK;
	}
	for (g = 0; g < r->heads; g++)
		if ((code = set_budget(out, r, g, in, opt, why, size)) != EVICT_OK)
			return code;
	return opt->policy != NULL ? opt->policy->heads(out->count, r, opt, why, size) : EVICT_OK;
}

/* ---- choosing ---- */

/* keep[k] <- the sinks and the last of the n rows, which include the recent ones. */
static void
select_last(uint32_t n, uint32_t k, uint32_t sinks, uint32_t *keep)
{
	uint32_t i;

	for (i = 0; i < k; i++)
		keep[i] = i < sinks ? i : n - k + i;
}

/* Chooses out->count rows of each head, and adds the rows that are not ranked. */
static int
choose(const struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    struct kept *out)
{
	const float *rank = r->rank;
	uint32_t g, i, *keep;

	for (g = 0; g < r->heads; rank += r->n[g++]) {
		keep = malloc(((size_t)r->old[g] + out->count[g]) * sizeof *keep + 1);
		if ((out->keep[g] = keep) == NULL)
			return EVICT_ENOMEM;
		for (i = 0; i < r->old[g]; i++)
			*keep++ = i;
		if (in->score != NULL && opt->spiky != 0) {
			if (select_spiky(rank, r->n[g], out->count[g], opt->chunk, opt->spiky,
			    keep) != EVICT_OK)
				return EVICT_ENOMEM;
		} else if (in->score != NULL)
			select_top(rank, r->n[g], out->count[g], keep);
		else
			select_last(r->n[g], out->count[g], r->always[g].sink, keep);
		for (i = 0; i < out->count[g]; i++)
			keep[i] += r->old[g];
		out->count[g] += r->old[g];
	}
	return EVICT_OK;
}

void
mean_norms(float *mean, const float *lists, const struct kv_rows *rows, uint32_t R)
{
	uint32_t g, r, i, n;
	double sum;

	for (g = 0; g < rows->heads; g++, lists += (size_t)R * n)
		for (n = rows->count[g], i = 0; i < n; i++) {
			for (sum = 0, r = 0; r < R; r++)
				sum += lists[(size_t)r * n + i];
			*mean++ = (float)(sum / R);
		}
}

/* Changes the ranks of a KV head, `count` of whose rows will be chosen: the first ones in rank
 * stay, the others are weighed by their norms (CriticalKV, Feng et al. 2025, algorithm 1). */
static int
weigh_rest(float *rank, uint32_t n, uint32_t count, const float *norm,
    const struct evict_options *opt)
{
	uint32_t first = (uint32_t)(count * opt->first_stage), i, *list;

	if (first == 0 && count > 0)
		first = 1;
	if ((list = malloc(first * sizeof *list + 1)) == NULL)
		return EVICT_ENOMEM;
	select_top(rank, n, first, list);
	for (i = 0; i < first; i++)
		rank[list[i]] = INFINITY;
	for (i = 0; i < n; i++)
		if (rank[i] != INFINITY)
			rank[i] = (rank[i] + (float)opt->epsilon) * norm[i];
	free(list);
	return EVICT_OK;
}

static int
weigh_layer(struct ranked *r, const struct evict_input *in, const struct evict_options *opt,
    const uint32_t *count)
{
	const float *norm = in->norms;
	float *rank = r->rank;
	uint32_t g;
	int code = EVICT_OK;

	for (g = 0; code == EVICT_OK && g < r->heads; rank += r->n[g++]) {
		if (!is_streaming(in, g))
			code = weigh_rest(rank, r->n[g], count[g], norm + r->old[g], opt);
		norm += in->rows->count[g];
	}
	return code;
}

int
evict_choose(const struct evict_input *in, const struct evict_options *opt, struct kept *out,
    char *why, size_t size)
{
	struct ranked r;
	int code = rank_layer(&r, in, opt, why, size);

	memset(out, 0, sizeof *out);
	if (code == EVICT_OK) {
		out->count = calloc(r.heads, sizeof *out->count);
		out->keep = calloc(r.heads, sizeof *out->keep);
		out->heads = r.heads;
		if (out->count == NULL || out->keep == NULL)
			code = EVICT_ENOMEM;
	}
	if (code == EVICT_OK)
		code = share_budget(out, &r, in, opt, why, size);
	if (code == EVICT_OK && opt->first_stage > 0 && in->norms != NULL)
		code = weigh_layer(&r, in, opt, out->count);
	if (code == EVICT_OK)
		code = choose(&r, in, opt, out);
	ranked_free(&r);
	if (code != EVICT_OK)
		kept_free(out);
	return code;
}

/* ---- the choice of a device ---- */

int
evict_plans(const struct evict_input *in, const struct evict_options *opt)
{
	return in->count == NULL && !opt->same_rows && !opt->by_threshold && opt->since == 0 &&
	    opt->first_stage == 0 &&
	    (opt->policy == NULL || (!policy_shares(opt->policy) && !opt->policy->global));
}

static int
plan_rows(struct evict_plan *out, struct ranked *r, const struct evict_input *in,
    const struct evict_options *opt, const uint32_t *scored)
{
	const uint32_t G = in->rows->heads;
	uint32_t g;

	*r = (struct ranked){ .heads = G, .chunk = 1, .old = calloc(G, sizeof *r->old),
	    .n = calloc(G, sizeof *r->n), .always = calloc(G, sizeof *r->always) };
	*out = (struct evict_plan){ .kept = { .heads = G, .count = calloc(G, sizeof *scored) },
	    .first = calloc(G, sizeof *out->first), .last = calloc(G, sizeof *out->last) };
	if (r->old == NULL || r->n == NULL || r->always == NULL || out->kept.count == NULL ||
	    out->first == NULL || out->last == NULL)
		return EVICT_ENOMEM;
	for (g = 0; g < G; g++) {
		r->n[g] = in->rows->count[g];
		r->always[g] = count_always(r, g, in, opt);
		out->first[g] = r->always[g].sink;
		out->last[g] = r->n[g] - r->always[g].recent;
		if (is_streaming(in, g) || scored[g] >= out->last[g])
			continue;
		if (scored[g] > out->first[g])
			r->always[g].infinite = out->last[g] - scored[g];
		else
			r->always[g].infinite = out->last[g] - out->first[g];
		out->last[g] -= r->always[g].infinite;
	}
	return EVICT_OK;
}

int
evict_plan(const struct evict_input *in, const struct evict_options *opt, const uint32_t *scored,
    struct evict_plan *out, char *why, size_t size)
{
	struct ranked r;
	int code = plan_rows(out, &r, in, opt, scored);

	if (code == EVICT_OK)
		code = share_budget(&out->kept, &r, in, opt, why, size);
	ranked_free(&r);
	if (code != EVICT_OK)
		evict_plan_free(out);
	return code;
}

void
evict_plan_free(struct evict_plan *plan)
{
	kept_free(&plan->kept);
	free(plan->first);
	free(plan->last);
	plan->first = plan->last = NULL;
}

void
kept_free(struct kept *kept)
{
	uint32_t g;

	for (g = 0; kept->keep != NULL && g < kept->heads; g++)
		free(kept->keep[g]);
	free(kept->keep);
	free(kept->count);
	memset(kept, 0, sizeof *kept);
}
