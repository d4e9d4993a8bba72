/* build_lowrank.c - a layer's keys as a product of two factors, with landmarks: the content of lOWR
 *
 * The keys of all KV heads stand side by side, a row of G*E for each token, and are turned back to
 * where rotary embedding had not been applied, in f32. The device makes products of TILE rows at a
 * time, which are added up in double precision. Rows are turned anew for the left factor: holding
 * them would take more memory than the layer. */
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "methods/lowrank.h"
#include "model/model.h"
#include "engine/indexing.h"
#include "cli/tool.h"

#define TILE 512
#define SQUARE 32               /* of a matrix that is transposed piece by piece */

/* Rows of keys before rotary embedding, TILE at a time. */
struct raw {
	const struct device *d;
	const struct indexing_layer *l;
	uint32_t width;                 /* G * E */
	float *x;                       /* host [TILE][width] */
	struct area at_x, at_pos, at_freq;
	float *d_x;                     /* device, as x */
	const double *d_freq;           /* device [E/2] minus the frequencies */
};

/* ---- memory ---- */

/* Device memory for n elements of some size. */
static void *
new_room(const struct device *d, struct area *a, size_t n, size_t size)
{
	if (n > SIZE_MAX / size)
		die(EXIT_RUN, "%s: no room for %zu times %zu bytes", d->ops->name, n, size);
	return device_room(d, a, n * size);
}

static void
raw_start(struct raw *r, const struct device *d, const struct indexing_layer *l)
{
	const struct kv_model *m = &l->head->model;
	const uint32_t pairs = m->head_width / 2;
	double *freq = must_alloc(pairs + 1, sizeof *freq);
	uint32_t i;

	*r = (struct raw){ .d = d, .l = l, .width = m->kv_heads * m->head_width };
	r->x = must_alloc((size_t)TILE * r->width, sizeof *r->x);
	r->d_x = new_room(d, &r->at_x, (size_t)TILE * r->width, sizeof *r->d_x);
	model_rope_frequencies(m, freq);
	for (i = 0; i < pairs; i++)
		freq[i] = -freq[i];
	r->d_freq = device_upload(d, &r->at_freq, freq, pairs * sizeof *freq);
	free(freq);
}

static void
raw_end(struct raw *r)
{
	free(r->x);
	device_release(r->d, &r->at_x);
	device_release(r->d, &r->at_pos);
	device_release(r->d, &r->at_freq);
}

/* r->d_x <- the rows from .. from + n - 1, n <= TILE. */
static void
raw_rows(struct raw *r, uint32_t from, uint32_t n)
{
	const struct kv_head *head = r->l->head;
	const struct ops *ops = r->d->ops;
	const size_t E = head->model.head_width, size = kv_dtype_size(head->dtype);
	const size_t S = r->l->rows->count[0];
	const uint32_t G = head->model.kv_heads;
	const char *keys = r->l->keys;
	const uint32_t *pos;
	uint32_t g, i;

	for (g = 0; g < G; g++)
		for (i = 0; i < n; i++)
			kv_to_f32(r->x + (size_t)i * r->width + g * E,
			    keys + (g * S + from + i) * E * size, head->dtype, E);
	ops->put(r->d->dev, r->d_x, r->x, (size_t)n * r->width * sizeof *r->x);
	pos = device_upload(r->d, &r->at_pos, r->l->rows->pos[0] + from, n * sizeof *pos);
	ops->rope(r->d->dev, r->d_x, pos, r->d_freq, n, G, (uint32_t)E);
}

/* ---- directions ---- */

/* xt[width][n] <- x[n][width] */
static void
transpose(float *xt, const float *x, size_t n, size_t width)
{
	size_t i0, e0, i, e, i1, e1;

	for (i0 = 0; i0 < n; i0 = i1) {
		i1 = i0 + SQUARE < n ? i0 + SQUARE : n;
		for (e0 = 0; e0 < width; e0 = e1) {
			e1 = e0 + SQUARE < width ? e0 + SQUARE : width;
			for (e = e0; e < e1; e++)
				for (i = i0; i < i1; i++)
					xt[e * n + i] = x[i * width + e];
		}
	}
}

/* The upper triangle of sum[n][n] += that of y. */
static void
add_upper(double *sum, const float *y, size_t n)
{
	size_t i, j;

	for (i = 0; i < n; i++)
		for (j = i; j < n; j++)
			sum[i * n + j] += y[i * n + j];
}

/* gram[width][width] <- X^T X of the first n rows, its upper triangle. */
static void
gram_of(double *gram, struct raw *r, uint32_t n)
{
	const struct ops *ops = r->d->ops;
	const size_t width = r->width, tile = (size_t)TILE * width;
	struct area at_xt = { 0 }, at_y = { 0 };
	float *d_xt = new_room(r->d, &at_xt, tile, sizeof *d_xt);
	float *d_y = new_room(r->d, &at_y, width * width, sizeof *d_y);
	float *xt = must_alloc(tile, sizeof *xt), *y = must_alloc(width * width, sizeof *y);
	struct mat w = { d_xt, KV_F32, 0, r->width };
	uint32_t from, rows;

	for (from = 0; from < n; from += rows) {
		rows = n - from < TILE ? n - from : TILE;
		raw_rows(r, from, rows);
		ops->get(r->d->dev, r->x, r->d_x, rows * width * sizeof *r->x);
		transpose(xt, r->x, rows, width);
		ops->put(r->d->dev, d_xt, xt, rows * width * sizeof *xt);
		w.in = rows;
		w.out = r->width;
		ops->matmul(r->d->dev, d_y, d_xt, &w, NULL, r->width, 0);
		ops->get(r->d->dev, y, d_y, width * width * sizeof *y);
		add_upper(gram, y, width);
	}
	device_check(r->d);
	free(xt);
	free(y);
	device_release(r->d, &at_xt);
	device_release(r->d, &at_y);
}

