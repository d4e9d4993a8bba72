/* spans.h - content in several places of memory, taken piece by piece
 *
 * Internal to libkvfile. */
#ifndef KVFILE_SPANS_H
#define KVFILE_SPANS_H

#include "kvfile.h"

#include <string.h>

/* Iterates over spans in pieces that need not end where a span ends. */
struct cursor {
	const struct kv_span *span;
	size_t used;            /* of that span */
};

/* Returns the next n bytes: in place, or gathered in memory of n bytes. The spans have that
 * many. */
static inline const uint8_t *
take(struct cursor *c, size_t n, uint8_t *memory)
{
	const uint8_t *from;
	size_t have, k;

	while (c->span->size == c->used)
		c->span++, c->used = 0;
	from = (const uint8_t *)c->span->data + c->used;
	if (c->span->size - c->used >= n) {
		c->used += n;
		return from;
	}
	for (have = 0; have < n; have += k, c->used += k) {
		while (c->span->size == c->used)
			c->span++, c->used = 0;
		k = c->span->size - c->used < n - have ? c->span->size - c->used : n - have;
		memcpy(memory + have, (const uint8_t *)c->span->data + c->used, k);
	}
	return memory;
}

#endif
