/* checkpoint_config.c - quantization_config of config.json: how the matrices of a folder are
 * quantised
 *
 * Which modules are quantised is not asked: what stands in the files as it is computed with is
 * taken as it is, so that lists of modules that were left out change nothing. */
#include <stdio.h>
#include <string.h>

#include "model/checkpoint_config.h"

#define OBJECT "quantization_config"

/* What we do with a key: read it, pass over it, or refuse every value but one */
enum rule { READ, IGNORE, ONLY };

static const struct key {
	const char *name;
	enum checkpoint_method method;  /* CHECKPOINT_PLAIN: of all */
	enum rule rule;
	const char *only;               /* JSON */
} keys[] = {
	{ "quant_method", CHECKPOINT_PLAIN, READ, NULL },
	{ "method", CHECKPOINT_PLAIN, IGNORE, NULL },      /* GPTQModel's second word for it */
	{ "modules_to_not_convert", CHECKPOINT_PLAIN, IGNORE, NULL },
	{ "ignored_layers", CHECKPOINT_FP8, IGNORE, NULL },
	{ "ignore", CHECKPOINT_COMPRESSED, IGNORE, NULL },
	{ "activation_scheme", CHECKPOINT_FP8, READ, NULL },
	{ "weight_block_size", CHECKPOINT_FP8, READ, NULL },
	{ "kv_cache_scheme", CHECKPOINT_FP8, READ, NULL },
	{ "fmt", CHECKPOINT_FP8, ONLY, "\"e4m3\"" },
	{ "scale_fmt", CHECKPOINT_FP8, IGNORE, NULL },     /* of values that we read as they are */
	{ "dequantize", CHECKPOINT_FP8, IGNORE, NULL },

	{ "config_groups", CHECKPOINT_COMPRESSED, READ, NULL },
	{ "format", CHECKPOINT_COMPRESSED, READ, NULL },
	{ "kv_cache_scheme", CHECKPOINT_COMPRESSED, READ, NULL },
	{ "sparsity_config", CHECKPOINT_COMPRESSED, READ, NULL },
	{ "transform_config", CHECKPOINT_COMPRESSED, ONLY, "{}" },
	{ "moe_sparsity_config", CHECKPOINT_COMPRESSED, ONLY, "null" },
	{ "quantization_status", CHECKPOINT_COMPRESSED, IGNORE, NULL },    /* the tensors say it */
	{ "global_compression_ratio", CHECKPOINT_COMPRESSED, IGNORE, NULL },
	{ "version", CHECKPOINT_COMPRESSED, IGNORE, NULL },
	{ "run_compressed", CHECKPOINT_COMPRESSED, IGNORE, NULL },

	{ "bits", CHECKPOINT_GPTQ, READ, NULL },
	{ "group_size", CHECKPOINT_GPTQ, READ, NULL },
	{ "checkpoint_format", CHECKPOINT_GPTQ, READ, NULL },
	{ "format", CHECKPOINT_GPTQ, READ, NULL },         /* GPTQModel's newer word for it */
	{ "dynamic", CHECKPOINT_GPTQ, READ, NULL },
	{ "pack_dtype", CHECKPOINT_GPTQ, ONLY, "\"int32\"" },
	{ "is_marlin_format", CHECKPOINT_GPTQ, ONLY, "false" },
	{ "adapter", CHECKPOINT_GPTQ, ONLY, "null" },
	{ "rotation", CHECKPOINT_GPTQ, ONLY, "null" },
	{ "desc_act", CHECKPOINT_GPTQ, IGNORE, NULL },     /* g_idx and qzeros say it */
	{ "sym", CHECKPOINT_GPTQ, IGNORE, NULL },
	{ "lm_head", CHECKPOINT_GPTQ, IGNORE, NULL },

	{ "bits", CHECKPOINT_AWQ, ONLY, "4" },
	{ "w_bit", CHECKPOINT_AWQ, ONLY, "4" },
	{ "group_size", CHECKPOINT_AWQ, READ, NULL },
	{ "q_group_size", CHECKPOINT_AWQ, READ, NULL },
	{ "version", CHECKPOINT_AWQ, READ, NULL },
	{ "format", CHECKPOINT_AWQ, READ, NULL },
	{ "checkpoint_format", CHECKPOINT_AWQ, READ, NULL },
	{ "zero_point", CHECKPOINT_AWQ, IGNORE, NULL },    /* qzeros say it */
	{ "sym", CHECKPOINT_AWQ, IGNORE, NULL },
	{ "desc_act", CHECKPOINT_AWQ, ONLY, "false" },
	{ "lm_head", CHECKPOINT_AWQ, IGNORE, NULL },
	{ "pack_dtype", CHECKPOINT_AWQ, ONLY, "\"int32\"" },
	{ "do_fuse", CHECKPOINT_AWQ, IGNORE, NULL },       /* how it runs there */
	{ "fuse_max_seq_len", CHECKPOINT_AWQ, IGNORE, NULL },
	{ "modules_to_fuse", CHECKPOINT_AWQ, IGNORE, NULL },

	{ "load_in_4bit", CHECKPOINT_NF4, ONLY, "true" },
	{ "load_in_8bit", CHECKPOINT_NF4, ONLY, "false" },
	{ "llm_int8_has_fp16_weight", CHECKPOINT_NF4, IGNORE, NULL },
};

