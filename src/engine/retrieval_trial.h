/* retrieval_trial.h - what retrieval with the index of a snapshot would read, and lose, for the
 * queries that are stored in it: kv-diff --retrieve
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_RETRIEVAL_TRIAL_H
#define KVPIPE_RETRIEVAL_TRIAL_H

#include "engine/compare.h"
#include "engine/layer_reader.h"
#include "retrieval/retrieval.h"

struct retrieval_trial {
	struct retrieval_options options;       /* with audit */
	struct layer_reader s;
	uint32_t L, H, G, R, E;

	/* results; those of retrieval itself: retrieval_stats(retrieval), [L][G] */
	uint32_t *queries;                      /* [L] that were tried */
	uint32_t left_out;                      /* of a layer, at most */
	struct attention_compared *lost;        /* [L][H] seen, whole, lost; mass is not known */
	struct retrieval *retrieval;

	const struct device *d;                 /* the caller's */
	struct area q, qpos, o, freq;
	float *full, *read;                     /* [H][E] output over all rows, over those read */
	uint32_t *end;                          /* [G] of the clusters */
};

/* On a snapshot that has just been opened, which stays the caller's. options.audit is set. Returns
 * an ENGINE_* code; the trial is freed by the caller also when it failed. */
int retrieval_trial_init(struct retrieval_trial *, const struct device *, struct kv_reader *,
    const struct retrieval_options *, struct engine_error *);
/* Tries the stored queries of layer l, which is the next one. */
int retrieval_trial_layer(struct retrieval_trial *, uint32_t l, struct engine_error *);
/* Reads what follows the last layer, to the end marker. */
int retrieval_trial_finish(struct retrieval_trial *, struct engine_error *);
void retrieval_trial_free(struct retrieval_trial *);

/* Results of KV heads, a layer, or several layers. */
struct trial_sum {
	struct retrieval_stats read;    /* sums over steps and KV heads */
	double output_error;            /* NaN: not known */
};

/* Of KV heads g0 .. g1-1 of a layer. */
struct trial_sum retrieval_trial_heads(const struct retrieval_trial *, uint32_t l, uint32_t g0,
    uint32_t g1);
/* Of all KV heads of layers l0 .. L-1; the error is the mean of those of the layers: they differ in
 * scale. */
struct trial_sum retrieval_trial_layers(const struct retrieval_trial *, uint32_t l0);

#endif
