/* cache.c - keys and values of one sequence on a device: allocation and growth, not contents
 *
 * The rows of a layer are stored as [KV head][row][E], each head with its own capacity, so that
 * heads of different length (after eviction) waste no memory. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_mass.h"
#include "cache/cache_recent.h"
#include "ops/layer_rows.h"

uint64_t
cache_row_bytes(const struct kv_head *head, uint32_t l, int mass)
{
	return kv_head_row_bytes(head, KV_KEYS, l) + kv_head_row_bytes(head, KV_VALS, l) +
	    sizeof(uint32_t) +
	    (mass ? head->model.query_heads / head->model.kv_heads * sizeof(float) : 0);
}

struct cache *
cache_new(const struct model *m, enum kv_dtype dtype)
{
	struct cache *c = calloc(1, sizeof *c);
	uint32_t l;

	if (c == NULL)
		return NULL;
	c->model = m;
	c->dtype = dtype;
	c->logged = 1;
	c->cut_from = UINT32_MAX;
	c->layer = calloc(m->id.layers, sizeof *c->layer);
	c->pos = calloc(m->id.layers, sizeof *c->pos);
	c->positions_only = calloc(m->id.layers, sizeof *c->positions_only);
	c->logged_rows = calloc((size_t)m->id.layers * m->id.kv_heads, sizeof *c->logged_rows);
	if (c->layer == NULL || c->pos == NULL || c->positions_only == NULL ||
	    c->logged_rows == NULL) {
		cache_free(c);
		return NULL;
	}
	for (l = 0; l < m->id.layers; l++) {
		c->pos[l] = calloc(m->id.kv_heads, sizeof *c->pos[l]);
		if (c->pos[l] == NULL || layer_rows_init(&c->layer[l], m->id.kv_heads,
		    m->id.head_width, dtype) != KV_OK) {
			cache_free(c);
			return NULL;
		}
		c->layer[l].v_in_k = m->id.latent_rank != 0;
	}
	return c;
}

void
cache_set_row_types(struct cache *c, const struct kv_head *head)
{
	uint32_t l;

	for (l = 0; l < c->model->id.layers; l++) {
		c->layer[l].k_type = (enum kv_row_type)head->key_type[l];
		c->layer[l].v_type = (enum kv_row_type)head->value_type[l];
	}
	c->residual = head->residual;
}

int
cache_has_residual(const struct cache *c)
{
	return c->residual != 0;
}

/* Frees the memory of layer l on the device, and its positions on the host. */
static void
free_rows(struct cache *c, uint32_t l)
{
	struct layer_rows *rows = &c->layer[l];
	int i;

	c->model->ops->free(c->model->dev, rows->k);
	c->model->ops->free(c->model->dev, rows->v_in_k ? NULL : rows->v);
	c->model->ops->free(c->model->dev, rows->pos);
	recent_free(c, l);
	rows->k = rows->v = NULL;
	rows->pos = NULL;
	if (c->pos[l] != NULL) {
		free(c->pos[l][0]);             /* one allocation for all heads */
		memset(c->pos[l], 0, rows->heads * sizeof *c->pos[l]);
	}
	for (i = 0; i < ROW_LISTS; i++)
		if (c->lists[i] != NULL)
			row_lists_clear(c->lists[i], l);
}

void
cache_free(struct cache *c)
{
	uint32_t l;
	int i;

	if (c == NULL)
		return;
	for (l = 0; c->layer != NULL && c->pos != NULL && l < c->model->id.layers; l++) {
		free_rows(c, l);
		layer_rows_free(&c->layer[l], c->model->ops, c->model->dev);
		free(c->pos[l]);
	}
	mass_free(c);
	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		index_free(&c->index[l]);
	query_stats_free(c->query_stats, c->model);
	for (i = 0; i < ROW_LISTS; i++)
		row_lists_free(c->lists[i]);
	noncausal_free(c->noncausal, c->model);
	free(c->index);
	free(c->layer);
	free(c->pos);
	free(c->positions_only);
	free(c->tokens);
	free(c->logits);
	free(c->log.data);
	free(c->logged_rows);
	free(c);
}

