/* offload_plan.h - layers that go to the host as a text grows (methods/offload_thresholds.h)
 *
 * SpeContext (Xu et al. 2025), Algorithm 2: before a token runs, as many of the last layers are
 * offloaded as its length asks for. Those that read all rows never go. */
#ifndef KVPIPE_OFFLOAD_PLAN_H
#define KVPIPE_OFFLOAD_PLAN_H

#include "engine/engine_error.h"
#include "forward/sequence.h"
#include "methods/offload_thresholds.h"

/* The sums for a model, so many texts at once, steps that read `budget` rows, and rows of this
 * type. head may be NULL. */
struct offload_plan offload_plan_of(const struct model *, const struct retrieval_head *head,
    uint64_t limit, uint32_t requests, uint32_t budget, enum kv_dtype);

/* *from <- the first offloaded layer while the token behind `tokens` others runs, at least `least`.
 * ENGINE_ENOROOM: the text does not fit. */
int offload_first_layer(const struct offload_plan *, uint32_t least, uint64_t tokens,
    uint32_t *from, struct engine_error *);

/* Before a token of a text that retrieves runs: offloads the layers that the plan (NULL: none)
 * offloads at this length, but for those that read all rows. */
int offload_grow(struct sequence *, const struct offload_plan *, struct engine_error *);

#endif
