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
#define COHERE (FAMILY_ATTENTION_BIAS | FAMILY_ADJACENT | FAMILY_PARALLEL | FAMILY_LOGIT_SCALE)
#define GLM (FAMILY_ATTENTION_BIAS | FAMILY_O_PLAIN | FAMILY_ADJACENT | FAMILY_ROPE_WIDTH | \
	NEEDS_KV)
#define GEMMA (FAMILY_NORM_FROM_1 | FAMILY_ROOT_OF_WIDTH | NEEDS_KV)
#define GEMMA2 (FAMILY_ATTENTION_BIAS | FAMILY_QUERY_SCALAR | FAMILY_SOFTCAPS | WINDOW | TYPES)
#define BIASES (FAMILY_ATTENTION_BIAS | FAMILY_MLP_BIAS)
#define LATENT (FAMILY_LATENT | FAMILY_ADJACENT | FAMILY_ATTENTION_BIAS)

#define FILES \
	.embed = "model.embed_tokens", .layers = "model.layers", .norm = "model.norm", \
	.head = "lm_head"
#define ATTENTION \
	.q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", \
	.o = "self_attn.o_proj"
#define HEAD_NORMS .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
/* one for each head, behind a number */
#define NORM_LISTS \
	.q_norm = "self_attn.q_layernorm.norms", .k_norm = "self_attn.k_layernorm.norms"
#define GATED .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define STACKED_GATE .gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj"
#define NO_GATE .up = "mlp.up_proj", .down = "mlp.down_proj"
/* one norm before both, which run beside each other */
#define BOTH .attention_norm = "input_layernorm", .ffn_norm = "input_layernorm"
#define BEFORE .attention_norm = "input_layernorm", .ffn_norm = "post_attention_layernorm"
#define TO_4H .up = "mlp.dense_h_to_4h", .down = "mlp.dense_4h_to_h"
#define FALCON \
	.embed = "transformer.word_embeddings", .layers = "transformer.h", \
	.norm = "transformer.ln_f", .head = "lm_head", \
	.qkv = "self_attention.query_key_value", .o = "self_attention.dense", TO_4H
#define AFTER \
	.attention_adds = "post_attention_layernorm", .ffn_adds = "post_feedforward_layernorm"
#define AROUND \
	.attention_norm = "input_layernorm", .ffn_norm = "pre_feedforward_layernorm", AFTER

static const struct tensor_names
	usual = { FILES, ATTENTION, GATED, BEFORE },
	sinks = { FILES, ATTENTION, BEFORE, .sinks = "self_attn.sinks" },
	head_norms = { FILES, ATTENTION, HEAD_NORMS, GATED, BEFORE },
	stacked = { FILES, .qkv = "self_attn.qkv_proj", .o = "self_attn.o_proj", STACKED_GATE,
	    BEFORE },
	glm = { FILES, ATTENTION, STACKED_GATE, BEFORE },
	glm4 = { FILES, ATTENTION, STACKED_GATE, .attention_norm = "input_layernorm",
	    .attention_adds = "post_self_attn_layernorm", .ffn_norm = "post_attention_layernorm",
	    .ffn_adds = "post_mlp_layernorm" },
	no_gate = { FILES, ATTENTION, NO_GATE, BEFORE },
	starcoder2 = { FILES, ATTENTION, .up = "mlp.c_fc", .down = "mlp.c_proj", BEFORE },
	latent = { FILES, GATED, BEFORE },
	parallel = { FILES, ATTENTION, GATED, BOTH },
	parallel_normed = { FILES, ATTENTION, HEAD_NORMS, GATED, BOTH },
	stablelm_normed = { FILES, ATTENTION, NORM_LISTS, GATED, BEFORE },
	stablelm_parallel_normed = { FILES, ATTENTION, NORM_LISTS, GATED, BOTH },
	gpt_neox = { .embed = "gpt_neox.embed_in", .layers = "gpt_neox.layers",
	    .norm = "gpt_neox.final_layer_norm", .head = "embed_out",
	    .qkv = "attention.query_key_value", .o = "attention.dense", TO_4H, BEFORE },
	falcon_one_norm = { FALCON, BOTH },
	falcon_two_norms = { FALCON, .attention_norm = "ln_attn", .ffn_norm = "ln_mlp" },
	internlm2 = { .embed = "model.tok_embeddings", .layers = "model.layers",
	    .norm = "model.norm", .head = "output", .qkv = "attention.wqkv", .o = "attention.wo",
	    .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2",
	    .attention_norm = "attention_norm", .ffn_norm = "ffn_norm" },
	phi = { .embed = "model.embed_tokens", .layers = "model.layers",
	    .norm = "model.final_layernorm", .head = "lm_head", .q = "self_attn.q_proj",
	    .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.dense",
	    .up = "mlp.fc1", .down = "mlp.fc2", BOTH },
	exaone = { .embed = "transformer.wte", .layers = "transformer.h",
	    .norm = "transformer.ln_f", .head = "lm_head", .q = "attn.attention.q_proj",
	    .k = "attn.attention.k_proj", .v = "attn.attention.v_proj",
	    .o = "attn.attention.out_proj", .gate = "mlp.c_fc_0", .up = "mlp.c_fc_1",
	    .down = "mlp.c_proj", .attention_norm = "ln_1", .ffn_norm = "ln_2" },
	after = { FILES, ATTENTION, HEAD_NORMS, GATED, AFTER },
	apertus = { FILES, ATTENTION, HEAD_NORMS, NO_GATE,
	    .attention_norm = "attention_layernorm", .ffn_norm = "feedforward_layernorm" },
	around = { FILES, ATTENTION, GATED, AROUND },
	gemma3 = { FILES, ATTENTION, HEAD_NORMS, GATED, AROUND };

