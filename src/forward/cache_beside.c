/* cache_beside.c - what stands beside the layers of a cache: a retrieval head, which forward()
 * tells and asks, and the tails of offloaded layers
 *
 * Rows that run and are not stored stand behind the tokens seen. The head knows nothing of them. */
#include <stdlib.h>

#include "cache/cache.h"

/* Of these rows, do the tokens belong to the text? */
static int
sees(const struct cache *c, const uint32_t *pos)
{
	return c->head != NULL && pos[0] < c->n_tokens;
}

struct layer_index *
cache_index(const struct cache *c, uint32_t l)
{
	return c->index != NULL ? &c->index[l] : NULL;
}

int
cache_reserve_beside(struct cache *c, uint32_t rows)
{
	const uint64_t tokens = (uint64_t)c->n_tokens + rows;

	if (c->offload != NULL && offload_reserve(c->offload, rows) != KV_OK)
		return MODEL_ENOMEM;
	if (c->head == NULL)
		return 0;
	if (head_keys_reserve(c->head, tokens, rows) != KV_OK || (c->retrieval != NULL &&
	    specontext_reserve(c->retrieval, c->head) != KV_OK))
		return MODEL_ENOMEM;
	return 0;
}

/* Of each KV head the first row of the tail: the first one that the indexes of the layer do not
 * cover. */
static uint32_t *
first_of_tail(const struct cache *c, uint32_t l)
{
	const uint32_t heads = c->model->id.kv_heads;
	const uint32_t *count = c->offload->store->count + (size_t)l * heads;
	uint32_t *first = malloc(heads * sizeof *first), g;

	for (g = 0; first != NULL && g < heads; g++)
		first[g] = c->index != NULL ? index_covers(&c->index[l], g, count[g]) : count[g];
	return first;
}

int
cache_open_offloaded(struct cache *c, const struct retrieval_options *o)
{
	const uint32_t layers = c->model->id.layers;
	uint64_t slots = o->budget, most;
	uint32_t l, *first;
	int rc;

	for (l = 0; l < layers; l++)
		if (offload_has(c->offload, l) &&
		    (most = retrieval_slots(o, cache_index(c, l))) > slots)
			slots = most;
	rc = offload_set_slots(c->offload, slots);
	for (l = 0; rc == KV_OK && l < layers; l++) {
		if (!offload_has(c->offload, l))
			continue;
		if ((first = first_of_tail(c, l)) == NULL)
			return MODEL_ENOMEM;
		rc = offload_open_layer(c->offload, l, first, &c->layer[l], c->spare);
		free(first);
	}
	return rc == KV_OK ? 0 : rc == KV_ENOMEM ? MODEL_ENOMEM : MODEL_EINVALID;
}

int
cache_offload(struct cache *c, uint32_t l)
{
	struct layer_rows *rows = &c->layer[l];
	const struct ops *o = c->model->ops;
	uint32_t *first = first_of_tail(c, l);
	const int rc = first != NULL ? offload_move_layer(c->offload, l, first, rows, c->spare) :
				       KV_ENOMEM;

	free(first);
	if (rc != KV_OK)
		return MODEL_ENOMEM;
	o->free(c->model->dev, rows->k);
	o->free(c->model->dev, rows->v);
	rows->k = o->alloc(c->model->dev, 1);   /* as a layer that was loaded as offloaded */
	rows->v = o->alloc(c->model->dev, 1);
	return rows->k != NULL && rows->v != NULL ? 0 : MODEL_ENOMEM;
}

const struct layer_rows *
cache_last_rows(struct cache *c, uint32_t l)
{
	return offload_has(c->offload, l) ? offload_tail(c->offload, l, &c->layer[l]) :
					    &c->layer[l];
}

struct layer_rows *
cache_newest(struct cache *c, uint32_t l)
{
	return offload_has(c->offload, l) ? &c->offload->layer[l].device_rows : &c->layer[l];
}

/* Positions are in the list of the layer, on the device, where some are missing: there SpeContext
 * finds the scores of rows by them. */
void
cache_note_newest(struct cache *c, uint32_t l, const uint32_t *pos, uint32_t N)
{
	const struct layer_rows *newest = cache_newest(c, l);
	struct layer_rows *rows = &c->layer[l];
	int missing = 0;
	uint32_t g;

	for (g = 0; c->head != NULL && g < rows->heads; g++)
		missing |= rows->len[g] != pos[0];
	for (g = 0; offload_has(c->offload, l) && g < rows->heads; g++) {
		if (missing)
			c->model->ops->copy(c->model->dev,
			    rows->pos + rows->start[g] + rows->len[g],
			    newest->pos + newest->start[g] + newest->len[g] - N, N * sizeof *pos);
		rows->len[g] += N;
	}
}

void
cache_head_begin(struct cache *c, const uint32_t *pos, uint32_t N)
{
	uint32_t l;

	if (!sees(c, pos))
		return;
	head_keys_extend(c->head, c->tokens, pos[0] + (size_t)1);
	if (N != 1 || c->retrieval == NULL)
		return;
	specontext_score(c->retrieval, c->head);
	for (l = 0; c->offload != NULL && l < c->model->id.layers; l++)
		specontext_prefetch(c->retrieval, l, &c->layer[l]);
}

void
cache_head_note(struct cache *c, uint32_t l, const float *x, const uint32_t *pos, uint32_t N)
{
	if (sees(c, pos))
		head_keys_note(c->head, l, x, pos[0], N);
}

void
cache_head_end(const struct cache *c)
{
	if (c->head != NULL)
		head_keys_extend(c->head, c->tokens, c->n_tokens);
}
