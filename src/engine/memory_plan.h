/* memory_plan.h - does the work fit into the memory of the device? The sums, before it begins
 *
 * What is refused here would fail later with a message about one allocation, after the weights were
 * read. A device that cannot tell how much is free (ops.mem_info: the CPU, where the process has no
 * limit) is never refused. */
#ifndef KVPIPE_MEMORY_PLAN_H
#define KVPIPE_MEMORY_PLAN_H

#include "engine/engine_error.h"
#include "model/model.h"

struct retrieval_head;

/* What the work will hold on the device, as far as it is known before it begins: the least. */
struct memory_demand {
	uint64_t tokens;                /* that the cache is for; for the message */
	uint64_t rows;                  /* of all KV heads of all layers together */
	enum kv_dtype dtype;            /* of keys and values */
	int mass;                       /* cache_want_mass() */
	uint32_t at_once;               /* rows of the workspace */
	uint64_t stream;                /* tokens of a residual stream, layer_by_layer.h */
	uint64_t adapter;               /* bytes of an adapter */
	const struct retrieval_head *head;      /* NULL: none */
	uint32_t logits;                /* rows of logits at once, besides the last one's */
};

/* Bytes on the device. */
struct memory_plan {
	uint64_t tokens;                /* of the demand */
	uint64_t weights;               /* with the adapter, and the retrieval head */
	uint64_t adapter;               /* these alone */
	uint64_t cache;                 /* with the keys of the retrieval head */
	uint64_t activations;           /* workspace, residual stream, logits, features */
	uint64_t scratch;               /* what ops hold for themselves */
};

struct memory_plan memory_plan(const struct model *, const struct memory_demand *);

/* Before the weights go to the device of the model: ENGINE_ENOROOM, with the sum, unless all of it
 * fits into what is free. */
int memory_plan_check(const struct memory_plan *, const struct model *, struct engine_error *);
/* Weights and the rows of `snapshot` are on the device, with room for those to come: ENGINE_ENOROOM
 * unless activations and scratch fit into the rest. */
int memory_plan_check_rest(const struct memory_plan *, const struct model *, const char *snapshot,
    struct engine_error *);
/* Fails with ENGINE_ENOROOM: `what` ("the rows of a.kv") did not fit beside the weights; says how
 * much is free. */
int memory_plan_no_room(const struct model *, const char *what, struct engine_error *);

#endif
