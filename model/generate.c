/* generate.c - token after token, the likeliest one next
 *
 * A step is the same work as the one before it, except that every KV head of every layer has a row
 * more, and that the position is one further. Where the backend can, a step is recorded after one
 * has run by itself, and replayed from then on, as long as nothing but steps has changed
 * the cache: rows stay where they are, and none goes. Otherwise one runs by itself again, and
 * the next one is recorded anew. Evicting after every token, there is nothing to record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/generate.h"
#include "model/forward_internal.h"

/* Where the rows of a layer were, and how many */
struct noted {
	const void *k, *v, *pos;
	uint64_t *start;               /* [G] */
	uint32_t *len;                 /* [G] */
};

struct generator {
	struct cache *c;
	struct workspace *ws;
	uint32_t chosen;               /* what is in ws->tok; UINT32_MAX: not known, or no token */
	uint32_t *next;                /* host_alloc()'s: where it comes to .. */
	uint64_t come;                 /* .. when this has been waited for */
	float *spare;                  /* c->logits while they are not known */
	int ran;                       /* ws->logits are those after the last token */
	struct noted *noted;           /* [L] of the cache after a step that ran by itself */
	int known;                     /* there was one, and steps since */
	uint32_t steps;                /* so many, which were replayed */
	uint32_t recorded;             /* for replay(); 0: nothing */
	int refused;                   /* recording does not work here */
	uint64_t replayed;             /* steps, in all */
};

