/* family.h - families of models, as deviations from Llama
 *
 * One forward() runs them all. What a family does otherwise is a row of this table; config.c turns
 * the row and the configuration into fields of struct model, model.c binds tensors by them. */
#ifndef KVPIPE_FAMILY_H
#define KVPIPE_FAMILY_H

#include <stdint.h>

enum {
	FAMILY_ATTENTION_BIAS = 1 << 0, /* attention_bias says whether q, k, v, o have biases */
	FAMILY_MLP_BIAS = 1 << 1,       /* mlp_bias the same of gate, up, down */
	FAMILY_QKV_BIAS = 1 << 2,       /* q, k, v have biases, o has none */
	FAMILY_FUSED = 1 << 3,          /* qkv_proj and gate_up_proj: stacked matrices */
	FAMILY_HEAD_NORM = 1 << 4,      /* RMSNorm of each query and key before rotary embedding */
	FAMILY_WIDE_NORM = 1 << 5,      /* the same over all heads of a row together */
	FAMILY_NORM_AFTER = 1 << 6,     /* norms behind attention and network, none before */
	FAMILY_MULTIPLIERS = 1 << 7,    /* of embeddings, attention, residuals, logits */
	FAMILY_ROPE_WIDTH = 1 << 8,     /* obeys partial_rotary_factor */
	FAMILY_ROPE_SKIP = 1 << 9,      /* some layers have no rotary embedding */
	FAMILY_WINDOW_SWITCH = 1 << 10, /* windows count only with use_sliding_window */
	FAMILY_NEEDS_KV_HEADS = 1 << 11, /* the family's default is no multiple of anything */
	FAMILY_WINDOW = 1 << 12,        /* sliding_window limits attention */
	FAMILY_LAYER_TYPES = 1 << 13,   /* in the layers that layer_types says */
	FAMILY_GELU = 1 << 14,          /* gelu(x), by tanh, in place of silu */
	FAMILY_NORM_AROUND = 1 << 15,   /* norms before attention and network, and behind them */
	FAMILY_NORM_FROM_1 = 1 << 16,   /* a norm's weights are stored less 1 */
	FAMILY_ROOT_OF_WIDTH = 1 << 17, /* embeddings are multiplied by sqrt(hidden_size) */
	FAMILY_QUERY_SCALAR = 1 << 18,  /* query_pre_attn_scalar in place of head_dim */
	FAMILY_SOFTCAPS = 1 << 19,      /* of attention and of logits */
	FAMILY_LOCAL_ROPE = 1 << 20     /* layers with a window have a theta of their own */
};

struct family {
	const char *type;               /* model_type */
	const char *architecture;       /* the causal language model among its classes */
	unsigned flags;
	uint32_t head_width;            /* where head_dim is absent; 0: hidden / heads */
	uint32_t window;                /* where sliding_window is absent; 0: none */
	/* each so many-th layer sees all where layer_types is absent; 0: none does */
	uint32_t whole_every;
	int tied;                       /* where tie_word_embeddings is absent */
	double eps, theta;              /* where rms_norm_eps and rope_theta are absent */
	double attention_softcap, logits_softcap;       /* where they are absent; 0: none */
};

/* NULL: none of that name. */
const struct family *family_find(const char *type);
/* The i-th; NULL behind the last one. */
const struct family *family_at(unsigned i);

#endif
