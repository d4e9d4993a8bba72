/* index.c - the retrieval indexes of one layer: memory, labels, growth. The content of sections:
 * index_sections.c
 *
 * Every index is G lists, one for each KV head, with spare capacity so that rows can be appended.
 * Labels after the labelled candidates are 0: appended rows are always read until they are in a
 * page or a cluster. */
#include <stdlib.h>
#include <string.h>

#include "cache/index_internal.h"

static const struct {
	const char *words, *command;
} names[KV_KIND_END] = {
	[KV_BITS] = { "keys in one bit", "kv-quantize1b" },
	[KV_PAGE] = { "bounds of pages", "kv-index --pages" },
	[KV_CLUS] = { "clusters", "kv-index --clusters" },
	[KV_LOWR] = { "keys of low rank", "kv-index --low-rank" },
};

const char *
index_words(enum kv_kind kind)
{
	return names[kind].words;
}

const char *
index_command(enum kv_kind kind)
{
	return names[kind].command;
}

const char *
index_commands(char text[INDEX_COMMANDS], unsigned kinds)
{
	int kind;

	*text = '\0';
	for (kind = KV_UNKNOWN + 1; kind < KV_KIND_END; kind++)
		if (kinds >> kind & 1) {
			strcat(text, *text != '\0' ? ", " : "");
			strcat(text, names[kind].command);
		}
	return text;
}

/* ---- life ---- */

int
index_init(struct layer_index *x, const struct ops *ops, struct dev *dev, uint32_t heads,
    uint32_t width, enum kv_dtype dtype)
{
	uint64_t **start[] = { &x->bits.start, &x->pages.start, &x->mean.start,
	    &x->landmark.start };
	uint32_t **count[] = { &x->bits.len, &x->bits.capacity, &x->pages.len, &x->pages.capacity,
	    &x->mean.len, &x->mean.capacity, &x->landmark.len, &x->landmark.capacity, &x->end,
	    &x->page_label.n, &x->row_label.n, &x->chunk_label.n };
	size_t i;
	int ok = 1;

	memset(x, 0, sizeof *x);
	x->ops = ops;
	x->dev = dev;
	x->heads = x->bits.heads = x->pages.heads = x->mean.heads = x->landmark.heads = heads;
	x->width = x->bits.width = x->pages.width = x->mean.width = x->landmark.width = width;
	x->dtype = x->mean.dtype = x->landmark.dtype = x->low.dtype = dtype;
	for (i = 0; i < sizeof start / sizeof start[0]; i++)
		ok &= (*start[i] = calloc(heads, sizeof **start[i])) != NULL;
	for (i = 0; i < sizeof count / sizeof count[0]; i++)
		ok &= (*count[i] = calloc(heads, sizeof **count[i])) != NULL;
	if (ok)
		return KV_OK;
	index_free(x);
	return KV_ENOMEM;
}

static void
drop_labels(struct layer_index *x, struct labels *l)
{
	x->ops->free(x->dev, l->at);
	l->at = NULL;
	l->stride = 0;
	memset(l->n, 0, x->heads * sizeof *l->n);
}

static void
drop_entries(struct layer_index *x, struct entries *e)
{
	x->ops->free(x->dev, e->data);
	e->data = NULL;
	memset(e->len, 0, x->heads * sizeof *e->len);
	memset(e->capacity, 0, x->heads * sizeof *e->capacity);
}

static void
drop_rows(struct layer_index *x, struct layer_rows *r)
{
	x->ops->free(x->dev, r->k);
	r->k = NULL;
	memset(r->len, 0, x->heads * sizeof *r->len);
	memset(r->capacity, 0, x->heads * sizeof *r->capacity);
}

static void
drop_low_rank(struct layer_index *x)
{
	x->ops->free(x->dev, x->left);
	x->ops->free(x->dev, x->right);
	x->ops->free(x->dev, x->exact);
	free(x->host_exact);
	x->left = x->right = x->exact = x->host_exact = NULL;
	x->low = (struct low_rank){ .dtype = x->dtype };
	drop_rows(x, &x->landmark);
	drop_labels(x, &x->chunk_label);
}