struct generator *
generator_new(struct cache *c, struct workspace *ws)
{
	const struct kv_model *id = &c->model->id;
	struct generator *r = calloc(1, sizeof *r);
	uint32_t l;

	if (r == NULL)
		return NULL;
	*r = (struct generator){ .c = c, .ws = ws, .chosen = UINT32_MAX };
	r->next = c->model->ops->host_alloc(c->model->dev, sizeof *r->next);
	if (r->next == NULL || (r->noted = calloc(id->layers, sizeof *r->noted)) == NULL) {
		generator_free(r);
		return NULL;
	}
	for (l = 0; l < id->layers; l++) {
		r->noted[l].start = calloc(id->kv_heads, sizeof *r->noted[l].start);
		r->noted[l].len = calloc(id->kv_heads, sizeof *r->noted[l].len);
		if (r->noted[l].start == NULL || r->noted[l].len == NULL) {
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
	for (l = 0; r->noted != NULL && l < r->c->model->id.layers; l++) {
		free(r->noted[l].start);
		free(r->noted[l].len);
	}
	r->c->model->ops->host_free(r->c->model->dev, r->next);
	free(r->noted);
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
	forward_placed(m, r->c, ws, &r->c->next_position, 1, 0, m->id.layers, obs);
	make_logits(m, ws, ws->x);
	m->ops->argmax(m->dev, ws->tok, ws->logits, m->id.vocabulary);
}

/* ---- steps that repeat ---- */

/* Is a step nothing but what can be recorded? */
static int
repeats(const struct generator *r, const struct observation *obs)
{
	const struct cache *c = r->c;
	uint32_t l;

	if (c->model->ops->graph_begin == NULL || r->refused || obs != NULL || c->mass != NULL ||
	    c->probe_mass != NULL || c->retrieval != NULL)
		return 0;
	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		if (c->index[l].there != 0)
			return 0;
	return 1;
}

static void
note_rows(struct generator *r)
{
	const struct kv_model *id = &r->c->model->id;
	uint32_t l;

	for (l = 0; l < id->layers; l++) {
		const struct layer_rows *rows = &r->c->layer[l];
		struct noted *to = &r->noted[l];

		to->k = rows->k;
		to->v = rows->v;
		to->pos = rows->pos;
		memcpy(to->start, rows->start, rows->heads * sizeof *to->start);
		memcpy(to->len, rows->len, rows->heads * sizeof *to->len);
	}
	r->known = 1;
	r->steps = 0;
}

/* Is the cache as noted, and the steps since? */
static int
as_noted(const struct generator *r)
{
	uint32_t l, g;

	for (l = 0; r->known && l < r->c->model->id.layers; l++) {
		const struct layer_rows *rows = &r->c->layer[l];
		const struct noted *was = &r->noted[l];

		if (rows->k != was->k || rows->v != was->v || rows->pos != was->pos ||
		    memcmp(rows->start, was->start, rows->heads * sizeof *was->start) != 0)
			return 0;
		for (g = 0; g < rows->heads; g++)
			if (rows->len[g] != was->len[g] + r->steps)
				return 0;
	}
	return r->known;
}

/* Takes down a step from here on. What the ops did on the host meanwhile is taken back: the step is
 * still to come. */
static void
record(struct generator *r)
{
	const struct model *m = r->c->model;
	uint32_t l;

	m->ops->put(m->dev, r->ws->pos, &r->c->next_position, sizeof *r->ws->pos);
	if (m->ops->graph_begin(m->dev)) {
		step(r, NULL);
		r->recorded = m->ops->graph_end(m->dev, r->ws->pos);
		for (l = 0; l < m->id.layers; l++)
			memcpy(r->c->layer[l].len, r->noted[l].len,
			    m->id.kv_heads * sizeof *r->noted[l].len);
	}
	r->refused = r->recorded == 0;
}

/* A step, if the device can do it again. */
static int
repeat(struct generator *r)
{
	const struct model *m = r->c->model;
	uint32_t l, g;

	if (!as_noted(r))
		return 0;
	if (r->recorded == 0)
		record(r);
	if (r->recorded == 0 || !m->ops->graph_launch(m->dev, r->recorded))
		return 0;
	for (l = 0; l < m->id.layers; l++) {
		cache_expect(r->c, l, &r->c->next_position, 1);
		for (g = 0; g < m->id.kv_heads; g++)
			r->c->layer[l].len[g]++;
	}
	r->steps++;
	r->replayed++;
	return 1;
}

/* ---- a token ---- */

/* Room for the token, and a place in the list of those seen. */
static int
take(struct cache *c, uint32_t id, char *err, size_t errlen)
{
	int rc;

	if (id >= c->model->id.vocabulary) {
		snprintf(err, errlen, "token %u of a vocabulary of %u", id,
		    c->model->id.vocabulary);
		return MODEL_EINVALID;
	}
	if ((rc = reserve_positions(c, 1, err, errlen)) == 0 && cache_add_tokens(c, &id, 1) != 0) {
		snprintf(err, errlen, "no memory for 1 more token");
		rc = MODEL_ENOMEM;
	}
	return rc;
}

/* A step by itself */
static void
run_step(struct generator *r, struct observation *obs)
{
	const struct model *m = r->c->model;
	uint32_t pos = r->c->next_position;

	if (obs != NULL)
		observation_expect(obs, m, pos, 1);
	m->ops->put(m->dev, r->ws->pos, &pos, sizeof pos);
	step(r, obs);
	note_rows(r);
	r->recorded = 0;
}

int
generator_begin(struct generator *r, uint32_t id, struct observation *obs, char *err, size_t errlen)
{
	struct cache *c = r->c;
	const struct model *m = c->model;
	int rc = take(c, id, err, errlen);

	if (rc != 0)
		return rc;
	if (c->logits != NULL) {
		free(r->spare);
		r->spare = c->logits;
		c->logits = NULL;
	}
	if (id != r->chosen)
		m->ops->put(m->dev, r->ws->tok, &id, sizeof id);
	if (!repeats(r, obs) || !repeat(r))
		run_step(r, obs);
	m->ops->get_async(m->dev, r->next, r->ws->tok, sizeof *r->next);
	r->come = m->ops->event_record(m->dev);
	r->ran = 1;
	c->next_position++;
	return 0;
}

int
generator_end(struct generator *r, uint32_t *next, char *err, size_t errlen)
{
	const struct model *m = r->c->model;
	const char *failure = m->ops->event_wait(m->dev, r->come);

	if (failure != NULL) {
		snprintf(err, errlen, "%s", failure);
		return MODEL_EIO;
	}
	*next = r->chosen = *r->next;
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
	return get_logits(r->c, r->ws);
}

uint64_t
generator_replayed(const struct generator *r)
{
	return r->replayed;
}

int
generator_refused(const struct generator *r)
{
	return r->refused;
}
