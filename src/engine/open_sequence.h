/* open_sequence.h - loads a snapshot onto a device, to continue its text, and checks that it has
 * what a program needs */
#ifndef KVPIPE_OPEN_SEQUENCE_H
#define KVPIPE_OPEN_SEQUENCE_H

#include "cache/observation.h"
#include "engine/evict_cache.h"
#include "engine/memory_plan.h"
#include "engine/offload_plan.h"
#include "forward/sequence_sections.h"

/* The parts of a sequence that a program needs; all zero: rows and logits only */
struct sequence_options {
	/* how rows are stored, where there is no snapshot: its dtype and row types */
	const struct kv_head *stored;
	uint32_t spare;                 /* rows of each KV head to reserve room for */
	/* 1: the first token is chosen by the logits in the snapshot */
	int answers;
	uint32_t observe;               /* how many of the last queries to keep; 0: none */
	uint32_t window;                /* queries that the evictor's method reads; 0: none */
	int queries_on_device;          /* keep queries on the device, if its ops run ahead */
	int mass;                       /* 1: attention mass, which all rows must have */
	int query_stats;                /* 1: query statistics, of all queries of the text */
	const struct gate *gate;        /* scores all rows; NULL: none */
	int noncausal;                  /* 1: non-causal attention of rows from this one on */
	uint32_t noncausal_first;
	unsigned indexes;               /* 1 << enum kv_kind of those to keep */
	const struct retrieval_options *retrieve;       /* NULL: tokens attend to all rows */
	const struct retrieval_head *head;      /* sees the tokens; NULL: none */
	/* with retrieve->offload: offload as many layers as needed to stay within this many bytes;
	 * 0: all that retrieve */
	uint64_t device_memory;
	uint32_t requests;              /* texts at once, for device_memory */
	int stream;                     /* 1: offloads all layers; each step reads them whole */
	/* maps the file of offloaded rows; NULL: they are read by calls */
	const struct file_mapper *mapper;
	struct cache_evictor *evict;    /* is checked against the model and the log; NULL: none */
	const struct section_hook *section;     /* sees each section; NULL: none */
	/* is told of a window smaller than the method's, and of a head that was compared by
	 * samples */
	struct notice_hook notice;
};

struct open_sequence {
	struct sequence sequence;
	struct observation obs;         /* window 0: none */
	struct offload_plan plan;       /* limit 0: no layer is offloaded as the text grows */
	uint32_t *row_bytes;            /* of the plan; NULL: none */
	const struct model *model;
};

/* Fills s from a reader that has just been opened, to its end (NULL: an empty text). The caller
 * checks the identity of the model. plan (NULL: no check): its activations and scratch must fit in
 * addition to the rows of the snapshot. Returns an ENGINE_* code; after a failure there is nothing
 * to free. */
int open_sequence(struct open_sequence *s, const struct model *, const struct sequence_options *,
    struct kv_reader *, const struct memory_plan *plan, struct engine_error *);
void close_sequence(struct open_sequence *);            /* all zero is allowed */

/* Returns the plan for struct decode; NULL: no layer is offloaded as the text grows. */
const struct offload_plan *sequence_plan(const struct open_sequence *);
/* Returns where offloaded rows are, "in the file", "in host memory", ...; NULL: no layer is
 * offloaded */
const char *sequence_offloaded_to(const struct open_sequence *);

#endif
