/* op_counts_internal.h - what op_counts.c (the table) and op_formulas.c (what an op costs) share */
#ifndef KVPIPE_OP_COUNTS_INTERNAL_H
#define KVPIPE_OP_COUNTS_INTERNAL_H

#include "engine/op_counts.h"

/* An attend() or bits_scores() that was captured: it sees the rows of its launch */
struct captured_attend {
	const struct layer_rows *rows;
	uint32_t H, window, sides;      /* 1: keys only */
	const struct entries *bits;     /* NULL: attend() */
};

/* In place of the device */
struct counter {
	struct ops ops;                 /* the table that counts */
	const struct ops *under;
	struct dev *dev;
	struct op_counts *work;
	size_t free_at_first;           /* bytes of a device with memory of its own */
	/* what the captured graph does, but for attention to all rows and scores of bits */
	int capturing;
	struct op_counts graph;
	struct captured_attend *attend; /* [n_attend] of it */
	size_t n_attend, room_attend;
	int lost_attend;                /* there was no memory for one: the graph is not launched */
};

void count_product(struct counter *, const struct mat *w, uint32_t N);
void count_ffn(struct counter *, const struct ffn *, uint32_t N);
void count_append(struct counter *, const struct layer_rows *, uint32_t N);
/* output: keys and values, for keys alone 0 */
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
