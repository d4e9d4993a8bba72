/* cache_recent.c - full rows behind quantised ones: memory, loading, saving, going back
 *
 * The op that appends a row codes the rows before it that have become old enough; here is what it
 * needs room for. Full rows stay where they are until room is wanted, so a cache that drops its
 * last rows finds the rows that were full before. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_recent.h"

/* Room for this many full rows at least, so that they are moved now and then only */
enum { ROOM_LEAST = 32 };

static uint32_t
least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t
room_for(uint32_t residual)
{
	return residual > ROOM_LEAST ? residual : ROOM_LEAST;
}

/* How many rows are coded of KV head g, or would be of one with `len` rows: keys, values */
static uint32_t
coded_keys(const struct layer_rows *rows, uint32_t len)
{
	return kv_coded_keys(rows_k_type(rows), len, rows->recent->residual);
}

static uint32_t
coded_values(const struct layer_rows *rows, uint32_t len)
{
	return kv_coded_values(rows_v_type(rows), len, rows->recent->residual);
}

uint64_t
recent_capacity(const struct layer_rows *rows, uint64_t n)
{
	return kv_row_type_kivi(rows->k_type) ?
	    (n + KV_GROUP_ROWS - 1) / KV_GROUP_ROWS * KV_GROUP_ROWS : n;
}

/* ---- memory ---- */

void
recent_free(struct cache *c, uint32_t l)
{
	struct recent_rows *r = c->layer[l].recent;

	if (r == NULL)
		return;
	c->model->ops->free(c->model->dev, r->k);
	c->model->ops->free(c->model->dev, r->v);
	free(r->first);
	free(r);
	c->layer[l].recent = NULL;
}

/* Moves the full rows from keep[g] on to memory for `capacity` rows of each KV head. */
static int
move_rows(struct cache *c, uint32_t l, const uint32_t *keep, uint32_t capacity)
{
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	const struct layer_rows *rows = &c->layer[l];
	struct recent_rows *r = rows->recent;
	const size_t row = rows->width * kv_dtype_size(rows->dtype);
	const size_t size = (size_t)rows->heads * capacity * row;
	const int keys = kv_row_type_quantised(rows->k_type);
	const int values = kv_row_type_quantised(rows->v_type);
	char *k = keys ? o->alloc(d, size) : NULL, *v = values ? o->alloc(d, size) : NULL;
	uint32_t g;

	if ((keys && k == NULL) || (values && v == NULL)) {
		o->free(d, k);
		o->free(d, v);
		return MODEL_ENOMEM;
	}
	for (g = 0; g < rows->heads; g++) {
		const size_t from = ((size_t)g * r->capacity + keep[g] - r->first[g]) * row;
		const size_t to = (size_t)g * capacity * row, n = (rows->len[g] - keep[g]) * row;

		if (n > 0 && r->k != NULL)
			o->copy(d, k + to, (char *)r->k + from, n);
		if (n > 0 && r->v != NULL)
			o->copy(d, v + to, (char *)r->v + from, n);
		r->first[g] = keep[g];
	}
	o->free(d, r->k);
	o->free(d, r->v);
	r->k = k;
	r->v = v;
	r->capacity = capacity;
	return 0;
}

int
recent_init(struct cache *c, uint32_t l, const uint32_t *len)
{
	struct layer_rows *rows = &c->layer[l];
	const uint32_t G = rows->heads;
	struct recent_rows *r;
	uint32_t none[KV_LAYERS_MOST] = { 0 }, g;

	if (c->residual == 0 || rows->recent != NULL || (!kv_row_type_quantised(rows->k_type) &&
	    !kv_row_type_quantised(rows->v_type)))
		return 0;
	if ((r = calloc(1, sizeof *r)) == NULL ||
	    (r->first = calloc(3 * (size_t)G, sizeof *r->first)) == NULL) {
		free(r);
		return MODEL_ENOMEM;
	}
	r->k_coded = r->first + G;
	r->v_coded = r->k_coded + G;
	r->residual = c->residual;
	rows->recent = r;
	if (move_rows(c, l, none, 3 * room_for(r->residual)) != 0)
		return MODEL_ENOMEM;
	for (g = 0; g < G; g++) {
		r->k_coded[g] = coded_keys(rows, len[g]);
		r->v_coded[g] = coded_values(rows, len[g]);
		r->first[g] = least(r->k_coded[g], r->v_coded[g]);
	}
	return 0;
}

/* The fewest rows of KV head g that the cache may go back to */
static uint32_t
shortest(const struct cache *c, uint32_t l, uint32_t g)
{
	const struct layer_rows *rows = &c->layer[l];

	if (c->marked)
		return c->mark_len[(size_t)l * rows->heads + g];
	return c->cut_from == UINT32_MAX ? rows->len[g] :
	    kv_rows_before(c->pos[l][g], rows->len[g], c->cut_from);
}

