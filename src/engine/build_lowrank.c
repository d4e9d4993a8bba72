/* build_lowrank.c - factors a layer's keys into a product of two matrices, with landmarks: lOWR
 *
 * The keys of all KV heads are concatenated, a row of G*E for each token, and un-rotated in f32.
 * The device makes products of TILE rows at a time, which are summed in double precision. Rows are
 * un-rotated again for the left factor: keeping them would need more memory than the layer. */
#include <stdlib.h>
#include <string.h>

#include "engine/build_index.h"
#include "engine/retrieval_check.h"
#include "methods/lowrank.h"
#include "model/model.h"

/* Arrays of struct kv_low_rank, as struct built_index keeps them */
enum { EXACT, LEFT, RIGHT, LANDMARK };

#define TILE 512
#define SQUARE 32               /* side of the tiles of a transposition */

/* Rows of keys before rotary embedding, TILE at a time. */
struct raw {
	const struct device *d;
	const struct index_source *l;
	uint32_t width;                 /* G * E */
	float *x;                       /* host [TILE][width] */
	struct area at_x, at_pos, at_freq;
	float *d_x;                     /* device, as x */
	struct rotary back;             /* with negated frequencies */
};

/* ---- memory ---- */

/* Returns device memory for n elements of `size` bytes. */
static void *
new_room(const struct device *d, struct area *a, size_t n, size_t size, struct engine_error *e)
{
	if (n <= SIZE_MAX / size)
		return area_room(d, a, n * size, e);
	engine_fail(e, ENGINE_ERUN, "%s: no room for %zu times %zu bytes", d->ops->name, n, size);
	return NULL;
}

/* Allocates r. Call raw_end(), also after a failure. */
static int
raw_start(struct raw *r, const struct device *d, const struct index_source *l,
    struct engine_error *e)
{
	const struct kv_model *m = &l->head->model;
	const uint32_t pairs = m->head_width / 2;
	double *freq = engine_alloc(pairs + 1, sizeof *freq, e);
	uint32_t i;

	*r = (struct raw){ .d = d, .l = l, .width = m->kv_heads * m->head_width };
	if (freq == NULL)
		return e->code;
	model_rope_frequencies(m, freq);
	for (i = 0; i < pairs; i++)
		freq[i] = -freq[i];
	if ((r->x = engine_alloc((size_t)TILE * r->width, sizeof *r->x, e)) != NULL &&
	    (r->d_x = new_room(d, &r->at_x, (size_t)TILE * r->width, sizeof *r->d_x, e)) != NULL)
		r->back = (struct rotary){ area_upload(d, &r->at_freq, freq, pairs * sizeof *freq,
		    e), m->head_width, 1, 0 };
	free(freq);
	return r->back.freq != NULL ? ENGINE_OK : e->code;
}

static void
raw_end(struct raw *r)
{
	free(r->x);
	area_release(r->d, &r->at_x);
	area_release(r->d, &r->at_pos);
	area_release(r->d, &r->at_freq);
}

/* r->d_x <- the un-rotated rows from .. from + n - 1, n <= TILE. */
static int
raw_rows(struct raw *r, uint32_t from, uint32_t n, struct engine_error *e)
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
	pos = area_upload(r->d, &r->at_pos, r->l->rows->pos[0] + from, n * sizeof *pos, e);
	if (pos == NULL)
		return e->code;
	ops->rope(r->d->dev, r->d_x, pos, &r->back, n, G, (uint32_t)E);
	return ENGINE_OK;
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

/* Tiles of rows, and sums of their products */
struct gram {
	struct area at_xt, at_y;
	float *d_xt, *d_y;              /* device [width][TILE], [width][width] */
	float *xt, *y;                  /* host, the same */
};

static int
gram_start(struct gram *m, const struct raw *r, struct engine_error *e)
{
	const size_t width = r->width, tile = (size_t)TILE * width;

	*m = (struct gram){ 0 };
	if ((m->d_xt = new_room(r->d, &m->at_xt, tile, sizeof *m->d_xt, e)) == NULL ||
	    (m->d_y = new_room(r->d, &m->at_y, width * width, sizeof *m->d_y, e)) == NULL ||
	    (m->xt = engine_alloc(tile, sizeof *m->xt, e)) == NULL ||
	    (m->y = engine_alloc(width * width, sizeof *m->y, e)) == NULL)
		return e->code;
	return ENGINE_OK;
}

static void
gram_end(struct gram *m, const struct raw *r)
{
	free(m->xt);
	free(m->y);
	area_release(r->d, &m->at_xt);
	area_release(r->d, &m->at_y);
}

