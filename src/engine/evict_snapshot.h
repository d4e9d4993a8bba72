/* evict_snapshot.h - copies a snapshot without the rows that an evictor drops
 *
 * One layer is in memory at a time. If the beginning of the output depends on later parts of the
 * input, the input is read before: by evict_snapshot_look() for a policy that compares all layers,
 * by evict_snapshot_renumber() for new positions. Each of these reads it from the start, and skips
 * keys and values. */
#ifndef KVPIPE_EVICT_SNAPSHOT_H
#define KVPIPE_EVICT_SNAPSHOT_H

#include "engine/evictor.h"
#include "engine/reposition.h"
#include "forward/forward.h"

struct snapshot_evictor {
	/* the caller's */
	struct evictor *evictor;
	int keep_queries;               /* 1: observation queries are copied; 0: left out */
	struct step_hook step;          /* is told how many layers are written; call NULL = none */
	struct notice_hook notice;      /* is told which unknown sections are dropped */

	/* results */
	uint64_t rows_before, rows_after;       /* of all KV heads of all layers */
	uint64_t bytes_before, bytes_after;     /* of their keys and values */
	/* kinds of the indexes that were dropped because keys of their layer were: 1 << enum
	 * kv_kind each */
	unsigned indexes_dropped;

	/* the rest belongs to evict_snapshot.c */
	struct reposition reposition;   /* freq NULL: rows keep their positions */
	uint64_t tokens;                /* token ids seen */
	uint32_t *before, *after;       /* [L][G] numbers of rows, for the event log */
	struct evicted_layer *layer;    /* the current one */
};

/* Frees its members, but not the evictor; all zero is allowed. */
void evict_snapshot_free(struct snapshot_evictor *);

/* Shows all layers to the evictor; call it if evictor_looks_ahead(). Returns an ENGINE_* code, as
 * do the next two. */
int evict_snapshot_look(struct snapshot_evictor *, struct kv_reader *, struct engine_error *);
/* Has evict_snapshot() give the kept rows new positions without gaps (reposition.h);
 * reposition.next <- the next position of the output. Call it after evict_snapshot_look(). */
int evict_snapshot_renumber(struct snapshot_evictor *, struct kv_reader *, struct engine_error *);

/* Reads r to its end and writes all but HEAD, which the writer has written, and provenance, which
 * it can inherit. ENGINE_ERUN when a layer has no scores but needs them; else codes as of
 * evictor_choose(). */
int evict_snapshot(struct snapshot_evictor *, struct kv_reader *, struct kv_writer *,
    struct engine_error *);

#endif
