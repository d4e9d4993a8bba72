/* weights.h - the weights that ops compute with, on a device
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_WEIGHTS_H
#define KVPIPE_WEIGHTS_H

#include <stdint.h>

#include "ops/weight_type.h"

/* A weight matrix in the type it is stored in: w[out][in], device */
struct mat {
	const void *data;
	enum weight_type type;
	uint32_t out, in;
};

/* For a backend that takes elements only (ops.h, blocks_in_f32) */
static inline enum kv_dtype
mat_elements(const struct mat *w)
{
	return (enum kv_dtype)w->type;
}

/* The parameters of an RMSNorm, or of a LayerNorm: weights, device f32 [in] */
struct norm {
	const float *w;
	float eps;
	int centred;                 /* layernorm() in place of rmsnorm() */
	const float *bias;           /* of a LayerNorm; NULL: none */
	/* of a LayerNorm: more than 1: so many weights and biases [heads][in], which rows take in
	 * turns */
	uint32_t heads;
};

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_RELU2, ACT_XIELU };

/* xIELU (Huang and Schlag 2024, arXiv 2411.13010): positive x^2 + beta x above 0, else negative
 * (exp(min(x, eps)) - 1 - x) + beta x */
struct xielu {
	float positive, negative, beta, eps;
};

/* Rotary embedding of a layer */
struct rotary {
	const double *freq;          /* device [dims/2] */
	/* how many channels of a head are rotated, the first ones; even, at most E; 0: none */
	uint32_t dims;
	float factor;                /* multiplies cosine and sine; 1: none */
	/* multi-head latent attention: the channels from this one on, in place of the first ones,
	 * for run_rope_append() */
	uint32_t first;
};

/* Rows of a weight matrix that belong to query heads: head h has rows h block + first .. h block +
 * first + rows - 1 of w[heads block][in] */
struct head_matrices {
	const struct mat *w;
	uint32_t heads, block, first, rows;
};

/* One of several matrix products of the same input rows */
struct product {
	float *y;                    /* device [N][w->out] */
	const struct mat *w;
	const float *bias;           /* device [w->out]; NULL: none */
};

/* The second half of a layer: norm and feed-forward network, device. Without a gate it is down .
 * act(up . xn). */
struct ffn {
	struct norm norm;
	struct mat gate, up, down;   /* [F][D], [F][D], [D][F]; gate.out 0: none */
	enum activation act;         /* of the gate: ACT_SILU or ACT_GELU_TANH */
	struct xielu xielu;          /* of ACT_XIELU */
};

/* The part of a gate of Fast KVzip behind its projections, device f32 */
struct gate_sinks {
	struct norm q_norm, k_norm;  /* [m] */
	const float *base;           /* [G][m][S] keys of S sinks, S side by side */
	const float *bias;           /* [G][R] */
	uint32_t heads, group;       /* G KV heads, R queries of each */
	uint32_t width, sinks;       /* m channels, S */
};

#endif
