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
	FAMILY_WINDOW_SWITCH = 1 << 2,  /* windows count only with use_sliding_window */
	FAMILY_NEEDS_KV_HEADS = 1 << 3  /* the family's default is no multiple of anything */
};

struct family {
	const char *type;               /* model_type */
	const char *architecture;       /* the causal language model among its classes */
	unsigned flags;
	uint32_t head_width;            /* where head_dim is absent; 0: hidden / heads */
	uint32_t window;                /* where sliding_window is absent; 0: none */
	int tied;                       /* where tie_word_embeddings is absent */
	double eps, theta;              /* where rms_norm_eps and rope_theta are absent */
};

/* NULL: none of that name. */
const struct family *family_find(const char *type);
/* The i-th; NULL behind the last one. */
const struct family *family_at(unsigned i);

#endif
