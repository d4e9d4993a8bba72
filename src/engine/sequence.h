/* sequence.h - a snapshot that is to be decoded: its rows on a device, and what the method
 * looks at */
#ifndef KVPIPE_SEQUENCE_H
#define KVPIPE_SEQUENCE_H

#include "cache/cache.h"
#include "cache/observation.h"
#include "engine/evict_cache.h"
#include "engine/memory_plan.h"
#include "engine/offload_layers.h"

/* What is wanted of each sequence */
struct sequence_options {
	uint32_t spare;                 /* rows that there is to be room for */
	int answers;                    /* the first token comes from the logits in the snapshot */
	uint32_t observe;               /* the last queries, so many, are kept for who saves; 0: none */
	uint32_t window;                /* queries that the evictor's method looks at; 0: none */
	int mass;                       /* attention mass goes on, and is there from the start */
	unsigned indexes;               /* 1 << enum kv_kind of those that are kept */
	const struct retrieval_options *retrieve;       /* NULL: tokens attend to all rows */
	const struct retrieval_head *head;      /* that retrieval goes by; NULL: none */
	/* with retrieve->offload: bytes that say how many layers stay in the file of the snapshot;
	 * 0: all that retrieve */
	uint64_t device_memory;
	uint32_t requests;              /* texts at once, for that */
	const struct file_mapper *mapper;       /* for rows in the file; NULL: they are read by calls */
	struct cache_evictor *evict;    /* NULL: no row goes */
	struct notice_hook notice;      /* of a window that is smaller than the method's */
};

struct sequence {
	struct cache *cache;
	struct observation obs;         /* window 0: none */
	struct retrieval *retrieval;    /* NULL: none */
	struct head_keys *head;         /* NULL: none */
	struct offload_store *store;        /* both NULL: all rows are on the device */
	struct offload *offload;
	struct offload_plan plan;       /* limit 0: no layer goes while the text grows */
	const struct model *model;
};

/* Fills s from a reader that has just been opened, to its end; the identity of the model is the
 * caller's. plan (NULL: all else is there already): activations and scratch of it have to fit
 * beside the rows. After a failure there is nothing to free. */
int sequence_open(struct sequence *s, const struct model *, const struct sequence_options *,
    struct kv_reader *, const struct memory_plan *plan, struct engine_error *);
/* For struct decode: how layers go to the host as the text grows; NULL: none does. */
const struct offload_plan *sequence_plan(const struct sequence *);
void sequence_close(struct sequence *);                 /* all zero is allowed */

#endif
