/* grouped_check.h - what does not go with rows of KIVI's types, which are not stored each by itself
 * (kv-snapshot(5), 4.21) */
#ifndef KVPIPE_GROUPED_CHECK_H
#define KVPIPE_GROUPED_CHECK_H

#include "engine/open_sequence.h"

/* Fails with ENGINE_EUNSUPPORTED, and the way to go on, if rows of these types are to be read by a
 * device, or in a way, that cannot. name: of the snapshot. */
int grouped_check(const struct model *, const struct kv_head *stored,
    const struct sequence_options *, const char *name, struct engine_error *);

#endif
