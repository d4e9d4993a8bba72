/* index_sections.c - the retrieval indexes of a layer from and to sections (kv-snapshot(5), 4.14 to
 * 4.18)
 *
 * On the device an index differs from its section in two things: each list has spare capacity, and
 * labels count from 1, because 0 means no label. */
#include <stdlib.h>
#include <string.h>

#include "cache/index_internal.h"

/* ---- from a section ---- */

/* Copies lists, which are packed in the section, to the device; len[g] has been set. */
static void
put_lists(struct layer_index *x, void *to, size_t bytes, const uint64_t *start,
    const uint32_t *len, const void *content)
{
	const char *from = content;
	uint32_t g;

	for (g = 0; g < x->heads; g++) {
		if (len[g] == 0)
			continue;
		x->ops->put(x->dev, (char *)to + start[g] * bytes, from, len[g] * bytes);
		from += len[g] * bytes;
	}
}

static int
load_entries(struct layer_index *x, enum kv_kind kind, const struct kv_entries *from,
    const struct layer_rows *rows)
{
	struct entries *e = kind == KV_BITS ? &x->bits : &x->pages;
	uint32_t g;

	index_start(x, kind, from->rows);
	if (index_reserve(x, rows) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++)
		e->len[g] = rows->len[g] / e->rows;
	put_lists(x, e->data, e->bytes, e->start, e->len, from->data);
	index_extend(x, rows);                  /* labels the pages */
	return KV_OK;
}

/* Labels rows x->sink .. end-1 of KV head g with the clusters cluster[]. */
static int
load_row_labels(struct layer_index *x, uint32_t g, uint32_t end, const uint32_t *cluster)
{
	struct labels *l = &x->row_label;
	uint32_t *label, i, from = x->sink;

	x->end[g] = l->n[g] = end;
	if (end <= from)
		return KV_OK;
	if ((label = malloc((size_t)(end - from) * sizeof *label)) == NULL)
		return KV_ENOMEM;
	for (i = 0; i < end - from; i++)
		label[i] = cluster[i] + 1;
	x->ops->put(x->dev, l->at + g * l->stride + from, label, (end - from) * sizeof *label);
	free(label);
	return KV_OK;
}

static int
load_clusters(struct layer_index *x, const struct kv_clusters *from, const struct layer_rows *rows)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	const uint32_t *cluster = from->label;
	uint32_t g;
	int rc;

	x->sink = from->sink;
	rc = index_lists(x, &x->mean.k, row, x->mean.start, x->mean.len, x->mean.capacity,
	    from->count);
	x->present |= 1u << KV_CLUS;
	if (rc == KV_OK)
		rc = index_reserve(x, rows);
	for (g = 0; rc == KV_OK && g < x->heads; g++) {
		rc = load_row_labels(x, g, from->end[g], cluster);
		if (from->end[g] > x->sink)
			cluster += from->end[g] - x->sink;
		x->mean.len[g] = from->count[g];
	}
	if (rc == KV_OK)
		put_lists(x, x->mean.k, row, x->mean.start, x->mean.len, from->mean);
	return rc;
}

/* The chunks of a KV head, on the host, as they are on the device: those that compete first */
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

/* Sets which chunks of KV head g compete, all but exact[n_exact], and puts their landmarks before
 * those of the others. */
static void
load_chunks(struct layer_index *x, uint32_t g, const uint32_t *exact, const char *landmark,
    struct chunks *c)
{
	const struct ops *o = x->ops;
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t C = x->low.n / x->low.chunk, i, competes = 0, left = C - x->n_exact;

	memset(c->exact, 0, C);
	for (i = 0; i < x->n_exact; i++)
		c->exact[exact[i]] = 1;
	for (i = 0; i < C; i++) {
		c->label[i] = c->exact[i] ? 0 : ++competes;
		memcpy(c->landmark + (c->exact[i] ? left++ : competes - 1) * row,
		    landmark + i * row, row);
	}
	o->put(x->dev, (char *)x->landmark.k + x->landmark.start[g] * row, c->landmark, C * row);
	o->put(x->dev, x->chunk_label.at + g * x->chunk_label.stride, c->label,
	    C * sizeof *c->label);
	o->put(x->dev, x->exact + (size_t)g * C, c->exact, C);
	memcpy(x->host_exact + (size_t)g * C, c->exact, C);
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
	x->host_exact = malloc((size_t)x->heads * C + 1);
	x->low.left = x->left;
	x->low.right = x->right;
	x->low.exact = x->exact;
	x->present |= 1u << KV_LOWR;
	if (x->left == NULL || x->right == NULL || x->exact == NULL || x->host_exact == NULL)
		return KV_ENOMEM;
	return rc == KV_OK ? index_reserve(x, rows) : rc;
}

static int
load_low_rank(struct layer_index *x, const struct kv_low_rank *from, const struct layer_rows *rows)
{
	size_t esize = kv_dtype_size(x->dtype), row = x->width * esize, C = from->n / from->chunk;
	const char *landmark = from->landmark;
	struct chunks chunks;
	uint32_t g;

	x->low = (struct low_rank){ .n = from->n, .rank = from->rank, .chunk = from->chunk,
	    .dtype = x->dtype };
	x->n_exact = from->n_exact;
	if (reserve_low_rank(x, rows) != KV_OK)
		return KV_ENOMEM;
	x->ops->put(x->dev, x->left, from->left, x->low.n * (size_t)x->low.rank * esize);
	x->ops->put(x->dev, x->right, from->right, x->heads * row * x->low.rank);
	if (chunks_new(&chunks, x) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++)
		load_chunks(x, g, from->exact + (size_t)g * x->n_exact, landmark + g * C * row,
		    &chunks);
	chunks_free(&chunks);
	return KV_OK;
}

