/* cpu_index.c - making indexes of keys and scoring rows with them, cut into items of work
 *
 * An item is a range of entries, or of rows, of one KV head, with all the query heads that
 * read it. The loops over channels are in simd_bits.c, simd_pages.c and, for keys as they
 * are, simd_dot.c. */
#include <math.h>

#include "cpu/cpu_internal.h"

#define ITEM_ROWS 1024           /* rows of one item, or the entries of about so many */

/* One call of one op; each op uses some of it. */
struct index_call {
	const struct simd *simd;
	const struct entries *e;
	const struct layer_rows *rows;
	enum kv_dtype dtype;         /* of keys or bounds */
	size_t R, E;
	size_t step, steps;          /* entries or rows of an item; items of one KV head */
	size_t *done;                /* [G] pack: entries that are there */
	const float *q;              /* [H][E], multiplied by 1/sqrt(E) */
	float *score;
	size_t stride;
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

/* Cuts count[G] entries or rows of each KV head into items of about ITEM_ROWS rows, each
 * entry standing for `rows`. Returns the number of items. */
static size_t
cut(struct index_call *c, const uint32_t *count, size_t G, size_t rows)
{
	size_t g, longest = 0;

	for (g = 0; g < G; g++)
		longest = count[g] > longest ? count[g] : longest;
	c->step = rows < ITEM_ROWS ? ITEM_ROWS / rows : 1;
	c->steps = (longest + c->step - 1) / c->step;
	return c->steps * G;
}

/* Item number item is about first .. last-1 of the n of KV head g; none where n is small */
static size_t
item_range(const struct index_call *c, size_t item, size_t *first, size_t *last, const uint32_t *n)
{
	const size_t g = item / c->steps;

	*first = item % c->steps * c->step;
	*last = *first + c->step < n[g] ? *first + c->step : n[g];
	return g;
}

/* ---- making them ---- */

/* plain for now */
static float
key(const void *keys, enum kv_dtype type, size_t i)
{
	float f;

	kv_to_f32(&f, (const char *)keys + i * kv_dtype_size(type), type, 1);
	return f;
}

static uint16_t
finite_half(float f)
{
	uint16_t h;

	f = f > 65504 ? 65504 : f < -65504 ? -65504 : f;
	kv_from_f32(&h, &f, KV_F16, 1);
	return h == 0x8000 ? 0 : h;
}

static void
pack_bits(unsigned char *to, const void *keys, enum kv_dtype type, size_t u, size_t E)
{
	float least, most, scale, k;
	uint16_t half;
	size_t c, i;

	for (c = 0; c < E; c++) {
		least = INFINITY;
		most = -INFINITY;
		for (i = 0; i < u; i++) {
			k = key(keys, type, i * E + c);
			least = k < least ? k : least;
			most = k > most ? k : most;
		}
		if (least > most)
			least = most = 0;
		scale = most - least;
		if (scale != scale)
			scale = 0;
		half = finite_half(least);
		memcpy(to + 2 * c, &half, 2);
		half = finite_half(scale);
		memcpy(to + 2 * (E + c), &half, 2);
		memset(to + 4 * E + c * (u / 8), 0, u / 8);
		for (i = 0; i < u; i++) {
			k = key(keys, type, i * E + c) - least;
			if (k + k > scale)
				to[4 * E + c * (u / 8) + i / 8] |= 1 << i % 8;
		}
	}
}

static void
pack_page(unsigned char *to, const void *keys, enum kv_dtype type, size_t u, size_t E)
{
	const size_t size = kv_dtype_size(type);
	float least, most, k;
	size_t c, i;

	for (c = 0; c < E; c++) {
		least = INFINITY;
		most = -INFINITY;
		for (i = 0; i < u; i++) {
			k = key(keys, type, i * E + c);
			least = k < least ? k : least;
			most = k > most ? k : most;
		}
		if (least > most)
			least = most = NAN;
		least += 0.0f;
		most += 0.0f;
		kv_from_f32(to + c * size, &least, type, 1);
		kv_from_f32(to + (E + c) * size, &most, type, 1);
	}
}

static void
bits_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const struct entries *e = c->e;
	size_t first, last, i, g = item_range(c, item, &first, &last, e->len);

