/* section.c - preamble, section headers and block tables: bytes to structures and back */

#include "section.h"
#include "bytes.h"

/* On processors other than x86-64 xxHash 0.8.1 reads by types that alias nothing: where it is
 * inlined beside the stores of what it hashes, gcc leaves these out. By memcpy() it is right. */
#define XXH_FORCE_MEMORY_ACCESS 0
#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t magic[8] = { 0x8b, 'K', 'V', 'S', '\r', '\n', 0x1a, '\n' };
static const uint8_t mark[4] = { 0xab, 'K', 'V', 'S' };
enum {
#define KIND(number, name, type, flags) PLACE_##name,
	KV_KINDS(KIND)
#undef KIND
};
static const struct {
	char type[5];
	unsigned flags;
	int place;
} kinds[KV_KIND_END] = {
#define KIND(number, name, type, flags) [number] = { type, flags, PLACE_##name },
	KV_KINDS(KIND)
#undef KIND
};

#define BYTE_ORDER_PROOF 0x01020304
#define HASHED 56               /* bytes of preamble and header before their hash */
#define EXPANSION 255           /* most of LZ4, section 5, rule 1 */

uint64_t
kv_hash(const void *data, size_t n)
{
	return XXH3_64bits(data, n);
}

int
kv_same_hash(uint64_t a, uint64_t b)
{
#ifdef FUZZ
	(void)a;
	(void)b;
	return 1;
#else
	return a == b;
#endif
}

enum kv_kind
kv_kind_of(const char *type)
{
	int k;

	for (k = KV_KIND_END - 1; k > KV_UNKNOWN; k--)
		if (strcmp(type, kinds[k].type) == 0)
			break;
	return (enum kv_kind)k;
}

const char *
kv_kind_type(enum kv_kind kind)
{
	return kind < KV_KIND_END ? kinds[kind].type : "";
}

int
kv_kind_is(enum kv_kind kind, unsigned flags)
{
	return kind > KV_UNKNOWN && kind < KV_KIND_END && (kinds[kind].flags & flags) == flags;
}

int
kv_kind_place(enum kv_kind kind)
{
	return kind > KV_UNKNOWN && kind < KV_KIND_END ? kinds[kind].place : -1;
}

int
kv_is_covered(enum kv_kind kind)
{
	return kind != KV_INDX && kind != KV_ENDS && kind != KV_PADD;
}

int
kv_is_safe(const char *type)
{
	return (type[3] & 0x20) != 0;
}

uint64_t
kv_blocks(uint64_t raw_size)
{
	return raw_size / KV_BLOCK + (raw_size % KV_BLOCK != 0);
}

uint64_t
kv_table_size(uint64_t raw_size)
{
	return KV_ENTRY * kv_blocks(raw_size);
}

size_t
kv_block_size(uint64_t raw_size, uint64_t i)
{
	uint64_t left = raw_size - i * KV_BLOCK;

	return left < KV_BLOCK ? (size_t)left : KV_BLOCK;
}

void
kv_preamble_put(uint8_t p[KV_PREAMBLE], uint64_t features)
{
	memset(p, 0, KV_PREAMBLE);
	memcpy(p, magic, sizeof magic);
	put16(p + 8, KV_VERSION);
	put32(p + 12, BYTE_ORDER_PROOF);
	put64(p + 16, features);
	put64(p + HASHED, kv_hash(p, HASHED));
}

int
kv_preamble_get(const uint8_t p[KV_PREAMBLE], uint64_t *features, struct kv_message *why)
{
	uint64_t unknown;

	if (memcmp(p, magic, sizeof magic) != 0) {
		if (memcmp(p + 1, magic + 1, 3) == 0)
			return kv_bad(why, "not a KV snapshot any more: "
			    "its magic was changed as if it were text");
		return kv_bad(why, "not a KV snapshot: wrong magic");
	}
	if (!kv_same_hash(get64(p + HASHED), kv_hash(p, HASHED)))
		return kv_bad(why, "preamble: checksum mismatch");
	if (get16(p + 8) > KV_VERSION)
		return kv_say(why, KV_EVERSION, "version %u of the format, only %u is known",
		    get16(p + 8), KV_VERSION);
	if (get16(p + 8) == 0)
		return kv_bad(why, "preamble: version 0 does not exist");
	if (get32(p + 12) != BYTE_ORDER_PROOF)
		return kv_bad(why, "preamble: wrong byte order 0x%08x", get32(p + 12));
	*features = get64(p + 16);
	unknown = *features & ~(uint64_t)KV_FEATURES;
	if (unknown != 0)
		return kv_say(why, KV_EVERSION, "feature bit %d is not known",
		    __builtin_ctzll(unknown));
	if (get16(p + 10) != 0 || !all_zero(p + 24, 32))
		return kv_bad(why, "preamble: bytes that must be zero are not");
	return KV_OK;
}

void
kv_header_put(uint8_t p[KV_HEADER], struct kv_header *h)
{
	memset(p, 0, KV_HEADER);
	memcpy(p, mark, sizeof mark);
	memcpy(p + 4, h->type, 4);
	put32(p + 8, h->layer);
	p[12] = (uint8_t)h->element_size;
	put64(p + 16, h->raw_size);
	put64(p + 24, h->stored_size);
	put64(p + 32, h->table_hash);
	h->hash = kv_hash(p, HASHED);
	put64(p + HASHED, h->hash);
}

