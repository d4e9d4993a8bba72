/* buffer.h - memory that grows as data arrive, aligned to 64 bytes
 *
 * Internal to libkvfile. A buffer is zero at the start ({0}) and keeps its memory until it is
 * freed. */
#ifndef KVFILE_BUFFER_H
#define KVFILE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct kv_buffer {
	uint8_t *data;          /* aligned to 64 bytes */
	size_t size;            /* bytes that may be used */
	size_t shift;           /* data - shift is what malloc() gave */
};

/* Makes room for need bytes and keeps the first `keep`. Grows by doubling, but not beyond
 * `most`, the size that a header claims, so that at most twice the bytes that have arrived are
 * allocated. Returns 0 or -1. */
int kv_buffer_need(struct kv_buffer *b, size_t need, size_t keep, uint64_t most);

void kv_buffer_free(struct kv_buffer *b);

#pragma GCC visibility pop
#endif
