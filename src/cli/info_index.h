/* info_index.h - the indexes of a snapshot in kv-info's output: kind, parameters, bytes */
#ifndef KVPIPE_INFO_INDEX_H
#define KVPIPE_INFO_INDEX_H

#include <jansson.h>

#include "engine/snapshot_info.h"

/* Prints a line for each kind found in any layer, after a name of this width. */
void index_print(const struct index_info *layer, uint32_t layers, int columns);

/* Returns an object with the indexes of one layer; kv-info(1) explains its keys. */
json_t *index_json(const struct index_info *info);

#endif
