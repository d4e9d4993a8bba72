/* info_index.h - what kv-info says of the indexes of a snapshot: which, of what size, how big */
#ifndef KVPIPE_INFO_INDEX_H
#define KVPIPE_INFO_INDEX_H

#include <jansson.h>

#include "engine/snapshot_info.h"

/* A line for each kind that is in one of the layers, after a name in so many columns. */
void index_print(const struct index_info *layer, uint32_t layers, int columns);

/* An object with those of one layer, documented in kv-info(1). */
json_t *index_json(const struct index_info *info);

#endif
