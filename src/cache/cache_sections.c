/* cache_sections.c - a cache to and from a KV snapshot (formats/kv-snapshot.md)
 *
 * Host memory holds the keys or values of one layer at a time. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_recent.h"
#include "cache/cache_sections.h"
#include "cache/value_norms.h"
#include "libkvfile/codec.h"

void
snapshot_head(const struct cache *c, struct kv_head *head)
{
	uint32_t l;

	memset(head, 0, sizeof *head);
	head->model = c->model->id;
	head->dtype = c->dtype;
	head->next_position = c->next_position;
	for (l = 0; l < c->model->id.layers; l++) {
		head->key_type[l] = (uint8_t)c->layer[l].k_type;
		head->value_type[l] = (uint8_t)c->layer[l].v_type;
	}
	head->residual = c->residual;
	head->documents = c->documents;
}

/* ---- loading ---- */

/* Loads the tokens part by part, so that memory holds them once; a small file may have many
 * (LZ4). */
static int
load_tokens(struct kv_reader *r, struct cache *c)
{
	const void *part;
	size_t size;
	int rc;

	while ((rc = kv_read(r, &part, &size)) == KV_OK && size > 0)
		if (cache_add_tokens(c, part, size / sizeof *c->tokens) != 0)
			return KV_ENOMEM;
	return rc;
}

static int
load_rows(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const struct kv_rows *rows;
	int rc = kv_load_rows(r, &rows), i;

	if (rc != KV_OK)
		return rc;
	if (cache_layer_init(c, sec->layer, rows) != 0)
		return KV_ENOMEM;
	memcpy(c->logged_rows + (size_t)sec->layer * rows->heads, rows->count,
	    rows->heads * sizeof *rows->count);
	if (c->mass != NULL)
		c->mass[sec->layer].whole = kv_rows_total(rows) == 0;
	if (c->query_stats != NULL)
		c->query_stats->whole[sec->layer] = 0;
	for (i = 0; i < ROW_LISTS; i++)
		if (c->lists[i] != NULL)
			c->lists[i]->whole[sec->layer] = kv_rows_total(rows) == 0;
	return KV_OK;
}

/* Loads KEYS or VALS: packed in the file, with spare capacity after each head in the cache, which
 * may have only the first rows of each head. */
static int
load_tensor(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const struct kv_rows *there = kv_current_rows(r);
	struct layer_rows *rows = &c->layer[sec->layer];
	size_t row = sec->kind == KV_KEYS ? rows_k_bytes(rows) : rows_v_bytes(rows), at = 0;
	char *to = sec->kind == KV_KEYS ? rows->k : rows->v;
	const void *data;
	uint32_t g;
	int rc = kv_load(r, &data);

	if (sec->kind == KV_VALS && rows->v_in_k)
		return rc;
	if (rc == KV_OK && rows->recent != NULL) {
		for (g = 0; g < rows->heads; g++) {
			recent_put(c, sec->layer, g, sec->kind, (const char *)data + at);
			at += recent_bytes(rows, g, sec->kind);
		}
		return KV_OK;
	}
	for (g = 0; rc == KV_OK && g < rows->heads; g++) {
		if (rows->len[g] > 0)                   /* without rows there may be no memory */
			c->model->ops->put(c->model->dev, to + rows->start[g] * row,
			    (const char *)data + at, rows->len[g] * row);
		at += there->count[g] * row;
	}
	return rc;
}

/* Loads the last stored queries that fit into the window, without those of tokens that were not
 * stored. They are valid only if every layer has them, at the same positions: obs->loaded counts
 * the layers that agree with the first. */
static int
load_queries(struct kv_reader *r, const struct kv_section *sec, const struct cache *c,
    struct observation *obs)
{
	uint32_t H = c->model->id.query_heads, E = c->model->id.head_width, take, last, w, h;
	size_t esize = kv_dtype_size(c->dtype);
	struct kv_queries stored;
	const uint32_t *pos;
	const char *q;
	int rc = kv_load_queries(r, &stored);

