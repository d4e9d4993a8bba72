/* compare_scores.h - one layer of two snapshots: how far their scores agree, and what of the first
 * one's scores the rows of the second one keep
 *
 * The first snapshot, a, is the reference. Its scores are taken as a mass that is spread over its
 * rows, such as the attention that an answer pays. A choice of rows keeps a part of it, and the
 * best choice of as many rows keeps the greatest: what is between them is the regret of the method
 * that made the choice. Both snapshots are of one model and text and stand at the same layer;
 * layer_reader_want_scores(). */
#ifndef KVPIPE_COMPARE_SCORES_H
#define KVPIPE_COMPARE_SCORES_H

#include "engine/layer_reader.h"

enum { AGREEMENT_RATES = 16 };          /* at most */

/* Sums of the scores of a, without those of +inf. */
struct mass_kept {
	double whole;           /* of all rows */
	double kept;            /* of those that b has, too */
	double best;            /* of as many rows in each KV head, with the greatest scores */
	/* of as many rows in the layer, with the greatest scores, in whatever KV head; of a single
	 * KV head 0 */
	double shared;
};

/* Of a KV head; of several, when added. Rows are the same when their positions are. */
struct agreement {
	uint64_t both, only_a, only_b;
	/* rows of a with a score of +inf: they are kept whatever the budget, and in no mass */
	uint64_t infinite;
	/* sums over KV heads, and over how many: of those in which the scores of b are not all the
	 * same, nor those of a, over rows of both */
	double tau;
	uint64_t taus;
	/* of those that have a row in both, both with scores; recall[i]: at rate i */
	double recall[AGREEMENT_RATES];
	uint64_t recalls;
	/* 0 in a layer without scores in a, or with some below 0, which are no mass */
	struct mass_kept mass;
};

/* Is used for one layer after another. */
struct layer_agreement {
	struct agreement *head; /* [G] */
	struct agreement all;   /* of the layer */
	int negative;           /* a has a score below 0 */
	/* the rest is compare_scores.c's */
	uint32_t G;
	const double *rate;
	uint32_t rates;
	uint32_t *mass_rows, *mass_kept;        /* [G] rows in the mass; of them in b, too */
	/* of one KV head after another */
	struct score_pair *pair;
	float *a, *b;           /* of rows of both */
	uint32_t *best;         /* two lists of rows */
	uint64_t capacity;      /* rows of those */
	float *mass;            /* [sum mass_rows] scores of a, heads in order */
	uint64_t mass_capacity;
};

/* rate[rates]: the caller's. Freed by the caller also where it failed. Returns an ENGINE_* code. */
int layer_agreement_init(struct layer_agreement *, const struct kv_model *, const double *rate,
    uint32_t rates, struct engine_error *);
void layer_agreement_free(struct layer_agreement *);    /* all zero is allowed */

/* Fills *out. Returns an ENGINE_* code. */
int compare_scores(struct layer_agreement *out, const struct layer_reader *a,
    const struct layer_reader *b, struct engine_error *);

void agreement_add(struct agreement *sum, const struct agreement *more);
/* The mean over KV heads; NaN where there is none. */
double agreement_tau(const struct agreement *);
double agreement_recall(const struct agreement *, uint32_t rate);
/* Shares of the whole mass; NaN where there is none. */
double agreement_kept(const struct agreement *);
double agreement_best(const struct agreement *);
double agreement_shared(const struct agreement *);
/* The share of the best mass that is not kept: with as many rows in each KV head, or in each
 * layer. 0 where no row could be kept; NaN as above. */
double agreement_regret(const struct agreement *);
double agreement_shared_regret(const struct agreement *);

#endif
