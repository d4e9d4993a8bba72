/* token_select.c - a prompt of which only chosen tokens reach later layers, or the model at all */
#include <stdlib.h>

#include "engine/token_select.h"

static uint32_t
gem_tokens(const struct token_select *t, size_t n)
{
	uint32_t k = t->budget != 0 ? t->budget : (uint32_t)budget_of_rate((uint32_t)n, t->rate);

	return k < n ? k : (uint32_t)n;
}

/* Layers that hold rows of the whole prompt. */
static uint64_t
full_layers(const struct token_select *t)
{
	return t->rule == TOKENS_TSP || t->rule == TOKENS_GEMFILTER ? (uint64_t)t->layer + 1 : 1;
}

void
token_select_demand(const struct token_select *t, const struct model *m, size_t n,
    struct memory_demand *d)
{
	d->rows = n * full_layers(t) * m->id.kv_heads;
	d->stream = n;
}

/* ---- does it fit? ---- */

int
tsp_fit(const struct tsp *tsp, size_t n, struct engine_error *e)
{
	const uint32_t k = (uint32_t)budget_of_rate((uint32_t)n, tsp->rate);

	if (tsp->window > n)
		return engine_fail(e, ENGINE_EOPTION, "--tsp-window %u: the prompt has %zu tokens",
		    tsp->window, n);
	if (k < tsp->window)
		return engine_fail(e, ENGINE_EOPTION, "--tsp-rate %g of %zu tokens is %u: less than "
		    "the window of %u", tsp->rate, n, k, tsp->window);
	return ENGINE_OK;
}

static int
layer_fit(const struct token_select *t, const struct model *m, struct engine_error *e)
{
	if (full_layers(t) <= m->id.layers)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EOPTION, "--%s %u: the model has layers 0 to %u",
	    t->rule == TOKENS_TSP ? "tsp-layer" : "gemfilter-layer", t->layer, m->id.layers - 1);
}

int
token_select_fit(const struct token_select *t, const struct model *m, size_t n, uint32_t observe,
    int resumed, struct engine_error *e)
{
	uint32_t keep = UINT32_MAX;
	int rc = layer_fit(t, m, e);

	if (rc != ENGINE_OK)
		return rc;
	if (resumed && (t->rule == TOKENS_GEMFILTER || t->rule == TOKENS_PYRAMIDINFER))
		return engine_fail(e, ENGINE_EOPTION, "--%s begins with a whole prompt: it cannot "
		    "resume", t->rule == TOKENS_GEMFILTER ? "gemfilter-layer" : "pyramid-infer");
	if (t->rule == TOKENS_TSP) {
		keep = t->tsp.window;
		if ((rc = tsp_fit(&t->tsp, n, e)) != ENGINE_OK)
			return rc;
	}
	if (t->rule == TOKENS_GEMFILTER && (keep = gem_tokens(t, n)) == 0)
		return engine_fail(e, ENGINE_EOPTION, "--rate %g of %zu tokens is none", t->rate,
		    n);
	if (t->rule == TOKENS_PYRAMIDINFER)
		keep = pyramidinfer_tail(&t->pyramid, (uint32_t)n);
	if (t->rule != TOKENS_ALL && observe > keep)
		return engine_fail(e, ENGINE_EOPTION, "--observe %u: only the last %u tokens are "
		    "sure to reach the last layer", observe, keep);
	return ENGINE_OK;
}

/* ---- running ---- */

/* A prompt that runs. */
struct run {
	const struct token_select *t;
	struct cache *c;
	struct workspace *ws;
	uint32_t layers;
	uint64_t before;                /* rows, times layers, of an earlier run of the prompt */
	struct step_hook step;          /* for prompt_run() */
	struct engine_error *e;         /* takes the failures of all that gets this struct */
};

/* Rows run so far are shown as tokens that have gone through all layers. */
static void
show(void *with, uint64_t done)
{
	const struct run *r = with;

	if (r->t->step.call != NULL)
		r->t->step.call(r->t->step.with, (r->before + done) / r->layers);
}

static void
say_selected(const struct run *r, uint32_t layer, uint32_t rows)
{
	if (r->t->selected.call != NULL)
		r->t->selected.call(r->t->selected.with, layer, rows);
}

/* The code of what the model layer returned, with e->text for its message, which it may not have
 * filled. */
static int
ran(struct engine_error *e, int model_code)
{
	if (model_code == 0)
		return ENGINE_OK;
	if (model_code == MODEL_ENOMEM && e->text[0] == '\0')
		return engine_fail(e, ENGINE_ERUN, "no memory for the tokens that go on");
	return e->code = ENGINE_ERUN;
}

/* Layers l0 .. l1-1 */
static int
run_layers(struct run *r, struct prompt_stream *s, uint32_t l0, uint32_t l1)
{
	return ran(r->e, prompt_run(s, r->ws, l0, l1, &r->step, r->e->text, sizeof r->e->text));
}

