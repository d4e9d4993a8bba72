/* op_counts_internal.h - shared by op_counts.c (the table) and op_formulas.c (the costs of an
 * op) */
#ifndef KVPIPE_OP_COUNTS_INTERNAL_H
#define KVPIPE_OP_COUNTS_INTERNAL_H

#include "engine/op_counts.h"

/* A captured attend() or bits_scores(), which sees the rows at each launch */
struct captured_attend {
	const struct layer_rows *rows;
	uint32_t H, window, sides;      /* 1: keys only */
	const struct entries *bits;     /* NULL: attend() */
};

/* The struct dev of the table that counts */
struct counter {
	struct ops ops;                 /* the table that counts */
	const struct ops *under;
	struct dev *dev;
	struct op_counts *work;
	size_t free_at_first;           /* bytes of a device with memory of its own */
	/* counts of the captured graph, without attend() and bits_scores() */
	int capturing;
	struct op_counts graph;
	struct captured_attend *attend; /* [n_attend] of the graph */
	size_t n_attend, room_attend;
	/* 1: no memory for one of them, so the graph is not launched */
	int lost_attend;
};

void count_product(struct counter *, const struct mat *w, uint32_t N);
void count_ffn(struct counter *, const struct ffn *, uint32_t N);
/* after the op: it has filled scratch */
void count_experts(struct counter *, const struct experts *, void *scratch, uint32_t N);
void count_append(struct counter *, const struct layer_rows *, uint32_t N);
/* output: 1 with values, 0 for keys only */
void count_attend(struct counter *, const struct query *, const struct layer_rows *, int output);
void count_launch(struct counter *);
void count_window_mass(struct counter *, const struct query *, const struct layer_rows *,
    const struct layer_rows *own);
void count_bits(struct counter *, const struct query *, const struct entries *,
    const struct layer_rows *);
void count_pages(struct counter *, const struct query *, const struct entries *);
void count_keys(struct counter *, const struct query *, const struct layer_rows *);
void count_chosen(struct counter *, const struct query *, const struct layer_rows *,
    const struct chosen *);
void count_gather(struct counter *, const struct layer_rows *, const struct chosen *);
void count_rebuild(struct counter *, const struct layer_rows *to, const struct chosen *,
    const struct low_rank *);

#endif
