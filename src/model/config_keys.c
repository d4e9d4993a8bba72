/* config_keys.c - every key of a configuration is understood, harmless, or refused by name
 *
 * Harmless by rule: what is null, what begins with "_", token ids, dropout (there is none outside
 * of training), what a training tool has left of itself. Harmless by list: what is known to change
 * nothing. That leaves keys that nobody has thought of, and those are refused, too. */
#include <string.h>

#include "model/config_internal.h"

/* What we do with a key. */
enum rule {
	READ,           /* understood, by another part of the reader */
	READ_IF,        /* understood in families with this flag, in others as ONLY */
	IGNORE,         /* does not change what one forward pass computes */
	ONLY            /* refused unless it has the one value that changes nothing */
};

static const struct key {
	const char *name;
	enum rule rule;
	const char *only;       /* JSON */
	unsigned flag;          /* FAMILY_* of READ_IF */
} keys[] = {
	{ "architectures", READ, NULL, 0 },
	{ "head_dim", READ, NULL, 0 },
	{ "hidden_size", READ, NULL, 0 },
	{ "intermediate_size", READ, NULL, 0 },
	{ "max_position_embeddings", READ, NULL, 0 },
	{ "model_type", READ, NULL, 0 },
	{ "layer_types", READ, NULL, 0 },
	{ "max_window_layers", READ, NULL, 0 },
	{ "num_attention_heads", READ, NULL, 0 },
	{ "num_hidden_layers", READ, NULL, 0 },
	{ "num_key_value_heads", READ, NULL, 0 },
	{ "rms_norm_eps", READ, NULL, 0 },
	{ "quantization_config", READ, NULL, 0 },
	{ "original_max_position_embeddings", READ, NULL, 0 }, /* Phi-3 */
	{ "rope_parameters", READ, NULL, 0 },              /* transformers 5: both in one */
	{ "rope_scaling", READ, NULL, 0 },
	{ "rope_theta", READ, NULL, 0 },
	{ "sliding_window", READ, NULL, 0 },
	{ "tie_word_embeddings", READ, NULL, 0 },
	{ "use_sliding_window", READ, NULL, 0 },
	{ "vocab_size", READ, NULL, 0 },

	{ "attention_bias", READ_IF, "false", FAMILY_ATTENTION_BIAS | FAMILY_QKV_BIAS },
	{ "mlp_bias", READ_IF, "false", FAMILY_MLP_BIAS },

	/* latent attention */
	{ "kv_lora_rank", READ_IF, "null", FAMILY_LATENT },
	{ "q_lora_rank", READ_IF, "null", FAMILY_LATENT },
	{ "qk_nope_head_dim", READ_IF, "null", FAMILY_LATENT },
	{ "qk_rope_head_dim", READ_IF, "null", FAMILY_LATENT },
	{ "v_head_dim", READ_IF, "null", FAMILY_LATENT },
	{ "qk_head_dim", READ_IF, "null", FAMILY_LATENT },   /* follows from these */
	{ "rope_interleave", READ_IF, "false", FAMILY_LATENT },
	{ "norm_topk_prob", ONLY, "false", 0 },            /* DeepSeek-V2 */

	{ "num_nextn_predict_layers", READ_IF, "0", FAMILY_PREDICTS },
	{ "use_mtp", READ_IF, "false", FAMILY_PREDICTS },
	{ "num_mtp_modules", READ_IF, "0", FAMILY_PREDICTS },
	{ "mtp_transformer_layers", READ_IF, "0", FAMILY_PREDICTS },
	{ "rope_interleaved", ONLY, "false", 0 },          /* SmolLM's; true: pairs (2i, 2i+1) */
	{ "rope_traditional", ONLY, "false", 0 },          /* MLX's word for the same */
	{ "partial_rotary_factor", READ_IF, "1", FAMILY_ROPE_WIDTH },
	{ "rotary_dim", READ_IF, "null", FAMILY_ROPE_WIDTH },      /* MiniMax-M2 */
	{ "no_rope_layers", READ_IF, "[]", FAMILY_ROPE_SKIP },
	{ "no_rope_layer_interval", READ_IF, "0", FAMILY_ROPE_SKIP },
	{ "attn_logit_softcapping", READ_IF, "null", FAMILY_SOFTCAPS },
	{ "final_logit_softcapping", READ_IF, "null", FAMILY_SOFTCAPS },
	{ "query_pre_attn_scalar", READ_IF, "null", FAMILY_QUERY_SCALAR },
	{ "rope_local_base_freq", READ_IF, "null", FAMILY_LOCAL_ROPE },
	{ "sliding_window_pattern", READ_IF, "null", FAMILY_LAYER_TYPES }, /* EXAONE: "LLLG" */
	{ "use_bidirectional_attention", ONLY, "false", 0 },       /* Gemma 3 */
	{ "use_mrope", ONLY, "false", 0 },                 /* Qwen2-VL */
	{ "bias", ONLY, "false", 0 },
	{ "use_bias", READ_IF, "false", FAMILY_USE_BIAS },
	{ "attention_out_bias", ONLY, "false", 0 },        /* Seed-OSS */
	{ "qkv_bias", ONLY, "false", 0 },                  /* InternLM 3 */
	/* These keys choose a form of a family (family.c); without forms it takes false alone */
	{ "qk_layernorm", ONLY, "false", 0 },              /* StableLM, Phi */
	{ "use_qk_norm", ONLY, "false", 0 },
	{ "qk_norm", ONLY, "false", 0 },                   /* Apertus, these two */
	{ "post_norm", ONLY, "false", 0 },
	{ "use_parallel_residual", ONLY, "false", 0 },     /* StableLM */
	{ "new_decoder_architecture", ONLY, "false", 0 },  /* Falcon, these six */
	{ "num_ln_in_parallel_attn", ONLY, "null", 0 },
	{ "alibi", ONLY, "false", 0 },
	{ "multi_query", ONLY, "true", 0 },
	{ "parallel_attn", ONLY, "true", 0 },
	{ "ff_factor", ONLY, "4", 0 },
	{ "apply_residual_connection_post_layernorm", ONLY, "false", 0 },
	{ "clip_qkv", READ_IF, "null", FAMILY_CLIP },      /* OLMo */
	{ "norm_type", ONLY, "\"layer_norm\"", 0 },        /* StarCoder2, these two */
	{ "mlp_type", ONLY, "\"default\"", 0 },
	{ "logit_scale", READ_IF, "1", FAMILY_LOGIT_SCALE },
	/* Command R7B says what its family is */
	{ "order_of_interleaved_layers", ONLY, "\"local_attn_first\"", 0 },
	{ "position_embedding_type", ONLY, "\"rope_gptj\"", 0 },
	{ "layer_switch", ONLY, "4", 0 },
	{ "rotary_pct", ONLY, "1", 0 },
	{ "use_embedding_sharing", ONLY, "true", 0 },
	{ "use_gated_activation", ONLY, "true", 0 },
	{ "use_parallel_block", ONLY, "true", 0 },
	{ "use_parallel_embedding", ONLY, "false", 0 },
	{ "embedding_multiplier", READ_IF, "1", FAMILY_MULTIPLIERS },
	{ "residual_multiplier", READ_IF, "1", FAMILY_MULTIPLIERS },
	{ "attention_multiplier", READ_IF, "null", FAMILY_MULTIPLIERS },
	{ "logits_scaling", READ_IF, "1", FAMILY_MULTIPLIERS },
	{ "scale_emb", READ_IF, "1", FAMILY_DEPTH_SCALES },
	{ "scale_depth", READ_IF, "null", FAMILY_DEPTH_SCALES },
	{ "dim_model_base", READ_IF, "null", FAMILY_DEPTH_SCALES },
	/* of a network beside the model that drafts tokens for it (MiniCPM 4) */
	{ "mup_denominator", READ_IF, "null", FAMILY_DEPTH_SCALES },
	{ "qk_norm_type", ONLY, "\"per_layer\"", 0 },      /* MiniMax-M2, these six */
	{ "use_routing_bias", ONLY, "true", 0 },
	{ "shared_intermediate_size", ONLY, "0", 0 },
	{ "layernorm_full_attention_beta", ONLY, "1", 0 },
	{ "layernorm_linear_attention_beta", ONLY, "1", 0 },
	{ "layernorm_mlp_beta", ONLY, "1", 0 },
	{ "full_attn_mod", ONLY, "1", 0 },                 /* Phi-4-mini */
	{ "interpolate_factor", ONLY, "1", 0 },
	{ "lm_head_bias", ONLY, "false", 0 },
	{ "add_cross_attention", ONLY, "false", 0 },
	{ "is_encoder_decoder", ONLY, "false", 0 },
	{ "pruned_heads", ONLY, "{}", 0 },

	/* where it comes from */
	{ "is_llama_config", IGNORE, NULL, 0 },
	/* how it runs there: the tensors say their own type */
	{ "torch_dtype", IGNORE, NULL, 0 },
	{ "dtype", IGNORE, NULL, 0 },
	{ "use_bfloat16", IGNORE, NULL, 0 },
	{ "use_cache", IGNORE, NULL, 0 },
	{ "cache_implementation", IGNORE, NULL, 0 },
	{ "torchscript", IGNORE, NULL, 0 },
	{ "return_dict", IGNORE, NULL, 0 },
	{ "output_attentions", IGNORE, NULL, 0 },
	{ "output_hidden_states", IGNORE, NULL, 0 },
	{ "chunk_size_feed_forward", IGNORE, NULL, 0 },    /* Llama does not look at it */
	{ "is_decoder", IGNORE, NULL, 0 },
	{ "attn_implementation", IGNORE, NULL, 0 },
	{ "pretraining_tp", IGNORE, NULL, 0 },            /* sums in another order */
	{ "max_sequence_length", IGNORE, NULL, 0 },        /* first Llama conversions */
	{ "model_max_length", IGNORE, NULL, 0 },           /* Command R */
	{ "shared_moe_mode", IGNORE, NULL, 0 },            /* MiniMax-M2 has no such network */
	{ "mlp_intermediate_size", IGNORE, NULL, 0 },
	/* training */
	{ "tie_encoder_decoder", IGNORE, NULL, 0 },
	{ "tf_legacy_loss", IGNORE, NULL, 0 },
	/* other heads and tasks */
	{ "finetuning_task", IGNORE, NULL, 0 },
	{ "id2label", IGNORE, NULL, 0 },
	{ "label2id", IGNORE, NULL, 0 },
	{ "num_labels", IGNORE, NULL, 0 },
	{ "problem_type", IGNORE, NULL, 0 },
	{ "task_specific_params", IGNORE, NULL, 0 },
	/* tokenizer */
	{ "prefix", IGNORE, NULL, 0 },
	{ "tokenizer_class", IGNORE, NULL, 0 },
	/* sampling defaults, which older versions wrote here */
	{ "begin_suppress_tokens", IGNORE, NULL, 0 },
	{ "diversity_penalty", IGNORE, NULL, 0 },
	{ "do_sample", IGNORE, NULL, 0 },
	{ "early_stopping", IGNORE, NULL, 0 },
	{ "encoder_no_repeat_ngram_size", IGNORE, NULL, 0 },
	{ "exponential_decay_length_penalty", IGNORE, NULL, 0 },
	{ "length_penalty", IGNORE, NULL, 0 },
	{ "max_length", IGNORE, NULL, 0 },
	{ "max_new_tokens", IGNORE, NULL, 0 },
	{ "min_length", IGNORE, NULL, 0 },
	{ "no_repeat_ngram_size", IGNORE, NULL, 0 },
	{ "num_beam_groups", IGNORE, NULL, 0 },
	{ "num_beams", IGNORE, NULL, 0 },
	{ "num_return_sequences", IGNORE, NULL, 0 },
	{ "output_scores", IGNORE, NULL, 0 },
	{ "remove_invalid_values", IGNORE, NULL, 0 },
	{ "repetition_penalty", IGNORE, NULL, 0 },
	{ "return_dict_in_generate", IGNORE, NULL, 0 },
	{ "suppress_tokens", IGNORE, NULL, 0 },
	{ "temperature", IGNORE, NULL, 0 },
	{ "top_k", IGNORE, NULL, 0 },
	{ "top_p", IGNORE, NULL, 0 },
	{ "typical_p", IGNORE, NULL, 0 },
};

