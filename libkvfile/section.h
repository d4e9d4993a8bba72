/* section.h - preamble, section headers and block tables: bytes to structures and back (3.1 to
 * 3.3)
 *
 * Internal to libkvfile. Knows the form of a header, not the order of sections (order.h) nor
 * their content (content.h). Checks all hashes but those of the blocks. */
#ifndef KVFILE_SECTION_H
#define KVFILE_SECTION_H

#include "error.h"

#pragma GCC visibility push(hidden)

#define KV_PREAMBLE 64
#define KV_HEADER 64
#define KV_ENTRY 24
#define KV_BLOCK ((size_t)1 << 20)      /* content of a block, except the last one */
#define KV_ALIGN 4096                   /* of large payloads, 3.4 */
#define KV_ALIGNED_FROM 65536           /* content of a large section, whose payload is aligned */

enum kv_codec { CODEC_PLAIN = 0, CODEC_LZ4 = 1, CODEC_PLANES = 2 };

struct kv_header {
	char type[5];
	enum kv_kind kind;
	uint32_t layer;
	unsigned element_size;
	uint64_t raw_size;
	uint64_t stored_size;
	uint64_t table_hash;
	uint64_t hash;                  /* of the 56 bytes before it */
};

struct kv_entry {
	uint32_t stored;                /* bytes of the block in the file */
	unsigned codec;
	uint64_t raw_hash;
	uint64_t stored_hash;
};

/* XXH3-64. data may be NULL when n is 0. */
uint64_t kv_hash(const void *data, size_t n);

/* Returns whether a equals b; always true in a fuzzing build, where mutations would not pass
 * the first hash. */
int kv_same_hash(uint64_t a, uint64_t b);

/* Returns whether index and digests cover sections of this kind: all but iNDX, ENDS and pADD. */
int kv_is_covered(enum kv_kind kind);

/* Upper case first letter. */
static inline int
kv_is_critical(const char *type)
{
	return (type[0] & 0x20) == 0;
}

/* Return the number of blocks, and the bytes of the table with and without its zero fill. */
uint64_t kv_blocks(uint64_t raw_size);
uint64_t kv_table_size(uint64_t raw_size);      /* 24 * blocks */

/* Returns the bytes of content in block i. */
size_t kv_block_size(uint64_t raw_size, uint64_t i);

/* Bits of the preamble's features, 3.1 */
#define KV_FEATURE_ROW_TYPES 1
#define KV_FEATURE_LATENT 2             /* values are channels of keys, 4.26 */
/* those that this version knows */
#define KV_FEATURES (KV_FEATURE_ROW_TYPES | KV_FEATURE_LATENT)

void kv_preamble_put(uint8_t p[KV_PREAMBLE], uint64_t features);
int kv_preamble_get(const uint8_t p[KV_PREAMBLE], uint64_t *features, struct kv_message *why);

/* kv_header_put() computes h->hash. kv_header_get() sets h->type to "" until the hash is
 * checked. */
void kv_header_put(uint8_t p[KV_HEADER], struct kv_header *h);
int kv_header_get(const uint8_t p[KV_HEADER], struct kv_header *h, struct kv_message *why);

void kv_entry_put(uint8_t p[KV_ENTRY], const struct kv_entry *e);
void kv_entry_get(const uint8_t p[KV_ENTRY], struct kv_entry *e);

/* Returns the hash of KEYS that an index contains: XXH3-64 of the raw hashes in this table of
 * so many blocks. */
uint64_t kv_keys_hash(const uint8_t *table, uint64_t blocks);

/* Checks hash, entries and their sum; table has kv_table_size(h->raw_size) bytes. */
int kv_table_check(const struct kv_header *h, const uint8_t *table, struct kv_message *why);

#pragma GCC visibility pop
#endif
