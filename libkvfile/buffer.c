/* buffer.c - memory that grows as data arrive, aligned to 64 bytes */

#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64

static void *
base_of(const struct kv_buffer *b)
{
	return b->data == NULL ? NULL : b->data - b->shift;
}

int
kv_buffer_need(struct kv_buffer *b, size_t need, size_t keep, uint64_t most)
{
	size_t size = b->size, shift;
	uint8_t *base;

	if (need <= b->size)
		return 0;
	if (need > SIZE_MAX / 2 - ALIGN)
		return -1;
	size = size < need / 2 ? need : 2 * size;
	if (size > most)
		size = (size_t)most;
	if (size < need)
		size = need;
	/* realloc() moves large pieces by remapping their pages, without a copy. */
	base = realloc(base_of(b), size + ALIGN);
	if (base == NULL)
		return -1;
	shift = (size_t)(-(uintptr_t)base % ALIGN);
	if (shift != b->shift && keep > 0)
		memmove(base + shift, base + b->shift, keep);
	b->shift = shift;
	b->data = base + shift;
	b->size = size;
	return 0;
}

void
kv_buffer_free(struct kv_buffer *b)
{
	free(base_of(b));
	memset(b, 0, sizeof *b);
}
