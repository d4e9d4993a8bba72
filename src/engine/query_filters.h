/* query_filters.h - a direction of each KV head that queries of a model point to, from a file
 *
 * Q-Filters (Godey et al. 2025): the tensor q_filters, f32, f16 or bf16 [layers][KV heads][head
 * width], of a safetensors file, as its authors publish it for models; train/q_filters.py makes
 * one. */
#ifndef KVPIPE_QUERY_FILTERS_H
#define KVPIPE_QUERY_FILTERS_H

#include <stdint.h>

#include "engine/engine_error.h"

struct query_filters {
	const char *path;               /* the caller's, for messages */
	uint32_t layers, heads, width;
	float *at;                      /* [layers][heads][width]; NULL = none */
	char hash[17];                  /* of the numbers, 16 hexadecimal digits */
};

/* Loads a file, or a folder with model.safetensors. ENGINE_EDAMAGED: the file is not one with such
 * a tensor, or a number in it is not finite. */
int query_filters_load(struct query_filters *out, const char *path, struct engine_error *);
void query_filters_free(struct query_filters *);                /* all zero is allowed */

#endif
