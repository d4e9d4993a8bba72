/* score.h - scores the rows of a layer by one method with its options
 *
 * A scorer knows no snapshot and no cache: it gets the rows of a layer, on the host or on its
 * device, and the other inputs of the method (struct method.needs). Several scorers may be in use
 * at the same time, also on one device. Letters as in methods/methods.h. */
#ifndef KVPIPE_SCORE_H
#define KVPIPE_SCORE_H

#include "engine/readback.h"
#include "cache/query_stats.h"
#include "cache/row_lists.h"
#include "engine/query_calibration.h"
#include "engine/query_filters.h"
#include "methods/methods.h"

/* The most layers that may be begun and not finished */
enum { SCORE_AHEAD = 8 };

struct scorer {
	const struct method *method;
	struct score_options options;   /* kernel is odd */
	/* rows before this position are excluded: they get +inf and enter no softmax, anchor or
	 * pooling; 0 = none */
	uint32_t since;
	unsigned threads;               /* of the host, at least 1 */
	struct query_filters filters;   /* for methods with NEED_FILTER; freed by scorer_free() */
	/* query statistics in place of the text's; path NULL: none; freed by scorer_free() */
	struct query_calibration calibration;
	/* the device of the rows, or for scoring rows of the host; ops NULL: none, possible for
	 * methods without NEED_WINDOW. May be set until the first layer */
	struct device device;
	/* the rest belongs to score.c: device memory, used for one layer after another */
	struct area keys, pos, q, q_pos, sinks, own, own_pos, lists, ranks, lse, weights;
	/* host: a copy of the n_known positions of the window in q_pos; 0 = none */
	uint32_t *known_q_pos, n_known;
	struct readback readback;
	double freq[KV_ROPE_PAIRS];     /* in.freq of the layer that is finished */
};

/* Initializes a scorer without a device and without `since`. */
void scorer_init(struct scorer *, const struct method *, const struct score_options *,
    unsigned threads);
/* Frees the scorer's memory; its device must still be open. All zero is allowed. */
void scorer_free(struct scorer *);

/* Returns method.needs, without NEED_QUERY_STATS if a file has them. */
unsigned scorer_needs(const struct scorer *);
/* Returns how many observation queries to keep for the method: options.window, or `otherwise`
 * without it; 1 for a method that reads the last one; 0 for none. */
uint32_t scorer_queries(const struct scorer *, uint32_t otherwise);
/* *n <- how many of the `stored` observation queries of a layer the method reads: all, or
 * options.window. ENGINE_EOPTION when that is more. */
int scorer_window(const struct scorer *, uint32_t stored, uint32_t layer, uint32_t *n,
    struct engine_error *);

/* Fails with ENGINE_ERUN when the method needs the mass of every query (NEED_EVERY_QUERY), but by
 * the event log not every query was run; an empty log is accepted. name: of the snapshot. */
int scorer_check_log(const struct scorer *, const struct kv_log_content *, const struct kv_head *,
    const char *name, struct engine_error *);

/* The inputs of the scores of one layer */
struct score_job {
	/* rows; keys, values, mass, probe_mass, gate and window positions as far as method.needs
	 * names them. score_begin() and score_finish() make window_mass, queries and softcap.
	 * NEED_WINDOW needs keys, too, for rows on the host */
	struct score_input in;
	const struct kv_model *model;
	/* with NEED_QUERY_STATS: the statistics on the device, in place of in.query_stats */
	const struct query_stats *query_stats;
	/* with NEED_GATE or NEED_NONCAUSAL, and device_rows: their numbers in place of in.gate and
	 * in.noncausal */
	const struct row_lists *gates, *noncausal;
	enum kv_dtype dtype;                    /* of own_keys */
	float softcap;                          /* of the logits of attention; 0: none */
	/* [H] learned sinks of the softmax, on the host or on the device; NULL, both: none */
	const float *sinks, *device_sinks;
	/* with NEED_WINDOW: [W][H][E] f32 on the host, or, if queries is NULL, on the device */
	const float *queries, *device_queries;
	/* host [G][n_own][E] of dtype: keys of n_own tokens that are not stored, the last of
	 * which have the window's queries, and their positions. NULL: they are on the device, in
	 * each KV head after the rows of device_rows */
	const void *own_keys;
	const uint32_t *own_pos;                /* host [n_own] */
	uint32_t n_own;                         /* 0 = none */
	/* in.rows on the device; NULL: they are on the host. If set, keys and values that the host
	 * needs are copied from the device */
	const struct layer_rows *device_rows;
	/* the attention mass in place of in.mass, with device_rows: device [H][mass_stride] */
	const float *device_mass;
	size_t mass_stride;
	/* set by score_begin(): by_op 1: the device makes the scores; slots of the scorer's
	 * readback for what the device makes from the rows and for their mass; -1: none */
	int by_op, made_slot, mass_slot;
	/* with NEED_EACH_QUERY, set by score_finish() */
	struct attention_spread spread;
	/* set by score_choice_begin(): the rows to keep, with n from the plan, in the slot; stride
	 * 0: all rows */
	struct chosen chosen;
};

/* score[sum S] <- the scores. ENGINE_ERUN also when a score is NaN. */
int score_layer(struct scorer *, struct score_job *, float *score, struct engine_error *);

/* score_layer() in two parts. The first starts the device's work; the second waits for it, but not
 * for later work, which must not use the rows. Layers are finished in the order in which they were
 * begun. */
int score_begin(struct scorer *, struct score_job *, struct engine_error *);
int score_finish(struct scorer *, struct score_job *, float *score, struct engine_error *);

/* Can the device choose the rows to keep, without copying scores to the host? Returns 1, *rule, and
 * scored[G] <- how many rows of each KV head, the first ones, are ranked; the others are kept.
 * Returns 0 without the op, without a rule of this method for these rows, for rows on the host, and
 * with `since`. */
int score_rule(const struct scorer *, const struct score_job *, struct list_rule *rule,
    uint32_t *scored);
/* As score_begin() and score_finish(), but choose the rows to keep by the plan, whose counts must
 * not change before the second. (*listed)[g * job->chosen.stride ..] <- the rows of KV head g,
 * ascending, the same as in job->chosen on the device; both valid until the next layer is begun.
 * Errors as score_layer(). */
int score_choice_begin(struct scorer *, struct score_job *, const struct list_rule *,
    const uint32_t *scored, const struct evict_plan *, struct engine_error *);
int score_choice_finish(struct scorer *, struct score_job *, const uint32_t **listed,
    struct engine_error *);

#endif
