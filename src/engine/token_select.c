/* token_select.c - selects which tokens of a prompt reach later layers, or the model at all */
#include <stdlib.h>

#include "cache/set_aside.h"
#include "engine/token_select.h"

uint32_t
gemfilter_tokens(const struct token_select *t, size_t n)
{
	uint32_t k = t->budget != 0 ? t->budget : (uint32_t)budget_of_rate((uint32_t)n, t->rate);

	return k < n ? k : (uint32_t)n;
}

uint64_t
token_select_full_layers(const struct token_select *t, int evicted)
{
	if (t->rule == TOKENS_GEMFILTER || (t->rule == TOKENS_TSP && !evicted))
		return (uint64_t)t->layer + 1;
	return 1;
}

uint32_t
token_select_window(const struct token_select *t, size_t n)
{
	if (t->rule == TOKENS_TSP)
		return t->tsp.window;
	return t->rule == TOKENS_PYRAMIDINFER ? pyramidinfer_tail(&t->pyramid, (uint32_t)n) : 0;
}

uint32_t
token_select_tail(const struct token_select *t, size_t n)
{
	if (t->rule == TOKENS_ALL)
		return UINT32_MAX;
	return t->rule == TOKENS_GEMFILTER ? gemfilter_tokens(t, n) : token_select_window(t, n);
}

/* ---- does it fit? ---- */

uint32_t
tsp_rows(const struct tsp *tsp, uint32_t N)
{
	return (uint32_t)budget_of_rate(N, tsp->rate);
}

int
tsp_fit(const struct tsp *tsp, size_t n, struct engine_error *e)
{
	const uint32_t k = tsp_rows(tsp, (uint32_t)n);

	if (tsp->window > n)
		return engine_fail(e, ENGINE_EOPTION, "tsp: window=%u, and the prompt has %zu "
		    "tokens", tsp->window, n);
	if (k < tsp->window)
		return engine_fail(e, ENGINE_EOPTION, "tsp: rate=%g of %zu tokens is %u: less "
		    "than the window of %u", tsp->rate, n, k, tsp->window);
	return ENGINE_OK;
}

static int
layer_fit(const struct token_select *t, const struct model *m, struct engine_error *e)
{
	if (t->layer < m->id.layers)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EOPTION, "--select %s: layer=%u: the model has layers 0 "
	    "to %u", t->rule == TOKENS_TSP ? "tsp" : "gemfilter", t->layer, m->id.layers - 1);
}

int
token_select_at(const struct model *m, uint32_t l, size_t n)
{
	const uint32_t window = kv_layer_window(&m->id, l);

	return window == 0 || n < window;
}

/* Tokens are selected by the attention of a layer to all of them, so it must see all. */
int
token_select_sees(const struct model *m, uint32_t l0, uint32_t l1, size_t n, const char *option,
    struct engine_error *e)
{
	uint32_t l;

	for (l = l0; l < l1; l++)
		if (!token_select_at(m, l, n))
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u has a sliding "
			    "window of %u tokens, and the prompt has %zu: it cannot choose among "
			    "tokens that it does not see", option, l,
			    kv_layer_window(&m->id, l), n);
	return ENGINE_OK;
}

static int
sees_prompt(const struct token_select *t, const struct model *m, size_t n, struct engine_error *e)
{
	if (t->rule == TOKENS_TSP)
		return token_select_sees(m, t->layer, t->layer + 1, n, "--select tsp", e);
	if (t->rule == TOKENS_GEMFILTER)
		return token_select_sees(m, t->layer, t->layer + 1, n, "--select gemfilter", e);
	if (t->rule == TOKENS_PYRAMIDINFER)
		return token_select_sees(m, 0, m->id.layers - 1, n, "--select pyramidinfer", e);
	return ENGINE_OK;
}

int
token_select_fit(const struct token_select *t, const struct model *m, size_t n, uint32_t observe,
    int resumed, struct engine_error *e)
{
	const uint32_t tail = token_select_tail(t, n);
	int rc = layer_fit(t, m, e);

	if (rc != ENGINE_OK || (rc = sees_prompt(t, m, n, e)) != ENGINE_OK)
		return rc;
	if (resumed && (t->rule == TOKENS_GEMFILTER || t->rule == TOKENS_PYRAMIDINFER))
		return engine_fail(e, ENGINE_EOPTION, "--resume does not go with --select %s, "
		    "which begins with a whole prompt", t->rule == TOKENS_GEMFILTER ? "gemfilter" :
		    "pyramidinfer");
	if (t->rule == TOKENS_TSP && (rc = tsp_fit(&t->tsp, n, e)) != ENGINE_OK)
		return rc;
	if (tail == 0)
		return engine_fail(e, ENGINE_EOPTION, "--select gemfilter: rate=%g of %zu tokens "
		    "is none", t->rate, n);
	if (observe > tail)
		return engine_fail(e, ENGINE_EOPTION, "--observe %u: only the last %u tokens are "
		    "sure to reach the last layer", observe, tail);
	return ENGINE_OK;
}

uint64_t
token_select_rows(const struct token_select *t, const struct model *m, size_t n)
{
	const uint32_t L = m->id.layers;
	uint32_t N = (uint32_t)n, l, window;
	uint64_t total = 0;

	if (t->rule == TOKENS_GEMFILTER) {
		total = n * ((uint64_t)t->layer + 1);
		N = gemfilter_tokens(t, n);
	}
	for (l = 0; l < L; l++) {
		total += N;
		N = token_select_after(t, l, L, n, N, &window);
	}
	return total;
}

/* ---- while the prompt runs ---- */