	if (rc != KV_OK)
		return rc;
	last = stored.n - stored.n_own;
	take = last < obs->window ? last : obs->window;
	q = stored.q;
	for (h = 0; h < H; h++)
		for (w = 0; w < take; w++)
			kv_to_f32(obs->q[sec->layer] + ((size_t)w * H + h) * E,
			    q + ((size_t)h * stored.n + last - take + w) * E * esize, c->dtype, E);
	pos = stored.pos + last - take;
	if (obs->loaded == 0) {
		memcpy(obs->pos, pos, take * sizeof *obs->pos);
		obs->have = take;
	}
	if (take == obs->have && memcmp(obs->pos, pos, take * sizeof *obs->pos) == 0)
		obs->loaded++;
	return KV_OK;
}

/* Loads the mass of each query head, packed in the file. */
static int
load_mass(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const struct layer_rows *rows = &c->layer[sec->layer];
	struct attention_mass *to = &c->mass[sec->layer];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, h;
	struct kv_values mass;
	const float *list;
	int rc = kv_load_values(r, &mass);

	for (h = 0, list = mass.value; rc == KV_OK && h < H; list += rows->len[h++ / R])
		c->model->ops->put(c->model->dev, to->sum + h * to->stride, list,
		    rows->len[h / R] * sizeof *list);
	to->whole = 1;
	return rc;
}

static int
load_list(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	struct row_lists *to = c->lists[sec->kind == KV_GATE ? ROW_GATE : ROW_NONCAUSAL];

	return to != NULL ? row_lists_load(to, sec->layer, &c->layer[sec->layer], r) : KV_OK;
}

static int
load_logits(struct kv_reader *r, struct cache *c)
{
	size_t size = c->model->id.vocabulary * sizeof *c->logits;
	const float *logits;
	int rc = kv_load_logits(r, &logits);

	if (rc != KV_OK)
		return rc;
	if (c->logits == NULL && (c->logits = malloc(size)) == NULL)
		return KV_ENOMEM;
	memcpy(c->logits, logits, size);
	return KV_OK;
}

static int
load_log(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const void *data;
	int rc = kv_load(r, &data);

	if (rc == KV_OK)
		rc = kv_log_copy(&c->log, data, sec->raw_size, c->model->id.kv_heads);
	c->logged = rc == KV_OK;
	return rc;
}

static int
load_index(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	struct kv_index index;
	int rc = kv_load_index(r, &index);

	return rc != KV_OK ? rc : index_load(&c->index[sec->layer], &index, &c->layer[sec->layer]);
}

int
snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs)
{
	switch (sec->kind) {
	case KV_TOKS:
		return load_tokens(r, c);
	case KV_POSN:
		return load_rows(r, sec, c);
	case KV_OBSQ:
		return obs != NULL ? load_queries(r, sec, c, obs) : KV_OK;
	case KV_QSTA:
		return c->query_stats != NULL ?
		    query_stats_load(c->query_stats, c->model, sec->layer, r) : KV_OK;
	case KV_MASS:
		return c->mass != NULL ? load_mass(r, sec, c) : KV_OK;
	case KV_GATE:
	case KV_NCAU:
		return load_list(r, sec, c);
	case KV_KEYS:
	case KV_VALS:
		return load_tensor(r, sec, c);
	case KV_LGTS:
		return load_logits(r, c);
	case KV_RHDK:                   /* without its head they could not be extended */
		c->index_dropped |= 1u << KV_RHDK;
		return KV_OK;
	case KV_EVNT:
		return load_log(r, sec, c);
	default:
		return c->index_kinds >> sec->kind & 1 ? load_index(r, sec, c) : KV_OK;
	}
}

/* ---- saving ---- */

