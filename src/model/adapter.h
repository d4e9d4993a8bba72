/* adapter.h - learned tokens, and LoRA that acts on their rows alone: the folder of kv-adapter(5)
 *
 * LookaheadKV (2026), section 3.1: n rows that are not tokens stand behind a prompt; their queries
 * look at what those of the answer would look at. On these rows every linear of the model that has
 * one gets a low-rank addition,
 *
 *     y = x . W^T (+ bias) + (alpha / r) * (x . A^T) . B^T,
 *
 * and on no other row: the prompt's keys and values are those of the model without an adapter.
 *
 * Letters as in ops.h; r is the rank. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_ADAPTER_H
#define KVPIPE_ADAPTER_H

#include "model/model.h"

struct tensor_set;

struct lora {
	struct mat a;                   /* [r][in]; data NULL: this linear has none */
	struct mat b;                   /* [out][r], times alpha / r; f32 */
};

struct adapter_layer {
	struct lora q, k, v, o, gate, up, down;
};

struct adapter {
	uint32_t n;                     /* learned tokens, at least 1 */
	uint32_t rank;                  /* r; 0: no linear has a LoRA */
	float *embedding;               /* host [n][D] what stands in for the tokens' embeddings */
	struct adapter_layer *layer;    /* [L] */
	float *scratch;                 /* device [n][r] x . A^T */
	/* fingerprint of its tensors, as that of a model's weights */
	char id[33];
	int by_samples;                 /* it names the model's weights by samples only */
	size_t bytes;                   /* of the device */
	/* the rest is adapter.c's: the one device block that matrices and scratch lie in */
	void *block;
	double scale;                   /* alpha / r */
	unsigned linears;               /* 1 << number of each of the seven that has a LoRA */
	char *dir;
	const struct model *model;
	struct tensor_set *files;
};

/* Reads a folder for a model, which need not be on the device yet. What does not fit the model is
 * refused by name: another model's weights, a tensor that is missing or has another shape, a rank
 * that the configuration does not say, a value that is not finite, an option of LoRA that changes
 * the arithmetic. The overrides are for its own keys and tensors. MODEL_EMISMATCH: it was trained
 * for other weights. */
int adapter_open(const char *dir, const struct model *, const struct overrides *,
    struct adapter **out, char *err, size_t errlen);
/* Copies the adapter to the model's device. Call once, before it is run. */
int adapter_bind(struct adapter *, char *err, size_t errlen);
void adapter_free(struct adapter *);            /* NULL allowed; before the device is closed */

#endif