uint32_t
token_select_next(const struct token_select *t, uint32_t l0, uint32_t layers)
{
	if (t->rule == TOKENS_PYRAMIDINFER)
		return l0 + 1;
	return t->rule == TOKENS_TSP && l0 <= t->layer ? t->layer + 1 : layers;
}

uint32_t
token_select_after(const struct token_select *t, uint32_t l, uint32_t layers, size_t n, uint32_t N,
    uint32_t *window)
{
	const uint32_t decide = token_select_window(t, n);
	uint32_t k = N;

	*window = 0;
	if (t->rule == TOKENS_TSP && l == t->layer) {
		*window = decide;
		return tsp_rows(&t->tsp, N);
	}
	if (t->rule == TOKENS_PYRAMIDINFER && l + 1 < layers)
		k = pyramidinfer_rows(&t->pyramid, l, layers, N, decide);
	if (k != N)
		*window = decide;
	return k;
}

void
token_select_tell(const struct token_select *t, uint32_t layer, uint32_t rows)
{
	if (t->selected.call != NULL)
		t->selected.call(t->selected.with, layer, rows);
}

/* Fails if a score is NaN, which cannot be compared. */
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

/* *mass <- the mass [H][N] from the watched queries; free it, also after a failure. */
static int
attention(struct prompt_stream *s, double last, float **mass, struct engine_error *e)
{
	const size_t n = (size_t)s->sequence->cache->model->id.query_heads * s->N;
	int rc;

	if ((*mass = engine_alloc(n, sizeof **mass, e)) == NULL)
		return e->code;
	rc = engine_ran(e, prompt_mass(s, last, *mass, e->text, sizeof e->text));
	return rc == ENGINE_OK ? refuse_nan(*mass, n, s->watched_layer, e) : rc;
}

int
tsp_select(const struct tsp *tsp, struct prompt_stream *s, uint32_t k, uint32_t **keep,
    struct engine_error *e)
{
	const struct token_select t = { .rule = TOKENS_TSP, .tsp = *tsp };

	return token_select_choose(&t, s, k, keep, e);
}

/* keep[k] <- the rows that go on, by mass[H][N]. Returns 0, or -1 when out of memory. */
static int
keep_rows(const struct token_select *t, const struct prompt_stream *s, const float *mass,
    uint32_t k, uint32_t *keep)
{
	const uint32_t H = s->sequence->cache->model->id.query_heads, tail = s->watched.have;

	if (t->rule == TOKENS_TSP)
		return keep_tsp(&t->tsp, mass, H, s->N, k, keep);
	return keep_pyramidinfer(mass, H, s->N, tail, k, keep);
}

int
token_select_choose(const struct token_select *t, struct prompt_stream *s, uint32_t k,
    uint32_t **keep, struct engine_error *e)
{
	float *mass;
	int rc;

	*keep = NULL;
	e->text[0] = '\0';
	rc = attention(s, t->rule == TOKENS_TSP ? 1 : t->pyramid.weight, &mass, e);
	if (rc == ENGINE_OK && (*keep = engine_alloc(k, sizeof **keep, e)) == NULL)
		rc = e->code;
	if (rc == ENGINE_OK && keep_rows(t, s, mass, k, *keep) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for the tokens that go on");
	free(mass);
	if (rc != ENGINE_OK) {
		free(*keep);
		*keep = NULL;
	}
	return rc;
}

/* ---- GemFilter ---- */

/* Runs layer l; keep[k] <- the tokens that it selects. product[s->N]: scratch */
static int
run_and_keep(struct prompt_stream *s, struct workspace *ws, uint32_t l,
    const struct step_hook *step, float *product, uint32_t k, uint32_t *keep,
    struct engine_error *e)
{
	int rc = engine_ran(e, prompt_watch(s, l, 1));

	if (rc == ENGINE_OK)
		rc = engine_ran(e, prompt_run(s, ws, 0, l + 1, step, e->text, sizeof e->text));
	if (rc == ENGINE_OK)
		rc = engine_ran(e, prompt_products(s, product, e->text, sizeof e->text));
	if (rc == ENGINE_OK)
		rc = refuse_nan(product, s->N, l, e);
	if (rc == ENGINE_OK && keep_gemfilter(product, s->N, k, keep) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for the tokens that go on");
	return rc;
}

int
gemfilter_pick(const struct token_select *t, struct sequence *q, struct workspace *ws,
    const uint32_t *ids, size_t n, const struct step_hook *step, uint32_t *picked, uint32_t k,
    struct engine_error *e)
{
	struct cache *c = q->cache;
	struct set_aside aside;                 /* for the second run */
	struct prompt_stream s = { .sequence = NULL };
	float *product;
	uint32_t *keep, i;
	int rc;

	e->text[0] = '\0';
	product = engine_alloc(n, sizeof *product, e);
	keep = engine_alloc(k, sizeof *keep, e);
	rc = product != NULL && keep != NULL ? ENGINE_OK : e->code;
	aside = cache_set_aside(c, 1);
	if (rc == ENGINE_OK)
		rc = engine_ran(e, prompt_open(&s, q, NULL, ids, n, e->text, sizeof e->text));
	if (rc == ENGINE_OK)
		rc = run_and_keep(&s, ws, t->layer, step, product, k, keep, e);
	prompt_close(&s);
	for (i = 0; rc == ENGINE_OK && i < k; i++)
		picked[i] = ids[keep[i]];
	free(product);
	free(keep);
	if (rc == ENGINE_OK)
		rc = engine_ran(e, cache_clear(c));
	cache_put_back(c, &aside);
	return rc;
}
