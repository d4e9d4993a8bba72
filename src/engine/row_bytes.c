/* row_bytes.c - bytes of the rows of each layer */
#include <stdlib.h>

#include "engine/row_bytes.h"

uint32_t *
row_bytes_of_layers(const struct kv_head *head)
{
	uint32_t *bytes = malloc(head->model.layers * sizeof *bytes), l;

	for (l = 0; bytes != NULL && l < head->model.layers; l++)
		bytes[l] = (uint32_t)(kv_head_row_bytes(head, KV_KEYS, l) +
		    kv_head_row_bytes(head, KV_VALS, l));
	return bytes;
}
