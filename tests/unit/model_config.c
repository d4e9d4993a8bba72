/* model_config - config.json: what is understood, what is harmless, what is refused */

#include "tests/unit/model_config.h"

/* ---- accepted ---- */

static void
test_llama32(void)
{
	struct model m = accept("{}", NULL);

	CHECK(strcmp(m.id.architecture, "llama") == 0, "%s", m.id.architecture);
	CHECK(m.id.layers == 16 && m.id.hidden == 2048 && m.id.ffn == 8192, "sizes");
	CHECK(m.id.query_heads == 32 && m.id.kv_heads == 8 && m.id.head_width == 64, "heads");
	CHECK(m.id.vocabulary == 128256 && m.max_position == 131072, "vocabulary, positions");
	CHECK(m.id.norm_eps == 1e-5 && !m.id.attention_bias && m.id.tied_embeddings == 1,
	    "scalars");
	CHECK(m.id.rope_type == KV_ROPE_LLAMA3 && m.id.rope_theta == 500000, "rope");
	CHECK(m.id.rope_factor == 32 && m.id.rope_low_freq_factor == 1, "rope factors");
	CHECK(m.id.rope_high_freq_factor == 4 && m.id.rope_original_max_position == 8192, "rope");
	CHECK(m.bos == 128000 && m.n_eos == 1 && m.eos[0] == 128001, "tokens");
	CHECK(m.id.weights[0] == '\0' && m.id.tokenizer[0] == '\0', "hashes are not its business");
}

/* The keys of Llama 2, which leaves much out, and of SmolLM, which adds some. */
static void
test_defaults(void)
{
	struct model m = accept("{'-head_dim':0,'-num_key_value_heads':0,'-rope_theta':0,"
	    "'-rope_scaling':0,'-rms_norm_eps':0,'-tie_word_embeddings':0,'-attention_bias':0,"
	    "'-max_position_embeddings':0,'-bos_token_id':0,'-eos_token_id':0,"
	    "'-architectures':0,'-hidden_act':0}", NULL);

	CHECK(m.id.head_width == 64 && m.id.kv_heads == 32, "heads");
	CHECK(m.id.rope_type == KV_ROPE_DEFAULT && m.id.rope_theta == 10000, "rope");
	CHECK(m.id.rope_factor == 0 && m.id.rope_original_max_position == 0,
	    "llama3 fields stay 0");
	CHECK(m.id.norm_eps == 1e-6 && !m.id.tied_embeddings && !m.id.attention_bias, "scalars");
	CHECK(m.bos == UINT32_MAX && m.n_eos == 0 && m.max_position == 2048, "tokens, positions");

	m = accept("{'_name_or_path':'x','is_llama_config':true,'rope_interleaved':false,"
	    "'pad_token_id':2,'transformers.js_config':{'dtype':'q4'},'dtype':'float32',"
	    "'pretraining_tp':1.0,'sliding_window':null,'quantization_config':null,"
	    "'head_dim':null,'pruned_heads':{},"
	    "'rope_scaling':null,'attention_bias':true,'partial_rotary_factor':1}", NULL);
	CHECK(m.id.head_width == 64 && m.id.attention_bias == 1, "null is absent");
	CHECK(m.id.rope_type == KV_ROPE_DEFAULT && m.id.rope_theta == 500000, "rope");
	m = accept("{'head_dim':80,'num_attention_heads':30,'num_key_value_heads':1}", NULL);
	CHECK(m.id.head_width == 80 && m.id.kv_heads == 1,
	    "a head width that is not hidden / heads");
}

