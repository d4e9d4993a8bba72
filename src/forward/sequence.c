/* sequence.c - a text that runs: memory of its cache, retrieval head and offloaded layers, and the
 * rows that forward() appends
 *
 * Probe tokens, which run and are not stored, are at positions after the tokens seen. The head does
 * not see them. */
#include <stdlib.h>
#include <string.h>

#include "forward/probe_mass.h"
#include "forward/sequence.h"
#include "offload/offload_whole.h"

void
sequence_free(struct sequence *s)
{
	struct offload_store *store = s->offload != NULL ? s->offload->store : NULL;

	retrieval_free(s->retrieval);
	head_keys_free(s->head);
	offload_free(s->offload);
	offload_store_free(store);
	if (s->cache != NULL)
		probe_mass_free(s->probe_mass, s->cache);
	cache_free(s->cache);
	memset(s, 0, sizeof *s);
}

/* ---- memory ---- */

/* Gives retrieval the capacity that the rows of these layers have. */
static int
reserve_retrieval(struct sequence *s, uint32_t l0, uint32_t l1)
{
	uint32_t l;

	for (l = l0; s->retrieval != NULL && l < l1; l++)
		if (retrieval_reserve(s->retrieval, &s->cache->layer[l],
		    cache_index(s->cache, l)) != KV_OK)
			return MODEL_ENOMEM;
	return 0;
}

int
sequence_reserve_layers(struct sequence *s, uint32_t more, uint32_t l0, uint32_t l1)
{
	const int rc = cache_reserve_layers(s->cache, more, l0, l1);

	return rc != 0 ? rc : reserve_retrieval(s, l0, l1);
}

int
sequence_reserve(struct sequence *s, uint32_t more)
{
	return sequence_reserve_layers(s, more, 0, s->cache->model->id.layers);
}

int
sequence_reserve_step(struct sequence *s, uint32_t rows)
{
	const uint64_t tokens = (uint64_t)s->cache->n_tokens + rows;

	if (cache_reserve_step(s->cache, rows) != 0)
		return MODEL_ENOMEM;
	if (s->offload != NULL && offload_reserve(s->offload, rows) != KV_OK)
		return MODEL_ENOMEM;
	if (s->head == NULL)
		return 0;
	if (head_keys_reserve(s->head, tokens, rows) != KV_OK || (s->retrieval != NULL &&
	    specontext_reserve(s->retrieval, s->head) != KV_OK))
		return MODEL_ENOMEM;
	return 0;
}

/* ---- retrieval and offloading ---- */

int
sequence_retrieve(struct sequence *s, struct retrieval *t)
{
	s->retrieval = t;
	return reserve_retrieval(s, 0, s->cache->model->id.layers);
}

/* Returns the first row of the tail of each KV head: the first one that the indexes of the layer do
 * not cover. To be freed; NULL without memory. */
static uint32_t *
first_of_tail(const struct sequence *s, uint32_t l)
{
	const uint32_t heads = s->cache->model->id.kv_heads;
	const uint32_t *count = s->offload->store->count + (size_t)l * heads;
	const struct layer_index *x = cache_index(s->cache, l);
	uint32_t *first = malloc(heads * sizeof *first), g;

	for (g = 0; first != NULL && g < heads; g++)
		first[g] = x != NULL ? index_covers(x, g, count[g]) : count[g];
	return first;
}

int
sequence_open_offloaded(struct sequence *s, const struct retrieval_options *o)
{
	struct cache *c = s->cache;
	uint64_t slots = o != NULL ? o->budget : 1, most;
	uint32_t l, *first;
	int rc;

	s->offload->reads_whole = o == NULL;
	for (l = 0; o != NULL && l < c->model->id.layers; l++)
		if (offload_has(s->offload, l) &&
		    (most = retrieval_slots(o, cache_index(c, l), c->model->id.query_heads)) >
		    slots)
			slots = most;
	rc = offload_set_slots(s->offload, slots);
	for (l = 0; rc == KV_OK && l < c->model->id.layers; l++) {
		if (!offload_has(s->offload, l))
			continue;
		if ((first = first_of_tail(s, l)) == NULL)
			return MODEL_ENOMEM;
		rc = offload_open_layer(s->offload, l, first, &c->layer[l], c->spare);
		free(first);
	}
	return rc == KV_OK ? 0 : rc == KV_ENOMEM ? MODEL_ENOMEM : MODEL_EINVALID;
}

