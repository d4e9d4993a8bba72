/* family.h - families of models, as deviations from Llama
 *
 * One forward() runs them all. What a family does otherwise is a row of this table; config.c turns
 * the row and the configuration into fields of struct model, model.c binds tensors by them. */
#ifndef KVPIPE_FAMILY_H
#define KVPIPE_FAMILY_H

#include <stdint.h>

#include "ops/weights.h"

enum {
	FAMILY_ATTENTION_BIAS = 1 << 0, /* attention_bias says whether q, k, v, o have biases */
	FAMILY_MLP_BIAS = 1 << 1,       /* mlp_bias the same of gate, up, down */
	FAMILY_QKV_BIAS = 1 << 2,       /* q, k, v have biases, o has none */
	FAMILY_WIDE_NORM = 1 << 3,      /* norms of queries and keys are over all heads of a row */
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
	FAMILY_LOGIT_SCALE = 1 << 24    /* logits are multiplied by logit_scale */
};

/* LayerNorm: with weights, with weights and biases, with neither */
enum family_norm { NORM_RMS, NORM_LAYER, NORM_LAYER_BIASED, NORM_LAYER_BARE };

/* A key of config.json under the name that a family has for it */
struct key_alias {
	const char *theirs, *ours;
};

/* Tensors, without .weight and .bias; those of a layer are behind LAYERS.NUMBER. NULL: none */
struct tensor_names {
	const char *embed, *layers, *norm, *head;
	/* qkv: q, k and v on top of each other, in place of the three; gate_up the same */
	const char *q, *k, *v, *qkv, *o, *gate, *up, *gate_up, *down;
	/* norms before attention and network, of what they add, and of queries and keys */
	const char *attention_norm, *ffn_norm, *attention_adds, *ffn_adds, *q_norm, *k_norm;
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
	int biased;                     /* where attention_bias or use_bias is absent */
	double rope_part;               /* where partial_rotary_factor is absent; 0: 1 */
	double eps, theta;              /* where rms_norm_eps and rope_theta are absent */
	double attention_softcap, logits_softcap;       /* where they are absent; 0: none */
	const struct tensor_names *names;
	enum activation act;            /* of the gate, or of a network without one */
	enum family_norm norm;
	const struct key_alias *aliases;        /* ends with NULL; NULL: none */
};

/* NULL: none of that name. */
const struct family *family_find(const char *type);
/* The i-th; NULL behind the last one. */
const struct family *family_at(unsigned i);
/* Does it have the tensors of Llama, and norms of queries and keys at most beside them? */
int family_has_usual_tensors(const struct family *);

#endif
