/* family.h - families of models, as deviations from Llama
 *
 * One forward() runs them all. What a family does otherwise is a row of this table; config.c turns
 * the row and the configuration into fields of struct model, model.c binds tensors by them. */
#ifndef KVPIPE_FAMILY_H
#define KVPIPE_FAMILY_H

#include <stdint.h>

#include "ops/experts.h"

enum {
	FAMILY_ATTENTION_BIAS = 1 << 0, /* attention_bias says whether q, k, v, o have biases */
	FAMILY_MLP_BIAS = 1 << 1,       /* mlp_bias the same of gate, up, down */
	FAMILY_QKV_BIAS = 1 << 2,       /* q, k, v have biases, o has none */
	FAMILY_TOGETHER = 1 << 3,       /* q, k and v of each KV head are in one matrix */
	FAMILY_MULTIPLIERS = 1 << 4,    /* of embeddings, attention, residuals, logits */
	FAMILY_ROPE_WIDTH = 1 << 5,     /* obeys partial_rotary_factor */
	FAMILY_ROPE_SKIP = 1 << 6,      /* some layers have no rotary embedding */
	FAMILY_WINDOW_SWITCH = 1 << 7, /* windows count only with use_sliding_window */
	FAMILY_NEEDS_KV_HEADS = 1 << 8, /* the family's default is no multiple of anything */
	FAMILY_WINDOW = 1 << 9,        /* sliding_window limits attention */
	FAMILY_LAYER_TYPES = 1 << 10,   /* in the layers that layer_types says */
	FAMILY_NORM_FROM_1 = 1 << 11,   /* a norm's weights are stored less 1 */
	FAMILY_ROOT_OF_WIDTH = 1 << 12, /* embeddings are multiplied by sqrt(hidden_size) */
	FAMILY_QUERY_SCALAR = 1 << 13,  /* query_pre_attn_scalar in place of head_dim */
	FAMILY_SOFTCAPS = 1 << 14,      /* of attention and of logits */
	FAMILY_LOCAL_ROPE = 1 << 15,    /* layers with a window have a theta of their own */
	FAMILY_PLAIN_WINDOW = 1 << 16,  /* scaling of rotary embedding is not for these layers */
	FAMILY_WINDOW_ROPE = 1 << 17,   /* where some have a window, the others do not rotate */
	FAMILY_QUERY_BETA = 1 << 18,    /* llama_4_scaling_beta, of queries by their position */
	FAMILY_ADJACENT = 1 << 19,      /* rotary embedding rotates channels 2i and 2i + 1 */
	FAMILY_O_PLAIN = 1 << 20,       /* o has no bias where q, k, v have one */
	FAMILY_USE_BIAS = 1 << 21,      /* use_bias says whether all projections have biases */
	FAMILY_HEAD_BIAS = 1 << 22,     /* the head has a bias */
	FAMILY_PARALLEL = 1 << 23,      /* attention and network read the same stream */
	FAMILY_LOGIT_SCALE = 1 << 24,   /* logits are multiplied by logit_scale */
	FAMILY_DEPTH_SCALES = 1 << 25,  /* scale_emb, scale_depth and dim_model_base (MiniCPM) */
	FAMILY_CLIP = 1 << 26,          /* clip_qkv bounds queries, keys and values */
	FAMILY_NETWORK_BIAS = 1 << 27,  /* networks have biases, whatever projections have */
	FAMILY_PREDICTS = 1 << 28,      /* files may have layers that guess further tokens */
	FAMILY_LATENT = 1 << 30         /* multi-head latent attention */
};

/* LayerNorm: with weights, with weights and biases, with neither */
enum family_norm { NORM_RMS, NORM_LAYER, NORM_LAYER_BIASED, NORM_LAYER_BARE };

/* Norms of queries and keys, where tensor_names has them: an RMSNorm of each head, all with the
 * same weights; one of all heads of a row together; a LayerNorm of each head with weights of its
 * own */
enum family_head_norm { HEAD_NORM_ALIKE, HEAD_NORM_WIDE, HEAD_NORM_OWN };

/* A key of config.json under the name that a family has for it */
struct key_alias {
	const char *theirs, *ours;
};

/* Tensors, without .weight and .bias; those of a layer are behind LAYERS.NUMBER. NULL: none */
struct tensor_names {
	const char *embed, *layers, *norm, *head;
	/* qkv: q, k and v on top of each other, in place of the three (FAMILY_TOGETHER: of each KV
	 * head); gate_up the same */
	const char *q, *k, *v, *qkv, *o, *gate, *up, *gate_up, *down;
	/* norms before attention and network, of what they add, and of queries and keys */
	const char *sinks;              /* a vector of the query heads, with no .weight behind it */
	const char *attention_norm, *ffn_norm, *attention_adds, *ffn_adds, *q_norm, *k_norm;
};