static int
check_sizes(const struct kv_header *h, struct kv_message *why)
{
	if ((h->raw_size == 0) != (h->stored_size == 0))
		return kv_bad(why, "%llu bytes of content stored in %llu",
		    (ull)h->raw_size, (ull)h->stored_size);
	if (h->stored_size > h->raw_size)
		return kv_bad(why, "%llu bytes of content stored in more, %llu",
		    (ull)h->raw_size, (ull)h->stored_size);
	/* Rounded up by division: a product could overflow. */
	if (h->raw_size / EXPANSION + (h->raw_size % EXPANSION != 0) > h->stored_size)
		return kv_bad(why, "%llu bytes of content cannot be stored in %llu",
		    (ull)h->raw_size, (ull)h->stored_size);
	return KV_OK;
}

int
kv_header_get(const uint8_t p[KV_HEADER], struct kv_header *h, struct kv_message *why)
{
	size_t i;

	h->type[0] = '\0';
	if (memcmp(p, mark, sizeof mark) != 0)
		return kv_bad(why, "no section starts here: wrong mark");
	h->hash = get64(p + HASHED);
	if (!kv_same_hash(h->hash, kv_hash(p, HASHED)))
		return kv_bad(why, "section header: checksum mismatch");
	h->layer = get32(p + 8);
	h->element_size = p[12];
	h->raw_size = get64(p + 16);
	h->stored_size = get64(p + 24);
	h->table_hash = get64(p + 32);
	for (i = 4; i < 8; i++)
		if ((p[i] | 0x20) < 'a' || (p[i] | 0x20) > 'z')
			return kv_bad(why, "a section type must be four letters");
	if (p[6] & 0x20)
		return kv_bad(why, "third letter of a section type in lower case");
	memcpy(h->type, p + 4, 4);
	h->type[4] = '\0';
	h->kind = kv_kind_of(h->type);
	if (h->kind == KV_UNKNOWN && kv_is_critical(h->type))
		return kv_say(why, KV_EVERSION, "critical, and its type is not known");
	if (h->element_size != 1 && h->element_size != 2 && h->element_size != 4)
		return kv_bad(why, "element size %u, must be 1, 2 or 4",
		    h->element_size);
	if (!all_zero(p + 13, 3) || !all_zero(p + 40, 16))
		return kv_bad(why, "section header: bytes that must be zero are not");
	return check_sizes(h, why);
}

void
kv_entry_put(uint8_t p[KV_ENTRY], const struct kv_entry *e)
{
	memset(p, 0, KV_ENTRY);
	put32(p, e->stored);
	p[4] = (uint8_t)e->codec;
	put64(p + 8, e->raw_hash);
	put64(p + 16, e->stored_hash);
}

void
kv_entry_get(const uint8_t p[KV_ENTRY], struct kv_entry *e)
{
	e->stored = get32(p);
	e->codec = p[4];
	e->raw_hash = get64(p + 8);
	e->stored_hash = get64(p + 16);
}

uint64_t
kv_keys_hash(const uint8_t *table, uint64_t blocks)
{
	XXH3_state_t state;
	uint64_t i;

	XXH3_64bits_reset(&state);
	for (i = 0; i < blocks; i++)
		XXH3_64bits_update(&state, table + KV_ENTRY * i + 8, 8);
	return XXH3_64bits_digest(&state);
}

static int
check_entry(const struct kv_header *h, uint64_t i, const uint8_t *p, struct kv_message *why)
{
	size_t size = kv_block_size(h->raw_size, i);
	struct kv_entry e;

	kv_entry_get(p, &e);
	if (e.codec > CODEC_PLANES)
		return kv_bad(why, "block %llu: codec %u is not known", (ull)i, e.codec);
	if (!all_zero(p + 5, 3))
		return kv_bad(why, "block %llu: bytes that must be zero are not", (ull)i);
	if (e.codec == CODEC_PLAIN ? e.stored != size : e.stored == 0 || e.stored >= size)
		return kv_bad(why, "block %llu: %zu bytes in %u with codec %u",
		    (ull)i, size, e.stored, e.codec);
	if (e.codec == CODEC_PLAIN && e.raw_hash != e.stored_hash)
		return kv_bad(why, "block %llu: plain, but its two hashes differ", (ull)i);
	if (e.codec == CODEC_PLANES && (h->element_size == 1 || size % h->element_size != 0))
		return kv_bad(why, "block %llu: %zu bytes in planes of %u-byte elements",
		    (ull)i, size, h->element_size);
	return KV_OK;
}

int
kv_table_check(const struct kv_header *h, const uint8_t *table, struct kv_message *why)
{
	uint64_t i, blocks = kv_blocks(h->raw_size), sum = 0;
	int code;

	if (!kv_same_hash(h->table_hash, kv_hash(table, (size_t)(KV_ENTRY * blocks))))
		return kv_bad(why, "block table: checksum mismatch");
	for (i = 0; i < blocks; i++) {
		code = check_entry(h, i, table + KV_ENTRY * i, why);
		if (code != KV_OK)
			return code;
		sum += get32(table + KV_ENTRY * i);
	}
	if (sum != h->stored_size)
		return kv_bad(why, "its blocks have %llu bytes, its header says %llu",
		    (ull)sum, (ull)h->stored_size);
	return KV_OK;
}
