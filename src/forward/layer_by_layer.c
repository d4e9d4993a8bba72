/* layer_by_layer.c - a whole prompt that runs layer by layer
 *
 * Running layer by layer is the same computation as running chunk by chunk, in another order: a
 * query sees rows by their positions, so a tile sees the same rows of a layer in both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/finite.h"
#include "forward/forward_internal.h"
#include "forward/layer_by_layer.h"

#define EMBED_ROWS 4096                /* rows embedded at once */

static int
failed(const char *failure, char *err, size_t errlen)
{
	if (failure == NULL)
		return 0;
	snprintf(err, errlen, "%s", failure);
	return MODEL_EIO;
}

/* Waits until at most `most` tiles are in flight. */
static int
wait_for_tiles(struct prompt_stream *s, uint32_t most, char *err, size_t errlen)
{
	const struct model *m = s->sequence->cache->model;
	int rc = 0;

	for (; rc == 0 && s->running > most; s->running--) {
		rc = failed(m->ops->event_wait(m->dev, s->tile[s->oldest].event), err, errlen);
		if (rc == 0 && s->step.call != NULL)
			s->step.call(s->step.with, s->tile[s->oldest].done);
		s->oldest = (s->oldest + 1) % (STREAM_AHEAD + 1);
	}
	return rc;
}

/* Adds a tile, one of `tiles` of the prompt, that was submitted for `layers` layers. All tiles of a
 * layer may be in flight. */
static int
add_tile(struct prompt_stream *s, uint32_t tiles, uint32_t layers, char *err, size_t errlen)
{
	const struct model *m = s->sequence->cache->model;
	uint32_t at = (s->oldest + s->running++) % (STREAM_AHEAD + 1);
	uint32_t most = STREAM_AHEAD / layers > 0 ? STREAM_AHEAD / layers : 1;

	s->tile[at].event = m->ops->event_record(m->dev);
	s->tile[at].done = s->done;
	if (!m->ops->runs_ahead)
		most = 0;
	return wait_for_tiles(s, most < tiles ? most : tiles, err, errlen);
}

/* Embeds n tokens, the first of them at this position. */
static int
embed_at(struct prompt_stream *s, struct sequence *q, struct observation *obs, const uint32_t *ids,
    size_t n, uint32_t first, char *err, size_t errlen)
{
	const struct model *m = q->cache->model;
	const size_t D = m->id.hidden;
	uint32_t i;
	size_t at;

	*s = (struct prompt_stream){ .sequence = q, .obs = obs, .N = (uint32_t)n };
	s->x = m->ops->alloc(m->dev, n * D * sizeof *s->x);
	s->pos = malloc(n * sizeof *s->pos);
	if (s->x == NULL || s->pos == NULL) {
		snprintf(err, errlen, "no memory for the residual stream of %zu tokens", n);
		prompt_close(s);
		return MODEL_ENOMEM;
	}
	for (i = 0; i < s->N; i++)
		s->pos[i] = first + i;
	for (at = 0; at < n; at += EMBED_ROWS)
		m->ops->embed(m->dev, s->x + at * D, &m->embed, ids + at,
		    (uint32_t)(n - at < EMBED_ROWS ? n - at : EMBED_ROWS));
	scale_embeddings(m, s->x, n);
	return 0;
}

int
prompt_open(struct prompt_stream *s, struct sequence *q, struct observation *obs,
    const uint32_t *ids, size_t n, char *err, size_t errlen)
{
	struct cache *c = q->cache;
	int rc;

	memset(s, 0, sizeof *s);
	if ((rc = check_positions(c, n, err, errlen)) != 0 ||
	    (rc = embed_at(s, q, obs, ids, n, c->next_position, err, errlen)) != 0)
		return rc;
	if (cache_add_tokens(c, ids, n) != 0) {
		snprintf(err, errlen, "no memory for the residual stream of %zu tokens", n);
		prompt_close(s);
		return MODEL_ENOMEM;
	}
	if (obs != NULL)
		observation_expect(obs, c->model, c->next_position, n);
	c->next_position += (uint32_t)n;
	c->ran += n;
	return 0;
}

int
prompt_reopen(struct prompt_stream *s, struct sequence *q, uint32_t from, char *err, size_t errlen)
{
	const struct cache *c = q->cache;

	return embed_at(s, q, NULL, c->tokens + from, c->next_position - from, from, err, errlen);
}

void
prompt_close(struct prompt_stream *s)
{
	const struct model *m;

	if (s->sequence != NULL) {
		m = s->sequence->cache->model;
		m->ops->free(m->dev, s->x);
		prompt_unwatch(s);
	}
	free(s->pos);
	memset(s, 0, sizeof *s);
}

