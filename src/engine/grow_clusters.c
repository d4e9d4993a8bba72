/* grow_clusters.c - clusters for rows that are appended to a cache
 *
 * A window of GROWTH_ROWS rows is clustered by itself. So its clusters are the same whether its
 * rows were appended at once or one by one, and after a resume. */
#include <stdlib.h>

#include "engine/grow_clusters.h"
#include "engine/key_products.h"
#include "methods/cluster.h"

#define ITERATIONS 20

/* A window of each KV head of a layer, for index_add_clusters() */
struct window {
	uint32_t *clusters;             /* [G] */
	uint32_t *rows;                 /* [G] GROWTH_ROWS, or 0: there are not enough */
	char **mean;                    /* [G][GROWTH_CLUSTERS][E] of rows->dtype */
	uint32_t **label;               /* [G][GROWTH_ROWS] */
};

static uint32_t
first_row(const struct layer_index *x, uint32_t g)
{
	return x->end[g] > x->sink ? x->end[g] : x->sink;
}

static int
is_whole(const struct layer_index *x, const struct layer_rows *rows, uint32_t g)
{
	return rows->len[g] >= GROWTH_ROWS && rows->len[g] - GROWTH_ROWS >= first_row(x, g);
}

/* Clusters the window of KV head g. keys: scratch on the host, for the keys of a window */
static int
take_head(struct window *w, struct key_products *products, void *keys, const struct layer_index *x,
    const struct layer_rows *rows, uint32_t l, uint32_t g, struct engine_error *e)
{
	const uint32_t first = first_row(x, g);
	const size_t row = rows_k_bytes(rows);
	struct cluster_input in = { .keys = keys, .rows = GROWTH_ROWS, .width = rows->width,
	    .key_type = rows_k_type(rows), .dtype = rows->dtype, .clusters = GROWTH_CLUSTERS,
	    .iterations = ITERATIONS,
	    .seed = cluster_seed(0, l, g, first), .products = key_products_make, .with = products };
	int code;

	x->ops->get(x->dev, keys, (const char *)rows->k + (rows->start[g] + first) * row,
	    GROWTH_ROWS * row);
	if (device_synced(&products->d, e) != ENGINE_OK)
		return e->code;
	code = cluster_keys(&in, w->label[g], w->mean[g], &w->clusters[g]);
	if (code == CLUSTER_EKEY)
		return engine_fail(e, ENGINE_ERUN, "layer %u head %u row %u: the key is not finite",
		    l, g, first + w->clusters[g]);
	if (code == CLUSTER_EDEVICE) {
		*e = products->error;
		return e->code;
	}
	if (code != CLUSTER_OK)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	w->rows[g] = GROWTH_ROWS;
	return ENGINE_OK;
}

/* Allocates w. Call window_end(), also after a failure. */
static int
window_start(struct window *w, const struct layer_rows *rows, struct engine_error *e)
{
	const size_t mean = GROWTH_CLUSTERS * rows->width * kv_dtype_size(rows->dtype);
	uint32_t g;

	*w = (struct window){ 0 };
	if ((w->clusters = engine_alloc(rows->heads, sizeof *w->clusters, e)) == NULL ||
	    (w->rows = engine_alloc(rows->heads, sizeof *w->rows, e)) == NULL ||
	    (w->mean = engine_alloc(rows->heads, sizeof *w->mean, e)) == NULL ||
	    (w->label = engine_alloc(rows->heads, sizeof *w->label, e)) == NULL)
		return e->code;
	for (g = 0; g < rows->heads; g++)
		if ((w->mean[g] = engine_alloc(mean, 1, e)) == NULL ||
		    (w->label[g] = engine_alloc(GROWTH_ROWS, sizeof **w->label, e)) == NULL)
			return e->code;
	return ENGINE_OK;
}

static void
window_end(struct window *w, uint32_t heads)
{
	uint32_t g;

	for (g = 0; w->label != NULL && g < heads; g++) {
		free(w->mean[g]);
		free(w->label[g]);
	}
	free(w->clusters);
	free(w->rows);
	free(w->mean);
	free(w->label);
}

/* Clusters one window of each KV head that has a full one. */
static int
take_windows(struct window *w, struct layer_index *x, const struct layer_rows *rows, uint32_t l,
    struct engine_error *e)
{
	struct key_products products = { .d = { x->ops, x->dev }, .width = rows->width,
	    .type = rows_k_type(rows) };
	void *keys = engine_alloc(GROWTH_ROWS, rows_k_bytes(rows), e);
	int rc = keys != NULL ? ENGINE_OK : e->code;
	uint32_t g;

	for (g = 0; rc == ENGINE_OK && g < rows->heads; g++)
		if (is_whole(x, rows, g))
			rc = take_head(w, &products, keys, x, rows, l, g, e);
	free(keys);
	key_products_release(&products);
	if (rc == ENGINE_OK && index_add_clusters(x, w->clusters, (const void *const *)w->mean,
	    w->rows, (const uint32_t *const *)w->label) != 0)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	return rc;
}

static int
grow_layer(struct layer_index *x, const struct layer_rows *rows, uint32_t l,
    struct engine_error *e)
{
	struct window w;
	uint32_t g;
	int rc = ENGINE_OK;

	while (rc == ENGINE_OK) {
		for (g = 0; g < rows->heads && !is_whole(x, rows, g); g++)
			;
		if (g == rows->heads)
			break;
		if ((rc = window_start(&w, rows, e)) == ENGINE_OK)
			rc = take_windows(&w, x, rows, l, e);
		window_end(&w, rows->heads);
	}
	return rc;
}

int
grow_clusters(struct sequence *s, struct engine_error *e)
{
	struct cache *c = s->cache;
	uint32_t l;
	int rc = ENGINE_OK;

	for (l = 0; c->index != NULL && rc == ENGINE_OK && l < c->model->id.layers; l++)
		if (index_has(&c->index[l], KV_CLUS))
			rc = grow_layer(&c->index[l], sequence_last_rows(s, l), l, e);
	return rc;
}