/* sum[width][width] += X^T X of the first n rows, its upper triangle. */
static int
gram_add(double *sum, struct gram *m, struct raw *r, uint32_t n, struct engine_error *e)
{
	const struct ops *ops = r->d->ops;
	const size_t width = r->width;
	struct mat w = { m->d_xt, WEIGHT_F32, 0, r->width };
	uint32_t from, rows;

	for (from = 0; from < n; from += rows) {
		rows = n - from < TILE ? n - from : TILE;
		if (raw_rows(r, from, rows, e) != ENGINE_OK)
			return e->code;
		ops->get(r->d->dev, r->x, r->d_x, rows * width * sizeof *r->x);
		transpose(m->xt, r->x, rows, width);
		ops->put(r->d->dev, m->d_xt, m->xt, rows * width * sizeof *m->xt);
		w.in = rows;
		w.out = r->width;
		ops->matmul(r->d->dev, m->d_y, m->d_xt, &w, NULL, r->width, 0);
		ops->get(r->d->dev, m->y, m->d_y, width * width * sizeof *m->y);
		add_upper(sum, m->y, width);
	}
	return device_synced(r->d, e);
}

/* Fails after a function of methods/lowrank.h that returned code. */
static int
checked(const struct index_source *l, int code, struct engine_error *e)
{
	if (code == LOW_RANK_EKEY)
		return engine_fail(e, ENGINE_ERUN,
		    "%s: layer %u: a key is not finite, or too great", l->file, l->layer);
	if (code != LOW_RANK_OK)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	return ENGINE_OK;
}

/* right[width][rank] f32 <- the directions of the first n rows; it is 0 before, and stays 0 if n is
 * 0 */
static int
find_right(float *right, struct raw *r, uint32_t n, uint32_t rank, struct engine_error *e)
{
	struct gram m;
	double *sum;
	int rc;

	if (n == 0)
		return ENGINE_OK;
	if ((sum = engine_alloc((size_t)r->width * r->width, sizeof *sum, e)) == NULL)
		return e->code;
	if ((rc = gram_start(&m, r, e)) == ENGINE_OK)
		rc = gram_add(sum, &m, r, n, e);
	gram_end(&m, r);
	if (rc == ENGINE_OK)
		rc = checked(r->l, low_rank_directions(right, sum, r->width, rank), e);
	free(sum);
	return rc;
}

/* ---- the parts of the index ---- */

/* The projection that makes the left factor */
struct projection {
	struct area at_right, at_y;
	float *right_t;                 /* host [rank][width] */
	float *y, *d_y;                 /* host, device [TILE][rank] */
	struct mat w;                   /* right_t, device */
};

static int
projection_start(struct projection *p, const struct raw *r, const float *right, uint32_t rank,
    struct engine_error *e)
{
	const size_t elements = (size_t)r->width * rank;

	*p = (struct projection){ .w = { NULL, WEIGHT_F32, rank, r->width } };
	if ((p->right_t = engine_alloc(elements, sizeof *p->right_t, e)) == NULL ||
	    (p->y = engine_alloc((size_t)TILE * rank, sizeof *p->y, e)) == NULL ||
	    (p->d_y = new_room(r->d, &p->at_y, (size_t)TILE * rank, sizeof *p->d_y, e)) == NULL)
		return e->code;
	transpose(p->right_t, right, r->width, rank);
	p->w.data = area_upload(r->d, &p->at_right, p->right_t, elements * sizeof *p->right_t, e);
	return p->w.data != NULL ? ENGINE_OK : e->code;
}

static void
projection_end(struct projection *p, const struct raw *r)
{
	free(p->right_t);
	free(p->y);
	area_release(r->d, &p->at_right);
	area_release(r->d, &p->at_y);
}

/* left[n][rank] of dtype <- the rows times right */
static int
make_left(char *left, struct raw *r, const struct projection *p, uint32_t n, struct engine_error *e)
{
	const enum kv_dtype dtype = r->l->head->dtype;
	const struct ops *ops = r->d->ops;
	const size_t rank = p->w.out;
	uint32_t from, rows;

	for (from = 0; from < n; from += rows) {
		rows = n - from < TILE ? n - from : TILE;
		if (raw_rows(r, from, rows, e) != ENGINE_OK)
			return e->code;
		ops->matmul(r->d->dev, p->d_y, r->d_x, &p->w, NULL, rows, 0);
		ops->get(r->d->dev, p->y, p->d_y, rows * rank * sizeof *p->y);
		kv_from_f32(left + from * rank * kv_dtype_size(dtype), p->y, dtype, rows * rank);
	}
	return device_synced(r->d, e);
}