/* Does the name alone say that the key cannot change the arithmetic? */
static int
harmless_name(const char *name)
{
	static const char *const begins[] = { "_", "unsloth", "transformers", "summary_" };
	static const char *const ends[] = { "_token_id", "_token_ids", "_token_index",
		"words_ids", "_pdrop", "_dropout", "_drop", "_dropout_prob", "dropout_rate" };
	static const char *const holds[] = { "initializer_", "gradient_", "aux_loss" };
	const size_t n = strlen(name);
	size_t i, m;

	for (i = 0; i < sizeof begins / sizeof begins[0]; i++)
		if (strncmp(name, begins[i], strlen(begins[i])) == 0)
			return 1;
	for (i = 0; i < sizeof ends / sizeof ends[0]; i++)
		if (n >= (m = strlen(ends[i])) && strcmp(name + n - m, ends[i]) == 0)
			return 1;
	for (i = 0; i < sizeof holds / sizeof holds[0]; i++)
		if (strstr(name, holds[i]) != NULL)
			return 1;
	return strcmp(name, "dropout") == 0;
}

/* auto_map names classes that come with the model. A copy of the family's own class, from the time
 * before transformers had it, changes nothing; transformers itself takes its own. */
static int
check_auto_map(struct config *c, const json_t *map)
{
	const char *class = json_string_value(config_get(map, "AutoModelForCausalLM")), *dot;

	if (class != NULL && (dot = strrchr(class, '.')) != NULL)
		class = dot + 1;
	if (class != NULL && config_is_class(c, class))
		return MODEL_OK;
	return config_hint(c, "auto_map", UNSUPPORTED(c, "auto_map: the model has its own code, "
	    "which may change the arithmetic"));
}