/* How a model was made and how it runs, in GPTQ's and AWQ's configurations */
static const char *const made[] = { "damp_percent", "damp_auto_increment", "static_groups",
	"true_sequential", "model_name_or_path", "model_file_base_name", "meta", "batch_size",
	"block_name_to_quantize", "cache_block_outputs", "dataset", "exllama_config",
	"use_exllama", "disable_exllama", "use_cuda_fp16", "max_input_length",
	"module_name_preceding_first_block", "modules_in_block_to_quantize", "pad_token_id",
	"tokenizer", "backend", "act_group_aware", "hyb_act", "mse", "quantizer",
	"lm_head_low_gpu_mem_usage", "parallel_packing", "offload_to_disk", "offload_to_disk_path",
	"model_seqlen", "compute_device_filter", "device", "pack_impl", "fail_safe",
	"mock_quantization" };

static const struct { const char *name; enum checkpoint_method method; } methods[] = {
	{ "fp8", CHECKPOINT_FP8 }, { "compressed-tensors", CHECKPOINT_COMPRESSED },
	{ "gptq", CHECKPOINT_GPTQ }, { "awq", CHECKPOINT_AWQ },
	{ "bitsandbytes", CHECKPOINT_NF4 },
};

/* Refuses a value of the object's key, which --allow-config may pass over. */
static int
refuse(struct config *c, const char *key, const json_t *v)
{
	char text[64], full[96];

	snprintf(full, sizeof full, OBJECT ".%s", key);
	return config_hint(c, full, UNSUPPORTED(c, OBJECT ": %s %s is not supported", key,
	    config_show(v, text, sizeof text)));
}

static int
is_word(const json_t *v, const char *word)
{
	return json_is_string(v) && strcasecmp(json_string_value(v), word) == 0;
}

/* ---- keys ---- */

static int
is_harmless(enum checkpoint_method method, const char *name)
{
	const int is_made = method == CHECKPOINT_GPTQ || method == CHECKPOINT_AWQ;
	size_t i;

	for (i = 0; is_made && i < sizeof made / sizeof made[0]; i++)
		if (strcmp(made[i], name) == 0)
			return 1;
	return name[0] == '_' || (method == CHECKPOINT_NF4 &&
	    (strncmp(name, "bnb_4bit_", 9) == 0 || strncmp(name, "llm_int8_", 9) == 0));
}