void
index_drop(struct layer_index *x, enum kv_kind kind)
{
	if (!index_has(x, kind))
		return;
	x->present &= ~(1u << kind);
	switch (kind) {
	case KV_BITS:
		drop_entries(x, &x->bits);
		break;
	case KV_PAGE:
		drop_entries(x, &x->pages);
		drop_labels(x, &x->page_label);
		break;
	case KV_CLUS:
		drop_rows(x, &x->mean);
		drop_labels(x, &x->row_label);
		memset(x->end, 0, x->heads * sizeof *x->end);
		break;
	default:
		drop_low_rank(x);
	}
}

void
index_free(struct layer_index *x)
{
	int kind;

	for (kind = KV_UNKNOWN + 1; kind < KV_KIND_END; kind++)
		index_drop(x, kind);
	free(x->bits.start);
	free(x->bits.len);
	free(x->bits.capacity);
	free(x->pages.start);
	free(x->pages.len);
	free(x->pages.capacity);
	free(x->mean.start);
	free(x->mean.len);
	free(x->mean.capacity);
	free(x->landmark.start);
	free(x->landmark.len);
	free(x->landmark.capacity);
	free(x->end);
	free(x->page_label.n);
	free(x->row_label.n);
	free(x->chunk_label.n);
	memset(x, 0, sizeof *x);
}

/* ---- capacity ---- */

/* Moves G lists of elements of `bytes` bytes to memory for want[g] each; *data may be NULL. */
static int
resize_lists(struct layer_index *x, void **data, size_t bytes, uint64_t *start,
    const uint32_t *len, uint32_t *capacity, const uint32_t *want)
{
	uint64_t total = 0, at = 0;
	uint32_t g;
	char *to;

	for (g = 0; g < x->heads; g++)
		total += want[g];
	if ((to = x->ops->alloc(x->dev, total * bytes + 1)) == NULL)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; at += want[g++]) {
		if (*data != NULL)
			x->ops->copy(x->dev, to + at * bytes,
			    (char *)*data + start[g] * bytes, len[g] * bytes);
		start[g] = at;
		capacity[g] = want[g];
	}
	x->ops->free(x->dev, *data);
	*data = to;
	return KV_OK;
}

int
index_lists(struct layer_index *x, void **data, size_t bytes, uint64_t *start,
    const uint32_t *len, uint32_t *capacity, const uint32_t *want)
{
	uint32_t *larger, g;
	int rc = KV_OK, grow = *data == NULL;

	if ((larger = malloc(x->heads * sizeof *larger)) == NULL)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++) {
		larger[g] = want[g] > capacity[g] ? want[g] : capacity[g];
		grow |= want[g] > capacity[g];
	}
	if (grow)
		rc = resize_lists(x, data, bytes, start, len, capacity, larger);
	free(larger);
	return rc;
}

/* Gives each list a capacity of `stride` candidates; new labels are 0. */
static int
reserve_labels(struct layer_index *x, struct labels *l, size_t stride)
{
	const struct ops *o = x->ops;
	uint32_t *to, g;

	if (l->at != NULL && stride <= l->stride)
		return KV_OK;
	if ((to = o->alloc(x->dev, (stride * x->heads + 1) * sizeof *to)) == NULL)
		return KV_ENOMEM;
	o->clear(x->dev, to, stride * x->heads * sizeof *to);
	for (g = 0; l->at != NULL && g < x->heads; g++)
		o->copy(x->dev, to + g * stride, l->at + g * l->stride, l->n[g] * sizeof *to);
	o->free(x->dev, l->at);
	l->at = to;
	l->stride = stride;
	return KV_OK;
}

/* Gives each list the capacity for rows[g] rows; pages: one more, for a partial last one
 * (quest.c). */
