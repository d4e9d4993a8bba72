/* diff_rows.h - what a comparison of two snapshots has found, layer after layer, to be printed
 * when all of it is known
 *
 * Of each layer there are sums. Of KV heads, where they are wanted, there are records that may be
 * many (spool.h). */
#ifndef KVPIPE_DIFF_ROWS_H
#define KVPIPE_DIFF_ROWS_H

#include "cli/spool.h"
#include "engine/compare.h"
#include "engine/compare_tokens.h"

/* What is printed of a KV head, a layer, or everything. */
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
	/* the caller's */
	struct layer_reader a, b;
	struct tokens_compared tokens;
	uint64_t a_rows, b_rows;
	int same;                       /* one logical digest */
	/* diff_rows_add()'s */
	uint32_t L, G, R;
	struct layer_share *layer;      /* [L] */
	uint32_t layers;                /* that were added */
	struct attention_compared sum;  /* of them */
	struct spool heads;           /* struct head_share [L][G]; size 0: not wanted */
	struct head_share *head;        /* room for one */
};

/* For snapshots of this model; heads: KV heads are wanted. Dies. */
void diff_rows_init(struct diff_rows *, const struct kv_model *, int heads);
void diff_rows_free(struct diff_rows *);

/* The next layer. Dies. */
void diff_rows_add(struct diff_rows *, const struct layer_compared *);

/* Of all layers. The error is the mean of those of the layers: they differ in scale. */
struct share diff_rows_all(const struct diff_rows *);

#endif
