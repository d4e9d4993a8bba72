/* index_content.c - the retrieval indexes of a layer from and to sections (kv-snapshot(5), 4.14 to
 * 4.18)
 *
 * On the device an index differs from its section in two things: each list has room behind it, and
 * labels count from 1, so that 0 is left for what has none. */
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "model/index_internal.h"

/* ---- from a section ---- */

/* Lists that lie behind each other in the section; len[g] of them have been set. */
static void
put_lists(struct layer_index *x, void *to, size_t bytes, const uint64_t *start,
    const uint32_t *len, const uint8_t *from)
{
	uint32_t g;

	for (g = 0; g < x->heads; from += len[g++] * bytes)
		x->ops->put(x->dev, (char *)to + start[g] * bytes, from, len[g] * bytes);
}

static int
load_entries(struct layer_index *x, enum index_kind kind, const uint8_t *p,
    const struct layer_rows *rows)
{
	struct entries *e = kind == INDEX_BITS ? &x->bits : &x->pages;
	uint32_t g;

	index_start(x, kind, get32(p));
	if (index_reserve(x, rows) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++)
		e->len[g] = rows->len[g] / e->rows;
	put_lists(x, e->data, e->bytes, e->start, e->len, p + KV_INDEX_HEAD);
	index_extend(x, rows);                  /* labels the pages */
	return KV_OK;
}

/* Rows from `from` to `end` of KV head g are in the clusters that stand at p. */
static int
load_row_labels(struct layer_index *x, uint32_t g, uint32_t from, uint32_t end, const uint8_t *p)
{
	struct labels *l = &x->row_label;
	uint32_t *label, i;

	x->end[g] = l->n[g] = end;
	if (end <= from)
		return KV_OK;
	if ((label = malloc((size_t)(end - from) * sizeof *label)) == NULL)
		return KV_ENOMEM;
	for (i = 0; i < end - from; i++)
		label[i] = get32(p + 4 * (size_t)i) + 1;
	x->ops->put(x->dev, l->at + g * l->stride + from, label, (end - from) * sizeof *label);
	free(label);
	return KV_OK;
}

static int
load_clusters(struct layer_index *x, const uint8_t *p, const struct layer_rows *rows)
{
	size_t row = x->width * kv_dtype_size(x->dtype), at = KV_INDEX_HEAD + 8 * (size_t)x->heads;
	uint32_t *count = malloc(x->heads * sizeof *count), g, end;
	int rc = KV_ENOMEM;

	x->sink = get32(p + 16);
	for (g = 0; count != NULL && g < x->heads; g++)
		count[g] = get32(p + KV_INDEX_HEAD + 4 * (size_t)g);
	if (count != NULL)
		rc = index_lists(x, &x->mean.k, row, x->mean.start, x->mean.len, x->mean.capacity,
		    count);
	x->there |= 1u << INDEX_CLUSTERS;
	if (rc == KV_OK)
		rc = index_reserve(x, rows);
	for (g = 0; rc == KV_OK && g < x->heads; g++) {
		end = get32(p + KV_INDEX_HEAD + 4 * ((size_t)x->heads + g));
		rc = load_row_labels(x, g, x->sink, end, p + at);
		at += end > x->sink ? 4 * (size_t)(end - x->sink) : 0;
		x->mean.len[g] = count[g];
	}
	if (rc == KV_OK)
		put_lists(x, x->mean.k, row, x->mean.start, x->mean.len, p + round64(at));
	free(count);
	return rc;
}

/* The chunks of a KV head, on the host: as they are on the device, where those that compete stand
 * in front. */
struct chunks {
	uint32_t *label;               /* [n / u] */
	uint8_t *exact;                /* [n / u] */
	char *landmark;                /* [n / u] rows */
};

static void
chunks_free(struct chunks *c)
{
	free(c->label);
	free(c->exact);
	free(c->landmark);
}

static int
chunks_new(struct chunks *c, const struct layer_index *x)
{
	size_t n = x->low.n / x->low.chunk + (size_t)1;

	c->label = malloc(n * sizeof *c->label);
	c->exact = malloc(n);
	c->landmark = malloc(n * x->width * kv_dtype_size(x->dtype));
	if (c->label != NULL && c->exact != NULL && c->landmark != NULL)
		return KV_OK;
	chunks_free(c);
	return KV_ENOMEM;
}

/* Which chunks of KV head g compete, and their landmarks before those of the others, whose x
 * numbers stand at `number`. */
static void
load_chunks(struct layer_index *x, uint32_t g, const uint8_t *number, const uint8_t *landmark,
    struct chunks *c)
{
	const struct ops *o = x->ops;
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t C = x->low.n / x->low.chunk, i, competes = 0, left = C - x->n_exact;