int
cache_want_gate(struct cache *c, const struct gate *gate)
{
	c->gate = gate;
	c->lists[ROW_GATE] = row_lists_new(&c->model->id, KV_GATE, gate->label);
	return c->lists[ROW_GATE] != NULL ? 0 : MODEL_ENOMEM;
}

int
cache_want_noncausal(struct cache *c, uint32_t first)
{
	if ((c->noncausal = noncausal_new(c->model, first)) == NULL)
		return MODEL_ENOMEM;
	c->lists[ROW_NONCAUSAL] = row_lists_new(&c->model->id, KV_NCAU, c->noncausal->label);
	return c->lists[ROW_NONCAUSAL] != NULL ? 0 : MODEL_ENOMEM;
}

int
cache_want_indexes(struct cache *c, unsigned kinds)
{
	const struct kv_model *id = &c->model->id;
	uint32_t l;

	c->index_kinds = kinds;
	if ((c->index = calloc(id->layers, sizeof *c->index)) == NULL)
		return MODEL_ENOMEM;
	for (l = 0; l < id->layers; l++)
		if (index_init(&c->index[l], c->model->ops, c->model->dev, id->kv_heads,
		    id->head_width, c->dtype) != 0)
			return MODEL_ENOMEM;
	return 0;
}

struct layer_index *
cache_index(const struct cache *c, uint32_t l)
{
	return c->index != NULL ? &c->index[l] : NULL;
}

/* Gives the indexes of layer l the capacity of its rows. */
static int
reserve_index(struct cache *c, uint32_t l)
{
	if (c->index != NULL && index_reserve(&c->index[l], &c->layer[l]) != 0)
		return MODEL_ENOMEM;
	return 0;
}

/* Drops the indexes of layer l, which were made from rows that are gone. */
static void
drop_indexes(struct cache *c, uint32_t l)
{
	int kind;

	if (c->index == NULL)
		return;
	c->index_dropped |= c->index[l].present;
	for (kind = KV_UNKNOWN + 1; kind < KV_KIND_END; kind++)
		index_drop(&c->index[l], kind);
}

/* Moves the host's lists, positions and row_lists.h: those of KV head g begin at start[g]. */
static int
resize_lists(struct cache *c, uint32_t l, const uint64_t *start, uint64_t total)
{
	const struct layer_rows *rows = &c->layer[l];
	uint32_t *old = c->pos[l][0], *pos = malloc((total + 1) * sizeof *pos), g;
	int i;

	if (pos == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; g++) {
		if (rows->len[g] > 0)
			memcpy(pos + start[g], c->pos[l][g], rows->len[g] * sizeof *pos);
		c->pos[l][g] = pos + start[g];
	}
	free(old);
	for (i = 0; i < ROW_LISTS; i++)
		if (c->lists[i] != NULL &&
		    row_lists_resize(c->lists[i], l, rows, start, total) != 0)
			return MODEL_ENOMEM;
	return 0;
}

/* Gives the memory of layer l to spare_to; NO_LAYER: frees it. */
static void
give_memory(struct cache *c, uint32_t l, uint32_t spare_to)
{
	const struct layer_rows *rows = &c->layer[l];
	const struct ops *o = c->model->ops;
	struct layer_rows *to;

	if (spare_to != NO_LAYER) {
		to = &c->layer[spare_to];
		to->k = rows->k;
		to->v = rows->v;
		to->pos = rows->pos;
		memcpy(to->start, rows->start, rows->heads * sizeof *rows->start);
		memcpy(to->capacity, rows->capacity, rows->heads * sizeof *rows->capacity);
		return;
	}
	o->free(c->model->dev, rows->k);
	o->free(c->model->dev, rows->v_in_k ? NULL : rows->v);
	o->free(c->model->dev, rows->pos);
}

static uint64_t
sum_of(const uint32_t *n, uint32_t heads)
{
	uint64_t sum = 0;

	while (heads > 0)
		sum += n[--heads];
	return sum;
}

/* Moves layer l into memory for capacity[g] rows of each head; the rows in use keep their contents
 * (full rows behind them lie elsewhere, cache_recent.h). Gives the old memory to spare_to, an empty
 * layer; NO_LAYER: frees it. */