	(void)thread;
	for (i = first > c->done[g] ? first : c->done[g]; i < last; i++)
		pack_bits((void *)entry_at(c, g, i), key_at(c, g, i * e->rows), c->dtype, e->rows,
		    c->E);
}

static void
pages_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const struct entries *e = c->e;
	size_t first, last, i, g = item_range(c, item, &first, &last, e->len);

	(void)thread;
	for (i = first > c->done[g] ? first : c->done[g]; i < last; i++)
		pack_page((void *)entry_at(c, g, i), key_at(c, g, i * e->rows), c->dtype, e->rows,
		    c->E);
}

static int
same_shape(struct dev *d, const struct entries *e, const struct layer_rows *rows, size_t bytes)
{
	if (e->heads == rows->heads && e->width == rows->width && e->rows > 0 &&
	    e->bytes == bytes)
		return 1;
	cpu_fail(d, "index of %u KV heads of width %u, %zu bytes for %u rows; keys of %u of %u",
	    e->heads, e->width, e->bytes, e->rows, rows->heads, rows->width);
	return 0;
}

/* Makes the entries that are missing with work; e->len grows. */
static void
pack(struct dev *d, struct entries *e, const struct layer_rows *rows, size_t bytes,
    void (*work)(void *, size_t, int))
{
	struct index_call c = { .simd = d->simd, .e = e, .rows = rows, .dtype = rows->dtype,
	    .E = rows->width };
	size_t g, added = 0;

	if (d->error[0] != '\0' || !same_shape(d, e, rows, bytes))
		return;
	for (g = 0; g < e->heads; g++)
		if (rows->len[g] / e->rows > e->room[g]) {
			cpu_fail(d, "index: no room for %u entries", rows->len[g] / e->rows);
			return;
		}
	if ((c.done = cpu_scratch(d, e->heads * sizeof *c.done)) == NULL)
		return;
	for (g = 0; g < e->heads; g++) {
		c.done[g] = e->len[g];
		if (rows->len[g] / e->rows > e->len[g])
			e->len[g] = rows->len[g] / e->rows;
		added += e->len[g] - c.done[g];
	}
	cpu_run(d, work, &c, cut(&c, e->len, e->heads, e->rows), added * e->rows * c.E);
}

static size_t
bits_bytes(const struct entries *e)
{
	return e->width * (4 + (size_t)e->rows / 8);
}

void
cpu_pack_bits(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	pack(d, e, rows, bits_bytes(e), bits_item);
}

void
cpu_pack_pages(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	pack(d, e, rows, 2 * e->width * kv_dtype_size(rows->dtype), pages_item);
}

/* ---- scoring with them ---- */

/* c->q <- q / sqrt(E) in scratch; 0 after remembering a failure */
static int
start_scores(struct dev *d, struct index_call *c, const float *q, size_t H, size_t G)
{
	const float scale = (float)(1 / sqrt((double)c->E));
	float *to;
	size_t i;

	if (d->error[0] != '\0')
		return 0;
	if (G == 0 || c->E == 0 || H % G != 0 || kv_dtype_size(c->dtype) == 0) {
		cpu_fail(d, "scores: %zu query heads over %zu KV heads of width %zu", H, G, c->E);
		return 0;
	}
	if ((to = cpu_scratch(d, H * c->E * sizeof *to)) == NULL)
		return 0;
	for (i = 0; i < H * c->E; i++)
		to[i] = q[i] * scale;
	c->q = to;
	c->R = H / G;
	return 1;
}

