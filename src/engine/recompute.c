/* recompute.c - computes some rows of a merged snapshot again */
#include <stdlib.h>
#include <string.h>

#include "engine/recompute.h"
#include "forward/layer_by_layer.h"
#include "forward/rewrite_rows.h"
#include "methods/methods.h"
#include "methods/mix_word.h"

/* The run. Tokens are those of the later documents, from position `from` on. */
struct rerun {
	struct recompute *p;
	struct sequence *s;
	struct workspace *ws;
	struct rewrite_rows *rewrite;
	uint32_t from, n;
	uint8_t *chosen;                /* [n] */
	struct prompt_stream stream;    /* all tokens, later the chosen ones */
	struct engine_error *e;
};

uint32_t
recompute_tokens(const struct kv_head *head)
{
	return head->next_position - head->documents.start[0];
}

int
recompute_check(const struct recompute *p, const struct kv_head *head, uint64_t tokens,
    const char *name, struct engine_error *e)
{
	if (head->documents.n == 0)
		return engine_fail(e, ENGINE_ERUN, "%s: no documents that were prefilled apart: "
		    "merge some with kv-merge", name);
	if (tokens != head->next_position)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: it has %llu tokens, and the next "
		    "one is at position %u: its rows were renumbered, or are of selected tokens",
		    name, (unsigned long long)tokens, head->next_position);
	if (head->model.window != 0 && head->next_position > head->model.window)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layers with a sliding window of %u "
		    "positions have not kept the rows that tokens of a text of %u would see: "
		    "prefill the text as a whole", name, head->model.window,
		    head->next_position);
	if (p->layer >= head->model.layers)
		return engine_fail(e, ENGINE_EOPTION, "--layer %u: %s has the layers 0 to %u",
		    p->layer, name, head->model.layers - 1);
	return ENGINE_OK;
}

/* Returns how many tokens CacheBlend's rule chooses. */
static uint32_t
rate_tokens(const struct recompute *p, uint32_t n)
{
	return (uint32_t)budget_of_rate(n, p->rate);
}

/* Do all tokens run through the first layers, so that their deviation can be measured? */
static int
measures(const struct recompute *p, uint32_t n)
{
	return p->by != RECOMPUTE_BY_RANDOM && rate_tokens(p, n) > 0 && rate_tokens(p, n) < n;
}

uint64_t
recompute_total(const struct recompute *p, const struct kv_head *head)
{
	const uint64_t n = recompute_tokens(head), L = head->model.layers;
	const uint64_t front = measures(p, (uint32_t)n) ? p->layer + 1 : 0;
	uint64_t most = rate_tokens(p, (uint32_t)n) + 1;

	most += (uint64_t)p->first * head->documents.n;
	return n * front + (most < n ? most : n) * (L - front);
}

/* ---- the deviation ---- */

/* The rows of the tokens in a layer, keys or values, as numbers */
struct numbers {
	uint32_t *first, *rows;         /* [G] the first row of each KV head, and how many */
	float *value;                   /* [sum rows][E] */
};

static void
free_numbers(struct numbers *v)
{
	free(v->first);
	free(v->rows);
	free(v->value);
}

/* Of keys of latent attention, leaves the channels that are values. */
static void
clear_rotated(float *x, const struct model *m, uint32_t n)
{
	const uint32_t E = m->id.head_width, first = m->id.latent_rank;
	uint32_t i;

	for (i = 0; i < n; i++)
		memset(x + (size_t)i * E + first, 0, (E - first) * sizeof *x);
}

static int
read_numbers(const struct rerun *r, struct numbers *v)
{
	const struct cache *c = r->s->cache;
	const struct layer_rows *rows = &c->layer[r->p->layer];
	const int keys = r->p->by == RECOMPUTE_BY_KEYS;
	const enum kv_row_type type = keys ? rows_k_type(rows) : rows_v_type(rows);
	const size_t size = keys ? rows_k_bytes(rows) : rows_v_bytes(rows);
	const char *from = keys ? rows->k : rows->v;
	uint64_t total = 0, at = 0;
	char *stored;
	uint32_t g;

	v->first = engine_alloc(rows->heads, sizeof *v->first, r->e);
	v->rows = engine_alloc(rows->heads, sizeof *v->rows, r->e);
	if (v->first == NULL || v->rows == NULL)
		return r->e->code;
	for (g = 0; g < rows->heads; g++) {
		v->first[g] = kv_rows_before(c->pos[r->p->layer][g], rows->len[g], r->from);
		v->rows[g] = rows->len[g] - v->first[g];
		total += v->rows[g];
	}
	v->value = engine_alloc(total * rows->width + 1, sizeof *v->value, r->e);
	stored = engine_alloc(r->n * size + 1, 1, r->e);
	for (g = 0; v->value != NULL && stored != NULL && g < rows->heads; at += v->rows[g++]) {
		if (v->rows[g] == 0)
			continue;
		c->model->ops->get(c->model->dev, stored,
		    from + (rows->start[g] + v->first[g]) * size, v->rows[g] * size);
		kv_rows_to_f32(v->value + at * rows->width, stored, type, rows->width, v->rows[g]);
		if (!keys && rows->v_in_k)
			clear_rotated(v->value + at * rows->width, c->model, v->rows[g]);
	}
	free(stored);
	return v->value != NULL && stored != NULL ? ENGINE_OK : r->e->code;
}

