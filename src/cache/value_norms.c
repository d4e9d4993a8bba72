/* value_norms.c - norms of what the values of a layer add to the residual stream */
#include <stdlib.h>
#include <string.h>

#include "cache/value_norms.h"

#define TILE 4096               /* rows whose values are widened at once */

struct work {
	const struct model *m;
	const struct layer_rows *rows;
	char *stored;                   /* host [TILE] rows as they are stored */
	float *wide, *list;             /* host [TILE][E]; [R][TILE] */
	float *v, *norms;               /* the same on the device */
	float *expanded;                /* device [TILE][value] with latent attention; else NULL */
};

static void
free_work(struct work *w)
{
	free(w->stored);
	free(w->wide);
	free(w->list);
	w->m->ops->free(w->m->dev, w->v);
	w->m->ops->free(w->m->dev, w->norms);
	w->m->ops->free(w->m->dev, w->expanded);
}

static int
alloc_work(struct work *w, const struct model *m, const struct layer_rows *rows, uint32_t most)
{
	const size_t E = rows->width, R = m->id.query_heads / rows->heads;

	*w = (struct work){ .m = m, .rows = rows, .stored = malloc(most * rows_v_bytes(rows) + 1),
	    .wide = malloc((most * E + 1) * sizeof *w->wide),
	    .list = malloc((most * R + 1) * sizeof *w->list) };
	if (w->stored != NULL && w->wide != NULL && w->list != NULL) {
		w->v = m->ops->alloc(m->dev, (most * E + 1) * sizeof *w->v);
		w->norms = m->ops->alloc(m->dev, (most * R + 1) * sizeof *w->norms);
		if (m->id.latent_rank != 0)
			w->expanded = m->ops->alloc(m->dev, (most * m->id.latent_value + 1) *
			    sizeof *w->expanded);
	}
	if (w->v != NULL && w->norms != NULL && (m->id.latent_rank == 0 || w->expanded != NULL))
		return 0;
	free_work(w);
	return MODEL_ENOMEM;
}

/* w->norms[H], lists n apart, <- the norms of the n values in w->v as each query head expands
 * them */
static void
latent_norms(const struct work *w, uint32_t layer, uint32_t n, int euclidean)
{
	const struct model *m = w->m;
	const struct head_matrices *uv = &m->layer[layer].latent.uv;
	uint32_t h;

	for (h = 0; h < uv->heads; h++) {
		const struct head_matrices one = { uv->w, 1, 0, h * uv->block + uv->first,
		    uv->rows };
		const struct value_outputs of = { &m->layer[layer].wo, w->expanded, n, uv->rows,
		    h, 1, euclidean };

		m->ops->head_products(m->dev, w->expanded, uv->rows, w->v, w->rows->width, &one, 0,
		    n);
		m->ops->value_norms(m->dev, w->norms + (size_t)h * n, n, &of);
	}
}

/* out[R], lists `len` apart, <- the norms of n rows of KV head g, from row `at` on */
static void
some_norms(const struct work *w, uint32_t layer, uint32_t g, uint32_t at, uint32_t n, int euclidean,
    float *out)
{
	const struct model *m = w->m;
	const struct layer_rows *rows = w->rows;
	const uint32_t R = m->id.query_heads / rows->heads;
	const size_t size = rows_v_bytes(rows);
	const struct value_outputs of = { &m->layer[layer].wo, w->v, n, rows->width, g * R, R,
		euclidean };
	uint32_t r;

	m->ops->get(m->dev, w->stored, (const char *)rows->v + (rows->start[g] + at) * size,
	    n * size);
	kv_rows_to_f32(w->wide, w->stored, rows_v_type(rows), rows->width, n);
	m->ops->put(m->dev, w->v, w->wide, (size_t)n * rows->width * sizeof *w->wide);
	if (m->id.latent_rank != 0)
		latent_norms(w, layer, n, euclidean);
	else
		m->ops->value_norms(m->dev, w->norms, n, &of);
	m->ops->get(m->dev, w->list, w->norms, (size_t)n * R * sizeof *w->list);
	for (r = 0; r < R; r++)
		memcpy(out + (size_t)r * rows->len[g], w->list + (size_t)r * n,
		    n * sizeof *out);
}

int
layer_value_norms(const struct model *m, uint32_t layer, const struct layer_rows *rows,
    int euclidean, float *norms)
{
	const uint32_t R = m->id.query_heads / rows->heads;
	uint32_t g, at, n, most = 0;
	struct work w;

	for (g = 0; g < rows->heads; g++)
		most = rows->len[g] > most ? rows->len[g] : most;
	if (most == 0)
		return 0;
	if (alloc_work(&w, m, rows, most < TILE ? most : TILE) != 0)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; norms += (size_t)R * rows->len[g++])
		for (at = 0; at < rows->len[g]; at += n) {
			n = rows->len[g] - at < TILE ? rows->len[g] - at : TILE;
			some_norms(&w, layer, g, at, n, euclidean, norms + at);
		}
	free_work(&w);
	return 0;
}