/* Scores that are no numbers cannot be compared. */
static int
refuse_nan(const float *score, size_t n, uint32_t layer, struct engine_error *e)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (score[i] != score[i])
			return engine_fail(e, ENGINE_ERUN, "layer %u: attention is not a number",
			    layer);
	return ENGINE_OK;
}

/* *mass <- [H][N] of the watched queries; to be freed, also when it failed. */
static int
attention(struct prompt_stream *s, double last, float **mass, struct engine_error *e)
{
	const size_t n = (size_t)s->cache->model->id.query_heads * s->N;
	int rc;

	if ((*mass = engine_alloc(n, sizeof **mass, e)) == NULL)
		return e->code;
	rc = ran(e, prompt_mass(s, last, *mass, e->text, sizeof e->text));
	return rc == ENGINE_OK ? refuse_nan(*mass, n, s->watched_layer, e) : rc;
}

int
tsp_select(const struct tsp *tsp, struct prompt_stream *s, uint32_t **keep, uint32_t *k,
    struct engine_error *e)
{
	float *mass;
	int rc = attention(s, 1, &mass, e);

	*keep = NULL;
	*k = (uint32_t)budget_of_rate(s->N, tsp->rate);
	if (rc == ENGINE_OK && (*keep = engine_alloc(*k, sizeof **keep, e)) == NULL)
		rc = e->code;
	if (rc == ENGINE_OK &&
	    keep_tsp(tsp, mass, s->cache->model->id.query_heads, s->N, *k, *keep) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for the tokens that go on");
	free(mass);
	if (rc != ENGINE_OK) {
		free(*keep);
		*keep = NULL;
	}
	return rc;
}

/* ---- token-selective propagation ---- */

static int
run_tsp(struct run *r, struct prompt_stream *s)
{
	const struct token_select *t = r->t;
	uint32_t *keep, k;
	int rc = ran(r->e, prompt_watch(s, t->layer, t->tsp.window));

	if (rc == ENGINE_OK)
		rc = run_layers(r, s, 0, t->layer + 1);
	if (rc == ENGINE_OK)
		rc = tsp_select(&t->tsp, s, &keep, &k, r->e);
	if (rc != ENGINE_OK)
		return rc;
	rc = ran(r->e, prompt_keep(s, keep, k));
	free(keep);
	if (rc == ENGINE_OK)
		rc = run_layers(r, s, t->layer + 1, r->layers);
	if (rc == ENGINE_OK)
		say_selected(r, t->layer, k);
	return rc;
}

/* ---- PyramidInfer ---- */

/* After layer l only k rows go on. */
static int
drop_rows(struct run *r, struct prompt_stream *s, uint32_t l, uint32_t tail, uint32_t k)
{
	uint32_t *keep = NULL;
	float *mass;
	int rc = attention(s, r->t->pyramid.weight, &mass, r->e);

	if (rc == ENGINE_OK && (keep = engine_alloc(k, sizeof *keep, r->e)) == NULL)
		rc = r->e->code;
	if (rc == ENGINE_OK && keep_pyramidinfer(mass, r->c->model->id.query_heads, s->N, tail, k,
	    keep) != 0)
		rc = ran(r->e, MODEL_ENOMEM);
	if (rc == ENGINE_OK)
		rc = ran(r->e, prompt_keep(s, keep, k));
	if (rc == ENGINE_OK)
		say_selected(r, l, k);
	free(mass);
	free(keep);
	return rc;
}

static int
run_pyramid(struct run *r, struct prompt_stream *s)
{
	const struct pyramidinfer *o = &r->t->pyramid;
	const uint32_t tail = pyramidinfer_tail(o, s->N);
	uint32_t l, k;
	int rc = ENGINE_OK, drops;

	for (l = 0; rc == ENGINE_OK && l < r->layers; l++) {
		k = pyramidinfer_rows(o, l, r->layers, s->N, tail);
		drops = l + 1 < r->layers && k != s->N;
		if (drops)
			rc = ran(r->e, prompt_watch(s, l, tail));
		if (rc == ENGINE_OK)
			rc = run_layers(r, s, l, l + 1);
		if (rc == ENGINE_OK && drops)
			rc = drop_rows(r, s, l, tail, k);
	}
	return rc;
}

/* ---- GemFilter ---- */

/* picked[k] <- the ids that the watched layer selects. product[n], keep[k]: room */
static int
pick(struct run *r, struct prompt_stream *s, const uint32_t *ids, uint32_t *picked, uint32_t k,
    float *product, uint32_t *keep)
{
	const uint32_t l = r->t->layer, n = s->N;
	uint32_t i;
	int rc = ran(r->e, prompt_watch(s, l, 1));

	if (rc == ENGINE_OK)
		rc = run_layers(r, s, 0, l + 1);
	if (rc == ENGINE_OK)
		rc = ran(r->e, prompt_products(s, product, r->e->text, sizeof r->e->text));
	if (rc == ENGINE_OK)
		rc = refuse_nan(product, n, l, r->e);
	if (rc == ENGINE_OK && keep_gemfilter(product, n, k, keep) != 0)
		rc = ran(r->e, MODEL_ENOMEM);
	for (i = 0; rc == ENGINE_OK && i < k; i++)
		picked[i] = ids[keep[i]];
	return rc;
}

/* The first run, up to the layer that selects. Its cache is dropped, and the log says that it was
 * there. */
static int
pick_gems(struct run *r, const uint32_t *ids, size_t n, uint32_t *picked, uint32_t k)
{
	struct attention_mass *mass = r->c->mass;       /* wanted of the second run only */
	float *product = engine_alloc(n, sizeof *product, r->e);
	uint32_t *keep = engine_alloc(k, sizeof *keep, r->e);
	struct prompt_stream s = { .cache = NULL };
	int rc = product != NULL && keep != NULL ? ENGINE_OK : r->e->code;

	r->c->mass = NULL;
	if (rc == ENGINE_OK)
		rc = ran(r->e, prompt_open(&s, r->c, NULL, ids, n, r->e->text, sizeof r->e->text));
	if (rc == ENGINE_OK)
		rc = pick(r, &s, ids, picked, k, product, keep);
	prompt_close(&s);
	free(product);
	free(keep);
	if (rc == ENGINE_OK)
		rc = ran(r->e, cache_clear(r->c));
	r->c->mass = mass;
	return rc;
}

/* picked[k]: room. The stream of the second run is opened here, to be closed in any case. */
static int
run_gemfilter(struct run *r, struct prompt_stream *s, const uint32_t *ids, size_t n,
    struct observation *obs, uint32_t *picked, uint32_t k)
{
	int rc = pick_gems(r, ids, n, picked, k);

