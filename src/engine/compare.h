/* compare.h - compares a layer of two snapshots: which rows both have, and the error of attention
 * over the second one's
 *
 * Both snapshots are of one model and stand at the same layer. */
#ifndef KVPIPE_COMPARE_H
#define KVPIPE_COMPARE_H

#include "engine/layer_reader.h"

/* Rows of a KV head, or sums over several. Rows are the same when their positions are. */
struct rows_compared {
	uint64_t both, only_a, only_b;
	/* rows in both whose keys, or values, differ, and the greatest difference of an element;
	 * infinite if one is not a number */
	uint64_t keys_differ, values_differ;
	double key_difference, value_difference;
};

/* Attention of the queries of a query head, or sums over several */
struct attention_compared {
	uint64_t seen;          /* queries that see a row of a; others are left out */
	/* sum over these: share of the softmax over a that rows of both get */
	double mass;
	double whole, lost;     /* sum over these of |o_a|^2, of |o_a - o_b|^2 */
};

struct head_compared {
	struct rows_compared rows;
	struct attention_compared *query;       /* [R] */
};

/* The comparison of a layer, used for one layer after another */
struct layer_compared {
	uint32_t queries;               /* W; 0: there are none, and no attention */
	int queries_of_b;               /* 1: a has no queries */
	struct head_compared *head;     /* [G] */
	/* the rest belongs to compare.c */
	uint32_t G, R;
	struct attention_compared *query;       /* [G][R] */
	/* rows of a that b has, too: the number in each KV head, and the row numbers, head after
	 * head */
	uint32_t *count;                /* [G] */
	uint32_t *row;                  /* [capacity] */
	uint64_t capacity;
};

/* Device memory, used for one layer after another. All zero: none yet. */
struct compare_areas {
	struct area q, qpos, sinks, o, lse, keys, pos;
};

/* Initializes l for snapshots of this model. Free it, also after a failure. Returns an ENGINE_*
 * code. */
int layer_compared_init(struct layer_compared *, const struct kv_model *, struct engine_error *);
void layer_compared_free(struct layer_compared *);      /* all zero is allowed */

/* *out <- the comparison of the current layer of a and b. Returns an ENGINE_* code. */
int compare_layers(struct layer_compared *out, const struct device *d, struct compare_areas *,
    struct layer_reader *a, struct layer_reader *b, struct engine_error *);
void compare_release(const struct device *, struct compare_areas *);

void rows_add(struct rows_compared *sum, const struct rows_compared *more);
void attention_add(struct attention_compared *sum, const struct attention_compared *more);
/* Returns mass / seen, 0 to 1; NaN if no query sees a row. */
double mass_recall(const struct attention_compared *);
/* Returns |o_a - o_b| / |o_a|; of a zero o_a, 0 if o_b is zero, too, else infinite. NaN if no query
 * sees a row. */
double output_error(const struct attention_compared *);

#endif
