/* gguf_arch.c - the architectures of GGUF files that we compute, and the names of their tensors */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "model/gguf_arch.h"
#include "model/model.h"
#include "model/model_files.h"

enum { TENSOR_PART = 80 };       /* bytes of the name of a part, at most */

#define GEMMA2 (GGUF_PLUS_ONE | GGUF_SOFTCAPS | GGUF_WINDOW | GGUF_QUERY_SCALAR)
#define COHERE (GGUF_LAYER_NORM | GGUF_LOGIT_SCALE)
#define GRANITE (GGUF_INTERLEAVED | GGUF_SCALES | GGUF_EXPERTS)
#define DEEPSEEK (GGUF_EXPERTS | GGUF_ROUTED | GGUF_DENSE_FIRST)

static const struct gguf_arch archs[] = {
	/* and Mistral, and Mixtral */
	{ "llama", "llama", GGUF_INTERLEAVED | GGUF_OTHER_WITH_EXPERTS | GGUF_WINDOW, 0 },
	{ "llama", "mixtral", GGUF_INTERLEAVED | GGUF_WINDOW | GGUF_EXPERTS, 0 },
	{ "qwen2", "qwen2", 0, 0 },
	{ "qwen3", "qwen3", 0, 0 },
	{ "gemma", "gemma", GGUF_PLUS_ONE, 0 },
	{ "gemma2", "gemma2", GEMMA2, 46 },
	{ "gemma3", "gemma3_text", GEMMA2, 62 },
	{ "phi2", "phi", GGUF_LAYER_NORM, 0 },
	{ "phi3", "phi3", GGUF_ORIGINAL_CONTEXT | GGUF_WINDOW, 0 },
	{ "granite", "granite", GGUF_INTERLEAVED | GGUF_SCALES, 0 },
	{ "olmo", "olmo", GGUF_INTERLEAVED | GGUF_LAYER_NORM, 0 },
	{ "olmo2", "olmo2", GGUF_OTHER_WITH_WINDOW, 0 },
	{ "olmo2", "olmo3", GGUF_WINDOW, 0 },
	{ "smollm3", "smollm3", GGUF_INTERLEAVED, 0 },
	{ "qwen2moe", "qwen2_moe", GGUF_EXPERTS, 0 },
	{ "qwen3moe", "qwen3_moe", GGUF_EXPERTS | GGUF_RENORMALISED, 0 },
	{ "olmoe", "olmoe", GGUF_EXPERTS, 0 },
	{ "granitemoe", "granitemoe", GRANITE | GGUF_OTHER_WITH_SHARED, 0 },
	{ "granitemoe", "granitemoeshared", GRANITE, 0 },
	{ "gpt-oss", "gpt_oss", GGUF_EXPERTS | GGUF_WINDOW | GGUF_YARN_EXACT | GGUF_HARMONY, 0 },
	{ "deepseek2", "deepseek_v2", DEEPSEEK | GGUF_LATENT | GGUF_OTHER_WITH_SIGMOID, 0 },
	{ "deepseek2", "deepseek_v3", DEEPSEEK | GGUF_LATENT, 0 },
	{ "glm4moe", "glm4_moe", DEEPSEEK, 0 },
	{ "dots1", "dots1", DEEPSEEK, 0 },
	{ "ernie4_5-moe", "ernie4_5_moe", GGUF_EXPERTS | GGUF_DENSE_FIRST | GGUF_EVERY, 0 },
	{ "mistral3", "ministral3", GGUF_INTERLEAVED | GGUF_TEMPERATURE, 0 },
	{ "command-r", "cohere", COHERE, 0 },
	{ "cohere2", "cohere2", COHERE | GGUF_WINDOW, 0 },
	{ "exaone", "exaone", 0, 0 },
	{ "exaone4", "exaone4", GGUF_WINDOW | GGUF_WINDOW_BY_LAYERS, 64 },
	{ "chatglm", "glm", 0, 0 },
	{ "glm4", "glm4", 0, 0 },
	{ "ernie4_5", "ernie4_5", 0, 0 },
	{ "seed_oss", "seed_oss", 0, 0 },
	{ "arcee", "arcee", GGUF_INTERLEAVED, 0 },
	{ "nemotron", "nemotron", GGUF_LAYER_NORM | GGUF_PLUS_ONE, 0 },
	{ "starcoder2", "starcoder2", GGUF_LAYER_NORM, 0 },
	{ "stablelm", "stablelm", GGUF_LAYER_NORM, 0 },
};