static int
save_sinks(struct kv_writer *w, const struct cache *c, uint32_t layer)
{
	const struct model *m = c->model;
	const size_t H = m->id.query_heads;
	float *sinks = malloc(H * sizeof *sinks);
	int rc;

	if (sinks == NULL)
		return KV_ENOMEM;
	m->ops->get(m->dev, sinks, m->layer[layer].sinks, H * sizeof *sinks);
	rc = kv_write_sinks(w, layer, sinks);
	free(sinks);
	return rc;
}

static int
save_queries(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    uint32_t layer)
{
	uint32_t H = c->model->id.query_heads, E = c->model->id.head_width, W = obs->have, i, h;
	size_t esize = kv_dtype_size(c->dtype);
	char *buf = malloc((size_t)H * W * E * esize + 1);
	struct kv_queries q = { W, obs->pos, buf, obs->n_own,
	    obs->n_own > 0 ? obs->own[layer] : NULL };
	int rc;

	if (buf == NULL)
		return KV_ENOMEM;
	for (h = 0; h < H; h++)
		for (i = 0; i < W; i++)
			kv_from_f32(buf + ((size_t)h * W + i) * E * esize,
			    obs->q[layer] + ((size_t)i * H + h) * E, c->dtype, E);
	rc = c->model->layer[layer].sinks == NULL ? KV_OK : save_sinks(w, c, layer);
	if (rc == KV_OK)
		rc = kv_write_queries(w, layer, &q);
	free(buf);
	return rc;
}

static int
save_mass(struct kv_writer *w, const struct cache *c, const struct kv_rows *rows, uint32_t layer)
{
	const struct attention_mass *from = &c->mass[layer];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, h;
	float *buf = malloc(kv_rows_total(rows) * R * sizeof *buf + 1), *list = buf;
	struct kv_values mass = { NULL, kv_rows_total(rows) * R, buf };
	int rc;

	if (buf == NULL)
		return KV_ENOMEM;
	for (h = 0; h < H; list += rows->count[h++ / R])
		c->model->ops->get(c->model->dev, list, from->sum + h * from->stride,
		    rows->count[h / R] * sizeof *list);
	rc = kv_write_values(w, KV_MASS, layer, &mass);
	free(buf);
	return rc;
}

static int
save_value_norms(struct kv_writer *w, const struct cache *c, const struct kv_rows *rows,
    uint32_t layer)
{
	const uint64_t n = kv_rows_total(rows) * (c->model->id.query_heads / rows->heads);
	float *buf = malloc(n * sizeof *buf + 1);
	const struct kv_values norms = { "l1", n, buf };
	int rc = KV_ENOMEM;

	if (buf != NULL && layer_value_norms(c->model, layer, &c->layer[layer], 0, buf) == 0)
		rc = kv_write_values(w, KV_VNRM, layer, &norms);
	free(buf);
	return rc;
}

/* Returns the bytes of a KV head in KEYS or VALS. */
static uint64_t
head_bytes(const struct layer_rows *rows, uint32_t g, enum kv_kind kind)
{
	if (kind == KV_VALS && rows->v_in_k)
		return 0;
	if (rows->recent != NULL)
		return recent_bytes(rows, g, kind);
	return rows->len[g] * (uint64_t)(kind == KV_KEYS ? rows_k_bytes(rows) : rows_v_bytes(rows));
}

/* to <- the keys or values of a KV head of a layer with full rows behind quantised ones */
static int
get_recent(const struct cache *c, uint32_t l, uint32_t g, enum kv_kind kind, char *to)
{
	float *buffer = malloc(2 * KV_GROUP_ROWS * c->layer[l].width * sizeof *buffer);
	int rc = KV_ENOMEM;

	if (buffer != NULL)
		rc = recent_get(c, l, g, kind, to, buffer) == 0 ? KV_OK : KV_EINVAL;
	free(buffer);
	return rc;
}

