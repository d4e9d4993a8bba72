/* config_kind.c - what a model is, and in clear words what it is when we do not compute it */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/config_internal.h"

/* Others that people have, by the beginning of model_type; the longest that fits counts. */
static const struct { const char *begins, *what; } others[] = {
	{ "bert", "an encoder" }, { "roberta", "an encoder" }, { "xlm-roberta", "an encoder" },
	{ "distilbert", "an encoder" }, { "deberta", "an encoder" }, { "electra", "an encoder" },
	{ "modernbert", "an encoder" }, { "albert", "an encoder" }, { "nomic_bert", "an encoder" },
	{ "t5", "an encoder with a decoder" }, { "mt5", "an encoder with a decoder" },
	{ "umt5", "an encoder with a decoder" }, { "bart", "an encoder with a decoder" },
	{ "mbart", "an encoder with a decoder" }, { "pegasus", "an encoder with a decoder" },
	{ "whisper", "speech to text" }, { "clip", "images and text" }, { "vit", "images" },
	{ "llava", "images and text" }, { "mllama", "images and text" },
	{ "qwen2_vl", "images and text" }, { "qwen2_5_vl", "images and text" },
	{ "qwen3_vl", "images and text" }, { "gemma3n", "images, sound and text" },
	{ "mistral3", "images and text; its text part is mistral or ministral3" },
	{ "llama4", "images and text, a mixture of experts" },
	{ "deepseek", "latent attention and a mixture of experts" },
	{ "glm_moe_dsa", "latent attention and a mixture of experts" },
	{ "mistral4", "latent attention" },
	{ "youtu", "latent attention" },
	{ "hunyuan_v1_moe", "a mixture of experts" }, { "exaone_moe", "a mixture of experts" },
	{ "cohere2_moe", "a mixture of experts" }, { "solar_open", "a mixture of experts" },
	{ "dbrx", "a mixture of experts" }, { "jetmoe", "a mixture of experts" },
	{ "lfm2_moe", "convolutions besides a cache, a mixture of experts" },
	{ "hunyuan_v1_dense", "norms of queries and keys behind rotary embedding" },
	{ "nanochat", "norms of queries and keys behind rotary embedding" },
	{ "apertus1p5", "another form of Apertus" },
	{ "RefinedWeb", "Falcon under its first name: want falcon, as transformers has it" },
	{ "chatglm", "the first form of GLM-4: want glm, as transformers has it" },
	{ "mistral_large4", "latent attention" }, { "hy_v3", "a mixture of experts" },
	{ "afmoe", "a mixture of experts" }, { "kimi_k25", "images and text" },
	{ "bitnet", "ternary weights" }, { "doge", "masks that depend on values" },
	{ "diffllama", "differences of attention" },
	{ "granite_swa", "attention sinks" }, { "nemotron-nas", "layers that differ in shape" },
	{ "minicpmv", "images and text" }, { "minicpmo", "images, sound and text" },
	{ "minicpm_sala", "linear attention" }, { "mimo_v2", "a mixture of experts" },
	{ "baichuan", "code of its own" },
	{ "gpt_bigcode", "learned positions" }, { "gpt_neo", "learned positions" },
	{ "qwen3_next", "linear attention, a mixture of experts" },
	{ "mamba", "states instead of a cache" }, { "falcon_mamba", "states instead of a cache" },
	{ "rwkv", "states instead of a cache" }, { "jamba", "states besides a cache" },
	{ "bamba", "states besides a cache" }, { "falcon_h1", "states besides a cache" },
	{ "recurrent_gemma", "states besides a cache" },
	{ "lfm2", "convolutions besides a cache" },
	{ "granitemoehybrid", "states besides a cache" },
	{ "nemotron_h", "states besides a cache" }, { "zamba", "states besides a cache" },
	{ "qwen3_5", "linear attention" }, { "olmo_hybrid", "linear attention" },
	{ "kimi_linear", "linear attention, a mixture of experts" },
	{ "bailing_hybrid", "linear attention, a mixture of experts" },
	{ "minimax", "linear attention, a mixture of experts" },
	{ "gemma4", "layers that share keys and values, embeddings in each layer" },
	{ "gemma3", "images and text; its text part is gemma3_text" },
	{ "gpt2", "learned positions" },
	{ "opt", "learned positions" }, { "bloom", "positions by ALiBi" },
	{ "mpt", "positions by ALiBi" },
};

static int
unknown_type(struct config *c, const json_t *type)
{
	char text[64];
	const char *name = json_string_value(type), *what = NULL;
	size_t i, n, most = 0;

	for (i = 0; name != NULL && i < sizeof others / sizeof others[0]; i++)
		if ((n = strlen(others[i].begins)) > most &&
		    strncmp(name, others[i].begins, n) == 0) {
			what = others[i].what;
			most = n;
		}
	return UNSUPPORTED(c, "model_type %s is not supported%s%s%s: kvpipe(7), Families, lists "
	    "what is", config_show(type, text, sizeof text), what != NULL ? " (" : "",
	    what != NULL ? what : "", what != NULL ? ")" : "");
}

static int
ends_with(const char *text, const char *tail)
{
	const size_t n = strlen(text), m = strlen(tail);

	return n >= m && strcmp(text + n - m, tail) == 0;
}

