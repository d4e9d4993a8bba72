/* cpu_index.c - making indexes of keys and scoring rows with them, cut into items of work
 *
 * An item is a range of entries, or of rows, of one KV head, with all the query heads that
 * read it. The loops over channels are in simd_pack.c, simd_bits.c and simd_pages.c; of keys
 * as they are, in simd_dot.c. */
#include <math.h>

#include "cpu/cpu_internal.h"

#define ITEM_ROWS 1024           /* rows of one item, or the entries of about so many */

/* Scratch of one thread for scores. What is read ahead of its end must not be what the next
 * thread writes: without the page in between two threads took a quarter longer. */
#define SCRATCH(E) (GROUP_HEADS * PADDED(E) + 1024)

/* One call of one op; each op uses some of it. */
struct index_call {
	const struct simd *simd;
	const struct entries *e;
	const struct layer_rows *rows;
	enum kv_dtype dtype;         /* of keys or bounds */
	size_t R, E;
	size_t step, steps;          /* entries or rows of an item; items of one KV head */
	uint32_t *done;              /* [G] entries that are there already */
	void (*pack)(void *, const void *, enum kv_dtype, size_t, size_t);
	const float *q;              /* [H][E], multiplied by 1/sqrt(E) */
	const float *arranged;       /* [H][DOTS_LD(E)] the same for dots() */
	float *w;                    /* scratch [threads][SCRATCH(E)] */
	float *score;
	size_t stride;
	float softcap;               /* of scores; 0: none */
};

static const void *
key_at(const struct index_call *c, size_t g, size_t row)
{
	const struct layer_rows *r = c->rows;

	return (const char *)r->k + (r->start[g] + row) * c->E * kv_dtype_size(r->dtype);
}

static char *
entry_at(const struct index_call *c, size_t g, size_t i)
{
	return (char *)c->e->data + (c->e->start[g] + i) * c->e->bytes;
}

/* Cuts n[G] entries or rows of each KV head into items of about ITEM_ROWS rows, each entry
 * standing for `rows`. Every KV head has an item. Returns how many there are. */
static size_t
cut(struct index_call *c, const uint32_t *n, size_t G, size_t rows)
{
	size_t g, longest = 1;

	for (g = 0; g < G; g++)
		longest = n[g] > longest ? n[g] : longest;
	c->step = rows < ITEM_ROWS ? ITEM_ROWS / rows : 1;
	c->steps = (longest + c->step - 1) / c->step;
	return c->steps * G;
}

/* first .. last-1 of the n[g] of KV head g <- what the item is about; returns g. None where
 * the head is too short: then last <= first. */
static size_t
item_range(const struct index_call *c, size_t item, size_t *first, size_t *last, const uint32_t *n)
{
	const size_t g = item / c->steps;

	*first = item % c->steps * c->step;
	*last = *first + c->step < n[g] ? *first + c->step : n[g];
	return g;
}

static size_t
bits_bytes(const struct entries *e)
{
	return e->width * (4 + (size_t)e->rows / 8);
}

/* Whether an index, whose entries should have so many bytes, is one of such rows; no entry has
 * too many or too few. Returns 0 after remembering a failure. */
static int
fits(struct dev *d, const struct entries *e, const struct layer_rows *rows, size_t bytes)
{
	size_t g;

	if (d->error[0] != '\0')
		return 0;
	if (e->heads != rows->heads || e->width != rows->width || e->rows == 0 ||
	    e->bytes != bytes || kv_dtype_size(rows->dtype) == 0) {
		cpu_fail(d, "index: %zu bytes for %u rows of %u KV heads of width %u, and keys of "
		    "%u of width %u", e->bytes, e->rows, e->heads, e->width, rows->heads,
		    rows->width);
		return 0;
	}
	for (g = 0; g < e->heads; g++)
		if (e->len[g] > rows->len[g] / e->rows) {
			cpu_fail(d, "index: %u entries for %u rows", e->len[g], rows->len[g]);
			return 0;
		}
	return 1;
}

/* The same for keys in one bit */
static int
bits_fit(struct dev *d, const struct entries *e, const struct layer_rows *rows)
{
	if (d->error[0] == '\0' && e->rows != 16 && e->rows != 32 && e->rows != 64 &&
	    e->rows != 128)
		cpu_fail(d, "index: keys in one bit for %u rows at a time", e->rows);
	return fits(d, e, rows, bits_bytes(e));
}

/* ---- making them ---- */

static void
pack_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const size_t u = c->e->rows;
	size_t first, last, i, g = item_range(c, item, &first, &last, c->e->len);

	(void)thread;
	for (i = first > c->done[g] ? first : c->done[g]; i < last; i++)
		c->pack(entry_at(c, g, i), key_at(c, g, i * u), c->dtype, u, c->E);
}

/* Makes the entries that are missing; their number grows. */
static void
pack(struct dev *d, struct index_call *c, struct entries *e)
{
	uint32_t g, whole;
	size_t added = 0;

	if ((c->done = cpu_scratch(d, e->heads * sizeof *c->done)) == NULL)
		return;
	for (g = 0; g < e->heads; g++)
		if (c->rows->len[g] / e->rows > e->capacity[g]) {
			cpu_fail(d, "index: no room for %u entries", c->rows->len[g] / e->rows);
			return;
		}
	for (g = 0; g < e->heads; g++) {
		whole = c->rows->len[g] / e->rows;
		c->done[g] = e->len[g];
		added += whole - e->len[g];
		e->len[g] = whole;
	}
	if (added > 0)
		cpu_run(d, pack_item, c, cut(c, e->len, e->heads, e->rows), added * e->rows * c->E);
}

