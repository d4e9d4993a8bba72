/* seal.c - the values at the end of a snapshot that cover all of it: digests, index, count */

#include "seal.h"
#include "bytes.h"

#include <xxhash.h>

static const uint8_t end_magic[8] = { 'K', 'V', 'S', 'E', 'N', 'D', '\r', '\n' };

int
kv_seal_start(struct kv_seal *s)
{
	memset(s, 0, sizeof *s);
	s->stream = XXH3_createState();
	s->logical = XXH3_createState();
	if (s->stream == NULL || s->logical == NULL)
		return -1;
	XXH3_128bits_reset(s->stream);
	XXH3_128bits_reset(s->logical);
	return 0;
}

int
kv_seal_add(struct kv_seal *s, const struct kv_header *h, const uint8_t *table, uint64_t offset)
{
	uint64_t i, blocks = kv_blocks(h->raw_size);
	size_t used = (size_t)s->sections * KV_INDEXED;
	uint8_t bytes[16], *entry;

	if (kv_buffer_need(&s->index, used + KV_INDEXED, used, UINT64_MAX) != 0)
		return -1;
	entry = s->index.data + used;
	memcpy(entry, h->type, 4);
	put32(entry + 4, h->layer);
	put64(entry + 8, offset);
	put64(entry + 16, h->stored_size);
	put64(entry + 24, h->raw_size);
	s->sections++;

	put64(bytes, h->hash);
	XXH3_128bits_update(s->stream, bytes, 8);
	if (!kv_is_critical(h->type))
		return 0;
	memcpy(bytes, h->type, 4);
	put32(bytes + 4, h->layer);
	put64(bytes + 8, h->raw_size);
	XXH3_128bits_update(s->logical, bytes, 16);
	for (i = 0; i < blocks; i++)
		XXH3_128bits_update(s->logical, table + KV_ENTRY * i + 8, 8);
	return 0;
}

void
kv_seal_end(const struct kv_seal *s, struct kv_end *end)
{
	XXH128_canonical_t canonical;

	end->sections = (uint32_t)s->sections;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(s->stream));
	memcpy(end->stream, canonical.digest, 16);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(s->logical));
	memcpy(end->logical, canonical.digest, 16);
}

void
kv_seal_free(struct kv_seal *s)
{
	XXH3_freeState(s->stream);
	XXH3_freeState(s->logical);
	kv_buffer_free(&s->index);
	memset(s, 0, sizeof *s);
}

void
kv_end_put(uint8_t p[64], const struct kv_end *end)
{
	memset(p, 0, 64);
	memcpy(p, end_magic, sizeof end_magic);
	put64(p + 8, end->size);
	put64(p + 16, end->index);
	put32(p + 24, end->sections);
	memcpy(p + 32, end->stream, 16);
	memcpy(p + 48, end->logical, 16);
}

int
kv_end_check(const uint8_t p[64], const struct kv_end *end, struct kv_message *why)
{
	if (memcmp(p, end_magic, sizeof end_magic) != 0)
		return kv_bad(why, "not the content of an end marker");
	if (get32(p + 28) != 0)
		return kv_bad(why, "bytes that must be zero are not");
	if (get64(p + 8) != end->size)
		return kv_bad(why, "it says size %llu, but the snapshot has %llu bytes",
		    (ull)get64(p + 8), (ull)end->size);
	if (get64(p + 16) != end->index)
		return kv_bad(why, "it says iNDX at byte %llu, but it is at %llu",
		    (ull)get64(p + 16), (ull)end->index);
	if (get32(p + 24) != end->sections)
		return kv_bad(why, "it says %u sections, but there are %u",
		    get32(p + 24), end->sections);
#ifndef FUZZ
	if (memcmp(p + 32, end->stream, 16) != 0)
		return kv_bad(why, "stream digest mismatch: sections lost or exchanged");
	if (memcmp(p + 48, end->logical, 16) != 0)
		return kv_bad(why, "logical digest mismatch");
#endif
	return KV_OK;
}

uint64_t
kv_index_compare(const struct kv_seal *s, const uint8_t *p, uint64_t size)
{
	uint64_t i;

	for (i = 0; i < s->sections; i++)
		if ((i + 1) * KV_INDEXED > size ||
		    memcmp(p + i * KV_INDEXED, s->index.data + i * KV_INDEXED, KV_INDEXED) != 0)
			break;
	return i;
}
