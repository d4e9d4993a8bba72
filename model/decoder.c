/* decoder.c - token after token, the likeliest one next */
#include <stdio.h>
#include <stdlib.h>

#include "model/decoder.h"
#include "model/forward_internal.h"

struct decoder {
	struct cache *c;
	struct workspace *ws;
	uint32_t chosen;               /* what is in ws->tok; UINT32_MAX: not known, or no token */
	int ran;                       /* ws->logits are those after the last token */
};

struct decoder *
decoder_new(struct cache *c, struct workspace *ws)
{
	struct decoder *r = calloc(1, sizeof *r);

	if (r == NULL)
		return NULL;
	*r = (struct decoder){ .c = c, .ws = ws, .chosen = UINT32_MAX };
	return r;
}

void
decoder_free(struct decoder *r)
{
	free(r);
}

/* From the token in ws->tok to the next one there. ws->pos has the position. */
static void
step(struct decoder *r, struct observation *obs)
{
	const struct model *m = r->c->model;
	struct workspace *ws = r->ws;

	m->ops->look_up(m->dev, ws->x, &m->embed, ws->tok, 1);
	forward_placed(m, r->c, ws, &r->c->next_position, 1, 0, m->id.layers, obs);
	make_logits(m, ws, ws->x);
	m->ops->greatest(m->dev, ws->tok, ws->logits, m->id.vocabulary);
}

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

int
decoder_run(struct decoder *r, uint32_t id, struct observation *obs, uint32_t *next, char *err,
    size_t errlen)
{
	struct cache *c = r->c;
	const struct model *m = c->model;
	const char *failure;
	int rc = take(c, id, err, errlen);

	if (rc != 0)
		return rc;
	free(c->logits);
	c->logits = NULL;
	if (obs != NULL)
		observation_expect(obs, m, c->next_position, 1);
	if (id != r->chosen)
		m->ops->put(m->dev, r->ws->tok, &id, sizeof id);
	m->ops->put(m->dev, r->ws->pos, &c->next_position, sizeof c->next_position);
	step(r, obs);
	m->ops->get(m->dev, &r->chosen, r->ws->tok, sizeof r->chosen);
	if ((failure = m->ops->sync(m->dev)) != NULL) {
		snprintf(err, errlen, "%s", failure);
		return MODEL_EIO;
	}
	r->ran = 1;
	c->next_position++;
	*next = r->chosen;
	return 0;
}

int
decoder_logits(struct decoder *r)
{
	return r->c->logits != NULL || !r->ran ? 0 : get_logits(r->c, r->ws);
}
