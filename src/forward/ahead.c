/* ahead.c - tokens that run before it is known whether they belong to the text */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/ahead.h"
#include "forward/forward_internal.h"

struct ahead {
	const struct model *m;
	struct workspace *ws;
	float *logits;                 /* device [AHEAD_MOST][V] */
	uint32_t *tok;                 /* device [AHEAD_MOST] ids, then the likeliest next ones */
	uint32_t id[AHEAD_MOST], next[AHEAD_MOST];
	uint32_t n, taken;             /* of the pass */
};

struct ahead *
ahead_new(const struct model *m)
{
	struct ahead *a = calloc(1, sizeof *a);

	if (a == NULL)
		return NULL;
	*a = (struct ahead){ .m = m, .ws = workspace_new(m, AHEAD_MOST),
	    .logits = m->ops->alloc(m->dev, (size_t)AHEAD_MOST * m->id.vocabulary *
		sizeof *a->logits),
	    .tok = m->ops->alloc(m->dev, AHEAD_MOST * sizeof *a->tok) };
	if (a->ws == NULL || a->logits == NULL || a->tok == NULL) {
		ahead_free(a);
		return NULL;
	}
	return a;
}

void
ahead_free(struct ahead *a)
{
	if (a == NULL)
		return;
	a->m->ops->free(a->m->dev, a->logits);
	a->m->ops->free(a->m->dev, a->tok);
	workspace_free(a->ws, a->m);
	free(a);
}

void
ahead_forget(struct ahead *a)
{
	a->n = a->taken = 0;
}

static uint64_t
rows_of(const struct cache *c)
{
	uint64_t rows = 0;
	uint32_t l, g;

	for (l = 0; l < c->model->id.layers; l++)
		for (g = 0; g < c->layer[l].heads; g++)
			rows += c->layer[l].len[g];
	return rows;
}

int
ahead_slide(struct ahead *a, struct cache *c)
{
	const uint64_t before = rows_of(c);
	const int rc = cache_slide(c, c->next_position, 0, c->model->id.layers);

	if (rows_of(c) != before)
		ahead_forget(a);
	return rc;
}

uint32_t
ahead_positions(const struct cache *c, uint32_t n)
{
	char unused[256];

	while (n > 0 && check_positions(c, n, unused, sizeof unused) != 0)
		n--;
	return n;
}

/* Runs the n tokens in a->id. Indexes do not see rows that may not stay. */
static void
run(struct ahead *a, struct sequence *s, uint32_t n)
{
	const struct model *m = a->m;
	struct workspace *ws = a->ws;
	struct cache *c = s->cache;
	struct layer_index *index = c->index;
	const struct part all = { .s = s, .pos = ws->host_pos, .N = n, .apart = n > 1 };
	uint32_t i;

	for (i = 0; i < n; i++)
		ws->host_pos[i] = c->next_position + i;
	m->ops->put(m->dev, ws->pos, ws->host_pos, n * sizeof *ws->pos);
	m->ops->put(m->dev, a->tok, a->id, n * sizeof *a->tok);
	m->ops->embed_ids(m->dev, ws->x, &m->embed, a->tok, n);
	scale_embeddings(m, ws->x, n);
	c->index = NULL;
	forward_parts(m, ws, &all, 1, 0, m->id.layers);
	c->index = index;
	make_logits(m, ws, a->logits, ws->x, n);
	m->ops->argmax(m->dev, a->tok, a->logits, m->id.vocabulary, n);
	m->ops->get(m->dev, a->next, a->tok, n * sizeof *a->next);
	c->ran += n;
	cache_drop_last(c, n, 0, m->id.layers);
	sequence_match_lengths(s);
}

/* Returns how many of the n tokens have a finite logit after them, the first ones. */
static uint32_t
finite_ones(const struct ahead *a, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && a->next[i] != UINT32_MAX; i++)
		;
	return i;
}

/* A row of the pass that is not finite reaches the rows before it where attention multiplies it by
 * 0; alone they would not have met it. So the tokens before it run without it. */
int
ahead_run(struct ahead *a, struct sequence *s, const uint32_t *ids, uint32_t n, char *err,
    size_t errlen)
{
	const struct model *m = a->m;
	const char *failure;
	uint32_t good;
	int rc;

	ahead_forget(a);
	if (ids[0] >= m->id.vocabulary) {
		snprintf(err, errlen, "token %u of a vocabulary of %u", ids[0], m->id.vocabulary);
		return MODEL_EINVALID;
	}
	if ((rc = reserve_positions(s, n, err, errlen)) != 0)
		return rc;
	if (sequence_reserve_step(s, n) != 0) {
		snprintf(err, errlen, "no memory for %u more tokens", n);
		return MODEL_ENOMEM;
	}
	memcpy(a->id, ids, n * sizeof *ids);
	run(a, s, n);
	if ((good = finite_ones(a, n)) == 0 && n > 1)
		run(a, s, 1);
	if ((failure = m->ops->sync(m->dev)) != NULL) {
		snprintf(err, errlen, "%s", failure);
		return MODEL_EIO;
	}
	a->n = good > 0 ? good : 1;
	return 0;
}

uint32_t
ahead_taken(const struct ahead *a)
{
	return a->taken;
}

uint32_t
ahead_left(const struct ahead *a)
{
	return a->n - a->taken;
}

int
ahead_is_next(const struct ahead *a, uint32_t id)
{
	return a->taken < a->n && a->id[a->taken] == id;
}

int
ahead_take(struct ahead *a, struct sequence *s, uint32_t *next)
{
	struct cache *c = s->cache;
	uint32_t l, g;

	if (cache_add_tokens(c, &a->id[a->taken], 1) != 0)
		return MODEL_ENOMEM;
	for (l = 0; l < a->m->id.layers; l++)
		for (g = 0; g < c->layer[l].heads; g++)
			c->layer[l].len[g]++;
	sequence_match_lengths(s);
	for (l = 0; c->index != NULL && l < a->m->id.layers; l++)
		index_extend(&c->index[l], sequence_last_rows(s, l));
	c->next_position++;
	free(c->logits);
	c->logits = NULL;
	*next = a->next[a->taken++];
	return 0;
}

int
ahead_logits(struct ahead *a, struct cache *c)
{
	if (c->logits != NULL || a->taken == 0)
		return 0;
	return get_logits(c, a->logits + (size_t)(a->taken - 1) * a->m->id.vocabulary);
}
