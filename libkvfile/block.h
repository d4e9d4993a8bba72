/* block.h - codecs of one block: LZ4, and byte planes before it (3.3)
 *
 * Internal to libkvfile. */
#ifndef KVFILE_BLOCK_H
#define KVFILE_BLOCK_H

#include "section.h"

#pragma GCC visibility push(hidden)

/* dst[size] <- the block stored as src[stored] with codec. scratch: size bytes. Returns 0, or
 * -1 when src is no such block. */
int kv_block_decode(uint8_t *dst, size_t size, const uint8_t *src, size_t stored, unsigned codec,
    unsigned element, uint8_t *scratch);

/* dst[size] <- src[size], smaller. Sets *codec and returns the stored size; 0 when it does not
 * save 1/64 and the block has to stay as it is. scratch: size bytes. */
size_t kv_block_encode(uint8_t *dst, const uint8_t *src, size_t size, unsigned element,
    unsigned *codec, uint8_t *scratch);

#pragma GCC visibility pop
#endif
