/* family.c - the table of families
 *
 * Defaults are those of transformers' configuration classes, which write every key of their own:
 * they matter for files from elsewhere. */
#include <stddef.h>
#include <string.h>

#include "model/family.h"

#define NEEDS_KV FAMILY_NEEDS_KV_HEADS
#define SWITCH FAMILY_WINDOW_SWITCH
#define BIASES (FAMILY_ATTENTION_BIAS | FAMILY_MLP_BIAS)

static const struct family families[] = {
	{ "llama", "LlamaForCausalLM", BIASES, 0, 0, 0, 1e-6, 1e4 },
	{ "mistral", "MistralForCausalLM", NEEDS_KV, 0, 4096, 0, 1e-6, 1e4 },
	{ "qwen2", "Qwen2ForCausalLM", FAMILY_QKV_BIAS | SWITCH | NEEDS_KV, 0, 4096, 0, 1e-6, 1e4 },
	{ "qwen3", "Qwen3ForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_HEAD_NORM | SWITCH | NEEDS_KV,
	    128, 4096, 0, 1e-6, 1e4 },
	{ "phi3", "Phi3ForCausalLM", FAMILY_FUSED | FAMILY_ROPE_WIDTH, 0, 0, 0, 1e-5, 1e4 },
	{ "smollm3", "SmolLM3ForCausalLM", BIASES | FAMILY_ROPE_SKIP | SWITCH | NEEDS_KV,
	    0, 0, 1, 1e-6, 2e6 },
	{ "granite", "GraniteForCausalLM", BIASES | FAMILY_MULTIPLIERS, 0, 0, 0, 1e-6, 1e4 },
	{ "olmo2", "Olmo2ForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_WIDE_NORM | FAMILY_NORM_AFTER,
	    0, 0, 0, 1e-5, 1e4 },
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
