/* memory_plan.h - computes, before the work begins, whether it fits into the memory of the device
 *
 * Without this, work that does not fit fails later, after the weights were read, with a message
 * about one allocation. If free memory is unknown (ops.mem_info: the CPU without a limit of the
 * process), nothing is refused. */
#ifndef KVPIPE_MEMORY_PLAN_H
#define KVPIPE_MEMORY_PLAN_H

#include "engine/engine_error.h"
#include "model/model.h"

struct retrieval_head;

/* The least that the work needs on the device, as far as it is known before it begins */
struct memory_demand {
	uint64_t tokens;                /* tokens of the cache; for the message */
	uint64_t rows;                  /* of all KV heads of all layers together */
	const struct kv_head *stored;   /* dtype and row types */
	int mass;                       /* cache_want_mass() */
	uint32_t query_stats;           /* of so many texts */
	uint32_t at_once;               /* rows of the workspace */
	uint64_t stream;                /* tokens in a residual stream, layer_by_layer.h */
	uint64_t adapter;               /* bytes of an adapter */
	uint64_t gate;                  /* bytes of a gate */
	const struct retrieval_head *head;      /* NULL: none */
	uint32_t logits;                /* rows of logits at once, without the last row's */
	uint64_t lists;                 /* bytes of retrieval's lists, retrieval_demand() */
};

/* Bytes on the device. */
struct memory_plan {
	uint64_t tokens;                /* of the demand */
	uint64_t weights;               /* with adapter, retrieval head and gate */
	uint64_t adapter;               /* of weights, those of the adapter */
	uint64_t cache;                 /* with the keys of the retrieval head */
	/* workspace, residual stream, logits, features, lists of retrieval */
	uint64_t activations;
	uint64_t lists;                 /* of activations, those of retrieval */
	uint64_t scratch;               /* memory that ops allocate for themselves */
};

struct memory_plan memory_plan(const struct model *, const struct memory_demand *);

/* Fails with ENGINE_ENOROOM, and the sum, unless the whole plan fits into free memory. Call it
 * before the weights are copied to the device of the model. */
int memory_plan_check(const struct memory_plan *, const struct model *, struct engine_error *);
/* Fails with ENGINE_ENOROOM unless activations and scratch fit into free memory, when weights, the
 * rows of `snapshot`, room for later rows, and lists of retrieval have been allocated. */
int memory_plan_check_rest(const struct memory_plan *, const struct model *, const char *snapshot,
    struct engine_error *);
/* Fails with ENGINE_ENOROOM: `what` ("the rows of a.kv") does not fit in addition to the weights;
 * says how much is free. */
int memory_plan_no_room(const struct model *, const char *what, struct engine_error *);

#endif