static int
check_key(struct config *c, enum checkpoint_method method, const char *name, const json_t *v)
{
	const struct key *k = NULL;
	char full[96];
	size_t i;

	if (json_is_null(v) || is_harmless(method, name))
		return MODEL_OK;
	for (i = 0; k == NULL && i < sizeof keys / sizeof keys[0]; i++)
		if (strcmp(keys[i].name, name) == 0 &&
		    (keys[i].method == method || keys[i].method == CHECKPOINT_PLAIN))
			k = &keys[i];
	snprintf(full, sizeof full, OBJECT ".%s", name);
	if (k == NULL)
		return config_hint(c, full, UNSUPPORTED(c, OBJECT ": unknown key \"%s\" of %s: it "
		    "may change the weights", name, checkpoint_name(method)));
	return k->rule != ONLY || config_has(v, k->only) ? MODEL_OK : refuse(c, name, v);
}

/* A size that is a whole number above 0, or -1 or null: 0. */
static int
read_group(struct config *c, const char *key, const json_t *v, uint32_t *out)
{
	*out = 0;
	if (v == NULL || config_has(v, "-1"))
		return MODEL_OK;
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24)
		return refuse(c, key, v);
	*out = (uint32_t)json_integer_value(v);
	return MODEL_OK;
}

/* [rows, columns]; both stay where there is none. */
static int
read_block(struct config *c, const char *key, const json_t *v, struct checkpoint_way *w)
{
	if (v == NULL)
		return MODEL_OK;
	if (json_array_size(v) != 2 ||
	    read_group(c, key, json_array_get(v, 0), &w->block_rows) != MODEL_OK ||
	    read_group(c, key, json_array_get(v, 1), &w->block_cols) != MODEL_OK ||
	    w->block_rows == 0 || w->block_cols == 0)
		return refuse(c, key, v);
	return MODEL_OK;
}

static void
say_of_activations(struct config *c, struct checkpoint_config *out)
{
	out->activations = 1;
	notice(&c->overrides->notice, "%s: " OBJECT ": the model is meant for quantised "
	    "activations; here they are not quantised", c->path);
}

static void
say_of_cache(struct config *c, struct checkpoint_config *out)
{
	out->cache = 1;
	notice(&c->overrides->notice, "%s: " OBJECT ": kv_cache_scheme is not applied: "
	    "kv-quantize(1) quantises rows", c->path);
}

/* ---- methods ---- */

static int
read_fp8(struct config *c, const json_t *q, struct checkpoint_config *out)
{
	const json_t *scheme = config_get(q, "activation_scheme");
	struct checkpoint_way *w = &out->way[0];
	int rc;

	*w = (struct checkpoint_way){ .is_float = 1, .bits = 8 };
	out->ways = 1;
	if ((rc = read_block(c, "weight_block_size", config_get(q, "weight_block_size"), w)) !=
	    MODEL_OK)
		return rc;
	if (scheme != NULL && !is_word(scheme, "dynamic") && !is_word(scheme, "static"))
		return refuse(c, "activation_scheme", scheme);
	if (scheme != NULL)
		say_of_activations(c, out);
	if (config_get(q, "kv_cache_scheme") != NULL)
		say_of_cache(c, out);
	return MODEL_OK;
}

/* The blocks that have one scale, by the strategy of a group */
static int
read_strategy(struct config *c, const json_t *weights, struct checkpoint_way *w)
{
	const json_t *strategy = config_get(weights, "strategy");
	const json_t *group = config_get(weights, "group_size");
	uint32_t size;
	int rc;

	if ((rc = read_group(c, "group_size", group, &size)) != MODEL_OK)
		return rc;
	w->block_rows = 1;
	if (is_word(strategy, "group") && size > 0)
		w->block_cols = size;
	else if (is_word(strategy, "tensor") || (strategy == NULL && group == NULL))
		w->block_rows = 0;
	else if (is_word(strategy, "block") && config_get(weights, "block_structure") != NULL)
		return read_block(c, "block_structure", config_get(weights, "block_structure"), w);
	else if (strategy == NULL && size > 0)
		w->block_cols = size;
	else if (!is_word(strategy, "channel") && strategy != NULL)
		return refuse(c, "strategy", strategy);
	return MODEL_OK;
}