static int
resize(struct cache *c, uint32_t l, const uint32_t *capacity, uint32_t spare_to)
{
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	struct layer_rows *rows = &c->layer[l];
	const size_t k_row = c->positions_only[l] ? 0 : rows_k_bytes(rows);
	const size_t v_row = c->positions_only[l] ? 0 : rows_v_bytes(rows);
	struct layer_rows to = *rows;
	uint64_t total = 0;
	uint32_t g;

	if (recent_init(c, l, rows->len) != 0)
		return MODEL_ENOMEM;
	to.recent = rows->recent;
	if (c->mass != NULL && mass_resize(c, l, capacity, spare_to) != 0)
		return MODEL_ENOMEM;
	to.start = calloc(rows->heads, sizeof *to.start);
	if (to.start == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; g++) {
		to.start[g] = total;
		total += recent_capacity(rows, capacity[g]);
	}
	to.k = o->alloc(d, total * k_row + 1);
	to.v = rows->v_in_k ? to.k : o->alloc(d, total * v_row + 1);
	to.pos = o->alloc(d, total * sizeof *to.pos);
	if (to.k == NULL || to.v == NULL || to.pos == NULL ||
	    resize_lists(c, l, to.start, total) != 0 ||
	    (spare_to != NO_LAYER && resize_lists(c, spare_to, rows->start,
	    sum_of(rows->capacity, rows->heads)) != 0)) {
		o->free(d, to.k);
		o->free(d, rows->v_in_k ? NULL : to.v);
		o->free(d, to.pos);
		free(to.start);
		return MODEL_ENOMEM;
	}
	for (g = 0; g < rows->heads && rows->k != NULL; g++) {
		o->copy(d, (char *)to.k + to.start[g] * k_row,
		    (char *)rows->k + rows->start[g] * k_row, rows->len[g] * k_row);
		if (!rows->v_in_k)
			o->copy(d, (char *)to.v + to.start[g] * v_row,
			    (char *)rows->v + rows->start[g] * v_row, rows->len[g] * v_row);
		o->copy(d, to.pos + to.start[g], rows->pos + rows->start[g],
		    rows->len[g] * sizeof *to.pos);
	}
	give_memory(c, l, spare_to);
	free(rows->start);
	memcpy(to.capacity, capacity, rows->heads * sizeof *capacity);
	*rows = to;
	return 0;
}

/* Makes room for `more` rows in each head of layer l. Capacity grows by at least half, so that
 * appending row by row copies each row a constant number of times on average. */
static int
reserve_layer(struct cache *c, uint32_t l, uint32_t more)
{
	const struct layer_rows *rows = &c->layer[l];
	uint32_t *capacity = calloc(rows->heads, sizeof *capacity);
	int rc = 0, grow = rows->k == NULL;
	uint32_t g;

	if (capacity == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; g++) {
		uint64_t need = (uint64_t)rows->len[g] + more;
		uint64_t half_more = rows->len[g] + (uint64_t)rows->len[g] / 2;

		capacity[g] = rows->capacity[g];
		if (need > UINT32_MAX)
			rc = MODEL_ENOMEM;
		if (need > capacity[g]) {
			capacity[g] = half_more > need && half_more <= UINT32_MAX ?
			    (uint32_t)half_more : (uint32_t)need;
			grow = 1;
		}
	}
	if (rc == 0 && grow)
		rc = resize(c, l, capacity, NO_LAYER);
	if (rc == 0 && grow)
		rc = reserve_index(c, l);
	free(capacity);
	return rc;
}

int
cache_reserve_layers(struct cache *c, uint32_t more, uint32_t l0, uint32_t l1)
{
	uint32_t l;
	int rc;

	for (l = l0; l < l1; l++)
		if ((rc = reserve_layer(c, l, cache_most_rows(c, l, more))) != 0)
			return rc;
	return 0;
}

int
cache_reserve_step(struct cache *c, uint32_t N)
{
	uint32_t l;
	int rc = 0;

	for (l = 0; rc == 0 && cache_has_residual(c) && l < c->model->id.layers; l++)
		rc = recent_reserve(c, l, N);
	return rc;
}

int
cache_reserve(struct cache *c, uint32_t more)
{
	return cache_reserve_layers(c, more, 0, c->model->id.layers);
}