void
cpu_pack_bits(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index_call c = { .e = e, .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.pack = d->simd->pack_bits };

	if (bits_fit(d, e, rows))
		pack(d, &c, e);
}

void
cpu_pack_pages(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index_call c = { .e = e, .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.pack = d->simd->pack_page };

	if (fits(d, e, rows, 2 * c.E * kv_dtype_size(rows->dtype)))
		pack(d, &c, e);
}

/* ---- scoring with them ---- */

/* c->q <- q / sqrt(E) in scratch; 0 after remembering a failure */
static int
start_scores(struct dev *d, struct index_call *c, const struct query *query, size_t G)
{
	const float scale = (float)(1 / sqrt((double)c->E));
	const size_t H = query->H, all = H * c->E, w = d->threads * SCRATCH(c->E);
	const size_t arranged = H * DOTS_LD(c->E);
	float *to;
	size_t i;

	if (d->error[0] != '\0' || !cpu_one_query_row(d, query))
		return 0;
	if (G == 0 || c->E == 0 || H % G != 0 || kv_dtype_size(c->dtype) == 0) {
		cpu_fail(d, "scores: %zu query heads over %zu KV heads of width %zu", H, G, c->E);
		return 0;
	}
	if ((c->w = cpu_scratch(d, (w + all + arranged) * sizeof *c->w)) == NULL)
		return 0;
	for (i = 0, to = c->w + w; i < all; i++)
		to[i] = query->q[i] * scale;
	c->q = to;
	d->simd->arrange(to + all, to, H, c->E, c->dtype);
	c->arranged = to + all;
	c->R = H / G;
	c->softcap = query->softcap;
	c->simd = d->simd;
	return 1;
}

/* The job of entries first .. last-1 of KV head g, `rows` scores each */
static struct entries_job
job_of(const struct index_call *c, size_t g, size_t first, size_t last, size_t rows, int thread)
{
	const struct entries *e = c->e;

	return (struct entries_job){ .data = entry_at(c, g, first), .n = last - first,
		.bytes = e->bytes, .rows = e->rows, .dtype = c->dtype, .E = c->E, .M = c->R,
		.q = c->q + g * c->R * c->E,
		.score = c->score + g * c->R * c->stride + first * rows, .stride = c->stride,
		.w = c->w + (size_t)thread * SCRATCH(c->E) };
}

/* Caps scores first .. last-1 of the query heads of KV head g, while they are in a cache. */
static void
cap_scores(const struct index_call *c, size_t g, size_t first, size_t last)
{
	size_t r;

	for (r = 0; r < c->R && c->softcap > 0; r++)
		c->simd->cap(c->score + (g * c->R + r) * c->stride + first, last - first,
		    c->softcap);
}

/* Scores of rows first .. last-1 of KV head g with their keys */
static void
score_keys(const struct index_call *c, size_t g, size_t first, size_t last)
{
	if (first >= last)
		return;
	c->simd->dots(c->score + g * c->R * c->stride + first, c->stride,
	    c->arranged + g * c->R * DOTS_LD(c->E), c->R, key_at(c, g, first), c->dtype,
	    last - first, c->E, NULL, 0);
	cap_scores(c, g, first, last);
}

static void
key_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	size_t first, last, g = item_range(c, item, &first, &last, c->rows->len);

	(void)thread;
	score_keys(c, g, first, last);
}

void
cpu_key_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct layer_rows *rows)
{
	struct index_call c = { .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.score = score, .stride = stride };
	size_t items;

	if (!start_scores(d, &c, query, rows->heads))
		return;
	items = cut(&c, rows->len, rows->heads, 1);
	cpu_run(d, key_scores_item, &c, items, items * ITEM_ROWS * c.E);
}

/* The first item of a KV head also scores the rows that have no entry. */
static void
bits_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const size_t u = c->e->rows;
	size_t first, last, g = item_range(c, item, &first, &last, c->e->len);
	struct entries_job j;

	if (first < last) {
		j = job_of(c, g, first, last, u, thread);
		c->simd->bits_scores(&j);
		cap_scores(c, g, first * u, last * u);
	}
	if (item % c->steps == 0)
		score_keys(c, g, c->e->len[g] * u, c->rows->len[g]);
}

void
cpu_bits_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct entries *bits, const struct layer_rows *rows)
{
	struct index_call c = { .e = bits, .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.score = score, .stride = stride };
	size_t items;

	if (!bits_fit(d, bits, rows) || !start_scores(d, &c, query, rows->heads))
		return;
	items = cut(&c, bits->len, bits->heads, bits->rows);
	cpu_run(d, bits_scores_item, &c, items, items * ITEM_ROWS * c.E);
}

static void
page_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	size_t first, last, g = item_range(c, item, &first, &last, c->e->len);
	struct entries_job j;

	if (first < last) {
		j = job_of(c, g, first, last, 1, thread);
		c->simd->page_scores(&j);
		cap_scores(c, g, first, last);
	}
}

void
cpu_page_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct entries *pages, enum kv_dtype dtype)
{
	struct index_call c = { .e = pages, .dtype = dtype, .E = pages->width, .score = score,
		.stride = stride };
	size_t items;

	if (!start_scores(d, &c, query, pages->heads))
		return;
	if (pages->bytes != 2 * c.E * kv_dtype_size(dtype)) {
		cpu_fail(d, "index: pages of %zu bytes, width %zu", pages->bytes, c.E);
		return;
	}
	items = cut(&c, pages->len, pages->heads, pages->rows);
	cpu_run(d, page_scores_item, &c, items, items * c.step * c.E);
}