/* to <- the keys or values of a KV head */
static int
get_rows(const struct cache *c, const struct rows_elsewhere *other, uint32_t l, uint32_t g,
    enum kv_kind kind, char *to)
{
	const struct layer_rows *rows = &c->layer[l];
	const size_t row = kind == KV_KEYS ? rows_k_bytes(rows) : rows_v_bytes(rows);
	const char *from = kind == KV_KEYS ? rows->k : rows->v;

	if (rows->recent != NULL)
		return get_recent(c, l, g, kind, to);
	if (c->positions_only[l])
		return other->get(other->with, l, g, kind, to);
	c->model->ops->get(c->model->dev, to, from + rows->start[g] * row, rows->len[g] * row);
	return KV_OK;
}

/* Writes KEYS or VALS. */
static int
save_tensor(struct kv_writer *w, const struct cache *c, const struct rows_elsewhere *other,
    uint32_t layer, enum kv_kind kind)
{
	const struct layer_rows *rows = &c->layer[layer];
	const enum kv_row_type type = kind == KV_KEYS ? rows_k_type(rows) : rows_v_type(rows);
	size_t size = 1;
	struct kv_span span = { NULL, 0 };
	int rc = KV_OK;
	uint32_t g;
	char *buf;

	for (g = 0; g < rows->heads; g++)
		size += head_bytes(rows, g, kind);
	if ((buf = malloc(size)) == NULL)
		return KV_ENOMEM;
	span.data = buf;
	for (g = 0; rc == KV_OK && span.size < size - 1; g++) {
		rc = get_rows(c, other, layer, g, kind, buf + span.size);
		span.size += head_bytes(rows, g, kind);
	}
	if (rc == KV_OK)
		rc = kv_write(w, kv_kind_type(kind), layer, kv_row_element(type), &span, 1);
	free(buf);
	return rc;
}

static int
save_log(struct kv_writer *w, const struct cache *c)
{
	const struct kv_span log = { c->log.data, c->log.size };

	if (log.size == 0)
		return KV_OK;
	return kv_write(w, kv_kind_type(KV_EVNT), KV_NO_LAYER, 4, &log, 1);
}

int
snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    enum kv_kind kind, uint32_t l)
{
	const struct kv_tokens tokens = { c->n_tokens, c->tokens };

	if (kind == KV_TOKS)
		return kv_write_tokens(w, &tokens);
	if (kind == KV_EVNT)
		return save_log(w, c);
	return kind == KV_OBSQ ? save_queries(w, c, obs, l) :
	    save_tensor(w, c, NULL, l, kind);
}

static int
save_indexes(struct kv_writer *w, const struct cache *c, uint32_t l)
{
	int kind, rc = KV_OK;

	for (kind = KV_UNKNOWN + 1; c->index != NULL && rc == KV_OK && kind < KV_KIND_END; kind++)
		if (index_has(&c->index[l], kind))
			rc = index_write(&c->index[l], kind, w, l);
	return rc;
}

int
snapshot_put_layer(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    const struct rows_elsewhere *other, uint32_t l)
{
	const struct kv_rows rows = cache_rows(c, l);
	int rc = kv_write_rows(w, l, &rows), i;

	if (rc == KV_OK && obs != NULL && obs->have > 0)
		rc = save_queries(w, c, obs, l);
	if (rc == KV_OK && c->query_stats != NULL)
		rc = query_stats_save(c->query_stats, c->model, l, w);
	if (rc == KV_OK && c->mass != NULL)
		rc = save_mass(w, c, &rows, l);
	if (rc == KV_OK && c->saves_value_norms)
		rc = save_value_norms(w, c, &rows, l);
	for (i = 0; rc == KV_OK && i < ROW_LISTS; i++)
		if (c->lists[i] != NULL)
			rc = row_lists_save(c->lists[i], l, &c->layer[l], w);
	if (rc == KV_OK)
		rc = save_tensor(w, c, other, l, KV_KEYS);
	if (rc == KV_OK)
		rc = save_indexes(w, c, l);
	if (rc == KV_OK)
		rc = save_tensor(w, c, other, l, KV_VALS);
	return rc;
}
