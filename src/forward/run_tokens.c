/* run_tokens.c - runs tokens in chunks, after those that the cache has seen
 *
 * Positions and memory are checked before a chunk runs, the device and the last row after it. */
#include <stdio.h>

#include "forward/finite.h"
#include "forward/forward_internal.h"

/* ws->x[N][D] <- rows at .. at+N-1 of the input */
static void
embed_input(const struct model *m, struct workspace *ws, const struct run_input *in, size_t at,
    uint32_t N)
{
	const size_t D = m->id.hidden;

	if (in->ids != NULL) {
		m->ops->embed(m->dev, ws->x, &m->embed, in->ids + at, N);
		scale_embeddings(m, ws->x, N);
	} else
		m->ops->put(m->dev, ws->x, in->x + at * D, N * D * sizeof *in->x);
}

/* Tokens that run at once: one where the last rows stay full, because which rows a query sees as
 * codes depends on the rows before it (kv-snapshot(5), 4.20). */
static uint32_t
rows_at_once(const struct cache *c, const struct workspace *ws)
{
	return cache_has_residual(c) ? 1 : ws->rows;
}

uint32_t
rows_of_tile(const struct cache *c, uint32_t position, size_t left, uint32_t most)
{
	const uint32_t N = left < most ? (uint32_t)left : most;

	return N < left && row_lists_wanted(c->lists[ROW_NONCAUSAL]) ?
	    noncausal_whole(c->noncausal, position, N) : N;
}

int
run_chunks(const struct model *m, struct sequence *s, struct workspace *ws,
    const struct run_input *in, size_t n, uint32_t *position, struct observation *obs,
    const struct step_hook *step, char *err, size_t errlen)
{
	struct cache *c = s->cache;
	const uint32_t most = rows_at_once(c, ws);
	const char *failure;
	uint32_t N, i;
	size_t at;
	int rc;

	if (obs != NULL && n > 0)
		observation_expect(obs, m, *position, n);
	for (at = 0; at < n; at += N) {
		N = rows_of_tile(c, *position, n - at, most);
		for (i = 0; i < N; i++)
			ws->host_pos[i] = *position + i;
		if ((position == &c->next_position &&
		    cache_slide(c, *position, 0, m->id.layers) != 0) ||
		    sequence_reserve(s, N) != 0 || sequence_reserve_step(s, N) != 0) {
			snprintf(err, errlen, "no memory for %u more rows", N);
			return MODEL_ENOMEM;
		}
		embed_input(m, ws, in, at, N);
		c->ran += N;
		forward(m, s, ws, ws->host_pos, N, 0, m->id.layers, obs);
		if ((failure = m->ops->sync(m->dev)) != NULL) {
			snprintf(err, errlen, "%s", failure);
			return MODEL_EIO;
		}
		if ((rc = check_row(c, ws, ws->x + (N - 1) * (size_t)m->id.hidden,
			 *position + N - 1, 0, m->id.layers, err, errlen)) != 0)
			return rc;
		ws->ran = N;
		*position += N;
		if (step != NULL)
			step->call(step->with, at + N);
	}
	return 0;
}

int
check_positions(const struct cache *c, size_t n, char *err, size_t errlen)
{
	const struct model *m = c->model;

	if (n > UINT32_MAX - c->next_position) {
		snprintf(err, errlen, "position %u + %zu tokens: positions end at 2^32",
		    c->next_position, n);
		return MODEL_EUNSUPPORTED;
	}
	if (m->rope_switch != 0 && c->next_position + n > m->rope_switch) {
		snprintf(err, errlen, "position %u + %zu tokens: this model (longrope) scales RoPE "
		    "differently beyond %u tokens, and the text began below: run all of it from "
		    "its beginning", c->next_position, n, m->rope_switch);
		return MODEL_EUNSUPPORTED;
	}
	if (m->position_end != UINT32_MAX && c->next_position + n > m->position_end) {
		snprintf(err, errlen, "position %u + %zu tokens: this model ends at %u here: %s",
		    c->next_position, n, m->position_end, m->position_why);
		return MODEL_EUNSUPPORTED;
	}
	return 0;
}

int
reserve_positions(struct sequence *s, size_t n, char *err, size_t errlen)
{
	int rc = check_positions(s->cache, n, err, errlen);

	if (rc != 0)
		return rc;
	if (sequence_reserve(s, (uint32_t)n) != 0) {
		snprintf(err, errlen, "no memory for %zu more rows", n);
		return MODEL_ENOMEM;
	}
	return 0;
}

int
reserve_token(struct sequence *s, uint32_t id, char *err, size_t errlen)
{
	struct cache *c = s->cache;
	int rc;

	if (id >= c->model->id.vocabulary) {
		snprintf(err, errlen, "token %u of a vocabulary of %u", id,
		    c->model->id.vocabulary);
		return MODEL_EINVALID;
	}
	if (cache_slide(c, c->next_position, 0, c->model->id.layers) != 0) {
		snprintf(err, errlen, "no memory to drop rows");
		return MODEL_ENOMEM;
	}
	if ((rc = reserve_positions(s, 1, err, errlen)) == 0 && (cache_add_tokens(c, &id, 1) != 0 ||
	    sequence_reserve_step(s, 1) != 0)) {
		snprintf(err, errlen, "no memory for 1 more token");
		rc = MODEL_ENOMEM;
	}
	return rc;
}

int
run_tokens(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs, const struct step_hook *step, char *err, size_t errlen)
{
	const struct run_input in = { ids, NULL };
	struct cache *c = s->cache;
	int rc = reserve_positions(s, n, err, errlen);

	if (rc == 0 && cache_add_tokens(c, ids, n) != 0) {
		snprintf(err, errlen, "no memory for %zu more tokens", n);
		return MODEL_ENOMEM;
	}
	if (rc == 0)
		rc = run_chunks(m, s, ws, &in, n, &c->next_position, obs, step, err, errlen);
	if (rc == 0 && n > 0 &&
	    last_logits(m, c, ws, ws->x + (ws->ran - 1) * (size_t)m->id.hidden) != 0) {
		snprintf(err, errlen, "no memory for %u logits", m->id.vocabulary);
		return MODEL_ENOMEM;
	}
	return rc;
}