	memset(c->exact, 0, C);
	for (i = 0; i < x->n_exact; i++)
		c->exact[get32(number + 4 * (size_t)i)] = 1;
	for (i = 0; i < C; i++) {
		c->label[i] = c->exact[i] ? 0 : ++competes;
		memcpy(c->landmark + (c->exact[i] ? left++ : competes - 1) * row,
		    landmark + i * row, row);
	}
	o->put(x->dev, (char *)x->landmark.k + x->landmark.start[g] * row, c->landmark, C * row);
	o->put(x->dev, x->chunk_label.at + g * x->chunk_label.stride, c->label,
	    C * sizeof *c->label);
	o->put(x->dev, x->exact + (size_t)g * C, c->exact, C);
	x->chunk_label.n[g] = C;
	x->landmark.len[g] = competes;
}

static int
reserve_low_rank(struct layer_index *x, const struct layer_rows *rows)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	size_t esize = kv_dtype_size(x->dtype), r = x->low.rank;
	uint32_t C = x->low.n / x->low.chunk, *count = malloc(x->heads * sizeof *count), g;
	int rc = KV_ENOMEM;

	for (g = 0; count != NULL && g < x->heads; g++)
		count[g] = C;
	if (count != NULL)
		rc = index_lists(x, &x->landmark.k, row, x->landmark.start, x->landmark.len,
		    x->landmark.capacity, count);
	free(count);
	x->left = x->ops->alloc(x->dev, x->low.n * r * esize + 1);
	x->right = x->ops->alloc(x->dev, x->heads * x->width * r * esize);
	x->exact = x->ops->alloc(x->dev, (size_t)x->heads * C + 1);
	x->low.left = x->left;
	x->low.right = x->right;
	x->low.exact = x->exact;
	x->there |= 1u << INDEX_LOW_RANK;
	if (x->left == NULL || x->right == NULL || x->exact == NULL)
		return KV_ENOMEM;
	return rc == KV_OK ? index_reserve(x, rows) : rc;
}

static int
load_low_rank(struct layer_index *x, const uint8_t *p, const struct layer_rows *rows)
{
	size_t esize = kv_dtype_size(x->dtype), row = x->width * esize, left, right, C;
	const uint8_t *number = p + KV_INDEX_HEAD;
	struct chunks chunks;
	uint32_t g;

	x->low = (struct low_rank){ .n = get32(p + 16), .rank = get32(p + 20), .chunk = get32(p),
	    .dtype = x->dtype };
	x->n_exact = get32(p + 24);
	C = x->low.n / x->low.chunk;
	left = x->low.n * (size_t)x->low.rank * esize;
	right = x->heads * row * x->low.rank;
	if (reserve_low_rank(x, rows) != KV_OK)
		return KV_ENOMEM;
	p += round64(KV_INDEX_HEAD + 4 * (uint64_t)x->heads * x->n_exact);
	x->ops->put(x->dev, x->left, p, left);
	x->ops->put(x->dev, x->right, p + left, right);
	if (chunks_new(&chunks, x) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++)
		load_chunks(x, g, number + 4 * (size_t)g * x->n_exact,
		    p + left + right + g * C * row, &chunks);
	chunks_free(&chunks);
	return KV_OK;
}

int
index_load(struct layer_index *x, enum index_kind kind, const void *content,
    const struct layer_rows *rows)
{
	int rc;

	index_drop(x, kind);
	if (kind == INDEX_CLUSTERS)
		rc = load_clusters(x, content, rows);
	else if (kind == INDEX_LOW_RANK)
		rc = load_low_rank(x, content, rows);
	else
		rc = load_entries(x, kind, content, rows);
	if (rc != KV_OK)
		index_drop(x, kind);
	return rc;
}

/* ---- to a section ---- */

static void
get_lists(const struct layer_index *x, uint8_t *to, const void *from, size_t bytes,
    const uint64_t *start, const uint32_t *len)
{
	uint32_t g;

	for (g = 0; g < x->heads; to += len[g++] * bytes)
		x->ops->get(x->dev, to, (const char *)from + start[g] * bytes, len[g] * bytes);
}

static uint64_t
total(const struct layer_index *x, const uint32_t *len)
{
	uint64_t sum = 0;
	uint32_t g;

	for (g = 0; g < x->heads; g++)
		sum += len[g];
	return sum;
}

static uint8_t *
save_entries(const struct layer_index *x, const struct entries *e, size_t *size)
{
	uint8_t *p;

	*size = KV_INDEX_HEAD + total(x, e->len) * e->bytes;
	if ((p = calloc(1, *size)) == NULL)
		return NULL;
	put32(p, e->rows);
	get_lists(x, p + KV_INDEX_HEAD, e->data, e->bytes, e->start, e->len);
	return p;
}

