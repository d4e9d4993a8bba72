/* family.c - the table of families
 *
 * Defaults are those of transformers' configuration classes, which write every key of their own:
 * they matter for files from elsewhere. */
#include <stddef.h>
#include <string.h>

#include "model/family.h"

#define NEEDS_KV FAMILY_NEEDS_KV_HEADS
#define WINDOW FAMILY_WINDOW
#define TYPES FAMILY_LAYER_TYPES
#define SWITCH (FAMILY_WINDOW_SWITCH | WINDOW | TYPES)
#define GEMMA (FAMILY_GELU | FAMILY_NORM_FROM_1 | FAMILY_ROOT_OF_WIDTH | NEEDS_KV)
#define GEMMA2 (FAMILY_ATTENTION_BIAS | FAMILY_NORM_AROUND | FAMILY_QUERY_SCALAR | \
	FAMILY_SOFTCAPS | WINDOW | TYPES)
#define BIASES (FAMILY_ATTENTION_BIAS | FAMILY_MLP_BIAS)

static const struct family families[] = {
	{ "llama", "LlamaForCausalLM", BIASES, 0, 0, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "mistral", "MistralForCausalLM", WINDOW | NEEDS_KV, 0, 4096, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "ministral", "MinistralForCausalLM", WINDOW | TYPES | NEEDS_KV,
	    0, 4096, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "qwen2", "Qwen2ForCausalLM", FAMILY_QKV_BIAS | SWITCH | NEEDS_KV,
	    0, 4096, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "qwen3", "Qwen3ForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_HEAD_NORM | SWITCH | NEEDS_KV,
	    128, 4096, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "phi3", "Phi3ForCausalLM", FAMILY_FUSED | FAMILY_ROPE_WIDTH | WINDOW, 0, 0, 0, 0, 1e-5,
	    1e4, 0, 0 },
	{ "smollm3", "SmolLM3ForCausalLM", BIASES | FAMILY_ROPE_SKIP | SWITCH | NEEDS_KV,
	    0, 0, 0, 1, 1e-6, 2e6, 0, 0 },
	{ "granite", "GraniteForCausalLM", BIASES | FAMILY_MULTIPLIERS,
	    0, 0, 0, 0, 1e-6, 1e4, 0, 0 },
	{ "olmo2", "Olmo2ForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_WIDE_NORM | FAMILY_NORM_AFTER,
	    0, 0, 0, 0, 1e-5, 1e4, 0, 0 },
	{ "gemma", "GemmaForCausalLM", GEMMA | FAMILY_ATTENTION_BIAS,
	    256, 0, 0, 1, 1e-6, 1e4, 0, 0 },
	{ "gemma2", "Gemma2ForCausalLM", GEMMA | GEMMA2, 256, 4096, 2, 1, 1e-6, 1e4, 50, 30 },
	{ "gemma3_text", "Gemma3ForCausalLM", GEMMA | GEMMA2 | FAMILY_HEAD_NORM | FAMILY_LOCAL_ROPE,
	    256, 4096, 6, 1, 1e-6, 1e6, 0, 0 },
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