/* Gemma 2 has hidden_activation, and hidden_act beside it. */
static int
check_activation(struct config *c, const char *name, const json_t *v)
{
	static const char *const names[] = { [ACT_SILU] = "\"silu\"",
		[ACT_GELU_TANH] = "\"gelu_pytorch_tanh\"", [ACT_GELU] = "\"gelu\"",
		[ACT_RELU2] = "\"relu2\"", [ACT_XIELU] = "\"xielu\"" };
	char text[64];

	if (config_has(v, names[c->family->act]) ||
	    (c->family->act == ACT_GELU_TANH && config_has(v, "\"gelu_new\"")))
		return MODEL_OK;
	return config_hint(c, name, UNSUPPORTED(c, "%s %s is not supported", name,
	    config_show(v, text, sizeof text)));
}

/* MiniMax's kinds of attention by layer: 1 is the usual one. */
static int
check_attention_kinds(struct config *c, const char *name, const json_t *list)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		if (!config_has(json_array_get(list, i), "1"))
			break;
	if (json_is_array(list) && i == json_array_size(list))
		return MODEL_OK;
	return config_hint(c, name, UNSUPPORTED(c, "%s: layers with linear attention are not "
	    "supported", name));
}

static int
check_key(struct config *c, const char *name, const json_t *v)
{
	const struct key *k;
	char text[64];
	size_t i;

	if (json_is_null(v) || harmless_name(name) || config_experts_key(c, name))
		return MODEL_OK;
	if (strcmp(name, "auto_map") == 0)
		return check_auto_map(c, v);
	if (strcmp(name, "hidden_act") == 0 || strcmp(name, "hidden_activation") == 0)
		return check_activation(c, name, v);
	if (strcmp(name, "attn_type_list") == 0)
		return check_attention_kinds(c, name, v);
	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (strcmp(keys[i].name, name) == 0)
			break;
	if (i == sizeof keys / sizeof keys[0])
		return config_hint(c, name, UNSUPPORTED(c, "unknown key \"%s\": it may change the "
		    "arithmetic", name));
	k = &keys[i];
	if (k->rule == READ || k->rule == IGNORE ||
	    (k->rule == READ_IF && (c->family->flags & k->flag) != 0) || config_has(v, k->only))
		return MODEL_OK;
	return config_hint(c, name, UNSUPPORTED(c, "%s %s is not supported", name,
	    config_show(v, text, sizeof text)));
}

int
config_check_keys(struct config *c)
{
	const char *name;
	json_t *v;
	int rc;

	json_object_foreach(c->json, name, v)
		if ((rc = check_key(c, name, v)) != MODEL_OK)
			return rc;
	return MODEL_OK;
}

/* Whether there was such a key, or one of an object. */
static int
pass_over(struct config *c, const char *name)
{
	const char *dot = strchr(name, '.');
	int there = json_object_del(c->json, name) == 0;
	char object[64];

	if (dot == NULL || (size_t)(dot - name) >= sizeof object)
		return there;
	memcpy(object, name, (size_t)(dot - name));
	object[dot - name] = '\0';
	return json_object_del(json_object_get(c->json, object), dot + 1) == 0 || there;
}

void
config_pass_over(struct config *c)
{
	const struct name_list *list = &c->overrides->keys;
	size_t i;

	for (i = 0; i < list->n; i++)
		if (pass_over(c, list->at[i]) && list->there != NULL)
			list->there[i] = 1;
}