static uint8_t *
save_clusters(const struct layer_index *x, size_t *size)
{
	size_t row = x->width * kv_dtype_size(x->dtype), at, i;
	const struct labels *l = &x->row_label;
	uint32_t g, n;
	uint8_t *p;

	for (g = 0, at = KV_INDEX_HEAD + 8 * (size_t)x->heads; g < x->heads; g++)
		at += x->end[g] > x->sink ? 4 * (size_t)(x->end[g] - x->sink) : 0;
	*size = round64(at) + total(x, x->mean.len) * row;
	if ((p = calloc(1, *size)) == NULL)
		return NULL;
	put32(p, 1);
	put32(p + 16, x->sink);
	get_lists(x, p + round64(at), x->mean.k, row, x->mean.start, x->mean.len);
	for (g = 0, at = KV_INDEX_HEAD + 8 * (size_t)x->heads; g < x->heads; g++) {
		put32(p + KV_INDEX_HEAD + 4 * (size_t)g, x->mean.len[g]);
		put32(p + KV_INDEX_HEAD + 4 * ((size_t)x->heads + g), x->end[g]);
		n = x->end[g] > x->sink ? x->end[g] - x->sink : 0;
		x->ops->get(x->dev, p + at, l->at + g * l->stride + x->sink,
		    n * sizeof *l->at);
		for (i = 0; i < n; i++, at += 4) {
			uint32_t label;

			memcpy(&label, p + at, sizeof label);
			put32(p + at, label - 1);
		}
	}
	return p;
}

/* Numbers of the exact chunks, and landmarks in the order of the chunks. */
static void
save_chunks(const struct layer_index *x, uint32_t g, uint8_t *number, uint8_t *landmark,
    struct chunks *c)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t C = x->low.n / x->low.chunk, i, competes = 0, left = C - x->n_exact;

	x->ops->get(x->dev, c->exact, x->exact + (size_t)g * C, C);
	x->ops->get(x->dev, c->landmark,
	    (const char *)x->landmark.k + x->landmark.start[g] * row, C * row);
	for (i = 0; i < C; i++) {
		if (c->exact[i]) {
			put32(number, i);
			number += 4;
		}
		memcpy(landmark + i * row,
		    c->landmark + (c->exact[i] ? left++ : competes++) * row, row);
	}
}

static uint8_t *
save_low_rank(const struct layer_index *x, size_t *size)
{
	size_t esize = kv_dtype_size(x->dtype), row = x->width * esize;
	size_t C = x->low.n / x->low.chunk, left = x->low.n * (size_t)x->low.rank * esize;
	size_t right = x->heads * row * x->low.rank;
	size_t at = round64(KV_INDEX_HEAD + 4 * (uint64_t)x->heads * x->n_exact);
	struct chunks chunks;
	uint32_t g;
	uint8_t *p;

	*size = at + left + right + x->heads * C * row;
	if (chunks_new(&chunks, x) != KV_OK)
		return NULL;
	if ((p = calloc(1, *size)) == NULL) {
		chunks_free(&chunks);
		return NULL;
	}
	put32(p, x->low.chunk);
	put32(p + 16, x->low.n);
	put32(p + 20, x->low.rank);
	put32(p + 24, x->n_exact);
	x->ops->get(x->dev, p + at, x->left, left);
	x->ops->get(x->dev, p + at + left, x->right, right);
	for (g = 0; g < x->heads; g++)
		save_chunks(x, g, p + KV_INDEX_HEAD + 4 * (size_t)g * x->n_exact,
		    p + at + left + right + g * C * row, &chunks);
	chunks_free(&chunks);
	return p;
}

int
index_write(const struct layer_index *x, enum index_kind kind, struct kv_writer *w, uint32_t l)
{
	unsigned element = kind == INDEX_BITS ? 2 : (unsigned)kv_dtype_size(x->dtype);
	struct kv_span span = { NULL, 0 };
	uint8_t *p;
	int rc;

	if (kind == INDEX_CLUSTERS)
		p = save_clusters(x, &span.size);
	else if (kind == INDEX_LOW_RANK)
		p = save_low_rank(x, &span.size);
	else
		p = save_entries(x, kind == INDEX_BITS ? &x->bits : &x->pages, &span.size);
	if (p == NULL)
		return KV_ENOMEM;
	put64(p + 8, kv_writer_keys(w));
	span.data = p;
	rc = kv_write(w, index_type(kind), l, element, &span, 1);
	free(p);
	return rc;
}
