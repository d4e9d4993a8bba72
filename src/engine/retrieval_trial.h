/* retrieval_trial.h - measures what retrieval with a snapshot's index reads, and its error, for the
 * stored queries: kv-diff --retrieve
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

	/* results; also retrieval_stats(retrieval), [L][G] */
	uint32_t *queries;                      /* [L] number of queries tried */
	uint32_t left_out;                      /* most queries of a layer that were not tried */
	struct attention_compared *lost;        /* [L][H] seen, whole, lost; mass is not set */
	struct retrieval *retrieval;

	const struct device *d;                 /* the caller's */
	struct area q, qpos, sinks, o, freq;
	float *full, *read;                     /* [H][E] output over all rows, over those read */
	uint32_t *end;                          /* [G] end of the clusters */
};

/* Initializes a trial with a snapshot that has just been opened and is the caller's; sets
 * options.audit. Returns an ENGINE_* code; free the trial, also after a failure. */
int retrieval_trial_init(struct retrieval_trial *, const struct device *, struct kv_reader *,
    const struct retrieval_options *, struct engine_error *);
/* Tries the stored queries of layer l, which is the next one. */
int retrieval_trial_layer(struct retrieval_trial *, uint32_t l, struct engine_error *);
/* Reads the sections after the last layer, to the end marker. */
int retrieval_trial_finish(struct retrieval_trial *, struct engine_error *);
void retrieval_trial_free(struct retrieval_trial *);

/* Results of KV heads, a layer, or several layers. */
struct trial_sum {
	struct retrieval_stats read;    /* sums over steps and KV heads */
	double output_error;            /* NaN: not known */
};

/* Returns the results of KV heads g0 .. g1-1 of layer l. */
struct trial_sum retrieval_trial_heads(const struct retrieval_trial *, uint32_t l, uint32_t g0,
    uint32_t g1);
/* Returns the results of all KV heads of layers l0 .. L-1; the error is the mean of the layers'
 * errors, since layers differ in scale. */
struct trial_sum retrieval_trial_layers(const struct retrieval_trial *, uint32_t l0);

#endif
