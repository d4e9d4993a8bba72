/* model_families - configurations of families other than Llama's */
#include "model/family.h"
#include "tests/unit/model_config.h"

#define GEMMA3 "'model_type':'gemma3_text','architectures':null,'hidden_act':null," \
	"'hidden_activation':'gelu_pytorch_tanh','-rope_scaling':0,"

#define NEOX "'model_type':'gpt_neox','architectures':null,'hidden_act':'gelu'," \
	"'-num_key_value_heads':0,'-attention_bias':0,"
#define FALCON "'model_type':'falcon','architectures':null,'hidden_act':'gelu'," \
	"'-num_key_value_heads':0,'-intermediate_size':0,'-tie_word_embeddings':0," \
	"'-attention_bias':0,"
#define MINICPM3 "'model_type':'minicpm3','architectures':null,'kv_lora_rank':256," \
	"'q_lora_rank':768,'qk_nope_head_dim':64,'qk_rope_head_dim':32,'scale_emb':12," \
	"'scale_depth':1.4,'dim_model_base':256,"
#define LITE "'model_type':'glm4_moe_lite','architectures':null,'num_hidden_layers':3," \
	"'kv_lora_rank':512,'q_lora_rank':768,'qk_nope_head_dim':192,'qk_rope_head_dim':64," \
	"'v_head_dim':256,'first_k_dense_replace':1,'n_group':1,'topk_group':1," \
	"'routed_scaling_factor':1.8,'moe_intermediate_size':12,"
#define PHIMOE "'model_type':'phimoe','architectures':['PhiMoEForCausalLM']," \
	"'num_local_experts':8,"
#define MINIMAX "'model_type':'minimax_m2','architectures':null,'use_qk_norm':true," \
	"'use_mtp':true,'num_local_experts':8,'num_experts_per_tok':2,"
#define MINISTRAL3 "'model_type':'ministral3','architectures':null,'-rope_theta':0,"
#define EXAONE4 "'model_type':'exaone4','architectures':null,'-rope_scaling':0,"

/* Windows that are switched off count as absent; in a family that has none, others end the text. */
static void
test_windows(void)
{
	struct model m = accept("{'sliding_window':4096}", NULL);
	uint32_t l;

	CHECK(m.position_end == 4096 && strstr(m.position_why, "sliding window") != NULL,
	    "%u", m.position_end);
	m = accept("{'sliding_window':4096,'use_sliding_window':false}", NULL);
	CHECK(m.position_end == UINT32_MAX, "switched off: %u", m.position_end);
	m = accept("{'sliding_window':9,'layer_types':['full_attention','full_attention']}", NULL);
	CHECK(m.position_end == UINT32_MAX, "no layer slides: %u", m.position_end);
	m = accept("{'layer_types':['full_attention','sliding_attention'],'sliding_window':9}",
	    NULL);
	CHECK(m.position_end == 9, "one layer slides: %u", m.position_end);
	m = accept("{'model_type':'mistral','architectures':['MistralForCausalLM']}", NULL);
	CHECK(m.position_end == UINT32_MAX && m.id.window == 4096 &&
	    kv_layer_window(&m.id, 0) == 4096 && kv_layer_window(&m.id, 15) == 4096,
	    "Mistral's default: %u", m.id.window);
	CHECK(strcmp(m.id.architecture, "mistral") == 0, "%s", m.id.architecture);
	m = accept("{'model_type':'mistral','architectures':null,'sliding_window':null}", NULL);
	CHECK(m.position_end == UINT32_MAX && m.id.window == 0, "Mistral 0.3: %u", m.id.window);
	m = accept("{'model_type':'mistral','architectures':null,'sliding_window':4096,"
	    "'layer_types':['full_attention']}", NULL);
	CHECK(m.id.window == 0, "no layer of Mistral slides: %u", m.id.window);
	m = accept("{'model_type':'gemma2','architectures':null,'hidden_act':'gelu_pytorch_tanh',"
	    "'head_dim':64,'-rope_scaling':0}", NULL);
	for (l = 0; l < 16; l++)
		CHECK(kv_layer_window(&m.id, l) == (l % 2 == 0 ? 4096 : 0), "Gemma 2, layer %u", l);
	CHECK(m.id.attention_softcap == 50 && m.id.logits_softcap == 30 && m.query_scale == 0.5f,
	    "Gemma 2's defaults: %g %g %g", m.id.attention_softcap, m.id.logits_softcap,
	    m.query_scale);
	m = accept("{" GEMMA3 "'sliding_window':512,'attn_logit_softcapping':null}", NULL);
	for (l = 0; l < 16; l++)
		CHECK(kv_layer_window(&m.id, l) == (l % 6 == 5 ? 0 : 512), "Gemma 3, layer %u", l);
	CHECK(m.id.rope_window_theta == 1e4 && m.id.attention_softcap == 0, "Gemma 3");
	m = accept("{" GEMMA3 "'rope_local_base_freq':500000.0,'sliding_window_pattern':3}", NULL);
	CHECK(m.id.rope_window_theta == 0 && kv_layer_window(&m.id, 2) == 0 &&
	    kv_layer_window(&m.id, 3) == 4096, "the same theta everywhere");
	m = accept("{'model_type':'olmo3','architectures':null}", NULL);
	CHECK(m.id.rope_window_theta == m.id.rope_theta && kv_layer_window(&m.id, 2) == 4096 &&
	    kv_layer_window(&m.id, 3) == 0, "OLMo 3: %g", m.id.rope_window_theta);
	m = accept("{'model_type':'olmo3','architectures':null,'-rope_scaling':0,'rope_theta':7,"
	    "'rope_parameters':{'full_attention':{'rope_type':'linear','factor':2,'rope_theta':7},"
	    "'sliding_attention':{'rope_type':'default','rope_theta':9}}}", NULL);
	CHECK(m.id.rope_window_theta == 9 && m.id.rope_theta == 7 &&
	    m.id.rope_type == KV_ROPE_LINEAR, "OLMo 3: %g", m.id.rope_window_theta);
	m = accept("{" EXAONE4 "'sliding_window_pattern':'LLLG'}", NULL);
	CHECK(kv_layer_window(&m.id, 2) == 4096 && kv_layer_window(&m.id, 15) == 0 &&
	    m.id.rope_skip == 4, "EXAONE 4: %u", m.id.rope_skip);
	m = accept("{" EXAONE4 "'sliding_window':null}", NULL);
	CHECK(m.id.window == 0 && m.id.rope_skip == 0, "EXAONE 4, small: %u", m.id.rope_skip);
	m = accept("{'rope_scaling':{'type':'dynamic','factor':4}}", NULL);
	CHECK(m.position_end == 131072 && m.id.rope_type == KV_ROPE_DEFAULT, "dynamic: %u",
	    m.position_end);
}

