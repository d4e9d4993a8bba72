/* diff_rows.h - collects the comparison of two snapshots layer by layer, to be printed at the end
 *
 * Keeps sums for each layer, and, if wanted, a record for each KV head, possibly many
 * (spool.h). */
#ifndef KVPIPE_DIFF_ROWS_H
#define KVPIPE_DIFF_ROWS_H

#include "cli/spool.h"
#include "engine/compare.h"
#include "engine/compare_tokens.h"

/* The result for a KV head, a layer, or the whole cache. */
struct share {
	struct rows_compared rows;
	double mass, error;             /* NaN: not known */
};

struct head_share {
	struct share share;
	struct { double mass, error; } query[]; /* [R] */
};

struct layer_share {
	struct share share;
	uint32_t queries;               /* W; 0: there are none */
	int queries_of_b;               /* a has none */
};

struct diff_rows {
	/* set by the caller */
	struct layer_reader a, b;
	struct tokens_compared tokens;
	uint64_t a_rows, b_rows;
	int same;                       /* one logical digest */
	/* set by diff_rows_add() */
	uint32_t L, G, R;
	struct layer_share *layer;      /* [L] */
	uint32_t layers;                /* that were added */
	struct attention_compared sum;  /* of them */
	struct spool heads;           /* struct head_share [L][G]; size 0: not wanted */
	struct head_share *head;        /* room for one */
};

/* Initialises for snapshots of this model; heads: keep KV heads. Dies. */
void diff_rows_init(struct diff_rows *, const struct kv_model *, int heads);
void diff_rows_free(struct diff_rows *);

/* Adds the next layer. Dies. */
void diff_rows_add(struct diff_rows *, const struct layer_compared *);

/* Returns the result over all layers. Its error is the mean over layers, whose scales differ. */
struct share diff_rows_all(const struct diff_rows *);

#endif
