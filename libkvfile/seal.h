/* seal.h - the values at the end of a snapshot that cover all of it: digests, index, count (4.9,
 * 4.10)
 *
 * Internal to libkvfile. The reader collects them to compare, the writer to write. */
#ifndef KVFILE_SEAL_H
#define KVFILE_SEAL_H

#include "buffer.h"
#include "section.h"

#pragma GCC visibility push(hidden)

#define KV_INDEXED 32           /* bytes of iNDX for each section */

struct kv_seal {
	void *stream, *logical; /* states of XXH3-128 */
	struct kv_buffer index;
	uint64_t sections;      /* without pADD, iNDX, ENDS */
};

struct kv_end {
	uint64_t size;          /* of the snapshot */
	uint64_t index;         /* offset of the header of iNDX, 0 = none */
	uint32_t sections;
	uint8_t stream[16], logical[16];
};

/* Both return 0 or -1 for lack of memory. table: of the section, offset: of its header. */
int kv_seal_start(struct kv_seal *s);
int kv_seal_add(struct kv_seal *s, const struct kv_header *h, const uint8_t *table,
    uint64_t offset);

/* *end <- the digests and the count so far; size and index stay. */
void kv_seal_end(const struct kv_seal *s, struct kv_end *end);
void kv_seal_free(struct kv_seal *s);

void kv_end_put(uint8_t p[64], const struct kv_end *end);

/* Returns KV_ECORRUPT if p differs from end. */
int kv_end_check(const uint8_t p[64], const struct kv_end *end, struct kv_message *why);

/* Returns the first of the indexed sections whose entry in p[size] differs from s; s->sections
 * if none does. */
uint64_t kv_index_compare(const struct kv_seal *s, const uint8_t *p, uint64_t size);

#pragma GCC visibility pop
#endif
