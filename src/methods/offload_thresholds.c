/* offload_thresholds.c - thresholds of the text length at which layers are offloaded to the host
 *
 * M(i, S) is linear in i with the slope 2 e R H D (B - S): for texts longer than the budget
 * each layer on the host frees memory, so thresholds ascend there, and the first one greater
 * than S is the answer. For shorter texts offloading does not help. */
#include "methods/offload_thresholds.h"

/* Tenths of bytes need more than 64 bits. */
__extension__ typedef unsigned __int128 wide;

int
offload_threshold(const struct offload_plan *p, uint32_t i, uint64_t *tokens)
{
	const wide unit = (wide)2 * p->element * p->requests * p->kv_heads * p->width;
	const wide fixed = ((wide)p->weights + p->head_weights) * 13 + unit * i * p->budget * 10;
	const wide room = (wide)p->limit * 10;
	const wide row = unit * ((wide)p->layers - i + 1 + p->group) * 10;

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