/* Parts of a layer: the name that the family has for it, or else for another part, or else the
 * usual one, by which messages know it. */
#define NAME(part) offsetof(struct tensor_names, part)
static const struct { const char *gguf; size_t name, other; const char *usual; } parts[] = {
	{ "attn_norm", NAME(attention_norm), NAME(attention_norm), "input_layernorm" },
	{ "ffn_norm", NAME(ffn_norm), NAME(ffn_norm), "post_attention_layernorm" },
	/* Seed-OSS has it before the network */
	{ "post_attention_norm", NAME(attention_adds), NAME(ffn_norm), "post_attention_norm" },
	{ "post_ffw_norm", NAME(ffn_adds), NAME(ffn_adds), "post_feedforward_layernorm" },
	{ "attn_q", NAME(q), NAME(q), "self_attn.q_proj" },
	{ "attn_k", NAME(k), NAME(k), "self_attn.k_proj" },
	{ "attn_v", NAME(v), NAME(v), "self_attn.v_proj" },
	{ "attn_qkv", NAME(qkv), NAME(qkv), "self_attn.qkv_proj" },
	{ "attn_output", NAME(o), NAME(o), "self_attn.o_proj" },
	{ "attn_q_norm", NAME(q_norm), NAME(q_norm), "self_attn.q_norm" },
	{ "attn_k_norm", NAME(k_norm), NAME(k_norm), "self_attn.k_norm" },
	{ "ffn_gate", NAME(gate), NAME(gate), "mlp.gate_proj" },
	{ "ffn_up", NAME(gate_up), NAME(up), "mlp.up_proj" },
	{ "ffn_down", NAME(down), NAME(down), "mlp.down_proj" },
};

/* Parts of latent attention; attn_k_b is that half of attn_kv_b with rows and columns exchanged in
 * each head, attn_v_b the other one */
static const struct { const char *gguf, *hub; } latent_parts[] = {
	{ "attn_q_a", "self_attn.q_a_proj" }, { "attn_q_b", "self_attn.q_b_proj" },
	{ "attn_q_a_norm", "self_attn.q_a_layernorm" },
	{ "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa" },
	{ "attn_kv_a_norm", "self_attn.kv_a_layernorm" }, { "attn_kv_b", "self_attn.kv_b_proj" },
	{ "attn_k_b", "self_attn.k_b_proj" }, { "attn_v_b", "self_attn.v_b_proj" },
};

/* Parts of a mixture of experts: the family's name for the matrices of all, or else for that of an
 * expert, which then stands behind the family's name for experts */
#define EXPERT(part) offsetof(struct expert_names, part)
static const struct { const char *gguf; size_t all, each; } expert_parts[] = {
	{ "ffn_gate_inp", EXPERT(router), 0 },
	{ "ffn_gate_exps", EXPERT(all_gate), EXPERT(gate) },
	{ "ffn_up_exps", EXPERT(all_up), EXPERT(up) },
	{ "ffn_down_exps", EXPERT(all_down), EXPERT(down) },
	{ "ffn_gate_up_exps", EXPERT(gate_up), 0 },
	{ "ffn_gate_inp_shexp", EXPERT(shared_score), 0 },
	{ "ffn_gate_shexp", EXPERT(shared_gate), 0 }, { "ffn_up_shexp", EXPERT(shared_up), 0 },
	{ "ffn_down_shexp", EXPERT(shared_down), 0 },
};