/* Biases that are there where nothing says so, and a part of the head that is rotated. */
static void
test_glm(void)
{
	struct model m = accept("{'model_type':'glm4','architectures':null,'-rope_scaling':0,"
	    "'-attention_bias':0,'-rms_norm_eps':0,'-head_dim':0}", NULL);

	CHECK(m.id.attention_bias == 1 && m.id.rope_width == 64 && m.id.head_width == 128 &&
	    m.id.norm_eps == 1.5625e-7, "GLM-4: %u", m.id.rope_width);
	m = accept("{'model_type':'glm','architectures':null,'-rope_scaling':0,"
	    "'attention_bias':false,'partial_rotary_factor':1.0}", NULL);
	CHECK(m.id.attention_bias == 0 && m.id.rope_width == 0, "GLM: %u", m.id.rope_width);
}

/* Keys that have another name in a family, and what is there where nothing says so. */
static void
test_names(void)
{
	struct model m = accept("{'model_type':'exaone','architectures':null,'-rms_norm_eps':0,"
	    "'-num_hidden_layers':0,'-hidden_act':0,'num_layers':7,'layer_norm_epsilon':1e-3,"
	    "'activation_function':'silu'}", NULL);

	CHECK(m.id.layers == 7 && m.id.norm_eps == 1e-3, "EXAONE: %u", m.id.layers);
	m = accept("{'model_type':'starcoder2','architectures':null,'-rms_norm_eps':0,"
	    "'norm_epsilon':1e-3,'layer_norm_epsilon':1e-3,'hidden_act':'gelu_pytorch_tanh'}",
	    NULL);
	CHECK(m.id.attention_bias && m.id.mlp_bias && m.id.norm_eps == 1e-3 && m.id.window == 0,
	    "StarCoder2");
	m = accept("{'model_type':'starcoder2','architectures':null,'use_bias':false,"
	    "'hidden_act':'gelu_pytorch_tanh'}", NULL);
	CHECK(!m.id.attention_bias && !m.id.mlp_bias, "StarCoder2 without biases");
	m = accept("{'model_type':'stablelm','architectures':null,'-attention_bias':0,"
	    "'-rope_scaling':0,'use_qkv_bias':true}", NULL);
	CHECK(m.id.attention_bias && m.id.rope_width == 16, "StableLM: %u", m.id.rope_width);
	m = accept("{'model_type':'cohere','architectures':null}", NULL);
	CHECK(m.logits_scale == 0.0625f && m.id.logits_scaling == 16 && m.id.tied_embeddings,
	    "Command R: %g", m.id.logits_scaling);
	m = accept("{'model_type':'cohere2','architectures':null,'logit_scale':1}", NULL);
	CHECK(m.id.logits_scaling == 0 && m.id.rope_skip == 4 && kv_layer_window(&m.id, 0) == 4096,
	    "Command R7B: %u", m.id.rope_skip);
}

