/* evict_snapshot.h - a snapshot is written again without the rows that an evictor drops
 *
 * One layer is in memory at a time. Where the front of the output depends on what stands behind in
 * the input, the input is read before the reading that writes: by evict_snapshot_look() for a
 * policy that compares all layers, by evict_snapshot_renumber() for new positions. Each of them
 * reads it from the start; keys and values are skipped. */
#ifndef KVPIPE_EVICT_SNAPSHOT_H
#define KVPIPE_EVICT_SNAPSHOT_H

#include "engine/evictor.h"
#include "engine/reposition.h"
#include "forward/forward.h"

struct snapshot_evictor {
	/* the caller's */
	struct evictor *evictor;
	int keep_queries;               /* observation queries stay; else they are left out */
	struct step_hook step;          /* told how many layers are written; call NULL = none */
	struct notice_hook notice;      /* told which sections are dropped that are not known */

	/* results */
	uint64_t rows_before, rows_after;       /* of all KV heads of all layers */
	/* Kinds of the indexes that went with the keys of their layer: 1 << enum kv_kind each */
	unsigned indexes_dropped;

	/* the rest is evict_snapshot.c's */
	struct reposition reposition;   /* freq NULL: rows keep their positions */
	uint64_t tokens;                /* token ids seen */
	uint32_t *before, *after;       /* [L][G] rows, for the event log */
	struct evicted_layer *layer;    /* the one at hand */
};

/* What it holds, not the evictor; all zero is allowed. */
void evict_snapshot_free(struct snapshot_evictor *);

/* Shows all layers to the evictor: to be called where evictor_looks_ahead(). Returns an ENGINE_*
 * code, as do the next two. */
int evict_snapshot_look(struct snapshot_evictor *, struct kv_reader *, struct engine_error *);
/* From now on the rows that stay get new positions without gaps (reposition.h). The next position
 * of the output is then reposition.next. After evict_snapshot_look(). */
int evict_snapshot_renumber(struct snapshot_evictor *, struct kv_reader *, struct engine_error *);

/* Reads r to its end and writes all but HEAD, which the writer has, and provenance, which it can
 * inherit. ENGINE_ERUN when a layer has no scores and needs them; else codes as of
 * evictor_choose(). */
int evict_snapshot(struct snapshot_evictor *, struct kv_reader *, struct kv_writer *,
    struct engine_error *);

#endif
