/* fill.h - a cache as a long prompt leaves it, without the time that the prompt takes */
#ifndef KVPIPE_FILL_H
#define KVPIPE_FILL_H

#include "cache/cache.h"

/* So many rows of random keys and values, and room for more. Device memory must be a CPU's. NULL
 * without memory. */
struct cache *bench_fill(const struct model *, uint32_t rows, uint32_t more, enum kv_row_type);

#endif
