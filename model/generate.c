/* generate.c - greedy decoding, with steps as launches of a captured graph
 *
 * Between two tokens the work is the same, except that every KV head of every layer has a row
 * more, or, where an eviction follows every token, as many rows as before; and that the position
 * is one further. Where the backend can capture graphs, a step is captured when the one before
 * it has run eagerly and left such a cache, and the graph is launched from then on as long as that
 * holds. Otherwise, when memory has moved or heads have grown by different numbers of rows, a step
 * runs eagerly again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/generate.h"
#include "model/forward_internal.h"

/* The memory of a layer's rows, and how many rows there are */
struct layer_state {
	const void *k, *v, *pos, *mass;
	uint64_t *start;               /* [G] */
	uint32_t *len;                 /* [G] */
};

struct generator {
	struct cache *c;
	struct workspace *ws;
	uint32_t in_tok;               /* the token in ws->tok; UINT32_MAX: unknown, or none */
	uint32_t in_pos;               /* the position in ws->pos, where a graph is */
	uint32_t *next;                /* host_alloc()'s: the next token .. */
	uint64_t arrived;              /* .. after this event */
	float *spare;                  /* memory of c->logits while these are on the device only */
	int ran;                       /* ws->logits are those after the last token */
	/* [L] of the cache before the captured step, or, without a graph, before the last step */
	struct layer_state *state;
	int state_known;               /* there was one */
	uint32_t graph;                /* for graph_launch(); 0: none */
	int capture_failed;            /* the device could not capture a step */
	uint64_t launches;             /* in all */
};

struct generator *
generator_new(struct cache *c, struct workspace *ws)
{
	const struct kv_model *id = &c->model->id;
	struct generator *r = calloc(1, sizeof *r);
	uint32_t l;

	if (r == NULL)
		return NULL;
	*r = (struct generator){ .c = c, .ws = ws, .in_tok = UINT32_MAX };
	r->next = c->model->ops->host_alloc(c->model->dev, sizeof *r->next);
	if (r->next == NULL || (r->state = calloc(id->layers, sizeof *r->state)) == NULL) {
		generator_free(r);
		return NULL;
	}
	for (l = 0; l < id->layers; l++) {
		r->state[l].start = calloc(id->kv_heads, sizeof *r->state[l].start);
		r->state[l].len = calloc(id->kv_heads, sizeof *r->state[l].len);
		if (r->state[l].start == NULL || r->state[l].len == NULL) {
			generator_free(r);
			return NULL;
		}
	}
	return r;
}

void
generator_free(struct generator *r)
{
	uint32_t l;

	if (r == NULL)
		return;
	for (l = 0; r->state != NULL && l < r->c->model->id.layers; l++) {
		free(r->state[l].start);
		free(r->state[l].len);
	}
	r->c->model->ops->host_free(r->c->model->dev, r->next);
	free(r->state);
	free(r->spare);
	free(r);
}

/* From the token in ws->tok to the next one there. ws->pos has the position. */
static void
step(struct generator *r, struct observation *obs)
{
	const struct model *m = r->c->model;
	struct workspace *ws = r->ws;

	m->ops->embed_ids(m->dev, ws->x, &m->embed, ws->tok, 1);
	scale_embeddings(m, ws->x, 1);
	forward_at_pos(m, r->c, ws, &r->c->next_position, 1, 0, m->id.layers, obs);
	make_logits(m, ws, ws->logits, ws->x, 1);
	m->ops->argmax(m->dev, ws->tok, ws->logits, m->id.vocabulary, 1);
}

/* ---- steps as launches of a graph ---- */

/* Can everything that a step does be captured, where `more` rows have been appended since? Attention
 * mass goes by the lengths of the capture. */
static int
can_capture(const struct generator *r, const struct observation *obs, uint32_t more)
{
	const struct cache *c = r->c;
	uint32_t l;

	if (c->model->ops->graph_begin == NULL || r->capture_failed || obs != NULL ||
	    c->probe_mass != NULL || c->retrieval != NULL || c->head != NULL ||
	    (c->mass != NULL && more > 0))
		return 0;
	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		if (c->index[l].present != 0)
			return 0;
	return 1;
}

static void
save_state(struct generator *r)
{
	const struct kv_model *id = &r->c->model->id;
	uint32_t l;

	for (l = 0; l < id->layers; l++) {
		const struct layer_rows *rows = &r->c->layer[l];
		struct layer_state *to = &r->state[l];

		to->k = rows->k;
		to->v = rows->v;
		to->pos = rows->pos;
		to->mass = r->c->mass != NULL ? r->c->mass[l].sum : NULL;
		memcpy(to->start, rows->start, rows->heads * sizeof *to->start);
		memcpy(to->len, rows->len, rows->heads * sizeof *to->len);
	}
	r->state_known = 1;
}

