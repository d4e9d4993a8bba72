/* tsp_search.h - the search for the layer of token-selective propagation */
#ifndef KVPIPE_TSP_SEARCH_H
#define KVPIPE_TSP_SEARCH_H

#include "engine/token_select.h"

struct tsp_search {
	struct tsp tsp;
	uint32_t max_layer;     /* the last layer to try; TSP_HALF = half of the layers */
	double tolerance;       /* the earliest layer within 1 + so many times the least distance */
	struct step_hook step;  /* told how many passes of a prompt through a layer are done */
};

#define TSP_HALF UINT32_MAX

struct prompt {
	const uint32_t *ids;
	size_t n;
};

/* How far TSP at a layer takes a prompt away from what it is without: squared L2 distance of the
 * final states, the mean over the prompts. */
struct tsp_distance {
	double last;            /* of the last token */
	double surviving;       /* the mean over the tokens that go on */
};

/* The last layer that is tried. */
uint32_t tsp_search_max(const struct tsp_search *, const struct model *m);
/* ENGINE_EOPTION unless it suits the model and a prompt of n tokens. */
int tsp_search_fit(const struct tsp_search *, const struct model *m, size_t n,
    struct engine_error *);
/* d->rows, d->stream <- what a prompt of n tokens takes at least: one layer at a time has rows. */
void tsp_search_demand(const struct model *m, size_t n, struct memory_demand *d);
/* What `step` counts to. */
uint64_t tsp_search_total(const struct tsp_search *, const struct model *m, size_t prompts);

/* distance[0 .. tsp_search_max()] <- that of TSP at each layer, *chosen <- the layer to choose.
 * Keys and values are of the type given. */
int tsp_search_run(const struct tsp_search *, const struct model *m, struct workspace *ws,
    enum kv_dtype dtype, const struct prompt *prompts, size_t n, struct tsp_distance *distance,
    uint32_t *chosen, struct engine_error *);

#endif