static void
test_rope_forms(void)
{
	static const char llama3[] = "'factor':8,'low_freq_factor':1,'high_freq_factor':4,"
	    "'original_max_position_embeddings':8192";
	char patch[1024];
	struct model m;

	snprintf(patch, sizeof patch, "{'rope_scaling':{'type':'llama3',%s}}", llama3);
	m = accept(patch, NULL);
	CHECK(m.id.rope_type == KV_ROPE_LLAMA3 && m.id.rope_factor == 8, "the old key \"type\"");

	snprintf(patch, sizeof patch, "{'-rope_theta':0,'-rope_scaling':0,'rope_parameters':"
	    "{'rope_type':'llama3','rope_theta':1000000,%s}}", llama3);
	m = accept(patch, NULL);
	CHECK(m.id.rope_type == KV_ROPE_LLAMA3 && m.id.rope_theta == 1e6, "transformers 5");
	CHECK(m.id.rope_factor == 8 && m.id.rope_original_max_position == 8192, "transformers 5");

	m = accept("{'rope_theta':null,'rope_scaling':null,'rope_parameters':"
	    "{'rope_type':'default','rope_theta':1234.5,'partial_rotary_factor':1.0}}", NULL);
	CHECK(m.id.rope_type == KV_ROPE_DEFAULT && m.id.rope_theta == 1234.5, "theta only");

	snprintf(patch, sizeof patch,
	    "{'rope_theta':5e5,'rope_scaling':{'rope_type':'llama3',%s},"
	    "'rope_parameters':{'rope_type':'llama3','rope_theta':500000,%s}}", llama3,
	    llama3);
	m = accept(patch, NULL);
	CHECK(m.id.rope_theta == 500000 && m.id.rope_factor == 8, "both forms, the same");

	m = accept("{'rope_scaling':{'type':'linear','factor':4.0}}", NULL);
	CHECK(m.id.rope_type == KV_ROPE_LINEAR && m.id.rope_factor == 4, "linear");
	m = accept("{'rope_scaling':{'type':'yarn','factor':4.0,"
	    "'original_max_position_embeddings':32768}}", NULL);
	CHECK(m.id.rope_type == KV_ROPE_YARN && m.id.rope_original_max_position == 32768 &&
	    m.id.rope_beta_fast == 32 && m.id.rope_beta_slow == 1 && m.id.rope_truncate == 1 &&
	    fabs(m.id.rope_attention_factor - 1.138629436111989) < 1e-15, "yarn: %.17g",
	    m.id.rope_attention_factor);
	m = accept("{'rope_scaling':{'type':'yarn','factor':40,'mscale':0.707,"
	    "'mscale_all_dim':0.5,'truncate':false}}", NULL);
	CHECK(m.id.rope_original_max_position == 131072 && m.id.rope_truncate == 0 &&
	    fabs(m.id.rope_attention_factor - 1.064468903941252) < 1e-15, "yarn's mscale: %.17g",
	    m.id.rope_attention_factor);
	m = accept("{'rope_scaling':{'rope_type':'default'}}", NULL);
	CHECK(m.id.rope_type == KV_ROPE_DEFAULT && m.id.rope_theta == 500000, "default");
}

/* What other people's programs leave in the file. */
static void
test_harmless(void)
{
	struct model m = accept("{'foo':null,'_any':[1],'image_token_id':7,'pad_token_ids':[1],"
	    "'hidden_dropout':0.1,'resid_pdrop':0.1,'classifier_dropout':0.5,'dropout':0,"
	    "'initializer_factor':1.0,'router_aux_loss_coef':0.001,'gradient_checkpointing':true,"
	    "'temperature':0.7,'unsloth_tag':{'a':1},'transformers_weights':'x','pretraining_tp':2,"
	    "'use_mrope':false,'auto_map':{'AutoConfig':'configuration_x.LlamaConfig',"
	    "'AutoModelForCausalLM':'modeling_x.LlamaForCausalLM'}}", NULL);

	CHECK(m.id.hidden == 2048 && m.position_end == UINT32_MAX, "nothing changes");
	m = accept("{'architectures':['LlamaForSequenceClassification','LlamaForCausalLM']}", NULL);
	CHECK(m.id.layers == 16, "one of the classes is ours");
}

/* Keys that the caller passes over are as if they were not there. */
static void
test_pass(void)
{
	static const char *const names[] = { "foo", "sliding_window", "rope_scaling.odd", "no.x" };
	unsigned char there[4] = { 0 };
	const struct overrides pass = { .keys = { names, 4, there } };
	struct model m;
	char *dir = make_dir(), err[512] = "", *text;
	json_t *config = parse(base);
	int rc;

	json_object_set_new(config, "foo", json_true());
	json_object_set_new(config, "sliding_window", json_integer(7));
	json_object_set_new(json_object_get(config, "rope_scaling"), "odd", json_integer(7));
	text = json_dumps(config, 0);
	write_text(dir, "config.json", text);
	rc = model_config(dir, &pass, &m, err, sizeof err);
	CHECK(rc == MODEL_OK && m.position_end == UINT32_MAX && m.id.rope_factor == 32,
	    "code %d: %s", rc, err);
	CHECK(there[0] == 1 && there[1] == 1 && there[2] == 1 && there[3] == 0,
	    "keys that were there: %d %d %d %d", there[0], there[1], there[2], there[3]);
	rc = model_config(dir, &no_overrides, &m, err, sizeof err);
	check_refused("nothing is passed over", rc, MODEL_EUNSUPPORTED, err, "");
	free(text);
	json_decref(config);
	free(dir);
}