int
index_load(struct layer_index *x, const struct kv_index *from, const struct layer_rows *rows)
{
	int rc;

	index_drop(x, from->kind);
	if (from->kind == KV_CLUS)
		rc = load_clusters(x, &from->clusters, rows);
	else if (from->kind == KV_LOWR)
		rc = load_low_rank(x, &from->low_rank, rows);
	else
		rc = load_entries(x, from->kind, &from->entries, rows);
	if (rc != KV_OK)
		index_drop(x, from->kind);
	return rc;
}

/* ---- to a section ---- */

/* An index on the host, as a section has it. */
struct saved {
	struct kv_index index;
	void *memory[4];                /* its arrays */
	unsigned n;
};

static void *
new_array(struct saved *s, size_t size)
{
	return s->memory[s->n++] = malloc(size + 1);
}

static void
saved_free(struct saved *s)
{
	while (s->n > 0)
		free(s->memory[--s->n]);
}

static void
get_lists(const struct layer_index *x, char *to, const void *from, size_t bytes,
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

static int
save_entries(struct saved *s, const struct layer_index *x, const struct entries *e)
{
	const uint64_t n = total(x, e->len);
	char *data = new_array(s, n * e->bytes);

	if (data == NULL)
		return KV_ENOMEM;
	get_lists(x, data, e->data, e->bytes, e->start, e->len);
	s->index.entries = (struct kv_entries){ e->rows, n, data };
	return KV_OK;
}

static int
save_clusters(struct saved *s, const struct layer_index *x)
{
	const size_t row = x->width * kv_dtype_size(x->dtype);
	const struct labels *l = &x->row_label;
	uint32_t *label, *to, g, n, i;
	size_t labels = 0;
	char *mean;

	for (g = 0; g < x->heads; g++)
		labels += x->end[g] > x->sink ? x->end[g] - x->sink : 0;
	to = label = new_array(s, labels * sizeof *label);
	mean = new_array(s, total(x, x->mean.len) * row);
	if (label == NULL || mean == NULL)
		return KV_ENOMEM;
	get_lists(x, mean, x->mean.k, row, x->mean.start, x->mean.len);
	for (g = 0; g < x->heads; g++, to += n) {
		n = x->end[g] > x->sink ? x->end[g] - x->sink : 0;
		x->ops->get(x->dev, to, l->at + g * l->stride + x->sink, n * sizeof *l->at);
		for (i = 0; i < n; i++)
			to[i]--;
	}
	s->index.clusters = (struct kv_clusters){ x->sink, x->mean.len, x->end, label, mean };
	return KV_OK;
}

/* exact <- the numbers of the exact chunks, landmark <- landmarks in the order of the chunks. */
static void
save_chunks(const struct layer_index *x, uint32_t g, uint32_t *exact, char *landmark,
    struct chunks *c)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t C = x->low.n / x->low.chunk, i, competes = 0, left = C - x->n_exact;

	x->ops->get(x->dev, c->exact, x->exact + (size_t)g * C, C);
	x->ops->get(x->dev, c->landmark,
	    (const char *)x->landmark.k + x->landmark.start[g] * row, C * row);
	for (i = 0; i < C; i++) {
		if (c->exact[i])
			*exact++ = i;
		memcpy(landmark + i * row,
		    c->landmark + (c->exact[i] ? left++ : competes++) * row, row);
	}
}

static int
save_low_rank(struct saved *s, const struct layer_index *x)
{
	size_t esize = kv_dtype_size(x->dtype), row = x->width * esize;
	size_t C = x->low.n / x->low.chunk, r = x->low.rank;
	uint32_t *exact = new_array(s, (size_t)x->heads * x->n_exact * sizeof *exact), g;
	char *left = new_array(s, x->low.n * r * esize), *right = new_array(s, x->heads * row * r);
	char *landmark = new_array(s, x->heads * C * row);
	struct chunks chunks;

	if (exact == NULL || left == NULL || right == NULL || landmark == NULL ||
	    chunks_new(&chunks, x) != KV_OK)
		return KV_ENOMEM;
	x->ops->get(x->dev, left, x->left, x->low.n * r * esize);
	x->ops->get(x->dev, right, x->right, x->heads * row * r);
	for (g = 0; g < x->heads; g++)
		save_chunks(x, g, exact + (size_t)g * x->n_exact, landmark + g * C * row, &chunks);
	chunks_free(&chunks);
	s->index.low_rank = (struct kv_low_rank){ x->low.chunk, x->low.n, x->low.rank, x->n_exact,
	    exact, left, right, landmark };
	return KV_OK;
}

int
index_write(const struct layer_index *x, enum kv_kind kind, struct kv_writer *w, uint32_t l)
{
	struct saved s = { .index.kind = kind };
	int rc;

	if (kind == KV_CLUS)
		rc = save_clusters(&s, x);
	else if (kind == KV_LOWR)
		rc = save_low_rank(&s, x);
	else
		rc = save_entries(&s, x, kind == KV_BITS ? &x->bits : &x->pages);
	if (rc == KV_OK)
		rc = kv_write_index(w, l, &s.index);
	saved_free(&s);
	return rc;
}