/* What a family's configuration says of its experts */
enum {
	EXPERTS_WIDTH = 1 << 0,         /* moe_intermediate_size; else intermediate_size */
	EXPERTS_NORM = 1 << 1,          /* norm_topk_prob: weights are renormalised */
	EXPERTS_STEP = 1 << 2,          /* decoder_sparse_step, mlp_only_layers */
	EXPERTS_FIRST = 1 << 3,         /* first_k_dense_replace, moe_layer_freq */
	EXPERTS_GROUPS = 1 << 4,        /* n_group, topk_group */
	EXPERTS_SCALE = 1 << 5,         /* routed_scaling_factor */
	EXPERTS_SHARED = 1 << 6,        /* n_shared_experts, each as wide as an expert */
	EXPERTS_SHARED_WIDTH = 1 << 7,  /* shared_expert_intermediate_size */
	EXPERTS_METHOD = 1 << 8,        /* topk_method, scoring_func */
	EXPERTS_CORRECTED = 1 << 9,     /* scores are corrected for the choice */
	EXPERTS_TWO_BEST = 1 << 10,     /* a group has the sum of its two greatest scores */
	EXPERTS_CLAMPED = 1 << 12,      /* swiglu_limit, swiglu_alpha */
	EXPERTS_RANGE = 1 << 11,        /* moe_layer_start_index, .._end_index, .._interval */
	EXPERTS_TYPES = 1 << 13,        /* mlp_layer_types: "dense" or "sparse" */
	EXPERTS_JITTER = 1 << 14        /* router_jitter_noise says which logits are near */
};

/* Tensors of experts, behind LAYERS.NUMBER, without .weight. NULL: none */
struct expert_names {
	const char *router, *correction;
	/* of expert N: EXPERTS.N.GATE and so on; of all in one tensor: EXPERTS.GATE [M][F][D] */
	const char *experts, *gate, *up, *down;
	/* of all, gate and up on top of each other: [M][2 F][D]; each: [M][F][D]; [M][D][F] */
	const char *gate_up, *all_gate, *all_up, *all_down;
	/* 1: gate and up of gate_up in turns, and all have biases; all_gate and all_up are upright,
	 * as GGUF files have them */
	int in_turns;
	/* the network that all rows take: shared_gate_up has both in one, where gate is not there;
	 * how much it counts */
	const char *shared_gate, *shared_up, *shared_gate_up, *shared_down, *shared_score;
};

struct family_experts {
	unsigned flags;                 /* EXPERTS_* */
	uint32_t count, chosen;         /* where num_experts and num_experts_per_tok are absent */
	uint32_t shared, first;         /* where n_shared_experts and first_k_.. are absent */
	enum router_scores scores;
	int renormalise;                /* where norm_topk_prob is absent, or no key says so */
	const struct expert_names *names;
};

struct family {
	const char *type;               /* model_type */
	const char *architecture;       /* the causal language model among its classes */
	unsigned flags;
	uint32_t head_width;            /* where head_dim is absent; 0: hidden / heads */
	uint32_t kv_heads;              /* whatever num_key_value_heads says; 0: what it says */
	uint32_t ffn_times;             /* times hidden_size: where intermediate_size is absent */
	uint32_t window;                /* where sliding_window is absent; 0: none */
	/* each so many-th layer sees all where layer_types is absent; 0: none does */
	uint32_t whole_every;
	int tied;                       /* where tie_word_embeddings is absent */
	int biased;                     /* where attention_bias or use_bias is absent */
	double rope_part;               /* where partial_rotary_factor is absent; 0: 1 */
	double eps, theta;              /* where rms_norm_eps and rope_theta are absent */
	double attention_softcap, logits_softcap;       /* where they are absent; 0: none */
	const struct tensor_names *names;
	enum activation act;            /* of the gate, or of a network without one */
	enum family_norm norm;
	enum family_head_norm head_norm;
	const struct key_alias *aliases;        /* ends with NULL; NULL: none */
	const struct family_experts *experts;   /* NULL: no mixture of experts */
	const struct family_switch *switches;   /* ends with key NULL; NULL: none */
};

/* A key that says which of a family's forms a model has */
struct family_switch {
	const char *key, *value;        /* value: JSON */
	const struct family *to;        /* NULL: the form at hand */
};

/* NULL: none of that name. */
const struct family *family_find(const char *type);
/* The i-th; NULL behind the last one. */
const struct family *family_at(unsigned i);
/* Does it have the tensors of Llama, and norms of queries and keys at most beside them? */
int family_has_usual_tensors(const struct family *);

#endif
