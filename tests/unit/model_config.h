/* model_config.h - what the tests of configurations share: Llama's, with other keys
 *
 * A test program includes it once. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>
#include <math.h>

#include "tests/unit/model_folder.h"

/* What transformers writes for Llama-3.2-1B. */
static const char base[] =
    "{'architectures':['LlamaForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
    "'bos_token_id':128000,'eos_token_id':128001,'head_dim':64,'hidden_act':'silu',"
    "'hidden_size':2048,'initializer_range':0.02,'intermediate_size':8192,"
    "'max_position_embeddings':131072,'mlp_bias':false,'model_type':'llama',"
    "'num_attention_heads':32,'num_hidden_layers':16,'num_key_value_heads':8,'pretraining_tp':1,"
    "'rms_norm_eps':1e-05,'rope_scaling':{'factor':32.0,'high_freq_factor':4.0,"
    "'low_freq_factor':1.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
    "'rope_theta':500000.0,'tie_word_embeddings':true,'torch_dtype':'bfloat16',"
    "'transformers_version':'4.45.0.dev0','use_cache':true,'vocab_size':128256}";

/* JSON here is written with ' for ". */
static char *
unquote(const char *text)
{
	char *json = strdup(text), *p;

	for (p = json; (p = strchr(p, '\'')) != NULL;)
		*p = '"';
	return json;
}

static json_t *
parse(const char *text)
{
	char *json = unquote(text);
	json_t *v = json_loads(json, 0, NULL);

	free(json);
	if (v == NULL)
		abort();
	return v;
}

static struct notice_hook hook;        /* of try() */

/* base with the keys of patch in place of its own; "-key" takes a key away. */
static int
try(const char *patch, const char *generation, struct model *m, char *err, size_t errlen)
{
	json_t *config = parse(base), *change = parse(patch), *v;
	struct overrides o = no_overrides;
	char *dir = make_dir(), *text;
	const char *key;
	int rc;

	json_object_foreach(change, key, v)
		if (key[0] == '-')
			json_object_del(config, key + 1);
		else
			json_object_set(config, key, v);
	text = json_dumps(config, 0);
	write_text(dir, "config.json", text);
	free(text);
	if (generation != NULL) {
		text = unquote(generation);
		write_text(dir, "generation_config.json", text);
		free(text);
	}
	memset(m, 0xff, sizeof *m);
	o.notice = hook;
	rc = model_config(dir, &o, m, err, errlen);
	free(dir);
	json_decref(config);
	json_decref(change);
	return rc;
}

static UNUSED struct model
accept(const char *patch, const char *generation)
{
	struct model m;
	char err[512] = "";
	int rc = try(patch, generation, &m, err, sizeof err);

	CHECK(rc == MODEL_OK, "%s: code %d: %s", patch, rc, err);
	return m;
}

#endif