static void
test_tokens(void)
{
	struct model m = accept("{'eos_token_id':[1,2,3]}", NULL);

	CHECK(m.n_eos == 3 && m.eos[2] == 3, "a list");
	m = accept("{'eos_token_id':[1,2,3]}",
	    "{'eos_token_id':[7,9],'temperature':0.6,'any':1}");
	CHECK(m.n_eos == 2 && m.eos[1] == 9 && m.bos == 128000,
	    "generation_config.json comes first");
	m = accept("{}", "{'bos_token_id':5,'eos_token_id':null}");
	CHECK(m.bos == 5 && m.n_eos == 1 && m.eos[0] == 128001, "key by key");
	m = accept("{'eos_token_id':[1,2,3,4,5,6,7,8,9,10]}", NULL);
	CHECK(m.n_eos == 10 && m.eos[9] == 10, "ten tokens: %u", m.n_eos);
}

static char said[1024];

static void
listen(void *with, const char *text)
{
	(void)with;
	snprintf(said, sizeof said, "%s", text);
}

/* Ids that no token has are as if they were not there, and told. */
static void
test_tokens_that_cannot_come(void)
{
	static const struct { const char *patch, *generation; uint32_t bos, n, first;
		const char *said; } list[] = {
		{ "{'eos_token_id':128256}", NULL, 128000, 0, 0,
		    "config.json: \"eos_token_id\": 128256 is not a token id below 128256: ign" },
		{ "{'eos_token_id':-1}", NULL, 128000, 0, 0, "\"eos_token_id\": -1 is not a" },
		{ "{'bos_token_id':-1}", NULL, UINT32_MAX, 1, 128001, "\"bos_token_id\": -1 is" },
		{ "{'eos_token_id':[7,128256,-1]}", NULL, 128000, 1, 7, "ignored, as are others" },
		{ "{}", "{'eos_token_id':[128256]}", 128000, 1, 128001,
		    "generation_config.json: \"eos_token_id\"" },
		{ "{}", "{'eos_token_id':[128256,9],'bos_token_id':9}", 9, 1, 9, "128256" },
	};
	struct model m;
	char err[512] = "";
	size_t i;
	int rc;

	for (i = 0; i < sizeof list / sizeof list[0]; i++) {
		hook = (struct notice_hook){ listen, NULL };
		said[0] = '\0';
		rc = try(list[i].patch, list[i].generation, &m, err, sizeof err);
		hook.call = NULL;
		CHECK(rc == MODEL_OK, "%s: %s", list[i].patch, err);
		CHECK(m.bos == list[i].bos && m.n_eos == list[i].n &&
		    (m.n_eos == 0 || m.eos[0] == list[i].first),
		    "%s: %u, %u: %u", list[i].patch, m.bos, m.n_eos, m.eos[0]);
		CHECK(strstr(said, list[i].said) != NULL, "%s: %s", list[i].patch, said);
	}
}

/* ---- refused ---- */

#define EIGHT "1,2,3,4,5,6,7,8"
#define ROPE3 "'rope_type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4"

