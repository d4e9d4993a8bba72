/* index_internal.h - what index.c and index_content.c share */
#ifndef KVPIPE_INDEX_INTERNAL_H
#define KVPIPE_INDEX_INTERNAL_H

#include "model/index.h"

/* Room for want[g] things of `bytes` bytes in each of the G lists; data NULL: there were none. */
int index_lists(struct layer_index *, void **data, size_t bytes, uint64_t *start,
    const uint32_t *len, uint32_t *room, const uint32_t *want);

#endif
