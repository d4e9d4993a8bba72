/* offload_plan.h - offloads more layers as a text grows (methods/offload_thresholds.h)
 *
 * SpeContext (Xu et al. 2025), Algorithm 2: before a token runs, as many of the last layers are
 * offloaded as the length of the text requires. Layers that attend to all rows are never
 * offloaded. */
#ifndef KVPIPE_OFFLOAD_PLAN_H
#define KVPIPE_OFFLOAD_PLAN_H

#include "engine/engine_error.h"
#include "forward/sequence.h"
#include "methods/offload_thresholds.h"

/* Returns the plan for a model, `requests` texts at once, steps that read `budget` rows, and rows
 * of this type, or of row_bytes (row_bytes.h), which the plan points to. head may be
 * NULL. */
struct offload_plan offload_plan_of(const struct model *, const struct retrieval_head *head,
    uint64_t limit, uint32_t requests, uint32_t budget, enum kv_dtype, const uint32_t *row_bytes);

/* *from <- the first offloaded layer, at least `least`, while a token after `tokens` others runs.
 * ENGINE_ENOROOM: the text does not fit. */
int offload_first_layer(const struct offload_plan *, uint32_t least, uint64_t tokens,
    uint32_t *from, struct engine_error *);

/* Offloads the layers that the plan (NULL: none) offloads at the current length, except those that
 * attend to all rows. Call it before each token of a text that retrieves. */
int offload_grow(struct sequence *, const struct offload_plan *, struct engine_error *);

#endif
