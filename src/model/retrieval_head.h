/* retrieval_head.h - the retrieval head of SpeContext: a layer beside the model whose attention
 * says what the next token will read, before the model runs it
 *
 * SpeContext (Xu et al. 2025), section 4.3: the draft model of EAGLE-3 (Li et al. 2025), of which
 * embedding, norms and the projections of queries and keys are left. For the token x[p] at position
 * p
 *
 *     e = RMSNorm(embedding of x[p])
 *     f = RMSNorm(g[p-1]), g[p] = fc . [h_a; h_b; h_c]; 0 where p = 0
 *     q = W_q . [e; f], k = W_k . [e; f], both with rotary embedding at position p
 *
 * where h_a, h_b, h_c are what the residual stream of token p is in front of three layers of the
 * model: the features, which are known before token p+1 runs. (EAGLE-3 counts a row of these from 0
 * at token 1.) A head of W_q and W_k that are as wide as the embedding has no features: the paper
 * can be read both ways.
 *
 * The folder is that of a draft checkpoint: config.json and model.safetensors with midlayer.* and
 * fc.weight, and embed_tokens.weight unless that is the model's. Other tensors of it are not read.
 *
 * Letters as in ops.h, of the head where nothing else is said. Errors are MODEL_* codes, with a
 * message in err[errlen]. */
#ifndef KVPIPE_RETRIEVAL_HEAD_H
#define KVPIPE_RETRIEVAL_HEAD_H

#include "model/model.h"

enum { HEAD_FEATURES = 3 };                     /* layers that features come from */

struct retrieval_head {
	const struct model *model;
	uint32_t D, H, G, E;
	int has_features;
	uint32_t feature_layer[HEAD_FEATURES];  /* ascending: the stream in front of these */
	uint32_t max_position;                  /* as its configuration claims; informative */
	/* all on the model's device */
	struct mat embed;                       /* [V][D] */
	struct mat q, k;                        /* [H*E][D], [G*E][D] what e is multiplied with */
	struct mat q_feature, k_feature;        /* the same of f */
	struct mat fc[HEAD_FEATURES];           /* [D][D of the model] */
	struct norm norm, feature_norm;
	struct rotary rope;
	char id[33];                            /* its name in snapshots (kv-snapshot(5), 6) */
	char sampled_id[33];                    /* its name in those of older programs */
	int by_samples;                         /* it names the model's weights by samples only */
	size_t bytes;                           /* of the device, without the model's embedding */
	/* the rest is retrieval_head.c's */
	void *block;
	struct kv_model shape;                  /* what its configuration says */
	struct tensor_set *files;
	char *dir;
};

/* Reads a folder for a model, which need not be on the device yet. What does not fit the model is
 * refused by name: another model's weights (MODEL_EMISMATCH), query heads that its KV heads do not
 * divide, a tensor that is missing or has another shape. */
int retrieval_head_open(const char *dir, const struct model *, const struct overrides *,
    struct retrieval_head **out, char *err, size_t errlen);
/* Copies it to the model's device: once, before it is run. */
int retrieval_head_bind(struct retrieval_head *, char *err, size_t errlen);
/* NULL allowed; before the device is closed */
void retrieval_head_free(struct retrieval_head *);

#endif
