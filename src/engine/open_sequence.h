/* open_sequence.h - a text that is to go on: its snapshot loaded onto a device, and checked for
 * what a program wants of it */
#ifndef KVPIPE_OPEN_SEQUENCE_H
#define KVPIPE_OPEN_SEQUENCE_H

#include "cache/observation.h"
#include "engine/evict_cache.h"
#include "engine/memory_plan.h"
#include "engine/offload_plan.h"
#include "forward/sequence_sections.h"

/* What a program wants of a sequence; all zero: rows and logits only */
struct sequence_options {
	enum kv_dtype dtype;            /* of keys and values, where there is no snapshot */
	uint32_t spare;                 /* rows of each KV head to reserve room for */
	int answers;                    /* the first token comes from the logits in the snapshot */
	uint32_t observe;               /* how many of the last queries to keep; 0: none */
	uint32_t window;                /* queries that the evictor's method looks at; 0: none */
	int queries_on_device;          /* keep queries on the device, where that runs ahead */
	int mass;                       /* attention mass, which all rows must have */
	unsigned indexes;               /* 1 << enum kv_kind of those to keep */
	const struct retrieval_options *retrieve;       /* NULL: tokens attend to all rows */
	const struct retrieval_head *head;      /* sees the tokens; NULL: none */
	/* with retrieve->offload: offload as many layers as needed to stay within so many bytes; 0:
	 * all that retrieve */
	uint64_t device_memory;
	uint32_t requests;              /* texts at once, for that */
	const struct file_mapper *mapper;       /* maps rows in the file; NULL: calls read them */
	struct cache_evictor *evict;    /* must suit the model and the log; NULL: none */
	const struct section_hook *section;     /* sees each section; NULL: none */
	/* is told of a window that is smaller than the method's, and of a head that was compared by
	 * samples */
	struct notice_hook notice;
};

struct open_sequence {
	struct sequence sequence;
	struct observation obs;         /* window 0: none */
	struct offload_plan plan;       /* limit 0: no layer is offloaded as the text grows */
	const struct model *model;
};

/* Fills s from a reader that has just been opened, to its end (NULL: an empty text); the identity
 * of the model is the caller's. plan (NULL: all else is there already): activations and scratch of
 * it have to fit beside the rows of a snapshot. Returns an ENGINE_* code; after a failure there is
 * nothing to free. */
int open_sequence(struct open_sequence *s, const struct model *, const struct sequence_options *,
    struct kv_reader *, const struct memory_plan *plan, struct engine_error *);
void close_sequence(struct open_sequence *);            /* all zero is allowed */

/* For struct decode: how layers are offloaded as the text grows; NULL: none is. */
const struct offload_plan *sequence_plan(const struct open_sequence *);
/* "in the file", "in host memory", ...: where offloaded rows are; NULL: no layer is offloaded */
const char *sequence_offloaded_to(const struct open_sequence *);

#endif