static void
checked(const struct indexing_layer *l, int code)
{
	if (code == LOW_RANK_EKEY)
		die(EXIT_RUN, "%s: layer %u: a key is not finite, or too great", l->file,
		    l->layer);
	if (code != LOW_RANK_OK)
		die(EXIT_RUN, "out of memory");
}

/* right[width][rank] f32; of no rows it is 0 */
static float *
find_right(struct raw *r, uint32_t n, uint32_t rank)
{
	float *right = must_alloc((size_t)r->width * rank, sizeof *right);
	double *gram;

	if (n == 0)
		return right;
	gram = must_alloc((size_t)r->width * r->width, sizeof *gram);
	gram_of(gram, r, n);
	checked(r->l, low_rank_directions(right, gram, r->width, rank));
	free(gram);
	return right;
}

/* ---- the parts of the section ---- */

/* left[n][rank] of dtype <- the rows times right */
static void
put_left(uint8_t *left, struct raw *r, const float *right, uint32_t n, uint32_t rank)
{
	const enum kv_dtype dtype = r->l->head->dtype;
	const struct ops *ops = r->d->ops;
	const size_t elements = (size_t)r->width * rank;
	float *right_t = must_alloc(elements, sizeof *right_t);
	float *y = must_alloc((size_t)TILE * rank, sizeof *y);
	struct area at_right = { 0 }, at_y = { 0 };
	float *d_y = new_room(r->d, &at_y, (size_t)TILE * rank, sizeof *d_y);
	struct mat w = { NULL, KV_F32, rank, r->width };
	uint32_t from, rows;

	transpose(right_t, right, r->width, rank);
	w.data = device_upload(r->d, &at_right, right_t, elements * sizeof *right_t);
	for (from = 0; from < n; from += rows) {
		rows = n - from < TILE ? n - from : TILE;
		raw_rows(r, from, rows);
		ops->matmul(r->d->dev, d_y, r->d_x, &w, NULL, rows, 0);
		ops->get(r->d->dev, y, d_y, (size_t)rows * rank * sizeof *y);
		kv_from_f32(left + (size_t)from * rank * kv_dtype_size(dtype), y, dtype,
		    (size_t)rows * rank);
	}
	device_check(r->d);
	free(right_t);
	free(y);
	device_release(r->d, &at_right);
	device_release(r->d, &at_y);
}

/* Means of chunks go to landmarks, the numbers of those kept exactly to at. */
static void
put_landmarks(uint8_t *landmarks, uint8_t *at, const struct indexing_layer *l, uint32_t chunks,
    uint32_t x, uint32_t chunk)
{
	const struct kv_head *head = l->head;
	const uint32_t E = head->model.head_width;
	const size_t row = E * kv_dtype_size(head->dtype);
	uint32_t *exact = must_alloc(x + (size_t)1, sizeof *exact), g, i;
	const char *keys = l->keys;

	for (g = 0; chunks > 0 && g < head->model.kv_heads; g++) {
		checked(l, low_rank_landmarks(landmarks, exact, x, keys, chunks, chunk, E,
		    head->dtype));
		for (i = 0; i < x; i++, at += 4)
			put32(at, exact[i]);
		landmarks += chunks * row;
		keys += l->rows->count[g] * row;
	}
	free(exact);
}

/* ---- all of it ---- */

static void
refuse_ragged(const struct indexing_layer *l)
{
	const struct kv_rows *rows = l->rows;
	uint32_t g;

	for (g = 1; g < rows->heads; g++)
		if (rows->count[g] != rows->count[0] || (rows->count[g] > 0 &&
		    memcmp(rows->pos[g], rows->pos[0], rows->count[g] * sizeof *rows->pos[g])))
			die(EXIT_RUN, "%s: layer %u: KV heads hold different rows, low rank needs "
			    "the same in all: evict with kv-evict --select layer", l->file,
			    l->layer);
}

struct content
factors_content(const struct device *d, const struct indexing_layer *l,
    const struct factor_options *opt)
{
	const uint32_t G = l->head->model.kv_heads, E = l->head->model.head_width;
	const uint32_t S = l->rows->count[0], whole = S / opt->chunk;
	const uint32_t chunks = whole > opt->local ? whole - opt->local : 0;
	const uint32_t n = chunks * opt->chunk, x = opt->outliers < chunks ? opt->outliers : chunks;
	const size_t size = kv_dtype_size(l->head->dtype), front = KV_INDEX_HEAD + (size_t)4 * G * x;
	uint32_t rank = opt->rank < G * E ? opt->rank : G * E;
	struct content c;
	uint8_t *at;
	float *right;
	struct raw r;

	refuse_ragged(l);
	if (rank > n)
		rank = n > 0 ? n : 1;
	c.size = round64(front) +
	    ((size_t)n * rank + (size_t)G * E * rank + (size_t)G * chunks * E) * size;
	c.data = must_alloc(c.size, 1);
	put32(c.data, opt->chunk);
	put32(c.data + 16, n);
	put32(c.data + 20, rank);
	put32(c.data + 24, x);
	raw_start(&r, d, l);
	right = find_right(&r, n, rank);
	at = c.data + round64(front);
	put_left(at, &r, right, n, rank);
	at += (size_t)n * rank * size;
	kv_from_f32(at, right, l->head->dtype, (size_t)G * E * rank);
	at += (size_t)G * E * rank * size;
	put_landmarks(at, c.data + KV_INDEX_HEAD, l, chunks, x, opt->chunk);
	raw_end(&r);
	free(right);
	return c;
}
