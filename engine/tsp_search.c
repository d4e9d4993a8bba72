/* tsp_search.c - the search for the layer of token-selective propagation
 *
 * FastKV (methods/tsp.c), equation 3: over some prompts, the layer at which TSP takes the final
 * hidden state least far away from that of a full run, in mean squared L2 norm. The paper's
 * authors published no code for it, and the paper does not say which hidden states it means. Here:
 * those behind the final norm, which the model's output is computed from; the choice goes by the
 * last token, which every run has, and the table also has the mean over all tokens that go on.
 *
 * Each layer's keys and values are dropped before the next one runs, so that memory holds one
 * layer, the residual stream two times, and the final states. */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "engine/token_select.h"

/* What TSP at one layer does, sums over the prompts. */
struct distance {
	double last;            /* |H - H'|^2 of the last token */
	double surviving;       /* the same of the tokens that go on, their mean */
};

static char err[512];

static void
must_run(int rc)
{
	if (rc != 0)
		die(EXIT_RUN, "%s", err[0] != '\0' ? err : "out of memory");
}

static uint64_t steps;

/* Layers l0 .. l1-1, whose keys and values nobody needs any more. */
static void
pass(struct prompt_stream *s, struct workspace *ws, uint32_t l0, uint32_t l1)
{
	uint32_t l;

	for (l = l0; l < l1; l++) {
		must_run(prompt_run(s, ws, l, l + 1, NULL, err, sizeof err));
		must_run(cache_clear(s->cache));
		progress(++steps);
	}
}

/* [N][D] behind the final norm; the stream is of no use afterwards. To be freed. */
static float *
final_states(struct prompt_stream *s)
{
	const struct model *m = s->cache->model;
	uint32_t D = m->id.hidden;
	float *states = must_alloc((size_t)s->N * D, sizeof *states);
	const char *failure;

	m->ops->rmsnorm(m->dev, s->x, s->x, m->norm.w, s->N, D, m->norm.eps);
	m->ops->get(m->dev, states, s->x, (size_t)s->N * D * sizeof *states);
	if ((failure = m->ops->sync(m->dev)) != NULL)
		die(EXIT_RUN, "%s", failure);
	return states;
}

static double
squared_distance(const float *a, const float *b, uint32_t D)
{
	double sum = 0, d;
	uint32_t i;

	for (i = 0; i < D; i++) {
		d = (double)a[i] - b[i];
		sum += d * d;
	}
	return sum;
}

/* Adds what TSP at layer l does, where s stands before it; full[N][D] is without TSP. */
static void
try_layer(struct prompt_stream *s, struct workspace *ws, uint32_t l, const float *full,
    struct distance *to)
{
	uint32_t D = s->cache->model->id.hidden, *keep, k, i;
	struct prompt_stream branch;
	double far = 0, sum = 0;
	float *states;

	selecting_watch_tsp(s, l);
	must_run(prompt_run(s, ws, l, l + 1, NULL, err, sizeof err));
	keep = selecting_tsp(s, &k);
	must_run(cache_clear(s->cache));
	must_run(prompt_branch(s, &branch, keep, k));
	pass(&branch, ws, l + 1, s->cache->model->id.layers);
	states = final_states(&branch);
	for (i = 0; i < k; i++) {
		far = squared_distance(full + (size_t)keep[i] * D, states + (size_t)i * D, D);
		sum += far;
	}
	to->last += far;
	to->surviving += sum / k;
	prompt_close(&branch);
	free(states);
	free(keep);
}

static void
try_prompt(struct cache *c, struct workspace *ws, const struct prompt *p, uint32_t max,
    struct distance *to)
{
	struct prompt_stream s;
	float *full;
	uint32_t l;

	c->n_tokens = 0;
	must_run(prompt_open(&s, c, NULL, p->ids, p->n, err, sizeof err));
	pass(&s, ws, 0, c->model->id.layers);
	full = final_states(&s);
	prompt_close(&s);
	must_run(prompt_open(&s, c, NULL, p->ids, p->n, err, sizeof err));
	for (l = 0; l <= max; l++)
		try_layer(&s, ws, l, full, &to[l]);
	prompt_close(&s);
	must_run(cache_clear(c));
	free(full);
}

/* The earliest layer within (1 + tol) times the least distance. */
static uint32_t
choose(const struct distance *d, uint32_t max)
{
	double least = d[0].last;
	uint32_t l;

	for (l = 1; l <= max; l++)
		least = d[l].last < least ? d[l].last : least;
	for (l = 0; d[l].last > (1 + finding_tolerance()) * least; l++)
		;
	return l;
}

static void
print_json(const struct distance *d, uint32_t max, size_t prompts, uint32_t chosen)
{
	json_t *curve = json_array(), *all;
	uint32_t l;

	for (l = 0; l <= max; l++)
		json_array_append_new(curve, json_pack("{s:i, s:f, s:f}", "layer", (int)l,
		    "last", d[l].last, "surviving", d[l].surviving));
	all = json_pack("{s:o, s:I, s:i}", "layers", curve, "prompts", (json_int_t)prompts,
	    "tsp_layer", (int)chosen);
	if (all == NULL)
		die(EXIT_RUN, "out of memory");
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(all);
}

void
finding_run(const struct model *m, struct workspace *ws, enum kv_dtype dtype,
    const struct prompt *prompts, size_t n)
{
	uint32_t max = finding_max_layer(m), L = m->id.layers, chosen, l;
	struct distance *d = must_alloc((size_t)max + 1, sizeof *d);
	struct cache *c = cache_new(m, dtype);
	uint64_t passes = L;
	size_t i;

	if (c == NULL)
		die(EXIT_RUN, "no memory for the cache");
	c->logged = 0;
	for (l = 0; l <= max; l++)
		passes += L - l - 1;
	progress_start("layers", passes * n, "passes");
	for (i = 0; i < n; i++)
		try_prompt(c, ws, &prompts[i], max, d);
	progress_end();
	for (l = 0; l <= max; l++) {
		d[l].last /= (double)n;
		d[l].surviving /= (double)n;
	}
	chosen = choose(d, max);
	if (settings.json) {
		print_json(d, max, n, chosen);
	} else {
		printf("%5s  %12s  %12s\n", "layer", "last", "surviving");
		for (l = 0; l <= max; l++)
			printf("%5u  %12.6g  %12.6g\n", l, d[l].last, d[l].surviving);
		printf("tsp-layer %u\n", chosen);
	}
	cache_free(c);
	free(d);
}
