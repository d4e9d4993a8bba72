/* pack.h - a section being stored: its table, and those of its blocks that had to be made
 *
 * Internal to libkvfile. A section's table stands before its blocks, so a compressed section is
 * put together here before the first byte of it is written. Blocks that stay as they are are
 * not kept: their owner has them. */
#ifndef KVFILE_PACK_H
#define KVFILE_PACK_H

#include "block.h"
#include "buffer.h"

#pragma GCC visibility push(hidden)

struct kv_pack {
	unsigned element;
	struct kv_buffer table;         /* [blocks] entries */
	uint64_t blocks;
	uint64_t stored;                /* sum of the stored sizes */
	struct kv_buffer store;         /* the blocks that are kept, one after another */
	size_t kept;                    /* bytes in store */
	uint8_t *scratch;               /* two blocks: byte planes, compressed */
};

void kv_pack_start(struct kv_pack *p, unsigned element);

/* Adds the next block of content. It is kept when compress is set and saves something. Both
 * return 0 or -1 for lack of memory; raw_size is that of the whole section. */
int kv_pack_content(struct kv_pack *p, const uint8_t *data, size_t size, int compress,
    uint64_t raw_size);

/* Adds a block as another snapshot stores it, and keeps it in any case; compresses it if it is
 * not. */
int kv_pack_stored(struct kv_pack *p, const struct kv_entry *e, const uint8_t *stored,
    uint64_t raw_size);

/* Gives the kept blocks back; the pack can be started again. */
void kv_pack_drop(struct kv_pack *p);
void kv_pack_free(struct kv_pack *p);

#pragma GCC visibility pop
#endif
