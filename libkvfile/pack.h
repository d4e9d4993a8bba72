/* pack.h - a section while it is stored: its table, and the blocks that were compressed
 *
 * Internal to libkvfile. A section's table precedes its blocks, so a compressed section is
 * assembled here before its first byte is written. Uncompressed blocks are not kept: the caller
 * has them. */
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

/* Adds the next block of content. It is kept if compress is set and saves something. This and
 * kv_pack_stored() return 0 or -1 for lack of memory; raw_size is that of the whole section. */
int kv_pack_content(struct kv_pack *p, const uint8_t *data, size_t size, int compress,
    uint64_t raw_size);

/* Adds a block as another snapshot stores it, and keeps it in any case; compresses it if it is
 * not compressed. */
int kv_pack_stored(struct kv_pack *p, const struct kv_entry *e, const uint8_t *stored,
    uint64_t raw_size);

/* Frees the kept blocks; the pack can be started again. */
void kv_pack_drop(struct kv_pack *p);
void kv_pack_free(struct kv_pack *p);

#pragma GCC visibility pop
#endif