/* Scores of rows first .. last-1 of KV head g with their keys */
static void
score_keys(const struct index_call *c, size_t g, size_t first, size_t last)
{
	if (first < last)
		c->simd->dots(c->score + g * c->R * c->stride + first, c->stride,
		    c->q + g * c->R * c->E, c->R, key_at(c, g, first), c->dtype, last - first,
		    c->E, NULL, 0);
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
cpu_key_scores(struct dev *d, float *score, size_t stride, const float *q,
    const struct layer_rows *rows, uint32_t H)
{
	struct index_call c = { .simd = d->simd, .rows = rows, .dtype = rows->dtype,
	    .E = rows->width, .score = score, .stride = stride };
	size_t items;

	if (!start_scores(d, &c, q, H, rows->heads))
		return;
	items = cut(&c, rows->len, rows->heads, 1);
	cpu_run(d, key_scores_item, &c, items, items * ITEM_ROWS * c.E);
}

static void
score_bits(float *score, const float *q, const unsigned char *entry, size_t u, size_t E)
{
	float base = 0, zero, w;
	size_t c, i;

	memset(score, 0, u * sizeof *score);
	for (c = 0; c < E; c++) {
		kv_to_f32(&zero, entry + 2 * c, KV_F16, 1);
		kv_to_f32(&w, entry + 2 * (E + c), KV_F16, 1);
		base += q[c] * zero;
		w *= q[c];
		for (i = 0; i < u; i++)
			if (entry[4 * E + c * (u / 8) + i / 8] >> i % 8 & 1)
				score[i] += w;
	}
	for (i = 0; i < u; i++)
		score[i] += base;
}

/* The rows of the last item of a KV head that have no entry are scored with it. */
static void
bits_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const struct entries *e = c->e;
	size_t first, last, i, r, g = item_range(c, item, &first, &last, e->len);
	size_t R = c->R, u = e->rows, h;

	(void)thread;
	for (i = first; i < last; i++)
		for (r = 0; r < R; r++) {
			h = g * R + r;
			score_bits(c->score + h * c->stride + i * u, c->q + h * c->E,
			    (void *)entry_at(c, g, i), u, c->E);
		}
	if (item % c->steps == 0)
		score_keys(c, g, e->len[g] * u, c->rows->len[g]);
}

void
cpu_bits_scores(struct dev *d, float *score, size_t stride, const float *q,
    const struct entries *bits, const struct layer_rows *rows, uint32_t H)
{
	struct index_call c = { .simd = d->simd, .e = bits, .rows = rows, .dtype = rows->dtype,
	    .E = rows->width, .score = score, .stride = stride };
	size_t g, items;

	if (d->error[0] != '\0' || !same_shape(d, bits, rows, bits_bytes(bits)) ||
	    !start_scores(d, &c, q, H, rows->heads))
		return;
	for (g = 0; g < bits->heads; g++)
		if (bits->len[g] > rows->len[g] / bits->rows) {
			cpu_fail(d, "index: %u entries for %u rows", bits->len[g], rows->len[g]);
			return;
		}
	items = cut(&c, bits->len, bits->heads, bits->rows);
	if (items == 0) {                              /* rows without entries only */
		c.steps = 1;
		items = bits->heads;
	}
	cpu_run(d, bits_scores_item, &c, items, items * ITEM_ROWS * c.E);
}

static float
score_page(const float *q, const char *entry, enum kv_dtype type, size_t E)
{
	float sum = 0, least, most;
	size_t c;

	for (c = 0; c < E; c++) {
		least = q[c] * key(entry, type, c);
		most = q[c] * key(entry, type, E + c);
		sum += least > most ? least : most;
	}
	return sum;
}

static void
page_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	size_t first, last, i, r, h, g = item_range(c, item, &first, &last, c->e->len);

	(void)thread;
	for (i = first; i < last; i++)
		for (r = 0; r < c->R; r++) {
			h = g * c->R + r;
			c->score[h * c->stride + i] =
			    score_page(c->q + h * c->E, entry_at(c, g, i), c->dtype, c->E);
		}
}

void
cpu_page_scores(struct dev *d, float *score, size_t stride, const float *q,
    const struct entries *pages, enum kv_dtype dtype, uint32_t H)
{
	struct index_call c = { .simd = d->simd, .e = pages, .dtype = dtype, .E = pages->width,
	    .score = score, .stride = stride };
	size_t items;

	if (!start_scores(d, &c, q, H, pages->heads))
		return;
	items = cut(&c, pages->len, pages->heads, pages->rows);
	cpu_run(d, page_scores_item, &c, items, items * c.step * c.E);
}
