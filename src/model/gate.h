/* gate.h - a gate: a small network of each layer that says how much a row matters, from the hidden
 * state of its token in front of attention, behind the input norm
 *
 * KVzap (2026): the score h[G] of a token x[D], an estimate of the logarithm of KVzip+'s,
 *
 *     W x + b                                  or, with a hidden layer,
 *     W2 gelu(W1 x + b1) + b2.
 *
 * Fast KVzip (2026): an estimate of KVzip's score, from 0 to 1,
 *
 *     the mean over the R queries of a KV head of
 *     1 / (1 + sum over the sinks s of exp(base[g][s] . q / sqrt(m) - k . q / sqrt(m) - b[g][r]))
 *
 * with q = RMSNorm(Wq x + bq) and k = RMSNorm(Wk x), of m channels each.
 *
 * The folder has model.safetensors as it is published: layers.N.weight and .bias; or layers.N.0.*
 * and layers.N.2.*; or, for Fast KVzip, layers.N.q_proj.weight and so on, which train/gates.py
 * makes from the published file. Letters as in ops.h. Errors are MODEL_* codes, with a message in
 * err[errlen]. */
#ifndef KVPIPE_GATE_H
#define KVPIPE_GATE_H

#include "model/model.h"

enum { GATE_ROWS = 1024 };              /* rows that run at once */

enum gate_kind { GATE_LINEAR, GATE_MLP, GATE_SINKS };

struct gate_layer {
	/* [G][D]; or [hidden][D] and [G][hidden]; or the projections [G*R*m][D] and [G*m][D] */
	struct mat first, second;
	const float *first_bias, *second_bias;  /* device; NULL: none */
	struct gate_sinks sinks;                /* GATE_SINKS */
};

struct gate {
	enum gate_kind kind;
	const char *method;             /* that takes the scores: kvzap, fastkvzip */
	struct gate_layer *layer;       /* [L] */
	/* device [GATE_ROWS] rows of: what `first` and `second` give, scores */
	float *first, *second, *scores;
	char label[KV_SCORE_LABEL];     /* its name in snapshots (kv-snapshot(5), 4.24) */
	int by_samples;                 /* it names the model's weights by samples only */
	size_t bytes;                   /* of the device */
	/* the rest is gate.c's */
	const struct model *model;
	uint32_t width, sinks;          /* hidden, or m; S */
	void *block;
	struct tensor_set *files;
	char *dir;
};

/* Reads a folder for a model, which need not be on the device yet. What does not fit is refused by
 * name: another model's weights (MODEL_EMISMATCH), a tensor that is missing, that is none of a
 * gate, or that has another shape, a number that is not finite. */
int gate_open(const char *dir, const struct model *, const struct overrides *, struct gate **out,
    char *err, size_t errlen);
/* Copies it to the model's device: once, before it is run. */
int gate_bind(struct gate *, char *err, size_t errlen);
/* NULL allowed; before the device is closed */
void gate_free(struct gate *);

/* scores[N][G] (host) <- those of rows x[N][D] (device) in front of layer l. xn[N][D] (device) is
 * scratch. */
void gate_run(const struct gate *, uint32_t l, const float *x, float *xn, uint32_t N,
    float *scores);

#endif