static const struct {
	const char *patch;
	int code;
	const char *message;
} refused[] = {
	{ "{'foo':1}", MODEL_EUNSUPPORTED,
	    "/config.json: unknown key \"foo\": it may change the arithmetic" },
	{ "{'foo':false}", MODEL_EUNSUPPORTED, "(--allow-config foo ignores it)" },
	{ "{'model_type':5}", MODEL_EUNSUPPORTED, "model_type 5 is not supported" },
	{ "{'-model_type':0}", MODEL_EINVALID, "no \"model_type\"" },
	{ "{'architectures':['LlamaModel']}", MODEL_EUNSUPPORTED,
	    "architectures [\"LlamaModel\"] is not supported: a base model has no head" },
	{ "{'architectures':['LlamaForSequenceClassification']}", MODEL_EUNSUPPORTED,
	    "a classifier has no head for the next token; want LlamaForCausalLM" },
	{ "{'architectures':['MistralForCausalLM']}", MODEL_EUNSUPPORTED,
	    "is not supported: want LlamaForCausalLM" },
	{ "{'hidden_act':'gelu'}", MODEL_EUNSUPPORTED, "hidden_act \"gelu\" is not supported" },
	{ "{'mlp_bias':1}", MODEL_EINVALID, "\"mlp_bias\" is neither true nor false" },
	{ "{'no_rope_layers':[1,0]}", MODEL_EUNSUPPORTED, "no_rope_layers [1,0] is not supported" },
	{ "{'layer_types':['full_attention','linear_attention']}", MODEL_EUNSUPPORTED,
	    "layer_types: \"linear_attention\" is not supported" },
	{ "{'sliding_window':'x'}", MODEL_EINVALID, "\"sliding_window\" is not an integer" },
	{ "{'use_sliding_window':1}", MODEL_EINVALID, "\"use_sliding_window\" is neither" },
	{ "{'attn_logit_softcapping':50.0}", MODEL_EUNSUPPORTED, "attn_logit_softcapping 50.0 " },
	{ "{'final_logit_softcapping':30.0}", MODEL_EUNSUPPORTED,
	    "final_logit_softcapping 30.0 " },
	{ "{'quantization_config':{'quant_method':'hqq'}}", MODEL_EUNSUPPORTED,
	    "quantization_config: quantised weights (hqq) are not supported: want fp8" },
	{ "{'quantization_config':{'quant_method':'gptq','bits':3}}", MODEL_EUNSUPPORTED,
	    "quantization_config: bits 3 is not supported" },
	{ "{'quantization':{'group_size':64,'bits':4}}", MODEL_EUNSUPPORTED,
	    "quantization: quantised weights (MLX, 4 bits)" },
	{ "{'compression_config':{}}", MODEL_EUNSUPPORTED, "(an unnamed method)" },
	{ "{'partial_rotary_factor':0.5}", MODEL_EUNSUPPORTED, "partial_rotary_factor 0.5" },
	{ "{'rope_interleaved':true}", MODEL_EUNSUPPORTED, "rope_interleaved true" },
	{ "{'residual_multiplier':0.22}", MODEL_EUNSUPPORTED, "residual_multiplier 0.22" },
	{ "{'embedding_multiplier':12}", MODEL_EUNSUPPORTED, "embedding_multiplier 12" },
	{ "{'attention_multiplier':1}", MODEL_EUNSUPPORTED, "attention_multiplier 1" },
	{ "{'logits_scaling':8}", MODEL_EUNSUPPORTED, "logits_scaling 8" },
	{ "{'auto_map':{'AutoModel':'m.M'}}", MODEL_EUNSUPPORTED, "auto_map: the model has" },
	{ "{'auto_map':{'AutoModelForCausalLM':'m.OtherForCausalLM'}}", MODEL_EUNSUPPORTED,
	    "auto_map: the model has its own code" },
	{ "{'pruned_heads':{'1':[0]}}", MODEL_EUNSUPPORTED, "pruned_heads {" },

	{ "{'rope_scaling':{'rope_type':'spiral','factor':4}}", MODEL_EUNSUPPORTED,
	    "rope_scaling type \"spiral\" is not supported" },
	{ "{'rope_scaling':{'type':'linear'}}", MODEL_EINVALID, "rope_scaling: no \"factor\"" },
	{ "{'rope_scaling':{'type':'yarn','factor':4,'llama_4_scaling_beta':0.1}}",
	    MODEL_EUNSUPPORTED, "models of type llama have no llama_4_scaling_beta" },
	{ "{'rope_scaling':{'type':'linear','factor':4,'beta_fast':32}}", MODEL_EUNSUPPORTED,
	    "key \"beta_fast\" is unknown for this type" },
	{ "{'rope_scaling':{'type':'yarn','factor':4,'beta_fast':1,'beta_slow':32}}",
	    MODEL_EINVALID, "beta_fast 1 is below beta_slow 32" },
	{ "{'rope_scaling':{'type':'yarn','factor':4,'truncate':'yes'}}", MODEL_EINVALID,
	    "\"truncate\" is neither true nor false" },
	{ "{'rope_scaling':null,'rope_parameters':{'rope_type':'longrope'}}",
	    MODEL_EINVALID, "rope_parameters: short_factor is not a list of 32 numbers" },
	{ "{'rope_scaling':{'factor':4}}", MODEL_EUNSUPPORTED,
	    "rope_scaling: key \"factor\" is unknown" },
	{ "{'rope_scaling':{'foo':4}}", MODEL_EUNSUPPORTED,
	    "(--allow-config rope_scaling.foo ignores it)" },
	{ "{'rope_scaling':{" ROPE3
	    ",'original_max_position_embeddings':8192,'long_factor':2}}",
	    MODEL_EUNSUPPORTED, "\"long_factor\"" },
	{ "{'rope_scaling':{" ROPE3 "}}", MODEL_EINVALID,
	    "no \"original_max_position_embeddings\"" },
	{ "{'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':1,"
	    "'original_max_position_embeddings':8192}}", MODEL_EINVALID,
	    "no \"high_freq_factor\"" },
	{ "{'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':4,"
	    "'high_freq_factor':4,'original_max_position_embeddings':8192}}", MODEL_EINVALID,
	    "low_freq_factor 4 is not below" },
	{ "{'rope_scaling':{'rope_type':'llama3','factor':0.5,'low_freq_factor':1,"
	    "'high_freq_factor':4,'original_max_position_embeddings':8192}}",
	    MODEL_EINVALID, "factor 0.5" },
	{ "{'rope_scaling':{'rope_type':'default','type':'llama3'}}", MODEL_EINVALID,
	    "differ" },
	{ "{'rope_scaling':'llama3'}", MODEL_EINVALID, "rope_scaling is not an object" },
	{ "{'rope_parameters':{'rope_type':'default'}}", MODEL_EINVALID,
	    "rope_parameters differ" },
	{ "{'rope_scaling':null,'rope_parameters':{'rope_theta':1e4}}", MODEL_EINVALID,
	    "rope_theta is 500000 and 10000" },
	{ "{'rope_scaling':null,"
	    "'rope_parameters':{'rope_theta':5e5,'partial_rotary_factor':0.5}}",
	    MODEL_EUNSUPPORTED, "partial_rotary_factor" },
	{ "{'rope_theta':0}", MODEL_EINVALID, "\"rope_theta\" is not a number above 0" },
	{ "{'rope_theta':'1e4'}", MODEL_EINVALID, "\"rope_theta\" is not a number above 0" },
	{ "{'rope_theta':0.5}", MODEL_EINVALID, "\"rope_theta\" is 0.5, not 1 to 1e+15" },
	{ "{'rope_theta':1e-300}", MODEL_EINVALID, "\"rope_theta\" is 1e-300, not 1 to 1e+15" },
	{ "{'rms_norm_eps':1e300}", MODEL_EINVALID, "\"rms_norm_eps\" is 1e+300, not 1.1754" },

	{ "{'-hidden_size':0}", MODEL_EINVALID, "no \"hidden_size\"" },
	{ "{'hidden_size':null}", MODEL_EINVALID, "no \"hidden_size\"" },
	{ "{'hidden_size':2048.0}", MODEL_EINVALID, "\"hidden_size\" is not an integer" },
	{ "{'hidden_size':0}", MODEL_EINVALID, "\"hidden_size\" is 0, not 1 to 16777216" },
	{ "{'hidden_size':-1}", MODEL_EINVALID, "\"hidden_size\" is -1" },
	{ "{'hidden_size':16777217}", MODEL_EINVALID, "\"hidden_size\" is 16777217" },
	{ "{'num_hidden_layers':4097}", MODEL_EINVALID,
	    "\"num_hidden_layers\" is 4097, not 1 to 4096" },
	{ "{'num_hidden_layers':4294967297}", MODEL_EINVALID, "is 4294967297" },
	{ "{'vocab_size':0}", MODEL_EINVALID, "\"vocab_size\" is 0" },
	{ "{'head_dim':1025}", MODEL_EINVALID, "\"head_dim\" is 1025, not 1 to 1024" },
	{ "{'head_dim':63}", MODEL_EINVALID, "head width 63 is odd" },
	{ "{'-head_dim':0,'num_attention_heads':24}", MODEL_EINVALID, "no \"head_dim\"" },
	{ "{'num_key_value_heads':5}", MODEL_EINVALID,
	    "32 is not a multiple of num_key_value_heads 5" },
	{ "{'rms_norm_eps':-1e-5}", MODEL_EINVALID, "\"rms_norm_eps\"" },
	{ "{'attention_bias':'no'}", MODEL_EINVALID,
	    "\"attention_bias\" is neither true nor false" },
	{ "{'tie_word_embeddings':1}", MODEL_EINVALID, "\"tie_word_embeddings\" is neither" },
	{ "{'bos_token_id':'<s>'}", MODEL_EINVALID, "(--allow-config bos_token_id ignores it)" },
	{ "{'bos_token_id':[1]}", MODEL_EINVALID, "(--allow-config bos_token_id ignores it)" },
	{ "{'eos_token_id':[1,'2']}", MODEL_EINVALID, "\"eos_token_id\"" },
	{ "{'eos_token_id':[" EIGHT "," EIGHT "," EIGHT "," EIGHT "," EIGHT "," EIGHT "," EIGHT ","
	    EIGHT ",1]}", MODEL_EUNSUPPORTED, "\"eos_token_id\": more than 64 tokens (--al" },
};