/* Keys of the weights of a group */
static int
check_weights(struct config *c, json_t *weights)
{
	static const char *const known[] = { "num_bits", "type", "symmetric", "group_size",
		"strategy", "block_structure", "dynamic", "actorder", "observer",
		"observer_kwargs", "scale_dtype", "zp_dtype" };
	const char *name;
	json_t *v;
	size_t i;

	if (!json_is_object(weights))
		return refuse(c, "weights", weights);
	json_object_foreach(weights, name, v) {
		for (i = 0; i < sizeof known / sizeof known[0]; i++)
			if (strcmp(known[i], name) == 0)
				break;
		if (i == sizeof known / sizeof known[0] && !json_is_null(v))
			return UNSUPPORTED(c, OBJECT ": unknown key \"%s\" of weights: it may "
			    "change them", name);
	}
	return MODEL_OK;
}

static int
read_weights(struct config *c, json_t *weights, const json_t *format,
    struct checkpoint_way *w)
{
	const json_t *bits = config_get(weights, "num_bits"), *type = config_get(weights, "type");
	const json_t *symmetric = config_get(weights, "symmetric");
	int rc;

	if ((rc = check_weights(c, weights)) != MODEL_OK)
		return rc;
	*w = (struct checkpoint_way){ .is_float = is_word(type, "float"),
		.packed = is_word(format, "pack-quantized"), .has_zeros = json_is_false(symmetric),
		.bits = bits == NULL ? 8 : (uint32_t)json_integer_value(bits) };
	if (!w->is_float && type != NULL && !is_word(type, "int"))
		return refuse(c, "type", type);
	if (w->bits != 8 && (w->bits != 4 || w->is_float))
		return refuse(c, "num_bits", bits);
	if (w->is_float && (w->has_zeros || w->packed))
		return refuse(c, "weights", weights);
	if (!w->packed && w->bits != 8)
		return refuse(c, "format", format);
	return read_strategy(c, weights, w);
}

static int
check_format(struct config *c, const json_t *format)
{
	static const char *const known[] = { "float-quantized", "int-quantized", "naive-quantized",
		"pack-quantized" };
	size_t i;

	for (i = 0; i < sizeof known / sizeof known[0]; i++)
		if (is_word(format, known[i]))
			return MODEL_OK;
	return refuse(c, "format", format);
}

static int
read_compressed_group(struct config *c, const json_t *q, const json_t *group,
    struct checkpoint_config *out)
{
	const json_t *format = config_get(group, "format");
	int rc;

	if (format == NULL)
		format = config_get(q, "format");
	if (config_get(group, "weights") == NULL)
		return MODEL_OK;
	if (out->ways == CHECKPOINT_WAYS)
		return refuse(c, "config_groups", config_get(q, "config_groups"));
	if ((rc = check_format(c, format)) != MODEL_OK || (rc = read_weights(c,
	    config_get(group, "weights"), format, &out->way[out->ways])) != MODEL_OK)
		return rc;
	out->ways++;
	if (!out->activations && (config_get(group, "input_activations") != NULL ||
	    config_get(group, "output_activations") != NULL))
		say_of_activations(c, out);
	return MODEL_OK;
}

static int
read_compressed(struct config *c, const json_t *q, struct checkpoint_config *out)
{
	json_t *groups = config_get(q, "config_groups"), *group;
	const json_t *sparsity = config_get(q, "sparsity_config");
	const char *name;
	int rc;

	if (json_object_size(sparsity) > 0 && !is_word(config_get(sparsity, "format"), "dense"))
		return refuse(c, "sparsity_config", sparsity);
	json_object_foreach(groups, name, group)
		if ((rc = read_compressed_group(c, q, group, out)) != MODEL_OK)
			return rc;
	if (out->ways == 0)
		return UNSUPPORTED(c, OBJECT ": no config_groups with weights");
	if (config_get(q, "kv_cache_scheme") != NULL)
		say_of_cache(c, out);
	return MODEL_OK;
}