#define TEXT "'model_type':'gemma3','architectures':['Gemma3ForConditionalGeneration']," \
	"'-hidden_act':0,'-head_dim':0,'-rope_scaling':0,'-rope_theta':0,'-hidden_size':0," \
	"'-num_attention_heads':0,'-num_key_value_heads':0,'-vocab_size':0,'vision_config':{}," \
	"'-bos_token_id':0,'-eos_token_id':0,'text_config':{'model_type':'gemma3_text'," \
	"'hidden_size':2560,'num_hidden_layers':34"

/* The text part of a model that sees images: its keys, those around it, and what files leave out */
static void
test_text_part(void)
{
	struct model m = accept("{" TEXT "},'eos_token_id':[1,106]}", NULL);

	CHECK(m.wrapped && strcmp(m.id.architecture, "gemma3_text") == 0, "%s", m.id.architecture);
	CHECK(m.id.layers == 34 && m.id.query_heads == 8 && m.id.kv_heads == 4 &&
	    m.id.vocabulary == 262208 && m.id.head_width == 256 && m.n_eos == 2, "Gemma 3");
	m = accept("{}", NULL);
	CHECK(!m.wrapped, "Llama");
}

/* Queries that depend on their position. */
static void
test_query_beta(void)
{
	struct model m = accept("{" MINISTRAL3 "'rope_scaling':null,'rope_parameters':{"
	    "'rope_type':'yarn','type':'yarn','factor':16,'original_max_position_embeddings':16384,"
	    "'mscale':1,'mscale_all_dim':1.0,'llama_4_scaling_beta':0.1,"
	    "'max_position_embeddings':131072}}", NULL);

	CHECK(m.id.rope_query_beta == 0.1 && m.id.rope_theta == 1e6 &&
	    m.id.rope_attention_factor == 1, "%g %g", m.id.rope_query_beta,
	    m.id.rope_attention_factor);
	m = accept("{" MINISTRAL3 "'rope_scaling':null,'rope_parameters':{"
	    "'rope_type':'yarn','factor':64,'original_max_position_embeddings':4096,"
	    "'mscale':1,'mscale_all_dim':0,'llama_4_scaling_beta':0}}", NULL);
	CHECK(m.id.rope_query_beta == 0 && m.id.rope_attention_factor > 1.4, "%g %g",
	    m.id.rope_query_beta, m.id.rope_attention_factor);
	m = accept("{'rope_scaling':{'type':'yarn','factor':4,'llama_4_scaling_beta':0}}", NULL);
	CHECK(m.id.rope_query_beta == 0, "Llama: %g", m.id.rope_query_beta);
}