int
cache_layer_init(struct cache *c, uint32_t l, const struct kv_rows *from)
{
	struct layer_rows *rows = &c->layer[l];
	uint32_t *capacity = calloc(rows->heads, sizeof *capacity);
	const uint32_t *len = from->count, spare = cache_most_rows(c, l, c->spare);
	uint32_t g;
	int rc = 0;

	if (capacity == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; g++) {
		if (len[g] > UINT32_MAX - spare)
			rc = MODEL_ENOMEM;
		capacity[g] = len[g] + spare;
	}
	if (rc == 0)
		rc = recent_init(c, l, len);
	if (rc == 0)
		rc = resize(c, l, capacity, NO_LAYER);
	free(capacity);
	for (g = 0; rc == 0 && g < rows->heads; g++) {
		rows->len[g] = len[g];
		if (len[g] == 0)
			continue;
		memcpy(c->pos[l][g], from->pos[g], len[g] * sizeof *rows->pos);
		c->model->ops->put(c->model->dev, rows->pos + rows->start[g], from->pos[g],
		    len[g] * sizeof *rows->pos);
	}
	return rc;
}

int
cache_positions_only(struct cache *c, uint32_t l)
{
	struct layer_rows *rows = &c->layer[l];
	const struct ops *o = c->model->ops;

	c->positions_only[l] = 1;
	if (rows->k == NULL)
		return 0;
	o->free(c->model->dev, rows->k);
	o->free(c->model->dev, rows->v_in_k ? NULL : rows->v);
	rows->k = o->alloc(c->model->dev, 1);   /* not NULL, as after resize() */
	rows->v = rows->v_in_k ? rows->k : o->alloc(c->model->dev, 1);
	return rows->k != NULL && rows->v != NULL ? 0 : MODEL_ENOMEM;
}

struct kv_rows
cache_rows(const struct cache *c, uint32_t l)
{
	return (struct kv_rows){ c->layer[l].heads, c->layer[l].len,
		(const uint32_t *const *)c->pos[l] };
}

void
cache_expect(struct cache *c, uint32_t l, const uint32_t *pos, uint32_t N)
{
	const struct layer_rows *rows = &c->layer[l];
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		memcpy(c->pos[l][g] + rows->len[g], pos, N * sizeof *pos);
}

static int
all_stay(const struct layer_rows *rows, const uint32_t *count)
{
	uint32_t g;

	for (g = 0; g < rows->heads && count[g] == rows->len[g]; g++)
		;
	return g == rows->heads;
}

/* Keeps the rows keep[0 .. n-1] of KV head g in the host's lists. */
static void
keep_listed(struct cache *c, uint32_t l, uint32_t g, const uint32_t *keep, uint32_t n)
{
	uint32_t *pos = c->pos[l][g], i;
	int k;

	for (i = 0; i < n; i++)
		pos[i] = pos[keep[i]];
	for (k = 0; k < ROW_LISTS; k++)
		if (c->lists[k] != NULL)
			row_lists_keep(c->lists[k], l, g, keep, n);
}

void
cache_keep(struct cache *c, uint32_t l, const uint32_t *count, uint32_t *const *keep)
{
	const struct attention_mass mass = mass_of(c, l);
	struct layer_rows *rows = &c->layer[l];
	uint32_t g;

	if (all_stay(rows, count))
		return;
	drop_indexes(c, l);
	for (g = 0; g < rows->heads; g++)
		keep_listed(c, l, g, keep[g], count[g]);
	c->model->ops->compact(c->model->dev, rows, mass.sum, mass.stride,
	    c->model->id.query_heads, count, keep);
}

void
cache_keep_listed(struct cache *c, uint32_t l, const struct chosen *kept, const uint32_t *at)
{
	const struct attention_mass mass = mass_of(c, l);
	struct layer_rows *rows = &c->layer[l];
	uint32_t g;

	if (all_stay(rows, kept->n))
		return;
	drop_indexes(c, l);
	for (g = 0; g < rows->heads; g++)
		keep_listed(c, l, g, at + g * kept->stride, kept->n[g]);
	c->model->ops->compact_listed(c->model->dev, rows, mass.sum, mass.stride,
	    c->model->id.query_heads, kept);
}

