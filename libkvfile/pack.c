/* pack.c - a section while it is stored: its table, and the blocks that were compressed */

#include "pack.h"

#include <stdlib.h>
#include <string.h>

void
kv_pack_start(struct kv_pack *p, unsigned element)
{
	p->element = element;
	p->blocks = p->stored = 0;
	p->kept = 0;
}

static int
add_entry(struct kv_pack *p, const struct kv_entry *e)
{
	size_t used = (size_t)p->blocks * KV_ENTRY;

	if (kv_buffer_need(&p->table, used + KV_ENTRY, used, UINT64_MAX) != 0)
		return -1;
	kv_entry_put(p->table.data + used, e);
	p->blocks++;
	p->stored += e->stored;
	return 0;
}

static int
keep(struct kv_pack *p, const uint8_t *data, size_t n, uint64_t raw_size)
{
	if (kv_buffer_need(&p->store, p->kept + n, p->kept, raw_size) != 0)
		return -1;
	memcpy(p->store.data + p->kept, data, n);
	p->kept += n;
	return 0;
}

int
kv_pack_content(struct kv_pack *p, const uint8_t *data, size_t size, int compress,
    uint64_t raw_size)
{
	struct kv_entry e = { (uint32_t)size, CODEC_PLAIN, kv_hash(data, size), 0 };
	uint8_t *small;
	size_t n = 0;

	e.stored_hash = e.raw_hash;
	if (compress) {
		if (p->scratch == NULL)
			p->scratch = malloc(2 * KV_BLOCK);
		if (p->scratch == NULL)
			return -1;
		small = p->scratch + KV_BLOCK;
		n = kv_block_encode(small, data, size, p->element, &e.codec, p->scratch);
		if (n > 0) {
			e.stored = (uint32_t)n;
			e.stored_hash = kv_hash(small, n);
			if (keep(p, small, n, raw_size) != 0)
				return -1;
		} else
			e.codec = CODEC_PLAIN;
	}
	return add_entry(p, &e);
}

int
kv_pack_stored(struct kv_pack *p, const struct kv_entry *e, const uint8_t *stored,
    uint64_t raw_size)
{
	size_t kept = p->kept;

	if (e->codec != CODEC_PLAIN)
		return keep(p, stored, e->stored, raw_size) != 0 ? -1 : add_entry(p, e);
	if (kv_pack_content(p, stored, e->stored, 1, raw_size) != 0)
		return -1;
	return p->kept == kept ? keep(p, stored, e->stored, raw_size) : 0;
}

void
kv_pack_drop(struct kv_pack *p)
{
	kv_buffer_free(&p->store);
	p->kept = 0;
}

void
kv_pack_free(struct kv_pack *p)
{
	kv_buffer_free(&p->table);
	kv_buffer_free(&p->store);
	free(p->scratch);
	p->scratch = NULL;
}