/* What a family's own keys become. */
static void
test_families(void)
{
	struct model m = accept("{'model_type':'smollm3','architectures':null,"
	    "'-tie_word_embeddings':0,'-rope_scaling':0,'-rope_theta':0}", NULL);

	CHECK(m.id.rope_skip == 4 && m.id.tied_embeddings && m.id.rope_theta == 2e6, "SmolLM3");
	m = accept("{'model_type':'smollm3','architectures':null,"
	    "'no_rope_layers':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", NULL);
	CHECK(m.id.rope_skip == 0, "all layers rotate: %u", m.id.rope_skip);
	m = accept("{'model_type':'phi3','architectures':null,'rope_scaling':null,"
	    "'rope_parameters':{'rope_type':'default','partial_rotary_factor':0.75}}", NULL);
	CHECK(m.id.rope_width == 48, "Phi-3: %u", m.id.rope_width);
	m = accept("{'model_type':'qwen2','architectures':null,'sliding_window':4096,"
	    "'max_window_layers':8}", NULL);
	CHECK(m.id.attention_bias == 1 && m.position_end == UINT32_MAX, "Qwen2");
	m = accept("{'model_type':'qwen2','architectures':null,'sliding_window':4096,"
	    "'use_sliding_window':true,'max_window_layers':16}", NULL);
	CHECK(m.id.window == 0, "no layer of Qwen2 has the window");
	m = accept("{'model_type':'qwen2','architectures':null,'sliding_window':4096,"
	    "'use_sliding_window':true,'max_window_layers':15}", NULL);
	CHECK(m.id.window == 4096 && kv_layer_window(&m.id, 14) == 0 &&
	    kv_layer_window(&m.id, 15) == 4096, "the last layer of Qwen2 has the window");
	m = accept("{'model_type':'granite','architectures':null,'attention_multiplier':0.015625,"
	    "'embedding_multiplier':12,'logits_scaling':8,'residual_multiplier':1.0}", NULL);
	CHECK(m.id.attention_multiplier == 0.015625 && m.query_scale == 0.125f, "%g",
	    m.query_scale);
	CHECK(m.id.embedding_multiplier == 12 && m.embedding_scale == 12 &&
	    m.id.logits_scaling == 8 && m.logits_scale == 0.125f &&
	    m.id.residual_multiplier == 0 && m.residual_scale == 1, "Granite");
	m = accept("{'model_type':'phi3','architectures':null,'head_dim':4,"
	    "'original_max_position_embeddings':4096,'rope_scaling':{'type':'longrope',"
	    "'short_factor':[1,2.5],'long_factor':[1,32]}}", NULL);
	CHECK(m.id.rope_n_factors == 2 && m.id.rope_factors[1] == 2.5 && m.rope_switch == 4096 &&
	    fabs(m.id.rope_attention_factor - 1.1902380714238083) < 1e-15, "longrope: %.17g",
	    m.id.rope_attention_factor);
	m = accept("{'model_type':'qwen3','architectures':null,'-head_dim':0}", NULL);
	CHECK(m.id.head_width == 128 && m.query_scale == 1, "Qwen3: %u", m.id.head_width);
}

#define V2 "'model_type':'deepseek_v2','architectures':null,'-rope_scaling':0," \
	"'first_k_dense_replace':16,'moe_intermediate_size':9,'num_experts_per_tok':2,"

/* Latent attention: rows of one KV head, the scale of its logits, and who rotates how. */
static void
test_latent(void)
{
	struct model m = accept("{" V2 "'q_lora_rank':null}", NULL);

	CHECK(m.id.kv_heads == 1 && m.id.head_width == 576 && m.id.latent_rank == 512 &&
	    m.id.rope_width == 64 && m.id.latent_nope == 128 && m.id.latent_value == 128 &&
	    m.latent_query_rank == 0 && m.latent_adjacent, "V2-Lite: %u", m.id.head_width);
	CHECK(fabs(m.id.attention_multiplier - 1 / sqrt(192)) < 1e-15 &&
	    fabsf(m.query_scale - (float)sqrt(3)) < 1e-6f, "%g", m.query_scale);
	CHECK(kv_rope_dims(&m.id, 3) == 64 && kv_rope_first(&m.id) == 512, "the last channels");
	m = accept("{" V2 "'kv_lora_rank':56,'qk_rope_head_dim':16,'qk_nope_head_dim':24,"
	    "'v_head_dim':40,'rope_scaling':{'type':'yarn','factor':40,'mscale':0.707,"
	    "'mscale_all_dim':0.707,'original_max_position_embeddings':4096}}", NULL);
	CHECK(m.latent_query_rank == 1536 && m.id.head_width == 72, "V2: %u",
	    m.latent_query_rank);
	CHECK(fabs(m.id.attention_multiplier - pow(0.0707 * log(40) + 1, 2) / sqrt(40)) < 1e-15 &&
	    m.id.rope_attention_factor == 1, "yarn: %.17g", m.id.attention_multiplier);
	m = accept("{'model_type':'deepseek_v3','architectures':null,'num_hidden_layers':3,"
	    "'rope_interleave':false,'num_nextn_predict_layers':1,'moe_intermediate_size':9,"
	    "'first_k_dense_replace':3}", NULL);
	CHECK(!m.latent_adjacent && m.id.rope_type == KV_ROPE_LLAMA3, "halves");
}

