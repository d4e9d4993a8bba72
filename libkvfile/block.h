/* block.h - codecs of one block: LZ4, and byte planes before it (3.3)
 *
 * Internal to libkvfile. */
#ifndef KVFILE_BLOCK_H
#define KVFILE_BLOCK_H

#include "section.h"

#pragma GCC visibility push(hidden)

/* dst[size] <- the block stored as src[stored] with codec. scratch: size bytes. Returns 0, or
 * -1 if src is not such a block. */
int kv_block_decode(uint8_t *dst, size_t size, const uint8_t *src, size_t stored, unsigned codec,
    unsigned element, uint8_t *scratch);

/* dst[] <- src[size] compressed. Sets *codec and returns the stored size; 0 if this saves less
 * than 1/64 and the block must be stored as it is. scratch: size bytes. */
size_t kv_block_encode(uint8_t *dst, const uint8_t *src, size_t size, unsigned element,
    unsigned *codec, uint8_t *scratch);

#pragma GCC visibility pop
#endif