static int
reserve_entries(struct layer_index *x, struct entries *e, const uint32_t *rows)
{
	uint32_t *want, g;
	int rc;

	if ((want = malloc(x->heads * sizeof *want)) == NULL)
		return KV_ENOMEM;
	for (g = 0; g < x->heads; g++)
		want[g] = rows[g] / e->rows + (e == &x->pages);
	rc = index_lists(x, &e->data, e->bytes, e->start, e->len, e->capacity, want);
	free(want);
	return rc;
}

int
index_reserve(struct layer_index *x, const struct layer_rows *rows)
{
	const uint32_t *capacity = rows->capacity != NULL ? rows->capacity : rows->len;
	size_t longest = 0;
	uint32_t g;
	int rc = KV_OK;

	for (g = 0; g < x->heads; g++)
		longest = capacity[g] > longest ? capacity[g] : longest;
	if (index_has(x, KV_BITS))
		rc = reserve_entries(x, &x->bits, capacity);
	if (rc == KV_OK && index_has(x, KV_PAGE))
		rc = reserve_entries(x, &x->pages, capacity);
	if (rc == KV_OK && index_has(x, KV_PAGE))
		rc = reserve_labels(x, &x->page_label, longest / x->pages.rows + 1);
	if (rc == KV_OK && index_has(x, KV_CLUS))
		rc = reserve_labels(x, &x->row_label, longest);
	if (rc == KV_OK && index_has(x, KV_LOWR))
		rc = reserve_labels(x, &x->chunk_label, longest / x->low.chunk + 1);
	return rc;
}

/* ---- rows that were appended ---- */

void
index_start(struct layer_index *x, enum kv_kind kind, uint32_t rows)
{
	struct entries *e = kind == KV_BITS ? &x->bits : &x->pages;

	index_drop(x, kind);
	e->rows = rows;
	e->bytes = kv_entry_size(kind, rows, x->width, x->dtype);
	x->present |= 1u << kind;
}

/* Labels the pages: page i has the score of entry i, the last one, whole or not, has none. */
static void
label_pages(struct layer_index *x, const struct layer_rows *rows)
{
	struct labels *l = &x->page_label;
	uint32_t label[64], g, compete, n, i;

	for (g = 0; g < x->heads; g++) {
		compete = rows->len[g] > 0 ? (rows->len[g] - 1) / x->pages.rows : 0;
		for (; l->n[g] < compete; l->n[g] += n) {
			n = compete - l->n[g] < 64 ? compete - l->n[g] : 64;
			for (i = 0; i < n; i++)
				label[i] = l->n[g] + i + 1;
			x->ops->put(x->dev, l->at + g * l->stride + l->n[g], label,
			    n * sizeof *label);
		}
	}
}

static int
has_grown(const struct entries *e, const struct layer_rows *rows)
{
	uint32_t g;

	for (g = 0; g < e->heads; g++)
		if (rows->len[g] / e->rows > e->len[g])
			return 1;
	return 0;
}

void
index_extend(struct layer_index *x, const struct layer_rows *rows)
{
	/* even if no entry is missing: a capture is launched for later rows, too */
	if (index_has(x, KV_BITS))
		x->ops->pack_bits(x->dev, &x->bits, rows);
	if (!index_has(x, KV_PAGE))
		return;
	if (has_grown(&x->pages, rows))
		x->ops->pack_pages(x->dev, &x->pages, rows);
	label_pages(x, rows);
}