/* Is the cache as save_state() found it, but that all KV heads of all layers have *more rows more? */
static int
state_holds(const struct generator *r, uint32_t *more)
{
	uint32_t l, g;

	*more = r->c->layer[0].len[0] - r->state[0].len[0];
	for (l = 0; r->state_known && l < r->c->model->id.layers; l++) {
		const struct layer_rows *rows = &r->c->layer[l];
		const struct layer_state *was = &r->state[l];

		if (rows->k != was->k || rows->v != was->v || rows->pos != was->pos ||
		    (r->c->mass != NULL && r->c->mass[l].sum != was->mass) ||
		    memcmp(rows->start, was->start, rows->heads * sizeof *was->start) != 0)
			return 0;
		for (g = 0; g < rows->heads; g++)
			if (rows->len[g] < was->len[g] || rows->len[g] - was->len[g] != *more)
				return 0;
	}
	return r->state_known;
}

static void
put_position(struct generator *r)
{
	const struct model *m = r->c->model;

	r->in_pos = r->c->next_position;
	m->ops->put(m->dev, r->ws->pos, &r->in_pos, sizeof r->in_pos);
}

/* Captures a step. The ops have counted its row on the host, which is taken back: the step
 * has not run yet. */
static void
capture(struct generator *r)
{
	const struct model *m = r->c->model;
	uint32_t l;

	save_state(r);
	put_position(r);
	if (m->ops->graph_begin(m->dev)) {
		step(r, NULL);
		r->graph = m->ops->graph_end(m->dev, r->ws->pos);
		for (l = 0; l < m->id.layers; l++)
			memcpy(r->c->layer[l].len, r->state[l].len,
			    m->id.kv_heads * sizeof *r->state[l].len);
	}
	r->capture_failed = r->graph == 0;
}

/* Runs a step as a launch, capturing it first where there is no graph. Returns 0 if it cannot. */
static int
launch(struct generator *r, const struct observation *obs)
{
	const struct model *m = r->c->model;
	uint32_t l, g, more;

	if (!state_holds(r, &more) || !can_capture(r, obs, more))
		return 0;
	if (r->graph == 0) {
		capture(r);
		more = 0;
	} else if (r->in_pos != r->c->next_position)
		put_position(r);
	if (r->graph == 0 || !m->ops->graph_launch(m->dev, r->graph, more))
		return 0;
	for (l = 0; l < m->id.layers; l++) {
		cache_expect(r->c, l, &r->c->next_position, 1);
		for (g = 0; g < m->id.kv_heads; g++)
			r->c->layer[l].len[g]++;
	}
	r->in_pos++;
	r->launches++;
	return 1;
}

/* ---- a token ---- */

/* A step op by op, not as a graph */
static void
run_eager(struct generator *r, struct observation *obs)
{
	save_state(r);
	r->graph = 0;
	if (obs != NULL)
		observation_expect(obs, r->c->model, r->c->next_position, 1);
	put_position(r);
	step(r, obs);
}

int
generator_begin(struct generator *r, uint32_t id, struct observation *obs, char *err,
    size_t errlen)
{
	struct cache *c = r->c;
	const struct model *m = c->model;
	int rc = reserve_token(c, id, err, errlen);

	if (rc != 0)
		return rc;
	if (c->logits != NULL) {
		free(r->spare);
		r->spare = c->logits;
		c->logits = NULL;
	}
	if (id != r->in_tok)
		m->ops->put(m->dev, r->ws->tok, &id, sizeof id);
	if (!launch(r, obs))
		run_eager(r, obs);
	m->ops->get_async(m->dev, r->next, r->ws->tok, sizeof *r->next);
	r->arrived = m->ops->event_record(m->dev);
	r->ran = 1;
	c->ran++;
	c->next_position++;
	return 0;
}

int
generator_end(struct generator *r, uint32_t *next, char *err, size_t errlen)
{
	const struct model *m = r->c->model;
	const char *failure = m->ops->event_wait(m->dev, r->arrived);

	if (failure != NULL) {
		snprintf(err, errlen, "%s", failure);
		return MODEL_EIO;
	}
	*next = r->in_tok = *r->next;
	return 0;
}

int
generator_run(struct generator *r, uint32_t id, struct observation *obs, uint32_t *next, char *err,
    size_t errlen)
{
	int rc = generator_begin(r, id, obs, err, errlen);

	return rc != 0 ? rc : generator_end(r, next, err, errlen);
}

int
generator_logits(struct generator *r)
{
	if (r->c->logits != NULL || !r->ran)
		return 0;
	r->c->logits = r->spare;
	r->spare = NULL;
	return get_logits(r->c, r->ws->logits);
}

uint64_t
generator_launches(const struct generator *r)
{
	return r->launches;
}

int
generator_capture_failed(const struct generator *r)
{
	return r->capture_failed;
}