static void
test_refused(void)
{
	struct model m;
	char err[512];
	size_t i;
	int rc;

	for (i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		rc = try(refused[i].patch, NULL, &m, err, sizeof err);
		check_refused(refused[i].patch, rc, refused[i].code, err, refused[i].message);
	}
	rc = try("{}", "{'eos_token_id':'2'}", &m, err, sizeof err);
	check_refused("generation", rc, MODEL_EINVALID, err,
	    "generation_config.json: \"eos_token_id\" is not a token id below 128256 (");
	rc = try("{}", "{", &m, err, sizeof err);
	check_refused("generation", rc, MODEL_EINVALID, err, "generation_config.json: line 1");
}

static void
test_files(void)
{
	static const struct { const char *text; int code; const char *message; } bad[] = {
		{ "{\n \"model_type\": llama}", MODEL_EINVALID,
		    "/config.json: line 2, column 20: " },
		{ "{\"model_type\":\"llama\",\n\"model_type\":\"llama\"}", MODEL_EINVALID,
		    "duplicate object key" },
		{ "{\"rms_norm_eps\":NaN}", MODEL_EINVALID, "line 1" },
		{ "{\"a\":99999999999999999999}", MODEL_EINVALID, "too big integer" },
		{ "{} {}", MODEL_EINVALID, "line 1" },
		{ "[]", MODEL_EINVALID, "not a JSON object" },
		{ "", MODEL_EINVALID, "/config.json: it is empty: download it again" },
		{ "{\"a\":\"\\u0000\"}", MODEL_EINVALID, "line 1, column 13: a zero character (" },
		{ "{\"\\u0000\":1}", MODEL_EINVALID, "a zero character (\\u0000), which is not" },
	};
	struct model m;
	char *dir = make_dir(), err[512], path[256], tiny[8];
	size_t i;
	int rc;

	rc = model_config(dir, &no_overrides, &m, err, sizeof err);
	check_refused("no file", rc, MODEL_EIO, err, "/config.json: No such file or directory");
	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		write_text(dir, "config.json", bad[i].text);
		rc = model_config(dir, &no_overrides, &m, err, sizeof err);
		check_refused(bad[i].text, rc, bad[i].code, err, bad[i].message);
	}
	rc = model_config(dir, &no_overrides, &m, tiny, sizeof tiny);
	CHECK(rc == MODEL_EINVALID && strlen(tiny) == sizeof tiny - 1,
	    "a short buffer is filled: %s", tiny);
	snprintf(path, sizeof path, "%s/config.json", dir);
	unlink(path);
	mkdir(path, 0777);
	rc = model_config(dir, &no_overrides, &m, err, sizeof err);
	check_refused("folder", rc, MODEL_EIO, err, "/config.json: not a regular file");
	free(dir);
}

int
main(void)
{
	make_scratch();
	test_llama32();
	test_defaults();
	test_rope_forms();
	test_harmless();
	test_pass();
	test_tokens();
	test_tokens_that_cannot_come();
	test_refused();
	test_files();
	return failures != 0;
}