static const struct { const char *gguf; size_t name; } wholes[] = {
	{ "token_embd", NAME(embed) }, { "output_norm", NAME(norm) }, { "output", NAME(head) },
};

/* *out <- this one, or the one behind it, by a key */
static int
this_or_next(const struct gguf *g, const struct gguf_arch *arch, const struct gguf_arch **out,
    char *err, size_t errlen)
{
	static const struct { unsigned flag; const char *key; uint64_t least; } list[] = {
		{ GGUF_OTHER_WITH_WINDOW, "attention.sliding_window", 1 },
		{ GGUF_OTHER_WITH_EXPERTS, "expert_count", 1 },
		{ GGUF_OTHER_WITH_SHARED, "expert_shared_feed_forward_length", 1 },
		{ GGUF_OTHER_WITH_SIGMOID, "expert_gating_func", GGUF_SIGMOID },
	};
	uint64_t n;
	char key[80];
	size_t i;
	int rc = MODEL_OK;

	*out = arch;
	for (i = 0; rc == MODEL_OK && i < sizeof list / sizeof list[0]; i++) {
		if (!(arch->flags & list[i].flag))
			continue;
		n = 0;
		snprintf(key, sizeof key, "%s.%s", arch->name, list[i].key);
		rc = gguf_whole(g, key, &n, err, errlen);
		*out = n >= list[i].least ? arch + 1 : arch;
	}
	return rc;
}

/* known[size] <- the names of all architectures */
static void
list_names(char *known, size_t size)
{
	size_t i, n = 0;

	for (i = 0; i < sizeof archs / sizeof archs[0]; i++)
		if (i == 0 || strcmp(archs[i].name, archs[i - 1].name) != 0)
			n += (size_t)snprintf(known + n, size - n, "%s%s", i > 0 ? ", " : "",
			    archs[i].name);
}

int
gguf_architecture(const struct gguf *g, const struct gguf_arch **out, char *err, size_t errlen)
{
	char known[480];
	const char *name = NULL;
	size_t len = 0, i;
	int rc = gguf_text(g, "general.architecture", &name, &len, err, errlen);

	if (rc != MODEL_OK)
		return rc;
	if (name == NULL)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path,
		    "no key general.architecture");
	for (i = 0; i < sizeof archs / sizeof archs[0]; i++)
		if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0)
			return this_or_next(g, &archs[i], out, err, errlen);
	list_names(known, sizeof known);
	return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, g->path, "general.architecture "
	    "\"%.*s\" is not supported; supported are %s", len < 64 ? (int)len : 64, name, known);
}

static const char *
name_at(const void *names, size_t offset)
{
	return *(const char *const *)(const void *)((const char *)names + offset);
}

/* Is a text of n bytes this name? */
static int
is_name(const char *name, const char *text, size_t n)
{
	return strlen(name) == n && memcmp(name, text, n) == 0;
}

/* name[size] <- the name of a part of a mixture of experts. Returns 0 where it is none. */
static int
part_of_experts(const struct family_experts *experts, const char *part, size_t n, char *name,
    size_t size)
{
	const struct expert_names *names;
	const char *all, *each;
	size_t i;

	for (i = 0; experts != NULL && i < sizeof expert_parts / sizeof expert_parts[0]; i++) {
		if (!is_name(expert_parts[i].gguf, part, n))
			continue;
		names = experts->names;
		if (names->in_turns && expert_parts[i].all == EXPERT(gate_up))
			return 0;               /* on top of each other there */
		all = name_at(names, expert_parts[i].all);
		each = expert_parts[i].each != 0 ? name_at(names, expert_parts[i].each) : NULL;
		if (all != NULL)
			snprintf(name, size, "%s", all);
		else if (each != NULL && names->experts != NULL)
			snprintf(name, size, "%s.%s", names->experts, each);
		return all != NULL || (each != NULL && names->experts != NULL);
	}
	return 0;
}

