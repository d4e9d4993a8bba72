/* build_index.c - frees the memory of a built index */
#include <stdlib.h>

#include "engine/build_index.h"

void
built_index_free(struct built_index *x)
{
	size_t i;

	for (i = 0; i < sizeof x->memory / sizeof *x->memory; i++)
		free(x->memory[i]);
	*x = (struct built_index){ .index.kind = KV_UNKNOWN };
}
