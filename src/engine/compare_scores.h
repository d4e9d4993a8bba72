/* compare_scores.h - compares the scores of a layer of two snapshots: how far they agree, and how
 * much of the first one's scores the rows of the second one keep
 *
 * The first snapshot, a, is the reference. Its scores are read as a mass over its rows, such as the
 * attention mass that an answer gives them. A choice of rows keeps a part of the mass, and the best
 * choice of as many rows keeps the greatest part; the difference is the regret of the method that
 * made the choice. Both snapshots are of one model and text and stand at the same layer;
 * layer_reader_want_scores(). */
#ifndef KVPIPE_COMPARE_SCORES_H
#define KVPIPE_COMPARE_SCORES_H

#include "engine/layer_reader.h"

enum { AGREEMENT_RATES = 16 };          /* at most */

/* Sums of the scores of a that are not +inf */
struct mass_kept {
	double whole;           /* of all rows */
	double kept;            /* of rows that b has, too */
	double best;            /* as many rows in each KV head, with the greatest scores */
	/* as many rows in the layer, with the greatest scores, of any KV head; for a single KV head
	 * 0 */
	double shared;
};

/* Agreement in a KV head, or sums over several. Rows are the same when their positions are. */
struct agreement {
	uint64_t both, only_a, only_b;
	/* rows of a with a score of +inf: always kept, and not in the mass */
	uint64_t infinite;
	/* sum and count of tau, over rows of both, of the KV heads in which neither a nor b has
	 * equal scores only */
	double tau;
	uint64_t taus;
	/* sums and count of recall, of the KV heads that have a row with scores in both; recall[i]:
	 * at rate[i] */
	double recall[AGREEMENT_RATES];
	uint64_t recalls;
	/* 0 in a layer in which a has no scores, or a score below 0, which is no mass */
	struct mass_kept mass;
};

/* The comparison of a layer, used for one layer after another */
struct layer_agreement {
	struct agreement *head; /* [G] */
	struct agreement all;   /* of the layer */
	int negative;           /* a has a score below 0 */
	/* the rest belongs to compare_scores.c */
	uint32_t G;
	const double *rate;
	uint32_t rates;
	uint32_t *mass_rows, *mass_kept;        /* [G] rows in the mass; of these in b, too */
	/* for one KV head after another */
	struct score_pair *pair;
	float *a, *b;           /* of rows of both */
	uint32_t *best;         /* two lists of rows */
	uint64_t capacity;      /* of these three, in rows */
	float *mass;            /* [sum mass_rows] scores of a, heads in order */
	uint64_t mass_capacity;
};

/* Initializes l. rate[rates] is the caller's. Free it, also after a failure. Returns an ENGINE_*
 * code. */
int layer_agreement_init(struct layer_agreement *, const struct kv_model *, const double *rate,
    uint32_t rates, struct engine_error *);
void layer_agreement_free(struct layer_agreement *);    /* all zero is allowed */

/* *out <- the comparison of the current layer of a and b. Returns an ENGINE_* code. */
int compare_scores(struct layer_agreement *out, const struct layer_reader *a,
    const struct layer_reader *b, struct engine_error *);

void agreement_add(struct agreement *sum, const struct agreement *more);
/* Return the mean over KV heads; NaN if there is none. */
double agreement_tau(const struct agreement *);
double agreement_recall(const struct agreement *, uint32_t rate);
/* Return shares of the whole mass; NaN if there is none. */
double agreement_kept(const struct agreement *);
double agreement_best(const struct agreement *);
double agreement_shared(const struct agreement *);
/* Return the share of the best mass that is not kept: best in each KV head; or in each layer. 0 if
 * no row could be kept; NaN if there is no mass. */
double agreement_regret(const struct agreement *);
double agreement_shared_regret(const struct agreement *);

#endif