/* left, right of dtype <- the factors of the first n rows */
static int
make_factors(char *left, char *right, struct raw *r, uint32_t n, uint32_t rank,
    struct engine_error *e)
{
	const size_t elements = (size_t)r->width * rank;
	float *found = engine_alloc(elements, sizeof *found, e);
	struct projection p;
	int rc;

	if (found == NULL)
		return e->code;
	if ((rc = find_right(found, r, n, rank, e)) == ENGINE_OK) {
		kv_from_f32(right, found, r->l->head->dtype, elements);
		if ((rc = projection_start(&p, r, found, rank, e)) == ENGINE_OK)
			rc = make_left(left, r, &p, n, e);
		projection_end(&p, r);
	}
	free(found);
	return rc;
}

/* landmark[G][chunks][E] of dtype <- means of chunks; exact[G][x] <- the chunks whose keys are kept
 * exactly */
static int
make_landmarks(char *landmark, uint32_t *exact, const struct index_source *l, uint32_t chunks,
    uint32_t x, uint32_t chunk, struct engine_error *e)
{
	const struct kv_head *head = l->head;
	const uint32_t E = head->model.head_width;
	const size_t row = E * kv_dtype_size(head->dtype);
	const char *keys = l->keys;
	uint32_t g;

	for (g = 0; chunks > 0 && g < head->model.kv_heads; g++) {
		if (checked(l, low_rank_landmarks(landmark, exact, x, keys, chunks, chunk, E,
		    head->dtype), e) != ENGINE_OK)
			return e->code;
		exact += x;
		landmark += chunks * row;
		keys += l->rows->count[g] * row;
	}
	return ENGINE_OK;
}

/* ---- all of it ---- */

static int
refuse_ragged(const struct index_source *l, struct engine_error *e)
{
	const struct kv_rows *rows = l->rows;
	uint32_t g;

	for (g = 1; g < rows->heads; g++)
		if (rows->count[g] != rows->count[0] || (rows->count[g] > 0 &&
		    memcmp(rows->pos[g], rows->pos[0], rows->count[g] * sizeof *rows->pos[g])))
			return engine_fail(e, ENGINE_EUNSUPPORTED,
			    "%s: layer %u: KV heads have different rows, and low rank needs the "
			    "same in all: use kv-evict --select layer",
			    l->file, l->layer);
	return ENGINE_OK;
}

/* Allocates and fills the arrays of the index; x has its numbers. */
static int
make(struct built_index *out, const struct kv_low_rank *x, const struct device *d,
    const struct index_source *l, struct engine_error *e)
{
	struct raw r;
	int rc;

	if ((rc = raw_start(&r, d, l, e)) == ENGINE_OK)
		rc = make_factors(out->memory[LEFT], out->memory[RIGHT], &r, x->n, x->rank, e);
	raw_end(&r);
	return rc != ENGINE_OK ? rc : make_landmarks(out->memory[LANDMARK], out->memory[EXACT], l,
	    x->n / x->chunk, x->n_exact, x->chunk, e);
}

int
build_low_rank(struct built_index *out, const struct device *d, const struct index_source *l,
    const struct low_rank_options *opt, struct engine_error *e)
{
	const size_t G = l->head->model.kv_heads, E = l->head->model.head_width;
	const size_t size = kv_dtype_size(l->head->dtype);
	const uint32_t whole = l->rows->count[0] / opt->chunk;
	const uint32_t chunks = whole > opt->local ? whole - opt->local : 0;
	const uint32_t n = chunks * opt->chunk, x = opt->outliers < chunks ? opt->outliers : chunks;
	uint32_t rank = opt->rank < G * E ? opt->rank : (uint32_t)(G * E);

	*out = (struct built_index){ .index.kind = KV_LOWR };
	if (low_rank_fit(&l->head->model, e) != ENGINE_OK ||
	    low_rank_rows_fit(kv_head_row_type(l->head, KV_KEYS, l->layer), l->file, l->layer,
	    e) != ENGINE_OK || refuse_ragged(l, e) != ENGINE_OK)
		return e->code;
	if (rank > n)
		rank = n > 0 ? n : 1;
	if ((out->memory[EXACT] = engine_alloc(G * x, sizeof(uint32_t), e)) == NULL ||
	    (out->memory[LEFT] = engine_alloc((size_t)n * rank, size, e)) == NULL ||
	    (out->memory[RIGHT] = engine_alloc(G * E * rank, size, e)) == NULL ||
	    (out->memory[LANDMARK] = engine_alloc(G * chunks * E, size, e)) == NULL)
		return e->code;
	out->index.low_rank = (struct kv_low_rank){ opt->chunk, n, rank, x, out->memory[EXACT],
	    out->memory[LEFT], out->memory[RIGHT], out->memory[LANDMARK] };
	return make(out, &out->index.low_rank, d, l, e);
}