	r->before = (uint64_t)n * (r->t->layer + 1);
	if (rc == ENGINE_OK)
		rc = ran(r->e, prompt_open(s, r->c, obs, picked, k, r->e->text,
		    sizeof r->e->text));
	if (rc == ENGINE_OK)
		rc = run_layers(r, s, 0, r->layers);
	return rc;
}

static int
select_and_run_again(struct run *r, const uint32_t *ids, size_t n, struct observation *obs)
{
	const uint32_t k = gem_tokens(r->t, n);
	uint32_t *picked = engine_alloc(k, sizeof *picked, r->e);
	struct prompt_stream s = { .cache = NULL };
	int rc = picked != NULL ? run_gemfilter(r, &s, ids, n, obs, picked, k) : r->e->code;

	if (rc == ENGINE_OK)
		rc = ran(r->e, prompt_logits(&s, r->ws, r->e->text, sizeof r->e->text));
	prompt_close(&s);
	free(picked);
	if (rc == ENGINE_OK) {
		r->c->n_tokens = n;     /* all ids were seen, these k a second time */
		say_selected(r, r->t->layer, k);
	}
	return rc;
}

/* ---- a prompt ---- */

uint64_t
token_select_total(const struct token_select *t, const struct model *m, size_t n)
{
	const uint32_t L = m->id.layers, N = (uint32_t)n;
	uint64_t total = 0;
	uint32_t l, k;

	switch (t->rule) {
	case TOKENS_ALL:
		return n;
	case TOKENS_TSP:
		return (n * (t->layer + 1) +
		    budget_of_rate(N, t->tsp.rate) * (L - t->layer - 1)) / L;
	case TOKENS_GEMFILTER:
		return (uint64_t)n * (t->layer + 1) / L + gem_tokens(t, n);
	case TOKENS_PYRAMIDINFER:
		for (l = 0, k = N; l < L; l++) {
			total += k;
			k = pyramidinfer_rows(&t->pyramid, l, L, k,
			    pyramidinfer_tail(&t->pyramid, N));
		}
	}
	return total / L;
}

int
token_select_run(const struct token_select *t, struct cache *c, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, struct engine_error *e)
{
	struct run r = { .t = t, .c = c, .ws = ws, .layers = c->model->id.layers, .e = e };
	struct prompt_stream s;
	int rc;

	r.step = (struct step_hook){ show, &r };
	e->text[0] = '\0';
	if (t->rule == TOKENS_GEMFILTER)
		return select_and_run_again(&r, ids, n, obs);
	if ((rc = ran(e, prompt_open(&s, c, obs, ids, n, e->text, sizeof e->text))) != ENGINE_OK)
		return rc;
	rc = t->rule == TOKENS_TSP ? run_tsp(&r, &s) : t->rule == TOKENS_PYRAMIDINFER ?
	    run_pyramid(&r, &s) : run_layers(&r, &s, 0, r.layers);
	if (rc == ENGINE_OK)
		rc = ran(e, prompt_logits(&s, ws, e->text, sizeof e->text));
	prompt_close(&s);
	return rc;
}