static int
read_gptq(struct config *c, const json_t *q, struct checkpoint_config *out)
{
	static const char *const names[] = { "checkpoint_format", "format" };
	const json_t *bits = config_get(q, "bits"), *dynamic = config_get(q, "dynamic"), *format;
	struct checkpoint_way *w = &out->way[0];
	size_t i;

	*w = (struct checkpoint_way){ .packed = 1, .block_rows = 1, .has_zeros = 1,
		.bits = config_has(bits, "8") ? 8 : 4 };
	out->ways = 1;
	if (!config_has(bits, "4") && !config_has(bits, "8"))
		return bits != NULL ? refuse(c, "bits", bits) :
		    UNSUPPORTED(c, OBJECT ": no \"bits\"");
	out->zeros_less_1 = 1;
	for (i = 0; i < 2; i++) {
		format = config_get(q, names[i]);
		if (is_word(format, "gptq_v2"))
			out->zeros_less_1 = 0;
		else if (format != NULL && !is_word(format, "gptq"))
			return refuse(c, names[i], format);
	}
	out->any_bits = json_object_size(dynamic) > 0;
	return read_group(c, "group_size", config_get(q, "group_size"), &w->block_cols);
}

static int
read_awq(struct config *c, const json_t *q, struct checkpoint_config *out)
{
	static const char *const names[] = { "version", "format", "checkpoint_format" };
	const json_t *group = config_get(q, "group_size"), *version;
	size_t i;

	out->way[0] = (struct checkpoint_way){ .packed = 1, .block_rows = 1, .has_zeros = 1,
		.bits = 4 };
	out->ways = 1;
	for (i = 0; i < sizeof names / sizeof names[0]; i++) {
		version = config_get(q, names[i]);
		if (version != NULL && !is_word(version, "gemm"))
			return refuse(c, names[i], version);
	}
	if (group == NULL)
		group = config_get(q, "q_group_size");
	return read_group(c, "group_size", group, &out->way[0].block_cols);
}

static int
read_nf4(struct config *c, const json_t *q, struct checkpoint_config *out)
{
	const json_t *four = config_get(q, "load_in_4bit");

	out->way[0] = (struct checkpoint_way){ .bits = 4 };
	out->ways = 1;
	return four != NULL ? MODEL_OK : UNSUPPORTED(c, OBJECT ": bitsandbytes without "
	    "load_in_4bit is not supported");
}

int
checkpoint_config(struct config *c, struct checkpoint_config *out)
{
	static int (*const readers[])(struct config *, const json_t *, struct checkpoint_config *) =
	    { [CHECKPOINT_FP8] = read_fp8, [CHECKPOINT_COMPRESSED] = read_compressed,
	    [CHECKPOINT_GPTQ] = read_gptq, [CHECKPOINT_AWQ] = read_awq,
	    [CHECKPOINT_NF4] = read_nf4 };
	json_t *q = config_get(c->json, OBJECT), *v;
	const json_t *method = config_get(q, "quant_method");
	const char *name;
	size_t i;
	int rc;

	*out = (struct checkpoint_config){ .method = CHECKPOINT_PLAIN };
	/* MXFP4 are experts of gpt-oss alone, whose tensors say it: bind_experts_in_turns.c */
	if (q == NULL || (is_word(method, "mxfp4") && c->family->experts != NULL &&
	    c->family->experts->names->in_turns))
		return MODEL_OK;
	for (i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (is_word(method, methods[i].name))
			out->method = methods[i].method;
	if (out->method == CHECKPOINT_PLAIN)
		return config_hint(c, OBJECT, UNSUPPORTED(c, OBJECT ": quantised weights (%s) are "
		    "not supported: want fp8, compressed-tensors, gptq, awq or bitsandbytes",
		    json_is_string(method) ? json_string_value(method) : "an unnamed method"));
	json_object_foreach(q, name, v)
		if ((rc = check_key(c, out->method, name, v)) != MODEL_OK)
			return rc;
	return readers[out->method](c, q, out);
}