#define MLP_EXPERTS \
	.router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj", \
	.down = "down_proj", .gate_up = "mlp.experts.gate_up_proj", \
	.all_down = "mlp.experts.down_proj"
#define SHARED_EXPERTS \
	.shared_gate = "mlp.shared_experts.gate_proj", .shared_up = "mlp.shared_experts.up_proj", \
	.shared_down = "mlp.shared_experts.down_proj"
#define GRANITE_EXPERTS \
	.router = "block_sparse_moe.router.layer", .gate_up = "block_sparse_moe.input_linear", \
	.all_gate = "block_sparse_moe.gate_linear", .all_up = "block_sparse_moe.up_linear", \
	.all_down = "block_sparse_moe.output_linear"

static const struct expert_names
	mlp_experts = { MLP_EXPERTS },
	shared_experts = { MLP_EXPERTS, SHARED_EXPERTS,
	    .correction = "mlp.gate.e_score_correction_bias" },
	ernie_experts = { MLP_EXPERTS, SHARED_EXPERTS,
	    .correction = "mlp.moe_statics.e_score_correction_bias" },
	gated_experts = { MLP_EXPERTS, .shared_gate = "mlp.shared_expert.gate_proj",
	    .shared_up = "mlp.shared_expert.up_proj", .shared_down = "mlp.shared_expert.down_proj",
	    .shared_score = "mlp.shared_expert_gate" },
	mixtral_experts = { .router = "block_sparse_moe.gate",
	    .experts = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2" },
	minimax_experts = { .router = "block_sparse_moe.gate",
	    .correction = "block_sparse_moe.e_score_correction_bias",
	    .experts = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2" },
	granite_experts = { GRANITE_EXPERTS },
	granite_shared = { GRANITE_EXPERTS, .shared_gate_up = "shared_mlp.input_linear",
	    .shared_gate = "shared_mlp.gate_linear", .shared_up = "shared_mlp.up_linear",
	    .shared_down = "shared_mlp.output_linear" };

static const struct expert_names
	gpt_oss_experts = { .router = "mlp.router", .gate_up = "mlp.experts.gate_up_proj",
	    .all_gate = "mlp.experts.gate_proj", .all_up = "mlp.experts.up_proj",
	    .all_down = "mlp.experts.down_proj", .in_turns = 1 };

#define DEEPSEEK_ROUTER \
	(EXPERTS_WIDTH | EXPERTS_NORM | EXPERTS_FIRST | EXPERTS_GROUPS | EXPERTS_SCALE | \
	EXPERTS_SHARED | EXPERTS_METHOD | EXPERTS_CORRECTED | EXPERTS_TWO_BEST)

static const struct family_experts
	gpt_oss = { EXPERTS_CLAMPED, 128, 4, 0, 0, ROUTER_SOFTMAX, 1, &gpt_oss_experts },
	mixtral = { 0, 8, 2, 0, 0, ROUTER_SOFTMAX, 1, &mixtral_experts },
	granitemoe = { 0, 8, 2, 0, 0, ROUTER_SOFTMAX, 1, &granite_experts },
	granitemoeshared = { EXPERTS_SHARED_WIDTH, 8, 2, 0, 0, ROUTER_SOFTMAX, 1, &granite_shared },
	olmoe = { EXPERTS_NORM, 64, 8, 0, 0, ROUTER_SOFTMAX, 0, &mlp_experts },
	qwen2_moe = { EXPERTS_WIDTH | EXPERTS_NORM | EXPERTS_STEP | EXPERTS_SHARED_WIDTH, 60, 4, 0,
	    0, ROUTER_SOFTMAX, 0, &gated_experts },
	qwen3_moe = { EXPERTS_WIDTH | EXPERTS_NORM | EXPERTS_STEP, 128, 8, 0, 0, ROUTER_SOFTMAX, 0,
	    &mlp_experts },
	glm4_moe = { DEEPSEEK_ROUTER, 128, 8, 1, 1, ROUTER_SIGMOID, 1, &shared_experts },
	ernie4_5_moe = { EXPERTS_WIDTH | EXPERTS_SHARED | EXPERTS_CORRECTED | EXPERTS_RANGE, 64, 6,
	    2, 1, ROUTER_SOFTMAX, 1, &ernie_experts },
	dots1 = { DEEPSEEK_ROUTER, 0, 0, 0, 0, ROUTER_SIGMOID, 0, &shared_experts },
	deepseek_v2 = { EXPERTS_WIDTH | EXPERTS_FIRST | EXPERTS_GROUPS | EXPERTS_SCALE |
	    EXPERTS_SHARED | EXPERTS_METHOD, 64, 0, 2, 0, ROUTER_SOFTMAX, 0, &shared_experts },
	deepseek_v3 = { DEEPSEEK_ROUTER, 256, 8, 1, 3, ROUTER_SIGMOID, 1, &shared_experts },
	glm4_moe_lite = { DEEPSEEK_ROUTER | EXPERTS_TYPES, 64, 4, 1, 1, ROUTER_SIGMOID, 1,
	    &shared_experts },
	phimoe = { EXPERTS_JITTER, 16, 2, 0, 0, ROUTER_NEAR, 0, &mixtral_experts },
	minimax_m2 = { EXPERTS_METHOD | EXPERTS_CORRECTED, 256, 8, 0, 0, ROUTER_SIGMOID, 1,
	    &minimax_experts };

static const struct key_alias
	gpt_oss_keys[] = { { "num_local_experts", "num_experts" },
	    { "experts_per_token", "num_experts_per_tok" }, { NULL, NULL } },
	local_experts[] = { { "num_local_experts", "num_experts" }, { NULL, NULL } },
	granite_keys[] = { { "num_local_experts", "num_experts" },
	    { "shared_intermediate_size", "shared_expert_intermediate_size" }, { NULL, NULL } },
	qwen2_moe_keys[] = { { "qkv_bias", "attention_bias" }, { NULL, NULL } },
	ernie_keys[] = { { "moe_num_experts", "num_experts" }, { "moe_k", "num_experts_per_tok" },
	    { "moe_num_shared_experts", "n_shared_experts" }, { NULL, NULL } },
	routed_experts[] = { { "n_routed_experts", "num_experts" }, { NULL, NULL } },
	layer_norm_eps[] = { { "layer_norm_eps", "rms_norm_eps" }, { NULL, NULL } },
	norm_eps[] = { { "norm_eps", "rms_norm_eps" }, { NULL, NULL } },
	starcoder2_keys[] = { { "norm_epsilon", "rms_norm_eps" },
	    { "layer_norm_epsilon", "rms_norm_eps" }, { NULL, NULL } },
	stablelm_keys[] = { { "layer_norm_eps", "rms_norm_eps" },
	    { "use_qkv_bias", "attention_bias" }, { NULL, NULL } },
	gpt_neox_keys[] = { { "layer_norm_eps", "rms_norm_eps" },
	    { "rotary_pct", "partial_rotary_factor" }, { "rotary_emb_base", "rope_theta" },
	    { NULL, NULL } },
	falcon_keys[] = { { "layer_norm_epsilon", "rms_norm_eps" }, { "bias", "use_bias" },
	    { "num_kv_heads", "num_key_value_heads" }, { "activation", "hidden_act" },
	    { "ffn_hidden_size", "intermediate_size" }, { NULL, NULL } },
	internlm2_keys[] = { { "bias", "attention_bias" }, { NULL, NULL } },
	exaone_keys[] = { { "num_layers", "num_hidden_layers" },
	    { "layer_norm_epsilon", "rms_norm_eps" }, { "activation_function", "hidden_act" },
	    { NULL, NULL } };

/* Fields that are the same in all forms of a family */
#define GLM4_MOE "glm4_moe", "Glm4MoeForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_O_PLAIN | \
	FAMILY_ROPE_WIDTH | NEEDS_KV, \
	.rope_part = 0.5, .eps = 1e-5, .theta = 1e4, .experts = &glm4_moe, .aliases = routed_experts
#define COHERE_1 "cohere", "CohereForCausalLM", COHERE, \
	.tied = 1, .eps = 1e-5, .theta = 5e5, .norm = NORM_LAYER, .aliases = layer_norm_eps
#define STABLELM(more) "stablelm", "StableLmForCausalLM", FAMILY_ATTENTION_BIAS | \
	FAMILY_O_PLAIN | FAMILY_ROPE_WIDTH | (more), \
	.rope_part = 0.25, .eps = 1e-5, .theta = 1e4, .norm = NORM_LAYER_BIASED, \
	.aliases = stablelm_keys
#define GPT_NEOX(more) "gpt_neox", "GPTNeoXForCausalLM", FAMILY_ATTENTION_BIAS | \
	FAMILY_NETWORK_BIAS | FAMILY_TOGETHER | FAMILY_ROPE_WIDTH | (more), \
	.biased = 1, .rope_part = 0.25, .eps = 1e-5, .theta = 1e4, .names = &gpt_neox, \
	.act = ACT_GELU, .norm = NORM_LAYER_BIASED, .aliases = gpt_neox_keys
#define FALCON_1 "falcon", "FalconForCausalLM", FAMILY_USE_BIAS | FAMILY_TOGETHER | \
	FAMILY_PARALLEL, \
	.ffn_times = 4, .tied = 1, .eps = 1e-5, .theta = 1e4, .act = ACT_GELU, \
	.norm = NORM_LAYER_BIASED, .aliases = falcon_keys

#define PHIMOE(more) "phimoe", "PhimoeForCausalLM", FAMILY_ATTENTION_BIAS | WINDOW | NEEDS_KV | \
	(more), \
	.eps = 1e-5, .theta = 1e6, .names = &usual, .norm = NORM_LAYER_BIASED, \
	.experts = &phimoe, .aliases = local_experts

static const struct family
	phimoe_head_bias = { PHIMOE(FAMILY_HEAD_BIAS) },
	glm4_moe_normed = { GLM4_MOE, .names = &head_norms },
	cohere_normed = { COHERE_1, .names = &parallel_normed, .head_norm = HEAD_NORM_OWN },
	stablelm_12b = { STABLELM(FAMILY_PARALLEL), .names = &stablelm_parallel_normed,
	    .head_norm = HEAD_NORM_OWN },
	stablelm_in_turn = { STABLELM(0), .names = &stablelm_normed, .head_norm = HEAD_NORM_OWN },
	gpt_neox_in_turn = { GPT_NEOX(0) },
	falcon_11b = { FALCON_1, .names = &falcon_one_norm };

/* The forms of a family. What its files leave out is as in the form in the table. */
static const struct family_switch
	glm4_moe_forms[] = { { "use_qk_norm", "true", &glm4_moe_normed }, { NULL, NULL, NULL } },
	cohere_forms[] = { { "use_qk_norm", "true", &cohere_normed }, { NULL, NULL, NULL } },
	stablelm_parallel_forms[] = { { "qk_layernorm", "true", &stablelm_12b },
	    { NULL, NULL, NULL } },
	gpt_neox_forms[] = { { "use_parallel_residual", "true", NULL },
	    { "use_parallel_residual", "false", &gpt_neox_in_turn }, { NULL, NULL, NULL } },
	falcon_40b_forms[] = { { "num_ln_in_parallel_attn", "1", &falcon_11b },
	    { "num_ln_in_parallel_attn", "2", NULL }, { NULL, NULL, NULL } },
	phimoe_forms[] = { { "lm_head_bias", "true", &phimoe_head_bias }, { NULL, NULL, NULL } },
	apertus_forms[] = { { "qk_norm", "true", NULL }, { NULL, NULL, NULL } },
	minimax_m2_forms[] = { { "use_qk_norm", "true", NULL }, { NULL, NULL, NULL } };

static const struct family
	stablelm_parallel = { STABLELM(FAMILY_PARALLEL), .names = &parallel,
	    .switches = stablelm_parallel_forms },
	falcon_40b = { FALCON_1, .names = &falcon_two_norms, .switches = falcon_40b_forms };

static const struct family_switch
	stablelm_forms[] = { { "use_parallel_residual", "true", &stablelm_parallel },
	    { "qk_layernorm", "true", &stablelm_in_turn }, { NULL, NULL, NULL } },
	falcon_forms[] = { { "new_decoder_architecture", "true", &falcon_40b },
	    { NULL, NULL, NULL } };

static const struct family families[] = {
	{ "gpt_oss", "GptOssForCausalLM", FAMILY_ATTENTION_BIAS | WINDOW | TYPES | NEEDS_KV,
	    .head_width = 64, .window = 128, .whole_every = 2, .biased = 1, .eps = 1e-5,
	    .theta = 1.5e5, .names = &sinks, .experts = &gpt_oss, .aliases = gpt_oss_keys },
	{ "mixtral", "MixtralForCausalLM", WINDOW | NEEDS_KV,
	    .eps = 1e-5, .theta = 1e6, .names = &usual, .experts = &mixtral,
	    .aliases = local_experts },
	{ "qwen2_moe", "Qwen2MoeForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_O_PLAIN |
	    FAMILY_WINDOW_SWITCH | NEEDS_KV,
	    .window = 4096, .biased = 1, .eps = 1e-6, .theta = 1e4, .names = &usual,
	    .experts = &qwen2_moe, .aliases = qwen2_moe_keys },
	{ "qwen3_moe", "Qwen3MoeForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_WINDOW_SWITCH |
	    NEEDS_KV,
	    .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &head_norms,
	    .experts = &qwen3_moe, .aliases = local_experts },
	{ "olmoe", "OlmoeForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_CLIP,
	    .eps = 1e-5, .theta = 1e4, .names = &head_norms, .head_norm = HEAD_NORM_WIDE,
	    .experts = &olmoe, .aliases = local_experts },
	{ "granitemoe", "GraniteMoeForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_MULTIPLIERS,
	    .eps = 1e-6, .theta = 1e4, .names = &usual, .experts = &granitemoe,
	    .aliases = granite_keys },
	{ "granitemoeshared", "GraniteMoeSharedForCausalLM", FAMILY_ATTENTION_BIAS |
	    FAMILY_MULTIPLIERS,
	    .eps = 1e-6, .theta = 1e4, .names = &usual, .experts = &granitemoeshared,
	    .aliases = granite_keys },
	{ GLM4_MOE, .names = &usual, .switches = glm4_moe_forms },
	{ "minimax_m2", "MiniMaxM2ForCausalLM", FAMILY_ROPE_WIDTH | FAMILY_PREDICTS |
	    NEEDS_KV,
	    .head_width = 128, .eps = 1e-6, .theta = 5e6, .names = &head_norms,
	    .head_norm = HEAD_NORM_WIDE, .experts = &minimax_m2, .aliases = local_experts,
	    .switches = minimax_m2_forms },
	{ "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", FAMILY_ADJACENT | NEEDS_KV,
	    .tied = 1, .eps = 1e-5, .theta = 5e5, .names = &usual, .experts = &ernie4_5_moe,
	    .aliases = ernie_keys },
	{ PHIMOE(0), .switches = phimoe_forms },
	{ "dots1", "Dots1ForCausalLM", FAMILY_ATTENTION_BIAS | NEEDS_KV,
	    .eps = 1e-6, .theta = 1e4, .names = &head_norms, .experts = &dots1,
	    .aliases = routed_experts },
	{ "llama", "LlamaForCausalLM", BIASES,
	    .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "mistral", "MistralForCausalLM", WINDOW | NEEDS_KV,
	    .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "ministral", "MinistralForCausalLM", WINDOW | TYPES | NEEDS_KV,
	    .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "cwm", "CwmForCausalLM", FAMILY_MLP_BIAS | WINDOW | TYPES | NEEDS_KV,
	    .head_width = 128, .window = 8192, .eps = 1e-5, .theta = 1e6, .names = &usual },
	{ "ministral3", "Ministral3ForCausalLM", WINDOW | FAMILY_QUERY_BETA | NEEDS_KV,
	    .eps = 1e-5, .theta = 1e6, .names = &usual },
	{ "qwen2", "Qwen2ForCausalLM", FAMILY_QKV_BIAS | SWITCH | NEEDS_KV,
	    .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "mimo", "MiMoForCausalLM", FAMILY_QKV_BIAS | SWITCH | FAMILY_PREDICTS | NEEDS_KV,
	    .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "qwen3", "Qwen3ForCausalLM", FAMILY_ATTENTION_BIAS | SWITCH | NEEDS_KV,
	    .head_width = 128, .window = 4096, .eps = 1e-6, .theta = 1e4, .names = &head_norms },
	{ "phi3", "Phi3ForCausalLM", FAMILY_ROPE_WIDTH | WINDOW,
	    .eps = 1e-5, .theta = 1e4, .names = &stacked },
	{ "smollm3", "SmolLM3ForCausalLM", BIASES | FAMILY_ROPE_SKIP | SWITCH | NEEDS_KV,
	    .tied = 1, .eps = 1e-6, .theta = 2e6, .names = &usual },
	{ "granite", "GraniteForCausalLM", BIASES | FAMILY_MULTIPLIERS,
	    .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "olmo2", "Olmo2ForCausalLM", FAMILY_ATTENTION_BIAS,
	    .eps = 1e-5, .theta = 1e4, .names = &after, .head_norm = HEAD_NORM_WIDE },
	{ "olmo3", "Olmo3ForCausalLM", FAMILY_ATTENTION_BIAS | WINDOW | TYPES | FAMILY_PLAIN_WINDOW,
	    .window = 4096, .whole_every = 4, .eps = 1e-5, .theta = 5e5, .names = &after,
	    .head_norm = HEAD_NORM_WIDE },
	{ "exaone4", "Exaone4ForCausalLM", WINDOW | TYPES | FAMILY_WINDOW_ROPE | NEEDS_KV,
	    .window = 4096, .whole_every = 4, .eps = 1e-5, .theta = 1e4, .names = &after },
	{ "glm", "GlmForCausalLM", GLM,
	    .head_width = 128, .biased = 1, .rope_part = 0.5, .eps = 1.5625e-7, .theta = 1e4,
	    .names = &glm },
	{ "glm4", "Glm4ForCausalLM", GLM,
	    .head_width = 128, .biased = 1, .rope_part = 0.5, .eps = 1.5625e-7, .theta = 1e4,
	    .names = &glm4 },
	{ "ernie4_5", "Ernie4_5ForCausalLM", FAMILY_USE_BIAS | FAMILY_ADJACENT | NEEDS_KV,
	    .head_width = 128, .tied = 1, .eps = 1e-5, .theta = 5e5, .names = &usual },
	{ "helium", "HeliumForCausalLM", BIASES | FAMILY_O_PLAIN | FAMILY_ADJACENT | NEEDS_KV,
	    .head_width = 128, .eps = 1e-8, .theta = 1e5, .names = &usual },
	{ "seed_oss", "SeedOssForCausalLM", BIASES | FAMILY_O_PLAIN | NEEDS_KV,
	    .head_width = 128, .biased = 1, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "internlm3", "InternLM3ForCausalLM", NEEDS_KV,
	    .head_width = 128, .eps = 1e-5, .theta = 1e4, .names = &usual },
	{ "exaone", "ExaoneForCausalLM", NEEDS_KV,
	    .eps = 1e-5, .theta = 1e4, .names = &exaone, .aliases = exaone_keys },
	{ "apertus", "ApertusForCausalLM", FAMILY_ATTENTION_BIAS,
	    .eps = 1e-5, .theta = 1.2e7, .names = &apertus, .act = ACT_XIELU,
	    .switches = apertus_forms },
	{ "arcee", "ArceeForCausalLM", BIASES,
	    .eps = 1e-5, .theta = 1e4, .names = &no_gate, .act = ACT_RELU2 },
	{ "nemotron", "NemotronForCausalLM", BIASES | FAMILY_ROPE_WIDTH | FAMILY_NORM_FROM_1,
	    .rope_part = 0.5, .eps = 1e-5, .theta = 1e4, .names = &no_gate, .act = ACT_RELU2,
	    .norm = NORM_LAYER_BIASED, .aliases = norm_eps },
	{ "starcoder2", "Starcoder2ForCausalLM", FAMILY_USE_BIAS | WINDOW | NEEDS_KV,
	    .biased = 1, .tied = 1, .eps = 1e-5, .theta = 1e4, .names = &starcoder2,
	    .act = ACT_GELU_TANH, .norm = NORM_LAYER_BIASED, .aliases = starcoder2_keys },
	{ "phi", "PhiForCausalLM", FAMILY_USE_BIAS | FAMILY_HEAD_BIAS | FAMILY_PARALLEL |
	    FAMILY_ROPE_WIDTH,
	    .biased = 1, .rope_part = 0.5, .eps = 1e-5, .theta = 1e4, .names = &phi,
	    .act = ACT_GELU_TANH, .norm = NORM_LAYER_BIASED, .aliases = layer_norm_eps },
	{ STABLELM(0), .names = &usual, .switches = stablelm_forms },
	{ GPT_NEOX(FAMILY_PARALLEL), .switches = gpt_neox_forms },
	{ FALCON_1, .kv_heads = 1, .names = &falcon_one_norm, .switches = falcon_forms },
	{ "internlm2", "InternLM2ForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_TOGETHER,
	    .eps = 1e-6, .theta = 1e4, .names = &internlm2, .aliases = internlm2_keys },
	{ "olmo", "OlmoForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_CLIP,
	    .eps = 1e-5, .theta = 1e4, .names = &usual, .norm = NORM_LAYER_BARE },
	{ COHERE_1, .names = &parallel, .switches = cohere_forms },
	{ "cohere2", "Cohere2ForCausalLM", COHERE | WINDOW | TYPES | FAMILY_WINDOW_ROPE,
	    .window = 4096, .whole_every = 4, .tied = 1, .eps = 1e-5, .theta = 1e4,
	    .names = &parallel, .norm = NORM_LAYER, .aliases = layer_norm_eps },
	{ "deepseek_v2", "DeepseekV2ForCausalLM", FAMILY_LATENT | FAMILY_ADJACENT | BIASES,
	    .eps = 1e-6, .theta = 1e4, .names = &latent, .experts = &deepseek_v2,
	    .aliases = routed_experts },
	{ "deepseek_v3", "DeepseekV3ForCausalLM", LATENT,
	    .eps = 1e-6, .theta = 1e4, .names = &latent, .experts = &deepseek_v3,
	    .aliases = routed_experts },
	/* DeepSeek-V3 under another name */
	{ "kimi_k2", "DeepseekV3ForCausalLM", LATENT,
	    .eps = 1e-6, .theta = 1e4, .names = &latent, .experts = &deepseek_v3,
	    .aliases = routed_experts },
	{ "glm4_moe_lite", "Glm4MoeLiteForCausalLM", LATENT,
	    .eps = 1e-5, .theta = 1e4, .names = &latent, .experts = &glm4_moe_lite,
	    .aliases = routed_experts },
	{ "minicpm3", "MiniCPM3ForCausalLM", FAMILY_LATENT | BIASES | FAMILY_DEPTH_SCALES,
	    .tied = 1, .eps = 1e-5, .theta = 1e4, .names = &latent },
	{ "minicpm", "MiniCPMForCausalLM", FAMILY_ATTENTION_BIAS | FAMILY_DEPTH_SCALES,
	    .tied = 1, .eps = 1e-6, .theta = 1e4, .names = &usual },
	{ "gemma", "GemmaForCausalLM", GEMMA | FAMILY_ATTENTION_BIAS,
	    .head_width = 256, .tied = 1, .eps = 1e-6, .theta = 1e4, .names = &usual,
	    .act = ACT_GELU_TANH },
	{ "gemma2", "Gemma2ForCausalLM", GEMMA | GEMMA2,
	    .head_width = 256, .window = 4096, .whole_every = 2, .tied = 1, .eps = 1e-6,
	    .theta = 1e4, .attention_softcap = 50, .logits_softcap = 30, .names = &around,
	    .act = ACT_GELU_TANH },
	{ "gemma3_text", "Gemma3ForCausalLM", GEMMA | GEMMA2 | FAMILY_LOCAL_ROPE,
	    .head_width = 256, .window = 4096, .whole_every = 6, .tied = 1, .eps = 1e-6,
	    .theta = 1e6, .names = &gemma3, .act = ACT_GELU_TANH },
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

int
family_has_usual_tensors(const struct family *f)
{
	return (f->names == &usual || f->names == &head_norms) && f->norm == NORM_RMS;
}
