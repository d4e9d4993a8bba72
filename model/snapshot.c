/* snapshot.c - a cache to and from a KV snapshot (formats/kv-snapshot.md)
 *
 * One layer's keys or values pass through host memory at a time, whatever the size of the cache. */
#include <stdlib.h>
#include <string.h>

#include "model/cache.h"
#include "model/observation.h"
#include "model/snapshot.h"

/* oBSq, 4.5: the last tokens of the prompt; the last ones of them were not stored */
#define OBSERVED_STORED 1
#define OBSERVED_RUN 2

static size_t
round_up(size_t n)
{
	return (n + 63) / 64 * 64;
}

void
snapshot_head(const struct cache *c, struct kv_head *head)
{
	memset(head, 0, sizeof *head);
	head->model = c->model->id;
	head->dtype = c->dtype;
	head->next_position = c->next_position;
}

/* ---- loading ---- */

static int
load_tokens(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const void *ids;
	int rc = kv_load(r, &ids);

	if (rc == KV_OK && cache_add_tokens(c, ids, sec->raw_size / sizeof *c->tokens) != 0)
		rc = KV_ENOMEM;
	return rc;
}

static int
load_rows(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const struct kv_rows *rows;
	int rc = kv_load_rows(r, &rows);

	if (rc != KV_OK)
		return rc;
	if (cache_layer_init(c, sec->layer, rows) != 0)
		return KV_ENOMEM;
	memcpy(c->logged_rows + (size_t)sec->layer * rows->heads, rows->count,
	    rows->heads * sizeof *rows->count);
	if (c->mass != NULL)
		c->mass[sec->layer].whole = kv_rows_total(rows) == 0;
	return KV_OK;
}

/* KEYS or VALS: packed in the file, with room after each head in the cache. */
static int
load_tensor(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	struct layer_rows *rows = &c->layer[sec->layer];
	size_t row = rows->width * kv_dtype_size(rows->dtype), at = 0;
	char *to = strcmp(sec->type, "KEYS") == 0 ? rows->k : rows->v;
	const void *data;
	uint32_t g;
	int rc = kv_load(r, &data);

	for (g = 0; rc == KV_OK && g < rows->heads; g++) {
		c->model->ops->put(c->model->dev, to + rows->start[g] * row,
		    (const char *)data + at, rows->len[g] * row);
		at += rows->len[g] * row;
	}
	return rc;
}

/* The last queries of the stored window that fit into ours, without those of tokens that were
 * never stored. They are of use only when every layer has them, for the same positions:
 * obs->loaded counts those that agree with the first. */
static int
load_queries(struct kv_reader *r, const struct kv_section *sec, const struct cache *c,
    struct observation *obs)
{
	uint32_t H = c->model->id.query_heads, E = c->model->id.head_width, W, take, last, w, h;
	size_t esize = kv_dtype_size(c->dtype);
	const uint32_t *words;
	const char *q;
	const void *data;
	int rc = kv_load(r, &data);

	if (rc != KV_OK)
		return rc;
	words = data;
	W = words[1];
	for (last = W; last > 0 && words[1 + last] >= kv_reader_head(r)->next_position; )
		last--;
	take = last < obs->window ? last : obs->window;
	q = (const char *)data + round_up(8 + 4 * (size_t)W);
	for (h = 0; h < H; h++)
		for (w = 0; w < take; w++)
			kv_to_f32(obs->q[sec->layer] + ((size_t)w * H + h) * E,
			    q + ((size_t)h * W + last - take + w) * E * esize, c->dtype, E);
	words += 2 + last - take;
	if (obs->loaded == 0) {
		memcpy(obs->pos, words, take * sizeof *obs->pos);
		obs->have = take;
	}
	if (take == obs->have && memcmp(obs->pos, words, take * sizeof *obs->pos) == 0)
		obs->loaded++;
	return KV_OK;
}

