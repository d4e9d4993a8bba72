/* model_families - configurations of families other than Llama's */
#include "tests/unit/model_config.h"

#define GEMMA3 "'model_type':'gemma3_text','architectures':null,'hidden_act':null," \
	"'hidden_activation':'gelu_pytorch_tanh','-rope_scaling':0,"

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
	{ "{'model_type':'gpt_neox','foo':1}", MODEL_EUNSUPPORTED,
	    "model_type \"gpt_neox\" is not supported (queries, keys and values of a head" },
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
	{ "{" COHERE "'use_qk_norm':true}", MODEL_EUNSUPPORTED, "use_qk_norm true is not" },
	{ "{" COHERE "'rms_norm_eps':1e-6,'layer_norm_eps':1e-5}", MODEL_EINVALID,
	    "rms_norm_eps and layer_norm_eps differ (--allow-config layer_norm_eps ignores it)" },
	{ "{'model_type':'olmo','architectures':null,'clip_qkv':8.0}", MODEL_EUNSUPPORTED,
	    "clip_qkv 8.0 is not supported" },
	{ "{'model_type':'seed_oss','architectures':null,'attention_out_bias':true}",
	    MODEL_EUNSUPPORTED, "attention_out_bias true is not supported" },
	{ "{'model_type':'stablelm','architectures':null,'use_parallel_residual':true}",
	    MODEL_EUNSUPPORTED, "use_parallel_residual true is not supported" },
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
	{ "{'model_type':'phimoe'}", MODEL_EUNSUPPORTED, "(a mixture of experts)" },
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
	test_refused();
	return failures != 0;
}
