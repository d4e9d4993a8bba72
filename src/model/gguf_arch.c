/* gguf_arch.c - the architectures of GGUF files that we compute, and the names of their tensors */
#include <stdio.h>
#include <string.h>

#include "model/gguf_arch.h"
#include "model/model.h"
#include "model/model_files.h"

#define GEMMA2 (GGUF_PLUS_ONE | GGUF_NORM_AROUND | GGUF_SOFTCAPS | GGUF_WINDOW | GGUF_QUERY_SCALAR)

static const struct gguf_arch archs[] = {
	{ "llama", "llama", GGUF_INTERLEAVED | GGUF_WINDOW, 0 },       /* and Mistral */
	{ "llama", "mixtral", GGUF_INTERLEAVED | GGUF_WINDOW | GGUF_EXPERTS | GGUF_MIXTRAL, 0 },
	{ "qwen2", "qwen2", 0, 0 },
	{ "qwen3", "qwen3", 0, 0 },
	{ "gemma", "gemma", GGUF_PLUS_ONE, 0 },
	{ "gemma2", "gemma2", GEMMA2, 46 },
	{ "gemma3", "gemma3_text", GEMMA2, 62 },
	{ "phi3", "phi3", GGUF_FUSED | GGUF_WINDOW, 0 },
	{ "granite", "granite", GGUF_INTERLEAVED | GGUF_SCALES, 0 },
	{ "olmo2", "olmo2", GGUF_NORM_AFTER, 0 },
	{ "smollm3", "smollm3", GGUF_INTERLEAVED, 0 },
	{ "qwen2moe", "qwen2_moe", GGUF_EXPERTS, 0 },
	{ "qwen3moe", "qwen3_moe", GGUF_EXPERTS | GGUF_RENORMALISED, 0 },
	{ "olmoe", "olmoe", GGUF_EXPERTS, 0 },
	{ "granitemoe", "granitemoe", GGUF_INTERLEAVED | GGUF_SCALES | GGUF_EXPERTS | GGUF_GRANITE,
	    0 },
};

/* The parts of a layer that are called the same in all of them, or in those with this flag: these
 * come first. */
static const struct { const char *gguf, *hub; unsigned flag; } parts[] = {
	{ "attn_qkv", "self_attn.qkv_proj", GGUF_FUSED },
	{ "ffn_up", "mlp.gate_up_proj", GGUF_FUSED },
	{ "ffn_gate_inp", "block_sparse_moe.gate", GGUF_MIXTRAL },
	{ "ffn_gate_exps", "block_sparse_moe.experts.w1", GGUF_MIXTRAL },
	{ "ffn_up_exps", "block_sparse_moe.experts.w3", GGUF_MIXTRAL },
	{ "ffn_down_exps", "block_sparse_moe.experts.w2", GGUF_MIXTRAL },
	{ "ffn_gate_inp", "block_sparse_moe.router.layer", GGUF_GRANITE },
	{ "ffn_gate_exps", "block_sparse_moe.gate_linear", GGUF_GRANITE },
	{ "ffn_up_exps", "block_sparse_moe.up_linear", GGUF_GRANITE },
	{ "ffn_down_exps", "block_sparse_moe.output_linear", GGUF_GRANITE },
	{ "ffn_gate_inp", "mlp.gate", GGUF_EXPERTS },
	{ "ffn_gate_exps", "mlp.experts.gate_proj", GGUF_EXPERTS },
	{ "ffn_up_exps", "mlp.experts.up_proj", GGUF_EXPERTS },
	{ "ffn_down_exps", "mlp.experts.down_proj", GGUF_EXPERTS },
	{ "ffn_gate_inp_shexp", "mlp.shared_expert_gate", GGUF_EXPERTS },
	{ "ffn_gate_shexp", "mlp.shared_expert.gate_proj", GGUF_EXPERTS },
	{ "ffn_up_shexp", "mlp.shared_expert.up_proj", GGUF_EXPERTS },
	{ "ffn_down_shexp", "mlp.shared_expert.down_proj", GGUF_EXPERTS },
	{ "ffn_norm", "pre_feedforward_layernorm", GGUF_NORM_AROUND },
	{ "post_attention_norm", "post_attention_layernorm", GGUF_NORM_AROUND | GGUF_NORM_AFTER },
	{ "post_ffw_norm", "post_feedforward_layernorm", GGUF_NORM_AROUND | GGUF_NORM_AFTER },
	{ "attn_norm", "input_layernorm", 0 }, { "ffn_norm", "post_attention_layernorm", 0 },
	{ "attn_q", "self_attn.q_proj", 0 }, { "attn_k", "self_attn.k_proj", 0 },
	{ "attn_v", "self_attn.v_proj", 0 }, { "attn_output", "self_attn.o_proj", 0 },
	{ "attn_q_norm", "self_attn.q_norm", 0 }, { "attn_k_norm", "self_attn.k_norm", 0 },
	{ "ffn_gate", "mlp.gate_proj", 0 }, { "ffn_up", "mlp.up_proj", 0 },
	{ "ffn_down", "mlp.down_proj", 0 },
};

static const struct { const char *gguf, *hub; } wholes[] = {
	{ "token_embd.weight", "model.embed_tokens.weight" },
	{ "output_norm.weight", "model.norm.weight" },
	{ "output.weight", "lm_head.weight" },
};

/* Has the file experts? */
static int
has_experts(const struct gguf *g)
{
	uint64_t n = 0;
	char err[256];

	return gguf_whole(g, "llama.expert_count", &n, err, sizeof err) == MODEL_OK && n > 0;
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
	char known[240];
	const char *name = NULL;
	size_t len = 0, i;
	int rc = gguf_text(g, "general.architecture", &name, &len, err, errlen);

	if (rc != MODEL_OK)
		return rc;
	if (name == NULL)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path,
		    "no key general.architecture");
	for (i = 0; i < sizeof archs / sizeof archs[0]; i++)
		if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0) {
			/* Mixtral's stands behind that of Llama, under the same name */
			*out = &archs[i == 0 && has_experts(g) ? 1 : i];
			return MODEL_OK;
		}
	list_names(known, sizeof known);
	return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, g->path, "general.architecture "
	    "\"%.*s\" is not supported; supported are %s", len < 64 ? (int)len : 64, name, known);
}

void
gguf_hub_name(const struct gguf_arch *arch, const char *gguf, char *name, size_t size)
{
	const size_t digits = strncmp(gguf, "blk.", 4) == 0 ? strspn(gguf + 4, "0123456789") : 0;
	const char *part = gguf + 4 + digits, *end;
	size_t i, n;

	snprintf(name, size, "%s", gguf);
	for (i = 0; i < sizeof wholes / sizeof wholes[0]; i++)
		if (strcmp(wholes[i].gguf, gguf) == 0)
			snprintf(name, size, "%s", wholes[i].hub);
	if (digits == 0 || *part++ != '.' || (end = strrchr(part, '.')) == NULL ||
	    (strcmp(end, ".weight") != 0 && strcmp(end, ".bias") != 0))
		return;
	n = (size_t)(end - part);
	for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if ((parts[i].flag == 0 || (arch->flags & parts[i].flag)) &&
		    strlen(parts[i].gguf) == n && memcmp(parts[i].gguf, part, n) == 0) {
			snprintf(name, size, "model.layers.%.*s.%s%s", (int)digits, gguf + 4,
			    parts[i].hub, end);
			return;
		}
}