void
cache_drop_last(struct cache *c, uint32_t n, uint32_t l0, uint32_t l1)
{
	uint32_t l, g;

	for (l = l0; l < l1; l++)
		for (g = 0; g < c->layer[l].heads; g++)
			c->layer[l].len[g] -= n;
}

int
cache_trim(struct cache *c, uint32_t l, uint32_t spare_to)
{
	const struct layer_rows *rows = &c->layer[l];
	uint32_t *capacity = malloc(rows->heads * sizeof *capacity), to = NO_LAYER;
	int rc;

	if (capacity == NULL)
		return MODEL_ENOMEM;
	memcpy(capacity, rows->len, rows->heads * sizeof *capacity);
	if (spare_to < c->model->id.layers && spare_to != l && c->layer[spare_to].k == NULL &&
	    rows_k_type(&c->layer[spare_to]) == rows_k_type(rows) &&
	    rows_v_type(&c->layer[spare_to]) == rows_v_type(rows))
		to = spare_to;
	rc = resize(c, l, capacity, to);
	if (rc == 0 && to != NO_LAYER)
		rc = reserve_index(c, to);
	free(capacity);
	return rc;
}

int
cache_add_tokens(struct cache *c, const uint32_t *ids, size_t n)
{
	if (c->n_tokens + n > c->cap_tokens) {
		size_t cap = c->n_tokens + n + c->cap_tokens / 2 + 256;
		uint32_t *p = realloc(c->tokens, cap * sizeof *p);

		if (p == NULL)
			return MODEL_ENOMEM;
		c->tokens = p;
		c->cap_tokens = cap;
	}
	memcpy(c->tokens + c->n_tokens, ids, n * sizeof *ids);
	c->n_tokens += n;
	return 0;
}

int
cache_clear(struct cache *c)
{
	const struct model *m = c->model;
	uint32_t l;

	c->next_position = 0;
	c->documents.n = 0;
	for (l = 0; l < m->id.layers; l++) {
		struct layer_rows *rows = &c->layer[l];

		free_rows(c, l);
		memset(rows->len, 0, rows->heads * sizeof *rows->len);
		memset(rows->capacity, 0, rows->heads * sizeof *rows->capacity);
		drop_indexes(c, l);
		if (c->query_stats != NULL)
			query_stats_clear(c->query_stats, m, l);
		if (c->mass != NULL)
			mass_clear(c, l);
	}
	return cache_log(c, KV_EVENT_EVICT, 0, 0, m->id.layers);
}

int
cache_mark(struct cache *c, struct cache_mark *mark)
{
	const uint32_t L = c->model->id.layers, G = c->model->id.kv_heads;
	uint32_t l;

	*mark = (struct cache_mark){ c->next_position, c->n_tokens, malloc((size_t)L * G *
	    sizeof *mark->len) };
	for (l = 0; mark->len != NULL && l < L; l++)
		memcpy(mark->len + (size_t)l * G, c->layer[l].len, G * sizeof *mark->len);
	c->logged = 0;
	c->marked = 1;
	c->mark_len = mark->len;
	return mark->len != NULL ? 0 : MODEL_ENOMEM;
}

void
cache_go_back(struct cache *c, const struct cache_mark *mark)
{
	const uint32_t G = c->model->id.kv_heads;
	uint32_t l;

	for (l = 0; l < c->model->id.layers; l++) {
		memcpy(c->layer[l].len, mark->len + (size_t)l * G, G * sizeof *mark->len);
		recent_go_back(&c->layer[l]);
	}
	c->next_position = mark->next_position;
	c->n_tokens = mark->n_tokens;
}

uint64_t
cache_bytes(const struct cache *c)
{
	uint64_t bytes = 0;
	uint32_t l;

	for (l = 0; l < c->model->id.layers; l++) {
		const struct layer_rows *rows = &c->layer[l];

		bytes += rows->recent != NULL ? recent_layer_bytes(rows) :
		    sum_of(rows->len, rows->heads) * (rows_k_bytes(rows) +
		    (rows->v_in_k ? 0 : rows_v_bytes(rows)));
	}
	return bytes;
}