int
recent_reserve(struct cache *c, uint32_t l, uint32_t more)
{
	const struct layer_rows *rows = &c->layer[l];
	const struct recent_rows *r = rows->recent;
	uint32_t keep[KV_LAYERS_MOST], most = 0, g, n;
	int full = 0;

	for (g = 0; r != NULL && g < rows->heads; g++) {
		n = shortest(c, l, g);
		keep[g] = least(least(r->k_coded[g], r->v_coded[g]),
		    least(coded_keys(rows, n), coded_values(rows, n)));
		keep[g] = keep[g] > r->first[g] ? keep[g] : r->first[g];
		n = rows->len[g] - keep[g] + more;
		most = n > most ? n : most;
		full |= rows->len[g] - r->first[g] + more > r->capacity;
	}
	if (!full)
		return 0;
	n = 2 * room_for(r->residual);
	return move_rows(c, l, keep, most + (most > n ? most : n));
}

void
recent_go_back(struct layer_rows *rows)
{
	struct recent_rows *r = rows->recent;
	uint32_t g;

	for (g = 0; r != NULL && g < rows->heads; g++) {
		r->k_coded[g] = least(r->k_coded[g], coded_keys(rows, rows->len[g]));
		r->v_coded[g] = least(r->v_coded[g], coded_values(rows, rows->len[g]));
	}
}

/* ---- loading and saving ---- */

/* One of keys and values of a KV head */
struct side {
	enum kv_row_type type;
	char *codes, *full;             /* its first row of each */
	uint32_t coded;                 /* rows that are read as codes */
	uint32_t stored;                /* rows that a snapshot has as codes */
	uint32_t first;                 /* row of full[0] */
	size_t code, row;               /* bytes of a coded and of a full row */
};

static struct side
side_of(const struct layer_rows *rows, uint32_t g, enum kv_kind kind)
{
	const int keys = kind == KV_KEYS;
	const struct recent_rows *r = rows->recent;
	const uint32_t len = rows->len[g];
	char *codes = keys ? rows->k : rows->v, *full = keys ? r->k : r->v;
	struct side s = { .type = keys ? rows_k_type(rows) : rows_v_type(rows),
		.coded = len, .first = r->first[g],
		.stored = keys ? coded_keys(rows, len) : coded_values(rows, len),
		.code = keys ? rows_k_bytes(rows) : rows_v_bytes(rows),
		.row = rows->width * kv_dtype_size(rows->dtype) };

	s.codes = codes + rows->start[g] * s.code;
	if (full != NULL) {                     /* quantised */
		s.full = full + (size_t)g * r->capacity * s.row;
		s.coded = keys ? r->k_coded[g] : r->v_coded[g];
	}
	return s;
}

void
recent_put(struct cache *c, uint32_t l, uint32_t g, enum kv_kind kind, const char *content)
{
	const struct layer_rows *rows = &c->layer[l];
	const struct side s = side_of(rows, g, kind);
	const struct ops *o = c->model->ops;

	if (s.stored > 0)
		o->put(c->model->dev, s.codes, content, s.stored * s.code);
	if (rows->len[g] > s.stored)
		o->put(c->model->dev, s.full + (s.stored - s.first) * s.row,
		    content + s.stored * s.code, (rows->len[g] - s.stored) * s.row);
}

int
recent_get(const struct cache *c, uint32_t l, uint32_t g, enum kv_kind kind, char *content,
    float *buffer)
{
	const struct layer_rows *rows = &c->layer[l];
	const struct side s = side_of(rows, g, kind);
	const size_t E = rows->width;
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	char *to = content + s.coded * s.code, *full = (char *)(buffer + KV_GROUP_ROWS * E);
	const int grouped = kind == KV_KEYS && kv_row_type_kivi(s.type);
	const uint32_t step = grouped ? KV_GROUP_ROWS : 1;
	uint32_t row;

	if (s.coded > 0)
		o->get(d, content, s.codes, s.coded * s.code);
	for (row = s.coded; row < s.stored; row += step, to += step * s.code) {
		o->get(d, full, s.full + (row - s.first) * s.row, step * s.row);
		kv_to_f32(buffer, full, rows->dtype, step * E);
		if (grouped ? !kv_group_from_f32(to, buffer, s.type, E) :
		    kv_rows_from_f32(to, buffer, s.type, E, 1) == 0)
			return MODEL_EINVALID;
	}
	if (rows->len[g] > s.stored)
		o->get(d, to, s.full + (s.stored - s.first) * s.row,
		    (rows->len[g] - s.stored) * s.row);
	return 0;
}

uint64_t
recent_bytes(const struct layer_rows *rows, uint32_t g, enum kv_kind kind)
{
	const struct side s = side_of(rows, g, kind);

	return s.stored * (uint64_t)s.code + (rows->len[g] - s.stored) * (uint64_t)s.row;
}

uint64_t
recent_layer_bytes(const struct layer_rows *rows)
{
	uint64_t bytes = 0;
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		bytes += recent_bytes(rows, g, KV_KEYS) + recent_bytes(rows, g, KV_VALS);
	return bytes;
}