/* name[size] <- what the family calls a part of a layer. Returns 0 where it is none. */
static int
part_of_layer(const struct family *f, const char *part, size_t n, char *name, size_t size)
{
	const char *is;
	size_t i;

	if (part_of_experts(f->experts, part, n, name, size))
		return 1;
	for (i = 0; (f->flags & FAMILY_LATENT) &&
	    i < sizeof latent_parts / sizeof latent_parts[0]; i++)
		if (is_name(latent_parts[i].gguf, part, n)) {
			snprintf(name, size, "%s", latent_parts[i].hub);
			return 1;
		}
	for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		if (!is_name(parts[i].gguf, part, n))
			continue;
		is = name_at(f->names, parts[i].name);
		is = is != NULL ? is : name_at(f->names, parts[i].other);
		snprintf(name, size, "%s", is != NULL ? is : parts[i].usual);
		return 1;
	}
	return 0;
}

/* The name of a vector that has no .weight or .bias behind it in a folder; NULL: it is none */
static const char *
bare_part(const struct family *f, const char *part)
{
	if (strcmp(part, "attn_sinks.weight") == 0)
		return f->names->sinks;
	/* the suffix is missing in some files */
	if (f->experts != NULL && (strcmp(part, "exp_probs_b.bias") == 0 ||
	    strcmp(part, "exp_probs_b") == 0))
		return f->experts->names->correction;
	/* of layers that guess further tokens */
	return strncmp(part, "nextn.", 6) == 0 ? part : NULL;
}

/* Files of Mixtral from before April 2024 have a tensor for each expert: ffn_gate.3 and so on.
 * Returns 1 where this part of a layer is one; name <- its name. */
static int
name_old_expert(const char *part, const char *layer, int digits, char *name, size_t size)
{
	static const struct { const char *begins, *hub; } list[] = { { "ffn_gate.", "w1" },
		{ "ffn_up.", "w3" }, { "ffn_down.", "w2" } };
	size_t i, n, number;

	for (i = 0; i < sizeof list / sizeof list[0]; i++) {
		n = strlen(list[i].begins);
		if (strncmp(part, list[i].begins, n) != 0)
			continue;
		number = strspn(part + n, "0123456789");
		if (number == 0 || number > 4 || strcmp(part + n + number, ".weight") != 0)
			return 0;
		snprintf(name, size, "model.layers.%.*s.block_sparse_moe.experts.%.*s.%s.weight",
		    digits, layer, (int)number, part + n, list[i].hub);
		return 1;
	}
	return 0;
}

void
gguf_hub_name(const struct gguf_arch *arch, const char *gguf, char *name, size_t size)
{
	const struct family *f = family_find(arch->model_type);
	const size_t digits = strncmp(gguf, "blk.", 4) == 0 ? strspn(gguf + 4, "0123456789") : 0;
	const char *part = gguf + 4 + digits + 1, *end = strrchr(gguf, '.'), *bare = NULL;
	char hub[TENSOR_PART];
	size_t i;

	snprintf(name, size, "%s", gguf);
	if (digits > 0 && part[-1] == '.' && (bare = bare_part(f, part)) != NULL)
		snprintf(name, size, "%s.%.*s.%s", f->names->layers, (int)digits, gguf + 4, bare);
	if (bare != NULL || end == NULL ||
	    (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
		return;
	if (digits > 0 && end > part && strcmp(arch->model_type, "mixtral") == 0 &&
	    name_old_expert(part, gguf + 4, (int)digits, name, size))
		return;
	for (i = 0; i < sizeof wholes / sizeof wholes[0]; i++)
		if (is_name(wholes[i].gguf, gguf, (size_t)(end - gguf)))
			snprintf(name, size, "%s%s", name_at(f->names, wholes[i].name), end);
	if (digits > 0 && end >= part && part[-1] == '.' &&
	    part_of_layer(f, part, (size_t)(end - part), hub, sizeof hub))
		snprintf(name, size, "%s.%.*s.%s%s", f->names->layers, (int)digits, gguf + 4, hub,
		    end);
}