/* The lists of query heads, packed in the file. */
static int
load_mass(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const struct layer_rows *rows = &c->layer[sec->layer];
	struct attention_mass *to = &c->mass[sec->layer];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, h;
	const void *data;
	const float *list;
	int rc = kv_load(r, &data);

	for (h = 0, list = data; rc == KV_OK && h < H; list += rows->len[h++ / R])
		c->model->ops->put(c->model->dev, to->sum + h * to->stride, list,
		    rows->len[h / R] * sizeof *list);
	to->whole = 1;
	return rc;
}

static int
load_logits(struct kv_reader *r, const struct kv_section *sec, struct cache *c)
{
	const void *data;
	int rc = kv_load(r, &data);

	if (rc != KV_OK)
		return rc;
	if (c->logits == NULL && (c->logits = malloc(sec->raw_size)) == NULL)
		return KV_ENOMEM;
	memcpy(c->logits, data, sec->raw_size);
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
load_index(struct kv_reader *r, const struct kv_section *sec, struct cache *c, int kind)
{
	const void *data;
	int rc = kv_load(r, &data);

	if (rc != KV_OK)
		return rc;
	return index_load(&c->index[sec->layer], kind, data, &c->layer[sec->layer]);
}

int
snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs)
{
	int kind = index_kind(sec->type);

	if (kind >= 0)
		return c->index_kinds >> kind & 1 ? load_index(r, sec, c, kind) : KV_OK;
	if (strcmp(sec->type, "TOKS") == 0)
		return load_tokens(r, sec, c);
	if (strcmp(sec->type, "POSN") == 0)
		return load_rows(r, sec, c);
	if (strcmp(sec->type, "KEYS") == 0 || strcmp(sec->type, "VALS") == 0)
		return load_tensor(r, sec, c);
	if (strcmp(sec->type, "oBSq") == 0 && obs != NULL)
		return load_queries(r, sec, c, obs);
	if (strcmp(sec->type, "mASS") == 0 && c->mass != NULL)
		return load_mass(r, sec, c);
	if (strcmp(sec->type, "LGTS") == 0)
		return load_logits(r, sec, c);
	if (strcmp(sec->type, "eVNt") == 0)
		return load_log(r, sec, c);
	return KV_OK;
}

int
snapshot_load(struct kv_reader *r, struct cache *c, struct observation *obs)
{
	struct kv_section sec;
	int rc;

	c->logged = 0;
	while ((rc = kv_next(r, &sec)) == 1)
		if ((rc = snapshot_take(r, &sec, c, obs)) < 0)
			return rc;
	if (obs != NULL && obs->loaded != c->model->id.layers)
		obs->have = 0;
	if (rc == 0)
		c->next_position = kv_reader_head(r)->next_position;
	return rc;
}

/* ---- saving ---- */

static int
save_queries(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    uint32_t layer)
{
	uint32_t H = c->model->id.query_heads, E = c->model->id.head_width, W = obs->have, i, h;
	size_t esize = kv_dtype_size(c->dtype), head = round_up(8 + 4 * (size_t)W);
	size_t size = head + (size_t)H * W * E * esize;
	char *buf = calloc(1, size);
	uint32_t words[2] = { obs->n_own > 0 ? OBSERVED_RUN : OBSERVED_STORED, W };
	struct kv_span span[2] = { { buf, size }, { NULL, 0 } };
	int rc;

	if (buf == NULL)
		return KV_ENOMEM;
	memcpy(buf, words, sizeof words);
	memcpy(buf + sizeof words, obs->pos, W * sizeof *obs->pos);
	for (h = 0; h < H; h++)
		for (i = 0; i < W; i++)
			kv_from_f32(buf + head + ((size_t)h * W + i) * E * esize,
			    obs->q[layer] + ((size_t)i * H + h) * E, c->dtype, E);
	if (obs->n_own > 0)
		span[1] = (struct kv_span){ obs->own[layer],
		    (size_t)c->model->id.kv_heads * obs->n_own * E * esize };
	rc = kv_write(w, "oBSq", layer, (unsigned)esize, span, 2);
	free(buf);
	return rc;
}

