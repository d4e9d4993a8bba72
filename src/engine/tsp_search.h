/* tsp_search.h - searches for the best layer of token-selective propagation */
#ifndef KVPIPE_TSP_SEARCH_H
#define KVPIPE_TSP_SEARCH_H

#include "engine/token_select.h"

struct tsp_search {
	struct tsp tsp;
	uint32_t max_layer;     /* the last layer to try; TSP_HALF = half of the layers */
	/* chooses the first layer within (1 + tolerance) times the least distance */
	double tolerance;
	struct step_hook step;  /* is told how many passes of a prompt through a layer are done */
};

#define TSP_HALF UINT32_MAX

struct prompt {
	const uint32_t *ids;
	size_t n;
};

/* The error of TSP at a layer: squared L2 distance between the final states with and without TSP,
 * the mean over the prompts */
struct tsp_distance {
	double last;            /* distance of the last token */
	double surviving;       /* mean over the tokens that go on */
	int tried;              /* 0: its sliding window is shorter than the longest prompt */
};

/* Returns the last layer to try. */
uint32_t tsp_search_max(const struct tsp_search *, const struct model *m);
/* Fails with ENGINE_EOPTION unless the search suits the model and a prompt of n tokens. */
int tsp_search_fit(const struct tsp_search *, const struct model *m, size_t n,
    struct engine_error *);
/* d->rows, d->stream <- the least that a prompt of n tokens needs: one layer at a time has rows. */
void tsp_search_demand(const struct model *m, size_t n, struct memory_demand *d);
/* Returns the total that `step` counts to. longest: tokens of the longest prompt */
uint64_t tsp_search_total(const struct tsp_search *, const struct model *m, size_t prompts,
    size_t longest);

/* distance[0 .. tsp_search_max()] <- the errors of TSP at each layer, *chosen <- the best layer.
 * dtype: of keys and values. */
int tsp_search_run(const struct tsp_search *, const struct model *m, struct workspace *ws,
    enum kv_dtype dtype, const struct prompt *prompts, size_t n, struct tsp_distance *distance,
    uint32_t *chosen, struct engine_error *);

#endif
