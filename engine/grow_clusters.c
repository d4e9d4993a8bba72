/* grow_clusters.c - clusters for rows that are appended to a cache
 *
 * A window is clustered by itself, and by no others: so its clusters are the same whether it came
 * with one call or row by row, today or after a resume. */
#include <stdlib.h>

#include "methods/cluster.h"
#include "engine/grow_clusters.h"
#include "engine/key_products.h"
#include "cli/tool.h"

#define ITERATIONS 20

/* A window of each KV head of a layer, as index_add_clusters() takes it. */
struct window {
	uint32_t *clusters;             /* [G] */
	uint32_t *rows;                 /* [G] GROWTH_ROWS, or 0: there are not enough */
	char **mean;                    /* [G][GROWTH_CLUSTERS][E] of the dtype of the keys */
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

/* Clusters the window of KV head g. keys: host, room for it */
static void
take_head(struct window *w, struct products *products, void *keys, const struct layer_index *x,
    const struct layer_rows *rows, uint32_t l, uint32_t g)
{
	const uint32_t first = first_row(x, g);
	const size_t row = rows->width * kv_dtype_size(rows->dtype);
	struct cluster_input in = { .keys = keys, .rows = GROWTH_ROWS, .width = rows->width,
	    .dtype = rows->dtype, .clusters = GROWTH_CLUSTERS, .iterations = ITERATIONS,
	    .seed = cluster_seed(0, l, g, first), .products = products_make, .with = products };
	int code;

	x->ops->get(x->dev, keys, (const char *)rows->k + (rows->start[g] + first) * row,
	    GROWTH_ROWS * row);
	device_check(&products->d);
	code = cluster_keys(&in, w->label[g], w->mean[g], &w->clusters[g]);
	if (code == CLUSTER_EKEY)
		die(EXIT_RUN, "layer %u head %u row %u: the key is not finite", l, g,
		    first + w->clusters[g]);
	if (code != CLUSTER_OK)
		die(EXIT_RUN, "out of memory");
	w->rows[g] = GROWTH_ROWS;
}

static void
window_start(struct window *w, const struct layer_rows *rows)
{
	const size_t mean = GROWTH_CLUSTERS * rows->width * kv_dtype_size(rows->dtype);
	uint32_t g;

	w->clusters = must_alloc(rows->heads, sizeof *w->clusters);
	w->rows = must_alloc(rows->heads, sizeof *w->rows);
	w->mean = must_alloc(rows->heads, sizeof *w->mean);
	w->label = must_alloc(rows->heads, sizeof *w->label);
	for (g = 0; g < rows->heads; g++) {
		w->mean[g] = must_alloc(mean, 1);
		w->label[g] = must_alloc(GROWTH_ROWS, sizeof **w->label);
	}
}

static void
window_end(struct window *w, uint32_t heads)
{
	uint32_t g;

	for (g = 0; g < heads; g++) {
		free(w->mean[g]);
		free(w->label[g]);
	}
	free(w->clusters);
	free(w->rows);
	free(w->mean);
	free(w->label);
}

/* Clusters one window of each KV head that has a whole one. Returns 0 when none has. */
static int
take_windows(struct layer_index *x, const struct layer_rows *rows, uint32_t l)
{
	struct products products = { .d = { x->ops, x->dev }, .width = rows->width,
	    .dtype = rows->dtype };
	struct window w;
	void *keys;
	uint32_t g;

	for (g = 0; g < rows->heads && !is_whole(x, rows, g); g++)
		;
	if (g == rows->heads)
		return 0;
	window_start(&w, rows);
	keys = must_alloc(GROWTH_ROWS, rows->width * kv_dtype_size(rows->dtype));
	for (; g < rows->heads; g++)
		if (is_whole(x, rows, g))
			take_head(&w, &products, keys, x, rows, l, g);
	if (index_add_clusters(x, w.clusters, (const void *const *)w.mean, w.rows,
	    (const uint32_t *const *)w.label) != 0)
		die(EXIT_RUN, "out of memory");
	free(keys);
	window_end(&w, rows->heads);
	products_release(&products);
	return 1;
}

void
growth_take(struct cache *c)
{
	uint32_t l;

	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		while (index_has(&c->index[l], KV_CLUS) &&
		    take_windows(&c->index[l], &c->layer[l], l))
			;
}