static int
save_mass(struct kv_writer *w, const struct cache *c, const struct kv_rows *rows, uint32_t layer)
{
	const struct attention_mass *from = &c->mass[layer];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, h;
	float *buf = malloc(kv_rows_total(rows) * R * sizeof *buf + 1), *list = buf;
	struct kv_span span = { buf, kv_rows_total(rows) * R * sizeof *buf };
	int rc;

	if (buf == NULL)
		return KV_ENOMEM;
	for (h = 0; h < H; list += rows->count[h++ / R])
		c->model->ops->get(c->model->dev, list, from->sum + h * from->stride,
		    rows->count[h / R] * sizeof *list);
	rc = kv_write(w, "mASS", layer, sizeof *buf, &span, 1);
	free(buf);
	return rc;
}

/* KEYS or VALS */
static int
save_tensor(struct kv_writer *w, const struct cache *c, uint32_t layer, const char *type)
{
	const struct layer_rows *rows = &c->layer[layer];
	const void *from = strcmp(type, "KEYS") == 0 ? rows->k : rows->v;
	size_t row = rows->width * kv_dtype_size(rows->dtype), size = 1;
	struct kv_span span = { NULL, 0 };
	uint32_t g;
	char *buf;
	int rc;

	for (g = 0; g < rows->heads; g++)
		size += rows->len[g] * row;
	if ((buf = malloc(size)) == NULL)
		return KV_ENOMEM;
	span.data = buf;
	for (g = 0; g < rows->heads; g++) {
		c->model->ops->get(c->model->dev, buf + span.size,
		    (const char *)from + rows->start[g] * row, rows->len[g] * row);
		span.size += rows->len[g] * row;
	}
	rc = kv_write(w, type, layer, (unsigned)kv_dtype_size(rows->dtype), &span, 1);
	free(buf);
	return rc;
}

int
snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    const char *type, uint32_t l)
{
	return strcmp(type, "oBSq") == 0 ? save_queries(w, c, obs, l) : save_tensor(w, c, l, type);
}

static int
save_indexes(struct kv_writer *w, const struct cache *c, uint32_t l)
{
	int kind, rc = KV_OK;

	for (kind = 0; c->index != NULL && rc == KV_OK && kind < INDEX_KINDS; kind++)
		if (index_has(&c->index[l], kind))
			rc = index_write(&c->index[l], kind, w, l);
	return rc;
}

static int
save_layer(struct kv_writer *w, const struct cache *c, const struct observation *obs, uint32_t l)
{
	const struct kv_rows rows = cache_rows(c, l);
	int rc = kv_write_rows(w, l, &rows);

	if (rc == KV_OK && obs != NULL && obs->have > 0)
		rc = save_queries(w, c, obs, l);
	if (rc == KV_OK && c->mass != NULL)
		rc = save_mass(w, c, &rows, l);
	if (rc == KV_OK)
		rc = save_tensor(w, c, l, "KEYS");
	if (rc == KV_OK)
		rc = save_indexes(w, c, l);
	if (rc == KV_OK)
		rc = save_tensor(w, c, l, "VALS");
	return rc;
}

int
snapshot_save(struct kv_writer *w, const struct cache *c, const struct observation *obs)
{
	struct kv_span tokens = { c->tokens, c->n_tokens * sizeof *c->tokens };
	struct kv_span logits = { c->logits, c->model->id.vocabulary * sizeof *c->logits };
	struct kv_span log = { c->log.data, c->log.size };
	uint32_t l;
	int rc = kv_write(w, "TOKS", KV_NO_LAYER, 1, &tokens, 1);

	for (l = 0; rc == KV_OK && l < c->model->id.layers; l++)
		rc = save_layer(w, c, obs, l);
	if (rc == KV_OK && c->logits != NULL)
		rc = kv_write(w, "LGTS", KV_NO_LAYER, sizeof *c->logits, &logits, 1);
	if (rc == KV_OK && log.size > 0)
		rc = kv_write(w, "eVNt", KV_NO_LAYER, 4, &log, 1);
	return rc;
}
