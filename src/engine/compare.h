/* compare.h - one layer of two snapshots: which rows both have, and what attention loses with
 * the second one
 *
 * Both snapshots are of one model and stand at the same layer. */
#ifndef KVPIPE_COMPARE_H
#define KVPIPE_COMPARE_H

#include "engine/layer_reader.h"

/* Rows of a KV head; of several, when added. Rows are the same when their positions are. */
struct rows_compared {
	uint64_t both, only_a, only_b;
	/* rows in both whose keys, or values, are not the same numbers, and the greatest
	 * difference of an element; infinite where one is not a number */
	uint64_t keys_differ, values_differ;
	double key_difference, value_difference;
};

/* What the queries of a query head get; of several, when added. */
struct attention_compared {
	uint64_t seen;          /* queries that see a row of a: the others count nowhere */
	double mass;            /* sum over them: share of their softmax over a on rows of both */
	double whole, lost;     /* sum over them of |o_a|^2, of |o_a - o_b|^2 */
};

struct head_compared {
	struct rows_compared rows;
	struct attention_compared *query;       /* [R] */
};

/* Is used for one layer after another. */
struct layer_compared {
	uint32_t queries;               /* W; 0: there are none, and no attention */
	int queries_of_b;               /* a has none */
	struct head_compared *head;     /* [G] */
	/* the rest is compare.c's */
	uint32_t G, R;
	struct attention_compared *query;       /* [G][R] */
	/* rows of a that b has, too: how many in each KV head, and their numbers, heads in order */
	uint32_t *count;                /* [G] */
	uint32_t *row;                  /* [capacity] */
	uint64_t capacity;
};

/* Device memory that is used for one layer after another. All zero: none yet. */
struct compare_areas {
	struct area q, qpos, o, lse, keys, pos;
};

/* For snapshots of this model. Freed by the caller also where it failed. Returns an ENGINE_*
 * code. */
int layer_compared_init(struct layer_compared *, const struct kv_model *, struct engine_error *);
void layer_compared_free(struct layer_compared *);      /* all zero is allowed */

/* Fills *out. Returns an ENGINE_* code. */
int compare_layers(struct layer_compared *out, const struct device *d, struct compare_areas *,
    struct layer_reader *a, struct layer_reader *b, struct engine_error *);
void compare_release(const struct device *, struct compare_areas *);

void rows_add(struct rows_compared *sum, const struct rows_compared *more);
void attention_add(struct attention_compared *sum, const struct attention_compared *more);
/* 0 to 1; NaN where no query sees a row. */
double mass_recall(const struct attention_compared *);
/* |o_a - o_b| / |o_a|; 0 when nothing is lost of nothing, infinite when something is. NaN as
 * above. */
double output_error(const struct attention_compared *);

#endif
