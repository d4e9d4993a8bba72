/* offload_thresholds.c - thresholds of the text length at which layers are offloaded to the host
 *
 * M(i + 1, S) - M(i, S) = R H b (B - S) with b bytes of a row: for texts longer than the budget
 * each layer on the host frees memory, so thresholds ascend there, and the first one greater
 * than S is the answer. For shorter texts offloading does not help. */
#include <stddef.h>

#include "methods/offload_thresholds.h"

/* *sum += a * b * c. Returns 0, and *sum undefined, where that has more than 64 bits: then it is
 * greater than any limit. */
static int
add_product(uint64_t *sum, uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t product;

	return !__builtin_mul_overflow(a, b, &product) &&
	    !__builtin_mul_overflow(product, c, &product) &&
	    !__builtin_add_overflow(*sum, product, sum);
}

/* Returns the bytes of a key and a value in f16 or f32. */
static uint64_t
full_bytes(const struct offload_plan *p)
{
	return (uint64_t)2 * p->element * p->width;
}

/* Returns the bytes of a row of one KV head: in the layers first to end - 1, together. */
static uint64_t
layers_bytes(const struct offload_plan *p, uint32_t first, uint32_t end)
{
	uint64_t bytes = 0;

	if (p->row_bytes == NULL)
		return full_bytes(p) * (end - first);
	for (; first < end; first++)
		bytes += p->row_bytes[first];
	return bytes;
}

int
offload_threshold(const struct offload_plan *p, uint32_t i, uint64_t *tokens)
{
	const uint32_t host = p->layers - i;    /* the first layer on the host */
	const uint64_t heads = (uint64_t)p->requests * p->kv_heads;
	const uint64_t weights = p->weights + p->head_weights;
	uint64_t row = 0;
	/* 1.3 times the weights, rounded up: everything else is whole bytes, so that no answer
	 * differs */
	uint64_t fixed = weights + weights / 10 * 3 + (weights % 10 * 3 + 9) / 10;

	*tokens = 0;
	if (!add_product(&fixed, heads, layers_bytes(p, host, p->layers), p->budget) ||
	    fixed > p->limit)
		return 0;
	if (add_product(&row, heads, layers_bytes(p, 0, host), 1) &&
	    add_product(&row, heads, full_bytes(p), 1 + (uint64_t)p->group))
		*tokens = (p->limit - fixed) / row;
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