/* Families that have more than one form, by keys of their own */
static void
test_forms(void)
{
	struct model m = accept("{'model_type':'stablelm','architectures':null,"
	    "'use_parallel_residual':true,'qk_layernorm':true}", NULL);

	CHECK((m.family->flags & FAMILY_PARALLEL) && m.family->head_norm == HEAD_NORM_OWN &&
	    strcmp(m.family->names->ffn_norm, "input_layernorm") == 0, "StableLM 2 12B");
	m = accept("{'model_type':'stablelm','architectures':null,'use_parallel_residual':false,"
	    "'qk_layernorm':true}", NULL);
	CHECK(!(m.family->flags & FAMILY_PARALLEL) && m.family->head_norm == HEAD_NORM_OWN,
	    "norms of heads alone");
	m = accept("{" NEOX "'use_parallel_residual':true}", NULL);
	CHECK((m.family->flags & FAMILY_PARALLEL) && m.id.attention_bias && m.id.mlp_bias &&
	    m.id.rope_width == 16 && m.id.kv_heads == 32, "Pythia: %u", m.id.rope_width);
	m = accept("{" NEOX "'use_parallel_residual':false,'attention_bias':false}", NULL);
	CHECK(!(m.family->flags & FAMILY_PARALLEL) && !m.id.attention_bias && m.id.mlp_bias,
	    "GPT-NeoX in turn");
	m = accept("{" FALCON "'num_kv_heads':32}", NULL);
	CHECK(m.id.kv_heads == 1 && m.id.ffn == 4 * 2048 && m.id.tied_embeddings &&
	    !m.id.attention_bias && strcmp(m.family->names->ffn_norm, "input_layernorm") == 0,
	    "Falcon 7B: %u", m.id.kv_heads);
	m = accept("{" FALCON "'num_kv_heads':8,'new_decoder_architecture':true,'bias':true}",
	    NULL);
	CHECK(m.id.kv_heads == 8 && m.id.attention_bias && m.id.mlp_bias &&
	    strcmp(m.family->names->ffn_norm, "ln_mlp") == 0, "Falcon 40B: %u", m.id.kv_heads);
	m = accept("{" FALCON "'num_kv_heads':8,'new_decoder_architecture':true,"
	    "'num_ln_in_parallel_attn':1,'ffn_hidden_size':900}", NULL);
	CHECK(m.id.ffn == 900 && strcmp(m.family->names->ffn_norm, "input_layernorm") == 0,
	    "Falcon 11B: %u", m.id.ffn);
}

/* Scales, clamps and widths under other names */
static void
test_other_names(void)
{
	struct model m = accept("{'model_type':'minicpm','architectures':null,'scale_emb':12,"
	    "'scale_depth':1.4,'dim_model_base':256,'mup_denominator':32}", NULL);

	CHECK(m.embedding_scale == 12 && m.residual_scale == 0.35f && m.logits_scale == 0.125f &&
	    m.id.logits_scaling == 8 && m.query_scale == 1, "MiniCPM: %g", m.residual_scale);
	m = accept("{" MINICPM3 "'mlp_bias':false}", NULL);
	CHECK(m.id.latent_value == 64 && m.id.head_width == 288 && !m.latent_adjacent &&
	    m.id.tied_embeddings && m.residual_scale == 0.35f &&
	    m.id.rope_type == KV_ROPE_LLAMA3, "MiniCPM3: %u", m.id.head_width);
	m = accept("{" LITE "'mlp_layer_types':['dense','sparse','sparse']}", NULL);
	CHECK(m.latent_adjacent && !model_layer_has_experts(&m, 0) &&
	    model_layer_has_experts(&m, 2) && m.mixture.router.renormalise, "GLM-4.7-Flash");
	m = accept("{" MINIMAX "'rotary_dim':32}", NULL);
	CHECK(m.id.rope_width == 32 && m.mixture.corrected && m.mixture.predicts &&
	    m.mixture.router.scores == ROUTER_SIGMOID, "MiniMax-M2: %u", m.id.rope_width);
	m = accept("{'model_type':'olmo','architectures':null,'clip_qkv':8.0}", NULL);
	CHECK(m.clip == 8, "OLMo: %g", m.clip);
	m = accept("{" PHIMOE "'lm_head_bias':true,'attention_bias':true}", NULL);
	CHECK((m.family->flags & FAMILY_HEAD_BIAS) && m.mixture.router.scores == ROUTER_NEAR &&
	    m.mixture.router.margin == 0.02f && m.mixture.router.chosen == 2, "Phi-3.5-MoE");
	m = accept("{" PHIMOE "'router_jitter_noise':0.0}", NULL);
	CHECK(!(m.family->flags & FAMILY_HEAD_BIAS) && m.mixture.router.margin == 0,
	    "without noise");
	m = accept("{'model_type':'mimo','architectures':null,'num_nextn_predict_layers':1,"
	    "'attention_bias':true}", NULL);
	CHECK(m.mixture.predicts && m.mixture.router.experts == 0 && m.id.attention_bias, "MiMo");
}

