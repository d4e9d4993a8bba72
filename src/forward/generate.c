/* generate.c - greedy decoding: the chosen token stays on the device, and steps are launches of a
 * captured graph if possible (step_graph.h) */
#include <stdio.h>
#include <stdlib.h>

#include "forward/generate.h"
#include "forward/forward_internal.h"
#include "forward/step_graph.h"

struct generator {
	struct sequence *s;
	struct workspace *ws;
	uint32_t in_tok;               /* the token in ws->tok; UINT32_MAX: none known */
	uint32_t in_pos;               /* the position in ws->pos */
	uint32_t *next;                /* from host_alloc(): the next token .. */
	uint64_t arrived;              /* .. is valid after this event */
	float *spare;                  /* memory of the logits while they are on the device */
	int ran;                       /* 1: ws->logits are those after the last token */
	struct step_graph *graph;
};

struct generator *
generator_new(struct sequence *s, struct workspace *ws)
{
	const struct model *m = s->cache->model;
	struct generator *r = calloc(1, sizeof *r);

	if (r == NULL)
		return NULL;
	*r = (struct generator){ .s = s, .ws = ws, .in_tok = UINT32_MAX, .in_pos = UINT32_MAX,
	    .next = m->ops->host_alloc(m->dev, sizeof *r->next),
	    .graph = step_graph_new(m, 1) };
	if (r->next == NULL || r->graph == NULL) {
		generator_free(r);
		return NULL;
	}
	return r;
}

void
generator_free(struct generator *r)
{
	if (r == NULL)
		return;
	step_graph_free(r->graph);
	r->s->cache->model->ops->host_free(r->s->cache->model->dev, r->next);
	free(r->spare);
	free(r);
}

/* Runs the token in ws->tok at the position in ws->pos; ws->tok <- the likeliest next one. */
static void
step(struct generator *r, struct observation *obs)
{
	const struct model *m = r->s->cache->model;
	struct workspace *ws = r->ws;

	m->ops->embed_ids(m->dev, ws->x, &m->embed, ws->tok, 1);
	scale_embeddings(m, ws->x, 1);
	forward_at_pos(m, r->s, ws, &r->s->cache->next_position, 1, 0, m->id.layers, obs);
	make_logits(m, ws, ws->logits, ws->x, 1);
	m->ops->argmax(m->dev, ws->tok, ws->logits, m->id.vocabulary, 1);
}

static void
run_unobserved(void *with)
{
	step(with, NULL);
}

/* Runs a step, as a launch if possible: not with an observation, whose queries go to another place
 * in each step. */
static void
run(struct generator *r, struct observation *obs)
{
	const struct model *m = r->s->cache->model;
	const uint32_t pos = r->s->cache->next_position;
	const struct step all = { .sequence = &r->s, .n = 1, .pos = r->ws->pos,
	    .run = run_unobserved, .with = r };

	if (r->in_pos != pos)
		m->ops->put(m->dev, r->ws->pos, &pos, sizeof pos);
	r->in_pos = pos;
	if (obs == NULL && step_graph_launch(r->graph, &all)) {
		r->in_pos++;
		return;
	}
	step_graph_note(r->graph, &all);
	if (obs != NULL)
		observation_expect(obs, m, pos, 1);
	step(r, obs);
}

int
generator_begin(struct generator *r, uint32_t id, struct observation *obs, char *err,
    size_t errlen)
{
	struct cache *c = r->s->cache;
	const struct model *m = c->model;
	int rc = reserve_token(r->s, id, err, errlen);

	if (rc != 0)
		return rc;
	if (c->logits != NULL) {
		free(r->spare);
		r->spare = c->logits;
		c->logits = NULL;
	}
	if (id != r->in_tok)
		m->ops->put(m->dev, r->ws->tok, &id, sizeof id);
	run(r, obs);
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
	const struct model *m = r->s->cache->model;
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
	struct cache *c = r->s->cache;

	if (c->logits != NULL || !r->ran)
		return 0;
	c->logits = r->spare;
	r->spare = NULL;
	return get_logits(c, r->ws->logits);
}

uint64_t
generator_launches(const struct generator *r)
{
	return step_graph_launches(r->graph);
}

int
generator_capture_failed(const struct generator *r)
{
	return step_graph_capture_failed(r->graph);
}
