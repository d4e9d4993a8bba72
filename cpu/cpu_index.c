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

/* Scratch of one thread for making entries of rows that are widened: PIECE_ROWS of them, and bounds
 * of two pieces of a page */
#define PIECE_ROWS 128
#define PACK_FLOATS(E) (PADDED(PIECE_ROWS * (E)) + PADDED(4 * (E)) + 1024)

/* Scratch of one thread for scores with keys that are quantised, beside SCRATCH(E) */
#define TILE_FLOATS(E) ((E) * KEY_TILE + SCORE_ROWS * KEY_TILE + VNNI_FLOATS(E, SKINNY_ROWS))

/* One call of one op; each op uses some of it. */
struct index_call {
	const struct simd *simd;
	const struct vnni_products *vnni;
	const struct entries *e;
	const struct layer_rows *rows;
	enum kv_dtype dtype;         /* of keys or bounds */
	size_t R, E;
	size_t step, steps;          /* entries or rows of an item; items of one KV head */
	uint32_t *done;              /* [G] entries that are there already */
	int pages;                   /* makes bounds of pages; 0: keys in one bit */
	const float *q;              /* [H][E], multiplied by 1/sqrt(E) */
	const float *arranged;       /* [H][DOTS_LD(E)] the same for dots() */
	const float *transformed;    /* [H][E] the same for quantised keys */
	float *w;                    /* scratch [threads][floats] */
	size_t floats;
	float *score;
	size_t stride;
	float softcap;               /* of scores; 0: none */
};

static const void *
key_at(const struct index_call *c, size_t g, size_t row)
{
	const struct layer_rows *r = c->rows;

	return (const char *)r->k + (r->start[g] + row) * rows_k_bytes(r);
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

	if (d->error[0] != '\0' || cpu_refuse_recent(d, rows, "index"))
		return 0;
	if (e->heads != rows->heads || e->width != rows->width || e->rows == 0 ||
	    e->bytes != bytes || rows_k_bytes(rows) == 0) {
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

/* An index is made of the keys as they lie where they are elements of its dtype. Other keys are
 * widened into the scratch of a thread before, up to PIECE_ROWS rows at a time. */
static int
are_widened(const struct index_call *c)
{
	return rows_k_type(c->rows) != (enum kv_row_type)c->rows->dtype;
}

/* to[n][E] f32 <- rows of the KV head */
static void
widen_keys(const struct index_call *c, float *to, size_t g, size_t row, size_t n)
{
	const enum kv_row_type type = rows_k_type(c->rows);

	c->simd->dequantise(to, key_at(c, g, row), kv_row_type_base(type), c->E, n);
	if (cpu_transformed(type))
		c->simd->transform(to, c->E, n);
}

/* Bounds of two pieces of a page: of[E] the minima, of[E .. 2E-1] the maxima. NaN: there are none.
 */
static void
merge_bounds(float *of, const float *piece, size_t E)
{
	size_t i;

	for (i = 0; i < 2 * E; i++)
		if (of[i] != of[i] || (i < E ? piece[i] < of[i] : piece[i] > of[i]))
			of[i] = piece[i];
}

/* entry <- that of `rows` rows from row on, which are widened into scratch[PACK_FLOATS(E)] */
static void
pack_widened(const struct index_call *c, char *entry, size_t g, size_t row, float *scratch)
{
	const size_t rows = c->e->rows, E = c->E;
	float *bounds = scratch + PIECE_ROWS * E, *piece = bounds + 2 * E;
	size_t i, n;

	if (!c->pages) {                               /* at most PIECE_ROWS rows */
		widen_keys(c, scratch, g, row, rows);
		c->simd->pack_bits(entry, scratch, KV_F32, rows, E);
		return;
	}
	for (i = 0; i < rows; i += n) {
		n = rows - i < PIECE_ROWS ? rows - i : PIECE_ROWS;
		widen_keys(c, scratch, g, row + i, n);
		c->simd->pack_page(i == 0 ? bounds : piece, scratch, KV_F32, n, E);
		if (i > 0)
			merge_bounds(bounds, piece, E);
	}
	kv_from_f32(entry, bounds, c->dtype, 2 * E);
}

static void
pack_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	const size_t u = c->e->rows;
	size_t first, last, i, g = item_range(c, item, &first, &last, c->e->len);

	for (i = first > c->done[g] ? first : c->done[g]; i < last; i++)
		if (are_widened(c))
			pack_widened(c, entry_at(c, g, i), g, i * u,
			    c->w + (size_t)thread * PACK_FLOATS(c->E));
		else if (c->pages)
			c->simd->pack_page(entry_at(c, g, i), key_at(c, g, i * u), c->dtype, u,
			    c->E);
		else
			c->simd->pack_bits(entry_at(c, g, i), key_at(c, g, i * u), c->dtype, u,
			    c->E);
}

/* Makes the entries that are missing; their number grows. */
static void
pack(struct dev *d, struct index_call *c, struct entries *e)
{
	uint32_t g, whole;
	size_t added = 0, floats = 0;

	if (are_widened(c))
		floats = d->threads * PACK_FLOATS(c->E);
	if ((c->w = cpu_scratch(d, (floats + e->heads) * sizeof *c->w)) == NULL)
		return;
	c->done = (uint32_t *)(c->w + floats);
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
		.simd = d->simd };

	if (bits_fit(d, e, rows))
		pack(d, &c, e);
}