/* deviation[n] <- the squared differences of each token, summed over channels and KV heads. */
static void
compare_numbers(const struct rerun *r, float *deviation, const struct numbers *a,
    const struct numbers *b)
{
	const struct cache *c = r->s->cache;
	const struct layer_rows *rows = &c->layer[r->p->layer];
	const uint32_t E = rows->width;
	const float *x = a->value, *y = b->value;
	uint32_t g, i, k, token;
	double sum;

	memset(deviation, 0, r->n * sizeof *deviation);
	for (g = 0; g < rows->heads; g++)
		for (i = 0; i < a->rows[g]; i++, x += E, y += E) {
			token = c->pos[r->p->layer][g][a->first[g] + i] - r->from;
			for (sum = 0, k = 0; k < E; k++)
				sum += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
			deviation[token] += (float)sum;
		}
}

/* ---- choosing ---- */

static void
choose_top(const struct rerun *r, const float *score)
{
	const uint32_t k = rate_tokens(r->p, r->n);
	uint32_t *top = engine_alloc((size_t)k + 1, sizeof *top, r->e), i;

	if (top == NULL)
		return;
	select_top(score, r->n, k, top);
	for (i = 0; i < k; i++)
		r->chosen[top[i]] = 1;
	free(top);
}

static int
choose_random(const struct rerun *r)
{
	float *score = engine_alloc(r->n, sizeof *score, r->e);
	const uint64_t seed = mix_word(0, r->p->seed);
	uint32_t i;

	for (i = 0; score != NULL && i < r->n; i++)
		score[i] = (float)(mix_word(seed, r->from + i) >> 40) * 0x1p-24f;
	if (score != NULL)
		choose_top(r, score);
	free(score);
	return r->e->code;
}

/* Chooses the first tokens of each later document, and the last one of the text. */
static void
choose_first(const struct rerun *r)
{
	const struct kv_documents *d = &r->s->cache->documents;
	uint32_t i, at, end;

	for (i = 0; i < d->n; i++) {
		end = i + 1 < d->n ? d->start[i + 1] : r->from + r->n;
		for (at = d->start[i]; at < end && at - d->start[i] < r->p->first; at++)
			r->chosen[at - r->from] = 1;
	}
	r->chosen[r->n - 1] = 1;
}

/* ---- running ---- */

/* Leaves only the chosen tokens in the stream. */
static int
keep_chosen(struct rerun *r)
{
	uint32_t *row = engine_alloc(r->n, sizeof *row, r->e), i, k = 0;
	int rc;

	if (row == NULL)
		return r->e->code;
	for (i = 0; i < r->n; i++)
		if (r->chosen[i])
			row[k++] = i;
	rc = prompt_keep(&r->stream, row, k);
	free(row);
	r->p->chosen = k;
	return rc == 0 ? ENGINE_OK : engine_fail(r->e, ENGINE_ERUN,
	    "no memory for the residual stream of %u tokens", k);
}

/* Runs the tokens in the stream through layers l0 .. l1-1. */
static int
run_stream(struct rerun *r, uint32_t l0, uint32_t l1)
{
	r->e->text[0] = '\0';
	return engine_ran(r->e, rewrite_rows_run(r->rewrite, r->s, r->ws, r->stream.x,
	    r->stream.pos, r->stream.N, l0, l1, (uint64_t)r->n * l0, &r->p->step, r->e->text,
	    sizeof r->e->text));
}

/* Runs all tokens through the first layers, and chooses those that deviate most. */
static int
choose_deviating(struct rerun *r)
{
	struct numbers before = { .value = NULL }, after = { .value = NULL };
	float *deviation = engine_alloc(r->n, sizeof *deviation, r->e);
	int rc = deviation != NULL ? read_numbers(r, &before) : r->e->code;

	if (rc == ENGINE_OK)
		rc = run_stream(r, 0, r->p->layer + 1);
	if (rc == ENGINE_OK)
		rc = read_numbers(r, &after);
	if (rc == ENGINE_OK) {
		compare_numbers(r, deviation, &before, &after);
		choose_top(r, deviation);
		rc = r->e->code;
	}
	free_numbers(&before);
	free_numbers(&after);
	free(deviation);
	return rc;
}

/* Chooses, and runs the chosen tokens through all layers. */
static int
run(struct rerun *r)
{
	const uint32_t k = rate_tokens(r->p, r->n), L = r->s->cache->model->id.layers;
	const uint32_t l0 = measures(r->p, r->n) ? r->p->layer + 1 : 0;
	int rc = ENGINE_OK;

	choose_first(r);
	if (k == r->n)
		memset(r->chosen, 1, r->n);
	else if (k > 0)
		rc = l0 > 0 ? choose_deviating(r) : choose_random(r);
	if (rc == ENGINE_OK)
		rc = keep_chosen(r);
	if (rc == ENGINE_OK)
		rc = run_stream(r, l0, L);
	if (rc != ENGINE_OK)
		return rc;
	return engine_ran(r->e, prompt_logits(&r->stream, r->ws, r->e->text, sizeof r->e->text));
}

int
recompute_run(struct recompute *p, struct sequence *s, struct workspace *ws,
    struct engine_error *e)
{
	const struct cache *c = s->cache;
	struct rerun r = { .p = p, .s = s, .ws = ws, .from = c->documents.start[0], .e = e };
	int rc;

	*e = (struct engine_error){ .code = ENGINE_OK };
	r.n = p->later = c->next_position - r.from;
	if ((rc = prompt_reopen(&r.stream, s, r.from, e->text, sizeof e->text)) != 0)
		return engine_ran(e, rc);
	r.chosen = engine_alloc(r.n, 1, e);
	r.rewrite = rewrite_rows_new(c, workspace_rows(ws));
	if (r.chosen == NULL)
		rc = e->code;
	else if (r.rewrite == NULL)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for %u tokens that run again", r.n);
	else
		rc = run(&r);
	free(r.chosen);
	rewrite_rows_free(r.rewrite);
	prompt_close(&r.stream);
	return rc;
}