/* Files of Phi-3.5-MoE have the name in other letters than transformers (PhiMoE). */
int
config_is_class(const struct config *c, const char *name)
{
	return strcasecmp(name, c->family->architecture) == 0;
}

/* "architectures" names classes; one must be the family's causal language model. */
static int
check_architectures(struct config *c)
{
	const json_t *list = config_get(c->json, "architectures"), *v;
	const char *name = NULL;
	char text[96];
	size_t i;

	if (list == NULL)
		return MODEL_OK;
	for (i = 0; i < json_array_size(list); i++) {
		v = json_array_get(list, i);
		if (json_is_string(v) && config_is_class(c, name = json_string_value(v)))
			return MODEL_OK;
	}
	config_show(list, text, sizeof text);
	if (name != NULL && (ends_with(name, "Classification") ||
	    ends_with(name, "QuestionAnswering") || ends_with(name, "RewardModel")))
		return UNSUPPORTED(c, "architectures %s is not supported: a classifier has no head "
		    "for the next token; want %s", text, c->family->architecture);
	if (name != NULL && ends_with(name, "Model"))
		return UNSUPPORTED(c, "architectures %s is not supported: a base model has no head "
		    "for the next token; want %s", text, c->family->architecture);
	return config_hint(c, "architectures", UNSUPPORTED(c, "architectures %s is not supported: "
	    "want %s", text, c->family->architecture));
}

/* Weights in a type that we do not compute with; quantization_config is judged by itself. */
static int
check_quantised(struct config *c)
{
	static const char *const keys[] = { "compression_config", "quantization" };
	const json_t *v, *method, *bits;
	char how[64], text[24] = "";
	size_t i;

	for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		if ((v = config_get(c->json, keys[i])) == NULL ||
		    config_get(c->json, "quantization_config") != NULL)
			continue;
		method = config_get(v, "quant_method");
		if ((bits = config_get(v, "bits")) != NULL ||
		    (bits = config_get(v, "w_bit")) != NULL)
			snprintf(text, sizeof text, ", %d bits",
			    (int)json_integer_value(bits));
		snprintf(how, sizeof how, "%s%s", json_is_string(method) ?
		    json_string_value(method) : i == 1 ? "MLX" : "an unnamed method", text);
		return UNSUPPORTED(c, "%s: quantised weights (%s) are not supported: want bf16, "
		    "f16 or f32 (--allow-config %s ignores it)", keys[i], how, keys[i]);
	}
	return MODEL_OK;
}

/* Gives keys the names that Llama's configuration has for them. What is said twice must be the
 * same. */
static int
rename_keys(struct config *c)
{
	const struct key_alias *a;
	json_t *v, *have;

	for (a = c->family->aliases; a != NULL && a->theirs != NULL; a++) {
		if ((v = json_object_get(c->json, a->theirs)) == NULL)
			continue;
		have = config_get(c->json, a->ours);
		if (have != NULL && !json_equal(have, v))
			return config_hint(c, a->theirs, BAD(c, "%s and %s differ", a->ours,
			    a->theirs));
		json_object_set(c->json, a->ours, v);
		json_object_del(c->json, a->theirs);
	}
	return MODEL_OK;
}

/* c->family <- the form of the family that the configuration names. What has been understood goes:
 * what is left of these keys is refused (config_keys.c). */
static void
take_switches(struct config *c)
{
	const struct family_switch *s = c->family->switches;

	while (s != NULL && s->key != NULL) {
		if (!config_has(config_get(c->json, s->key), s->value)) {
			s++;
			continue;
		}
		json_object_del(c->json, s->key);
		if (s->to != NULL)
			c->family = s->to;
		s = c->family->switches;
	}
}

/* Without these transformers takes values of its own, which published files always name. */
static int
check_named(struct config *c)
{
	static const struct { const char *type, *key, *other; } named[] = {
		{ "gpt_oss", "rope_scaling", "rope_parameters" },
		{ "cwm", "rope_scaling", "rope_parameters" },
		{ "apertus", "rope_scaling", "rope_parameters" },
		{ "cwm", "layer_types", "layer_types" },
	};
	size_t i;

	for (i = 0; i < sizeof named / sizeof named[0]; i++)
		if (strcmp(named[i].type, c->family->type) == 0 &&
		    config_get(c->json, named[i].key) == NULL &&
		    config_get(c->json, named[i].other) == NULL)
			return BAD(c, "no \"%s\", which a model of type %s has", named[i].key,
			    c->family->type);
	return MODEL_OK;
}

/* The kind comes first: a model of another kind is not to be refused for its first unknown key. */
int
config_kind(struct config *c)
{
	const json_t *type = config_get(c->json, "model_type");
	int rc;

	if (type == NULL)
		return BAD(c, "no \"model_type\"");
	if (!json_is_string(type) || (c->family = family_find(json_string_value(type))) == NULL)
		return unknown_type(c, type);
	if ((rc = check_architectures(c)) != MODEL_OK || (rc = rename_keys(c)) != MODEL_OK)
		return rc;
	take_switches(c);
	if ((rc = check_named(c)) != MODEL_OK)
		return rc;
	return check_quantised(c);
}
