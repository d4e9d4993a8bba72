/* index_info.h - what kv-info says of the indexes of a snapshot: which, of what size, how big */
#ifndef KVPIPE_INDEX_INFO_H
#define KVPIPE_INDEX_INFO_H

#include <jansson.h>

#include "libkvfile/codec.h"

/* Those of one layer. All zero: none. */
struct index_info {
	uint64_t bytes[KV_UNKNOWN];     /* of each kind; 0: it is not there */
	uint32_t group;                 /* rows of an entry of bits */
	uint32_t page;
	uint32_t sink, least, most;     /* sink rows; clusters of a KV head */
	uint32_t rank, rows, chunk, exact;      /* rows, and chunks of them */
};

/* To be called for each index, with its section and its content. */
void index_see(struct index_info *info, const struct kv_section *sec, const struct kv_index *index,
    uint32_t kv_heads);

/* A line for each kind that is in one of the layers, after a name in so many columns. */
void index_print(const struct index_info *layer, uint32_t layers, int columns);

/* An object with those of one layer, documented in kv-info(1). */
json_t *index_json(const struct index_info *info);

#endif