/* ---- refused ---- */

#define SMOLLM3 "'model_type':'smollm3','architectures':null,"
#define PHI3 "'model_type':'phi3','architectures':null,"

#define PHI2 "'model_type':'phi','architectures':null,'hidden_act':'gelu_new',"
#define COHERE "'model_type':'cohere','architectures':null,"

static const struct {
	const char *patch;
	int code;
	const char *message;
} refused[] = {
	{ "{'model_type':'mpt','foo':1}", MODEL_EUNSUPPORTED,
	    "model_type \"mpt\" is not supported (positions by ALiBi)" },
	{ "{'model_type':'no_such'}", MODEL_EUNSUPPORTED,
	    "model_type \"no_such\" is not supported: kvpipe(7), Families, lists what is" },
	{ "{'model_type':'hunyuan_v1_dense'}", MODEL_EUNSUPPORTED,
	    "(norms of queries and keys behind rotary embedding)" },
	{ "{'model_type':'qwen3_5'}", MODEL_EUNSUPPORTED, "(linear attention)" },
	{ "{'model_type':'deepseek_v3','architectures':null}", MODEL_EINVALID,
	    "no \"n_group\"" },
	{ "{" V2 "'norm_topk_prob':true}", MODEL_EUNSUPPORTED, "norm_topk_prob true is not" },
	{ "{" V2 "'qk_rope_head_dim':33}", MODEL_EINVALID, "qk_rope_head_dim 33 is odd" },
	{ "{" V2 "'kv_lora_rank':1000}", MODEL_EUNSUPPORTED, "make up rows of 1064" },
	{ "{" V2 "'kv_lora_rank':0}", MODEL_EINVALID, "\"kv_lora_rank\" is" },
	{ "{" V2 "'v_head_dim':1.5}", MODEL_EINVALID, "\"v_head_dim\" is" },
	{ "{" V2 "'rope_interleave':false}", MODEL_EUNSUPPORTED,
	    "deepseek_v2 rotates channels that stand side by side" },
	{ "{'kv_lora_rank':512}", MODEL_EUNSUPPORTED, "kv_lora_rank 512 is not supported" },
	{ "{" PHI2 "'qk_layernorm':true}", MODEL_EUNSUPPORTED, "qk_layernorm true is not" },
	{ "{" PHI2 "'hidden_act':'gelu'}", MODEL_EUNSUPPORTED, "hidden_act \"gelu\" is not" },
	{ "{'model_type':'cohere2','architectures':null,'use_qk_norm':true}", MODEL_EUNSUPPORTED,
	    "use_qk_norm true is not" },
	{ "{" COHERE "'rms_norm_eps':1e-6,'layer_norm_eps':1e-5}", MODEL_EINVALID,
	    "rms_norm_eps and layer_norm_eps differ (--allow-config layer_norm_eps ignores it)" },
	{ "{'clip_qkv':8.0}", MODEL_EUNSUPPORTED, "clip_qkv 8.0 is not supported" },
	{ "{'model_type':'olmo','architectures':null,'clip_qkv':-1}", MODEL_EINVALID,
	    "\"clip_qkv\" is not a number above 0" },
	{ "{'model_type':'seed_oss','architectures':null,'attention_out_bias':true}",
	    MODEL_EUNSUPPORTED, "attention_out_bias true is not supported" },
	{ "{'model_type':'stablelm','architectures':null,'use_parallel_residual':1}",
	    MODEL_EUNSUPPORTED, "use_parallel_residual 1 is not supported" },
	{ "{" FALCON "'alibi':true}", MODEL_EUNSUPPORTED, "alibi true is not supported" },
	{ "{" FALCON "'parallel_attn':false}", MODEL_EUNSUPPORTED, "parallel_attn false" },
	{ "{" FALCON "'multi_query':false}", MODEL_EUNSUPPORTED, "multi_query false" },
	{ "{" FALCON "'num_ln_in_parallel_attn':2}", MODEL_EUNSUPPORTED,
	    "num_ln_in_parallel_attn 2 is not supported" },
	{ "{" FALCON "'new_decoder_architecture':true,'num_ln_in_parallel_attn':3}",
	    MODEL_EUNSUPPORTED, "num_ln_in_parallel_attn 3 is not supported" },
	{ "{'model_type':'minicpm','architectures':null,'scale_emb':12,'scale_depth':1.4}",
	    MODEL_EINVALID, "no \"dim_model_base\"" },
	{ "{" MINICPM3 "'rope_interleave':true}", MODEL_EUNSUPPORTED,
	    "rope_interleave true: minicpm3 rotates channels that stand side by side in two "
	    "halves" },
	{ "{" MINICPM3 "'-kv_lora_rank':0}", MODEL_EINVALID, "no \"kv_lora_rank\"" },
	{ "{" LITE "'mlp_layer_types':['dense']}", MODEL_EINVALID,
	    "mlp_layer_types: 1 layers, not 3 (--allow-config mlp_layer_types ignores it)" },
	{ "{" LITE "'mlp_layer_types':['dense','dense','sparse']}", MODEL_EINVALID,
	    "mlp_layer_types: layer 1 is not as first_k_dense_replace has it" },
	{ "{" LITE "'-routed_scaling_factor':0}", MODEL_EINVALID, "no \"routed_scaling" },
	{ "{" MINIMAX "'attn_type_list':[1,0]}", MODEL_EUNSUPPORTED,
	    "attn_type_list: layers with linear attention are not supported" },
	{ "{" MINIMAX "'use_routing_bias':false}", MODEL_EUNSUPPORTED, "use_routing_bias false" },
	{ "{" MINIMAX "'rotary_dim':66}", MODEL_EINVALID, "\"rotary_dim\" is 66, not 1 to 64" },
	{ "{" MINIMAX "'rotary_dim':31}", MODEL_EINVALID, "31 channels" },
	{ "{" MINIMAX "'rotary_dim':32,'partial_rotary_factor':0.25}", MODEL_EINVALID,
	    "rotary_dim is 32, and partial_rotary_factor says 16" },
	{ "{'model_type':'cwm','architectures':null,'layer_types':null}", MODEL_EINVALID,
	    "no \"layer_types\", which a model of type cwm has" },
	{ "{'num_nextn_predict_layers':1}", MODEL_EUNSUPPORTED, "num_nextn_predict_layers 1" },
	{ "{" TEXT ",'mystery':1}}", MODEL_EUNSUPPORTED, "unknown key \"mystery\"" },
	{ "{" TEXT "},'mystery':1}", MODEL_EUNSUPPORTED, "unknown key \"mystery\"" },
	{ "{" TEXT "},'quantization_config':{'quant_method':'hqq'}}", MODEL_EUNSUPPORTED,
	    "quantised weights (hqq)" },
	{ "{'model_type':'mistral3','architectures':null,'text_config':{'model_type':'qwen2'}}",
	    MODEL_EUNSUPPORTED, "text_config: model_type \"qwen2\" is not supported in a model" },
	{ "{'model_type':'mistral3','text_config':{'model_type':'mistral'}}", MODEL_EUNSUPPORTED,
	    "want Mistral3ForConditionalGeneration" },
	{ "{'num_layers':8}", MODEL_EUNSUPPORTED, "unknown key \"num_layers\"" },
	{ "{'model_type':'bert'}", MODEL_EUNSUPPORTED, "\"bert\" is not supported (an encoder)" },
	{ "{'model_type':'mimo_v2_flash'}", MODEL_EUNSUPPORTED, "(a mixture of experts)" },
	{ "{" PHIMOE "'num_experts_per_tok':3}", MODEL_EUNSUPPORTED,
	    "num_experts_per_tok is 3: models of type phimoe take two" },
	{ "{" PHIMOE "'router_jitter_noise':-1}", MODEL_EINVALID, "\"router_jitter_noise\"" },
	{ "{" PHIMOE "'head_dim':4,'rope_scaling':{'type':'longrope','short_factor':[1,2],"
	    "'long_factor':[1,2],'original_max_position_embeddings':64,'short_mscale':1.1,"
	    "'long_mscale':1.2}}", MODEL_EUNSUPPORTED, "short_mscale and long_mscale differ" },
	{ "{" PHI3 "'head_dim':4,'rope_scaling':{'type':'longrope','short_factor':[1,2],"
	    "'long_factor':[1,2],'original_max_position_embeddings':64,'short_mscale':1.1}}",
	    MODEL_EUNSUPPORTED, "models of type phi3 have no short_mscale" },
	{ "{'model_type':'apertus','architectures':null,'hidden_act':'xielu','post_norm':true}",
	    MODEL_EUNSUPPORTED, "post_norm true is not supported" },
	{ "{'model_type':'apertus','architectures':null,'hidden_act':'xielu','-rope_scaling':0}",
	    MODEL_EINVALID, "no \"rope_scaling\", which a model of type apertus has" },
	{ "{'qk_norm':true}", MODEL_EUNSUPPORTED, "qk_norm true is not supported" },
	{ "{'model_type':'mistral','architectures':null,'mlp_bias':true}", MODEL_EUNSUPPORTED,
	    "mlp_bias true is not supported" },
	{ "{" SMOLLM3 "'no_rope_layers':[1,0]}", MODEL_EINVALID, "no_rope_layers: 2 layers, " },
	{ "{" SMOLLM3 "'no_rope_layers':[1,1,0,1,1,1,1,1,1,1,1,1,1,1,1,1]}", MODEL_EUNSUPPORTED,
	    "only a regular interval is supported (layer 5 does not fit)" },
	{ "{" PHI3 "'partial_rotary_factor':0.3}", MODEL_EINVALID, "is 19 channels" },
	{ "{" PHI3 "'attention_bias':true}", MODEL_EUNSUPPORTED, "attention_bias true" },
	{ "{'model_type':'granite','architectures':null,'attention_multiplier':0}", MODEL_EINVALID,
	    "\"attention_multiplier\" is not a number above 0" },
	{ "{'model_type':'qwen2','architectures':null,'-num_key_value_heads':0}", MODEL_EINVALID,
	    "no \"num_key_value_heads\"" },
	{ "{'model_type':'ministral','architectures':null,'layer_types':['sliding_attention']}",
	    MODEL_EINVALID, "layer_types: 1 layers, not 16" },
	{ "{'model_type':'mistral','architectures':null,'layer_types':['sliding_attention',"
	    "'full_attention']}", MODEL_EUNSUPPORTED, "have the same window in all layers" },
	{ "{'model_type':'gemma2','architectures':null}", MODEL_EUNSUPPORTED,
	    "hidden_act \"silu\" is not supported" },
	{ "{" GEMMA3 "'use_bidirectional_attention':true}", MODEL_EUNSUPPORTED,
	    "use_bidirectional_attention true" },
	{ "{" GEMMA3 "'rope_parameters':{'full_attention':{},"
	    "'sliding_attention':{'rope_type':'yarn'}}}", MODEL_EUNSUPPORTED, "type of sliding_" },
	{ "{" EXAONE4 "'sliding_window_pattern':'LLG'}", MODEL_EUNSUPPORTED,
	    "only a regular interval of layers that see all is supported (layer 15 does not fit)" },
	{ "{'model_type':'gemma3'}", MODEL_EUNSUPPORTED, "its text part is gemma3_text" },
	{ "{" MINISTRAL3 "'rope_scaling':{'type':'yarn','factor':4,'max_position_embeddings':9}}",
	    MODEL_EUNSUPPORTED, "key \"max_position_embeddings\" is unknown for this type" },
	{ "{" PHI3 "'head_dim':4,'rope_scaling':{'type':'longrope','short_factor':[1,2],"
	    "'long_factor':[1,0]}}", MODEL_EINVALID, "long_factor: element 1 is not a number" },
	{ "{" PHI3 "'head_dim':4,'rope_scaling':{'type':'longrope','short_factor':[1,2],"
	    "'long_factor':[1,2]}}", MODEL_EINVALID, "no \"original_max_position_embeddings\"" },
};

static void
test_refused(void)
{
	struct model m;
	char err[1024];
	size_t i;
	int rc;

	for (i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		rc = try(refused[i].patch, NULL, &m, err, sizeof err);
		check_refused(refused[i].patch, rc, refused[i].code, err, refused[i].message);
	}
}

int
main(void)
{
	make_scratch();
	test_windows();
	test_query_beta();
	test_glm();
	test_names();
	test_text_part();
	test_families();
	test_latent();
	test_forms();
	test_other_names();
	test_refused();
	return failures != 0;
}