/* Checks the last row. If ops run ahead, only after the last layer, because this waits for the
 * device. */
static int
check_last(struct prompt_stream *s, struct workspace *ws, uint32_t l0, uint32_t l1, char *err,
    size_t errlen)
{
	const struct cache *c = s->sequence->cache;
	const size_t last = s->N - 1;

	return check_row(c, ws, s->x + last * c->model->id.hidden, s->pos[last], l0, l1, err,
	    errlen);
}

int
prompt_run(struct prompt_stream *s, struct workspace *ws, uint32_t l0, uint32_t l1,
    const struct step_hook *step, char *err, size_t errlen)
{
	struct cache *c = s->sequence->cache;
	const struct model *m = c->model;
	uint32_t tile = workspace_rows(ws), at, N;
	int rc;

	if (l0 == l1)
		return 0;
	s->watched.next = s->obs;
	s->step = step != NULL ? *step : (struct step_hook){ .call = NULL };
	if (sequence_reserve_layers(s->sequence, s->N, l0, l1) != 0 ||
	    (l0 == 0 && sequence_reserve_step(s->sequence, s->N) != 0)) {
		snprintf(err, errlen, "no memory for %u more rows", s->N);
		return MODEL_ENOMEM;
	}
	for (at = 0; at < s->N; at += N) {
		N = rows_of_tile(c, s->pos[at], s->N - at, tile);
		if (cache_slide(c, s->pos[at], l0, l1) != 0 ||
		    sequence_reserve_layers(s->sequence, N, l0, l1) != 0) {
			snprintf(err, errlen, "no memory for %u more rows", N);
			return MODEL_ENOMEM;
		}
		workspace_use(ws, s->x + (size_t)at * m->id.hidden);
		forward(m, s->sequence, ws, s->pos + at, N, l0, l1,
		    s->watched.q != NULL ? &s->watched : s->obs);
		workspace_use(ws, NULL);
		if (cache_log(c, KV_EVENT_PREFILL, N, l0, l1) != 0) {
			snprintf(err, errlen, "no memory for the event log");
			return MODEL_ENOMEM;
		}
		s->done += (uint64_t)N * (l1 - l0);
		if ((rc = add_tile(s, (s->N - 1) / tile + 1, l1 - l0, err, errlen)) != 0)
			return rc;
	}
	if (cache_slide_all(c, c->next_position, l0, l1) != 0) {
		snprintf(err, errlen, "no memory to drop rows");
		return MODEL_ENOMEM;
	}
	return m->ops->runs_ahead ? 0 : check_last(s, ws, l0, l1, err, errlen);
}

int
prompt_branch(const struct prompt_stream *s, struct prompt_stream *out, const uint32_t *rows,
    uint32_t n)
{
	const struct model *m = s->sequence->cache->model;
	const struct mat all = { s->x, WEIGHT_F32, s->N, m->id.hidden };
	uint32_t i;

	*out = (struct prompt_stream){ .sequence = s->sequence, .N = n };
	out->x = m->ops->alloc(m->dev, (size_t)n * m->id.hidden * sizeof *out->x);
	out->pos = malloc(n * sizeof *out->pos);
	if (out->x == NULL || out->pos == NULL) {
		prompt_close(out);
		return MODEL_ENOMEM;
	}
	m->ops->embed(m->dev, out->x, &all, rows, n);   /* a gather of rows */
	for (i = 0; i < n; i++)
		out->pos[i] = s->pos[rows[i]];
	return 0;
}

int
prompt_keep(struct prompt_stream *s, const uint32_t *rows, uint32_t n)
{
	struct prompt_stream kept;

	if (prompt_branch(s, &kept, rows, n) != 0)
		return MODEL_ENOMEM;
	s->sequence->cache->model->ops->free(s->sequence->cache->model->dev, s->x);
	free(s->pos);
	s->x = kept.x;
	s->pos = kept.pos;
	s->N = n;
	return 0;
}

int
prompt_logits(struct prompt_stream *s, struct workspace *ws, char *err, size_t errlen)
{
	const struct model *m = s->sequence->cache->model;
	int rc = wait_for_tiles(s, 0, err, errlen);

	if (rc == 0)
		rc = check_last(s, ws, 0, m->id.layers, err, errlen);
	if (rc != 0)
		return rc;
	if (last_logits(m, s->sequence->cache, ws, s->x + (size_t)(s->N - 1) * m->id.hidden) != 0) {
		snprintf(err, errlen, "no memory for %u logits", m->id.vocabulary);
		return MODEL_ENOMEM;
	}
	return failed(m->ops->sync(m->dev), err, errlen);
}
