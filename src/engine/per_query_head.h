/* per_query_head.h - a snapshot with rows of its own for each query head
 *
 * SnapKV, H2O and PyramidKV repeat keys and values for every query head before they choose rows, so
 * that each query head keeps its own. A snapshot of that layout has as many KV heads as query
 * heads; those of one KV head begin with the same rows. */
#ifndef KVPIPE_PER_QUERY_HEAD_H
#define KVPIPE_PER_QUERY_HEAD_H

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "libkvfile/kvfile.h"

struct per_query_head {
	struct step_hook step;          /* is told how many layers are written; call NULL = none */
	struct notice_hook notice;      /* is told which unknown sections are dropped */
	/* result: kinds of the sections that were left out: 1 << enum kv_kind each */
	unsigned left;
};

/* Returns the head of the output. */
struct kv_head per_query_head_of(const struct kv_head *);

/* Reads r to its end and writes all but HEAD, which the writer has written, and provenance, which
 * it can inherit. Left out: scores and non-causal attention, which are means over query heads, and
 * indexes. The event log has the KV heads of the output in all its events. Returns an ENGINE_*
 * code. */
int per_query_head(struct per_query_head *, struct kv_reader *, struct kv_writer *,
    struct engine_error *);

#endif
