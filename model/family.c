/* family.c - the table of families
 *
 * Defaults are those of transformers' configuration classes, which write every key of their own:
 * they matter for files from elsewhere. */
#include <stddef.h>
#include <string.h>

#include "model/family.h"

static const struct family families[] = {
	{ "llama", "LlamaForCausalLM", FAMILY_ATTENTION_BIAS, 0, 0, 0, 1e-6, 10000 },
	{ "mistral", "MistralForCausalLM", FAMILY_NEEDS_KV_HEADS, 0, 4096, 0, 1e-6, 10000 },
};

const struct family *
family_at(unsigned i)
{
	return i < sizeof families / sizeof families[0] ? &families[i] : NULL;
}

const struct family *
family_find(const char *type)
{
	const struct family *f;
	unsigned i;

	for (i = 0; (f = family_at(i)) != NULL; i++)
		if (strcmp(f->type, type) == 0)
			return f;
	return NULL;
}