void
cpu_pack_pages(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index_call c = { .e = e, .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.simd = d->simd, .pages = 1 };

	if (fits(d, e, rows, 2 * c.E * kv_dtype_size(rows->dtype)))
		pack(d, &c, e);
}

/* ---- scoring with them ---- */

/* to[H][E] <- q for keys of a quantised type */
static void
transform_queries(const struct simd *simd, float *to, const float *q, enum kv_row_type type,
    size_t H, size_t E)
{
	memcpy(to, q, H * E * sizeof *to);
	if (cpu_transformed(type))
		simd->transform(to, E, H);
}

/* c->q <- q / sqrt(E) in scratch; 0 after remembering a failure */
static int
start_scores(struct dev *d, struct index_call *c, const struct query *query, size_t G)
{
	const float scale = (float)(1 / sqrt((double)c->E));
	const size_t H = query->H, all = H * c->E, arranged = H * DOTS_LD(c->E);
	const enum kv_row_type type = c->rows == NULL ? KV_ROW_F32 : rows_k_type(c->rows);
	size_t i, w;
	float *to;

	if (d->error[0] != '\0' || !cpu_one_query_row(d, query))
		return 0;
	if (G == 0 || c->E == 0 || H % G != 0 || kv_dtype_size(c->dtype) == 0 ||
	    kv_row_bytes(type, c->E) == 0) {
		cpu_fail(d, "scores: %zu query heads over %zu KV heads of width %zu", H, G, c->E);
		return 0;
	}
	c->floats = SCRATCH(c->E) + (kv_row_type_quantised(type) ? TILE_FLOATS(c->E) : 0);
	w = d->threads * c->floats;
	if ((c->w = cpu_scratch(d, (w + 2 * all + arranged) * sizeof *c->w)) == NULL)
		return 0;
	for (i = 0, to = c->w + w; i < all; i++)
		to[i] = query->q[i] * scale;
	c->q = to;
	c->arranged = to + all;
	c->transformed = to + all + arranged;
	if (!kv_row_type_quantised(type))
		d->simd->arrange(to + all, to, H, c->E, (enum kv_dtype)type);
	else
		transform_queries(d->simd, to + all + arranged, to, type, H, c->E);
	c->R = H / G;
	c->softcap = query->softcap;
	c->simd = d->simd;
	c->vnni = d->vnni;
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
		.w = c->w + (size_t)thread * c->floats };
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

/* As score_keys(), of keys of a quantised type */
static void
score_quantised(const struct index_call *c, size_t g, size_t first, size_t last, int thread)
{
	/* only from row `first` on: in a layer that is offloaded there may be none before */
	struct attend_job j = { .k = key_at(c, g, first), .E = c->E, .M = c->R,
		.k_type = kv_row_type_base(rows_k_type(c->rows)), .last = last - first,
		.k_bytes = rows_k_bytes(c->rows), .q = c->transformed + g * c->R * c->E,
		.few = c->R <= SKINNY_ROWS && c->E % 16 == 0 };

	j.kt = c->w + (size_t)thread * c->floats + SCRATCH(c->E);
	j.s = j.kt + c->E * KEY_TILE;
	j.codes = j.s + SCORE_ROWS * KEY_TILE;
	if (c->vnni != NULL && c->vnni->takes_keys(j.k_type, j.E))
		j.k_vnni = c->vnni;
	c->simd->key_scores(&j, c->score + g * c->R * c->stride + first, c->stride);
}

/* Scores of rows first .. last-1 of KV head g with their keys */
static void
score_keys(const struct index_call *c, size_t g, size_t first, size_t last, int thread)
{
	const enum kv_row_type type = rows_k_type(c->rows);

	if (first >= last)
		return;
	if (kv_row_type_quantised(type))
		score_quantised(c, g, first, last, thread);
	else
		c->simd->dots(c->score + g * c->R * c->stride + first, c->stride,
		    c->arranged + g * c->R * DOTS_LD(c->E), c->R, key_at(c, g, first),
		    (enum kv_dtype)type, last - first, c->E, NULL, 0);
	cap_scores(c, g, first, last);
}

static void
key_scores_item(void *arg, size_t item, int thread)
{
	const struct index_call *c = arg;
	size_t first, last, g = item_range(c, item, &first, &last, c->rows->len);

	score_keys(c, g, first, last, thread);
}

void
cpu_key_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct layer_rows *rows)
{
	struct index_call c = { .rows = rows, .dtype = rows->dtype, .E = rows->width,
		.score = score, .stride = stride };
	size_t items;

	if (!start_scores(d, &c, query, rows->heads) || cpu_refuse_recent(d, rows, "key scores"))
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
		score_keys(c, g, c->e->len[g] * u, c->rows->len[g], thread);
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
