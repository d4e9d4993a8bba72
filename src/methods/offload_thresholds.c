/* offload_thresholds.c - thresholds of the text length at which layers are offloaded to the host
 *
 * M(i + 1, S) - M(i, S) = R H b (B - S) with b bytes of a row: for texts longer than the budget
 * each layer on the host frees memory, so thresholds ascend there, and the first one greater
 * than S is the answer. For shorter texts offloading does not help. */
#include <stddef.h>

#include "methods/offload_thresholds.h"

/* Tenths of bytes need more than 64 bits. */
__extension__ typedef unsigned __int128 wide;

/* Returns the bytes of a row of one KV head: in the layers first to end - 1, together. */
static wide
layers_bytes(const struct offload_plan *p, uint32_t first, uint32_t end)
{
	const wide full = (wide)2 * p->element * p->width;
	wide bytes = 0;

	if (p->row_bytes == NULL)
		return full * (end - first);
	for (; first < end; first++)
		bytes += p->row_bytes[first];
	return bytes;
}

int
offload_threshold(const struct offload_plan *p, uint32_t i, uint64_t *tokens)
{
	const uint32_t host = p->layers - i;    /* the first layer on the host */
	const wide heads = (wide)p->requests * p->kv_heads;
	const wide slots = heads * layers_bytes(p, host, p->layers) * p->budget;
	const wide fixed = ((wide)p->weights + p->head_weights) * 13 + slots * 10;
	const wide room = (wide)p->limit * 10;
	const wide row = heads * (layers_bytes(p, 0, host) +
	    (wide)2 * p->element * p->width * (1 + (wide)p->group)) * 10;

	*tokens = 0;
	if (fixed > room)
		return 0;
	*tokens = (room - fixed) / row > UINT64_MAX ? UINT64_MAX : (uint64_t)((room - fixed) / row);
	return 1;
}

uint32_t
offload_layers(const struct offload_plan *p, uint64_t S)
{
	uint64_t tokens;
	uint32_t i;

	for (i = 0; i <= p->layers; i++)
		if (offload_threshold(p, i, &tokens) && S < tokens)
			return i;
	return OFFLOAD_NONE;
}