static uint32_t
least(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

uint32_t
index_covers(const struct layer_index *x, uint32_t g, uint32_t n)
{
	if (index_has(x, KV_BITS))
		n = least((uint64_t)x->bits.len[g] * x->bits.rows, n);
	if (index_has(x, KV_PAGE))
		n = least((uint64_t)x->pages.len[g] * x->pages.rows, n);
	if (index_has(x, KV_CLUS))
		n = least(x->end[g] > x->sink ? x->end[g] : x->sink, n);
	if (index_has(x, KV_LOWR))
		n = least(x->low.n, n);
	return n;
}

int
index_repeats(const struct layer_index *x, const struct layer_rows *rows)
{
	uint32_t g;

	if ((x->present & ~(1u << KV_BITS)) != 0)
		return 0;
	for (g = 0; index_has(x, KV_BITS) && g < x->heads; g++)
		if (x->bits.len[g] != rows->len[g] / x->bits.rows)
			return 0;
	return 1;
}

void
index_count(struct layer_index *x, const struct layer_rows *rows)
{
	uint32_t g;

	for (g = 0; index_has(x, KV_BITS) && g < x->heads; g++)
		x->bits.len[g] = rows->len[g] / x->bits.rows;
}

/* Sets the labels of candidates from number n on to 0. */
static int
cut_labels(struct layer_index *x, struct labels *l, uint32_t g, uint32_t n)
{
	uint32_t *none;

	if (l->n[g] <= n)
		return KV_OK;
	if ((none = calloc(l->n[g] - n, sizeof *none)) == NULL)
		return KV_ENOMEM;
	x->ops->put(x->dev, l->at + g * l->stride + n, none, (l->n[g] - n) * sizeof *none);
	free(none);
	l->n[g] = n;
	return KV_OK;
}

int
index_cut(struct layer_index *x, const struct layer_rows *rows, const uint32_t *clusters)
{
	uint32_t g, pages;
	int rc = KV_OK;

	index_count(x, rows);
	for (g = 0; rc == KV_OK && index_has(x, KV_PAGE) && g < x->heads; g++) {
		pages = rows->len[g] / x->pages.rows;
		x->pages.len[g] = pages < x->pages.len[g] ? pages : x->pages.len[g];
		rc = cut_labels(x, &x->page_label, g, rows->len[g] > 0 ?
		    (rows->len[g] - 1) / x->pages.rows : 0);
	}
	for (g = 0; rc == KV_OK && index_has(x, KV_CLUS) && g < x->heads; g++, clusters += 2) {
		x->end[g] = clusters[0];
		x->mean.len[g] = clusters[1];
		rc = cut_labels(x, &x->row_label, g, x->end[g] > x->sink ? x->end[g] : x->sink);
	}
	return rc;
}

/* Labels `rows` more rows of KV head g from `label`, and appends the new centroids. The lists have
 * the capacity. */
static int
add_clusters(struct layer_index *x, uint32_t g, uint32_t new, const void *centroids,
    uint32_t rows, const uint32_t *label)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t from = x->end[g] > x->sink ? x->end[g] : x->sink, i;
	struct labels *l = &x->row_label;
	uint32_t *at = malloc((size_t)rows * sizeof *at);

	if (at == NULL)
		return KV_ENOMEM;
	for (i = 0; i < rows; i++)
		at[i] = x->mean.len[g] + label[i] + 1;
	x->ops->put(x->dev, l->at + g * l->stride + from, at, rows * sizeof *at);
	x->ops->put(x->dev, (char *)x->mean.k + (x->mean.start[g] + x->mean.len[g]) * row,
	    centroids, new * row);
	free(at);
	l->n[g] = x->end[g] = from + rows;
	x->mean.len[g] += new;
	return KV_OK;
}

int
index_add_clusters(struct layer_index *x, const uint32_t *new, const void *const *centroids,
    const uint32_t *rows, const uint32_t *const *label)
{
	size_t row = x->width * kv_dtype_size(x->dtype);
	uint32_t *want = malloc(x->heads * sizeof *want), g;
	int rc = KV_ENOMEM;

	for (g = 0; want != NULL && g < x->heads; g++)
		want[g] = x->mean.len[g] + new[g];
	if (want != NULL)
		rc = index_lists(x, &x->mean.k, row, x->mean.start, x->mean.len, x->mean.capacity,
		    want);
	free(want);
	for (g = 0; rc == KV_OK && g < x->heads; g++)
		if (rows[g] > 0)
			rc = add_clusters(x, g, new[g], centroids[g], rows[g], label[g]);
	return rc;
}
