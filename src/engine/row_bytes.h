/* row_bytes.h - how many bytes the rows of each layer of a snapshot have */
#ifndef KVPIPE_ROW_BYTES_H
#define KVPIPE_ROW_BYTES_H

#include "libkvfile/kvfile.h"

/* Returns [layers] bytes of a key and a value of one KV head, as struct offload_plan has them;
 * free() it. NULL: no memory. */
uint32_t *row_bytes_of_layers(const struct kv_head *);

#endif
