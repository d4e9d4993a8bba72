/* index_internal.h - what index.c and index_sections.c share */
#ifndef KVPIPE_INDEX_INTERNAL_H
#define KVPIPE_INDEX_INTERNAL_H

#include "cache/index.h"

/* Gives each of the G lists a capacity of want[g] elements of `bytes` bytes; *data NULL: there were
 * no lists. Returns 0, or KV_ENOMEM. */
int index_lists(struct layer_index *, void **data, size_t bytes, uint64_t *start,
    const uint32_t *len, uint32_t *capacity, const uint32_t *want);

#endif
