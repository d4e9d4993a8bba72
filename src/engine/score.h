/* score.h - the scores of a layer's rows, by one method with its options
 *
 * A scorer knows no snapshot and no cache: it takes the rows of a layer, on the host or on its
 * device, and what the method needs besides them (struct method.needs). Several scorers may be in
 * use at the same time, also on one device. Letters as in methods/methods.h. */
#ifndef KVPIPE_SCORE_H
#define KVPIPE_SCORE_H

#include "engine/readback.h"
#include "methods/methods.h"

/* So many layers may be begun and not finished. */
enum { SCORE_AHEAD = 8 };

struct scorer {
	const struct method *method;
	struct score_options options;   /* kernel is odd */
	/* rows at lower positions get +inf, and nothing else is as if they were there: softmax,
	 * anchor, neighbours are those of the other rows alone; 0 = none */
	uint32_t since;
	unsigned threads;               /* of the host, at least 1 */
	/* where the rows are, or where those of the host are scored; ops NULL: nowhere, which only
	 * a method with NEED_WINDOW asks for. May be set until the first layer */
	struct device device;
	/* the rest is score.c's: device memory that is used for one layer after another */
	struct area keys, pos, q, q_pos, own, own_pos, lists, ranks;
	/* host: the positions of the window that q_pos holds, so many; 0 = none */
	uint32_t *known_q_pos, n_known;
	struct readback readback;
};

/* No device, no --since. */
void scorer_init(struct scorer *, const struct method *, const struct score_options *,
    unsigned threads);
/* Frees what the scorer keeps from one layer to the next; its device must be open still. All zero:
 * there is nothing to free. */
void scorer_free(struct scorer *);

/* How many observation queries the method needs where they can still be kept: options.window,
 * without it as many as `otherwise` says; 1 for a method that looks at the last one; 0 for none. */
uint32_t scorer_queries(const struct scorer *, uint32_t otherwise);
/* *n <- how many observation queries the method looks at, of those that a layer has: all, or
 * options.window. ENGINE_EOPTION when that is more. */
int scorer_window(const struct scorer *, uint32_t stored, uint32_t layer, uint32_t *n,
    struct engine_error *);

/* ENGINE_ERUN when the method wants every query to have been run (NEED_EVERY_QUERY), and the event
 * log of the rows says that it was not so; an empty log says nothing. name: of the snapshot. */
int scorer_check_log(const struct scorer *, const struct kv_log_content *, const struct kv_head *,
    const char *name, struct engine_error *);

/* What the scores of one layer are made from. */
struct score_job {
	/* rows, and what the method needs of keys, mass, probe_mass, window positions; window_mass
	 * is made here. NEED_WINDOW of rows on the host needs keys, too */
	struct score_input in;
	float softcap;                          /* of the logits of attention; 0: none */
	/* [W][H][E] f32, with NEED_WINDOW: on the host, or, where that is NULL, on the device */
	const float *queries, *device_queries;
	/* host [G][n_own][E] of in.dtype: keys of the last n_own of the window's queries and
	 * of those before, which are of tokens that are not stored, and their positions. NULL: they
	 * are on the device, in each KV head behind the rows of device_rows */
	const void *own_keys;
	const uint32_t *own_pos;                /* host [n_own] */
	uint32_t n_own;                         /* 0 = none */
	/* in.rows on the device; NULL: they are on the host. Then keys are read back where the host
	 * needs them, */
	const struct layer_rows *device_rows;
	/* and the attention mass of the rows, instead of in.mass, is this: device
	 * [H][mass_stride] */
	const float *device_mass;
	size_t mass_stride;
	/* score_begin()'s: by_op, the device makes the scores; slots of the scorer's readback for
	 * what it makes of the rows and for their mass; -1: nothing */
	int by_op, made_slot, mass_slot;
	/* score_choice_begin()'s: the rows that stay, n of the plan, in the slot; stride 0: all
	 * of them */
	struct chosen chosen;
};

/* score[sum S] <- the scores. ENGINE_ERUN also when a score is not a number. */
int score_layer(struct scorer *, struct score_job *, float *score, struct engine_error *);

/* The same in two steps. The first has the device begin with its part. The second waits for that,
 * and for nothing that the device was given to do in between, which must not touch the rows. Layers
 * end in the order in which they began. */
int score_begin(struct scorer *, struct score_job *, struct engine_error *);
int score_finish(struct scorer *, struct score_job *, float *score, struct engine_error *);

/* Can the device choose which rows stay, in place of scores that come to the host? Returns 1 with
 * *rule, and scored[G], how many rows of each KV head, the first ones, have a score, which is not
 * +inf; the others do. 0: no such op, no rule of this method for these rows, rows on the host,
 * --since. */
int score_rule(const struct scorer *, const struct score_job *, struct list_rule *rule,
    uint32_t *scored);
/* In two steps, as score_begin() and score_finish(): the rows that stay by the plan, whose counts
 * must be there until the second. *listed <- the rows of KV head g from g * job->chosen.stride on,
 * ascending, as job->chosen has them on the device; both valid until the next layer begins. Errors
 * as score_layer(). */
int score_choice_begin(struct scorer *, struct score_job *, const struct list_rule *,
    const uint32_t *scored, const struct evict_plan *, struct engine_error *);
int score_choice_finish(struct scorer *, struct score_job *, const uint32_t **listed,
    struct engine_error *);

#endif
