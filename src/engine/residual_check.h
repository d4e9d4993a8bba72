/* residual_check.h - what does not go with full rows behind quantised ones (kv-snapshot(5), 4.20,
 * 4.21) */
#ifndef KVPIPE_RESIDUAL_CHECK_H
#define KVPIPE_RESIDUAL_CHECK_H

#include "engine/open_sequence.h"

/* Fails with ENGINE_EUNSUPPORTED. why: what cannot be done with such rows, and how to go on: "no
 * single row can be dropped: evict before kv-quantize". */
int residual_refused(const struct kv_head *stored, const char *name, const char *why,
    struct engine_error *);
/* Fails with ENGINE_EUNSUPPORTED, and the way to go on, if such rows are to be read by a device,
 * or in a way, that cannot. name: of the snapshot. */
int residual_check(const struct model *, const struct kv_head *stored,
    const struct sequence_options *, const char *name, struct engine_error *);

#endif