int
sequence_offload_layer(struct sequence *s, uint32_t l)
{
	struct cache *c = s->cache;
	uint32_t *first = first_of_tail(s, l);
	const int rc = first == NULL ? KV_ENOMEM :
	    offload_move_layer(s->offload, l, first, &c->layer[l], c->spare);

	free(first);
	return rc == KV_OK ? cache_positions_only(c, l) : MODEL_ENOMEM;
}

void
sequence_match_lengths(struct sequence *s)
{
	uint32_t l;

	for (l = 0; s->offload != NULL && l < s->cache->model->id.layers; l++)
		offload_set_len(s->offload, l, s->cache->layer[l].len);
}

/* ---- rows that run ---- */

struct layer_rows *
sequence_append_to(struct sequence *s, uint32_t l)
{
	return offload_has(s->offload, l) ? &s->offload->layer[l].device_rows :
					    &s->cache->layer[l];
}

const struct layer_rows *
sequence_whole_rows(struct sequence *s, uint32_t l)
{
	const struct layer_rows *rows = &s->cache->layer[l], *whole;

	if (!offload_has(s->offload, l) || !s->offload->reads_whole)
		return rows;
	whole = offload_whole(s->offload, l, rows);
	return whole != NULL ? whole : &s->offload->whole.rows;
}

const struct layer_rows *
sequence_last_rows(struct sequence *s, uint32_t l)
{
	struct layer_rows *rows = &s->cache->layer[l];

	return offload_has(s->offload, l) ? offload_tail(s->offload, l, rows) : rows;
}

/* For an offloaded layer that has lost rows, also copies the positions to the layer's list on the
 * device: SpeContext finds the scores of rows by them. */
void
sequence_appended(struct sequence *s, uint32_t l, const uint32_t *pos, uint32_t N)
{
	const struct layer_rows *newest = sequence_append_to(s, l);
	const struct model *m = s->cache->model;
	struct layer_rows *rows = &s->cache->layer[l];
	int missing = 0;
	uint32_t g;

	for (g = 0; s->head != NULL && g < rows->heads; g++)
		missing |= rows->len[g] != pos[0];
	for (g = 0; offload_has(s->offload, l) && g < rows->heads; g++) {
		if (missing)
			m->ops->copy(m->dev, rows->pos + rows->start[g] + rows->len[g],
			    newest->pos + newest->start[g] + newest->len[g] - N, N * sizeof *pos);
		rows->len[g] += N;
	}
}

/* Does the sequence have a head, and are these tokens stored, and not probe tokens? */
static int
head_sees(const struct sequence *s, const uint32_t *pos)
{
	return s->head != NULL && pos[0] < s->cache->n_tokens;
}

void
sequence_head_begin(struct sequence *s, const uint32_t *pos, uint32_t N)
{
	struct cache *c = s->cache;
	uint32_t l;

	if (!head_sees(s, pos))
		return;
	head_keys_extend(s->head, c->tokens, pos[0] + (size_t)1);
	if (N != 1 || s->retrieval == NULL)
		return;
	specontext_score(s->retrieval, s->head);
	for (l = 0; s->offload != NULL && l < c->model->id.layers; l++)
		specontext_prefetch(s->retrieval, l, &c->layer[l]);
}

void
sequence_head_note(struct sequence *s, uint32_t l, const float *x, const uint32_t *pos, uint32_t N)
{
	if (head_sees(s, pos))
		head_keys_note(s->head, l, x, pos[0], N);
}

void
sequence_head_end(const struct sequence *s)
{
	if (s->head != NULL)
		head_keys_extend(s->head, s->cache->tokens, s->cache->n_tokens);
}
