/* retrieval_internal.h - structures and functions that the files of retrieval/ share */
#ifndef KVPIPE_RETRIEVAL_INTERNAL_H
#define KVPIPE_RETRIEVAL_INTERNAL_H

#include "retrieval/retrieval.h"

/* quest-eval: the last page of each KV head, where it is not whole, as an entry of the index */
struct last_pages {
	/* rows of a full page: its own, then the last of these repeated */
	struct chosen rows;
	uint32_t *list;                /* host [G][rows.stride] rows.at */
	/* those of the index and these; start, len, capacity belong to this struct */
	struct entries pages;
};

/* overlap, host: the rows that the last step has read of each layer and KV head */
struct last_read {
	uint32_t *bits;                /* [L][G][words], bit 1: the row was read */
	size_t words;
	uint8_t *chose;                /* [L][G] 1: it left rows out; 0: bits are undefined */
};

/* PER_QUERY_HEAD: the one KV head of a layer, from which each query head reads rows of its own */
struct query_heads {
	/* rows as those of a KV head for each query head, which all begin at the same row; start
	 * and len belong to this struct, host [H] */
	struct layer_rows rows;
	struct chosen united;          /* the rows that any query head has chosen, once */
	struct chosen placed;          /* the choices, as rows of an offloaded layer's slots */
	/* host [stride]: a mark, or a place, of each row; united.at; a list of one query head */
	uint32_t *row, *list, *own;
};

/* specontext: the scores that the head gives for a step */
struct specontext {
	float *score;                  /* device [H of the head][stride] */
	/* device [lists][stride] of each position; +inf: always read */
	float *joint;
	float *always;                 /* host [sinks or recent + 1] +inf */
	size_t stride;
	uint32_t heads;                /* heads that score has room for */
	uint32_t n;                    /* number of scored positions */
	int chosen;                    /* t->chosen are the best of all positions */
	int started;                   /* a fetch of this choice was started, for some layer */
	/* bytes of the head's keys that were read and not yet counted for a layer */
	uint64_t bytes;
};

struct retrieval {
	const struct ops *ops;
	struct dev *dev;
	struct retrieval_options opt;
	const struct retrieval_method *method;
	uint32_t L, H, G, E;
	uint32_t lists;                /* choices of a layer: G, or (PER_QUERY_HEAD) H */
	enum kv_dtype dtype;
	const double *freq;            /* device [E/2] */

	size_t stride;                 /* of the lists below, from retrieve_stride() */
	/* device [H][stride] of entries; ranks reduce it in place. NULL: nothing is ranked */
	float *score;
	/* device [lists][stride]; [0] is +inf, the scores follow. NULL as score */
	float *joint;
	float *candidate;              /* device [lists][stride] */
	struct chosen chosen, best;    /* a list for each choice */
	/* rows to choose from: those of the layer, with the lengths seen */
	struct layer_rows view;
	/* shadow: the rows of the chosen chunks; quest-eval: the rows of last pages */
	struct layer_rows copy;
	/* host [lists] number of candidates; of these with label 0 */
	uint32_t *n, *always;
	uint32_t most;                 /* struct counts of n */
	/* host [lists] how many of the first rows the choice is from: all, or all before a partial
	 * last candidate that was not chosen */
	uint32_t *seen;
	struct last_pages last;
	struct query_heads each;
	struct specontext specontext;
	struct offload *offload;      /* NULL: all rows are on the device */
	uint64_t *offload_bytes;      /* host [G] */

	struct retrieval_stats *stats; /* [L][G] */
	int capturing;                 /* retrieval_capture(): count nothing */
	int whole;                     /* the last step has read all rows */
	float *logits;                 /* audit, host [H][stride] */
	uint32_t *list, *best_list;    /* audit, overlap, host [stride]: of a choice */
	struct last_read before;
};

/* How a method differs from the others; NULL: it does not. */
struct retrieval_method {
	/* Counts the candidates of a step (retrieve_set_choice()), and returns their scores, device
	 * [G][stride], for topk(). */
	const float *(*rank)(struct retrieval *, const struct query *, const struct layer_rows *,
	    const struct layer_index *);
	/* Called after topk(). */
	void (*after_topk)(struct retrieval *);
	/* In place of rank() and after_topk(): t->chosen <- the choice; of rows that
	 * retrieve_each() has returned. */
	void (*choose)(struct retrieval *, const struct layer_rows *);
	/* Makes room for steps over `most` rows of a KV head. Returns 0, or KV_ENOMEM. */
	int (*reserve)(struct retrieval *, const struct layer_index *, uint64_t most);
	/* Returns how many offloaded rows a step reads at least, whatever the budget. */
	uint64_t (*slots)(const struct retrieval_options *, const struct layer_index *);
	/* Returns the attention of a step, in place of that to the chosen rows, which are at
	 * `where` in rows. Keys of candidates after the first t->always[g] are not read. */
	struct attention (*attend)(struct retrieval *, float *o, const struct query *,
	    const struct layer_rows *rows, const struct chosen *where, const struct layer_index *);
	/* Adds the bytes of the index that a step has read for KV head g. The keys of the chosen
	 * rows have been counted: adds keys of other rows that were read, subtracts keys that were
	 * not. Not NULL. */
	void (*count)(struct retrieval_stats *, const struct retrieval *, uint32_t g,
	    const struct layer_rows *, const struct layer_index *);
	/* Counts the candidates of a step that was launched; not NULL: its steps can be
	 * captured. */
	void (*launched)(struct retrieval *, const struct layer_rows *);
};

#define RETRIEVAL(NAME, symbol, word, alias, needs, about) \
	extern const struct retrieval_method retrieval_##symbol;
#include "retrieval/retrievals.h"
#undef RETRIEVAL
const struct retrieval_method *retrieval_method(enum retrieve_method);

/* Is len[G] within the budget, so that a step of layer l attends to all rows? window: of the
 * query */
int retrieve_is_whole(const struct retrieval *, uint32_t l, const uint32_t *len, uint32_t window);

/* Chooses the candidates of a step: t->chosen, and t->n, t->always, t->seen. */
void retrieve_choose(struct retrieval *, const struct query *, const struct layer_rows *,
    const struct layer_index *x);

/* Sets how many candidates, of u rows each, are read of KV head g: all if they fit into the budget,
 * else the `always` ones and `of_budget` others. */
void retrieve_set_choice(struct retrieval *, const struct layer_rows *rows, uint32_t g, uint32_t u,
    uint64_t always, uint32_t of_budget);
struct counts retrieve_candidates(const struct retrieval *);
/* Reduces the scores of the entries over the query heads, and returns the scores of the candidates:
 * each has that of the entry that its label names (index.h). */
const float *retrieve_by_label(struct retrieval *, const struct query *,
    const uint32_t *n_entries, const struct labels *);
/* Returns the stride of lists of n elements. */
size_t retrieve_stride(uint64_t n);
/* Gives t->copy a capacity of `rows` rows of each KV head, of any type; does not keep its contents.
 * Returns 0, or KV_ENOMEM. */
int retrieve_reserve_copy(struct retrieval *, uint64_t rows);
/* Has t->copy hold rows of the types of `rows`. */
void retrieve_copy_as(struct retrieval *, const struct layer_rows *rows);
void specontext_free(struct retrieval *);

/* ---- rows for each query head; with PER_KV_HEAD these return what they get, or do nothing ---- */

/* Returns rows with a KV head for each choice of a layer; valid until the next call. */
const struct layer_rows *retrieve_each(struct retrieval *, const struct layer_rows *);
/* Allocates the lists of stride elements. Returns 0, or KV_ENOMEM. */
int retrieve_reserve_each(struct retrieval *, size_t stride);
void retrieve_free_each(struct retrieval *);
/* Makes the list of the rows that any choice has, after topk(). */
void retrieve_unite(struct retrieval *);
/* Returns the rows that a step reads, a list for each KV head. */
const struct chosen *retrieve_read(const struct retrieval *);
/* Returns the choices as rows of an offloaded layer's slots; there: where the rows that
 * retrieve_read() has returned are. */
const struct chosen *retrieve_placed(struct retrieval *, const struct chosen *there);

/* retrieve_begin() of an offloaded layer; t->whole is set. If rows could not be read, o is 0 and
 * the store has the message. */
struct attention retrieve_offloaded(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);

/* Stores the bytes that the steps of offloaded layers have fetched so far in t->stats. */
void retrieve_count_fetched(const struct retrieval *);
/* Returns how many rows the chosen candidates of choice c have. A partial last candidate is one of
 * them, or its rows are not among t->seen. */
uint64_t retrieve_chosen_rows(const struct retrieval *, uint32_t c);
/* Returns how many rows of KV head g a step reads that leaves rows out. */
uint64_t retrieve_rows_read(const struct retrieval *, uint32_t g);
/* Count what a step of layer l has read: all rows; or the choice. */
void retrieve_count_whole(struct retrieval *, uint32_t l, const struct layer_rows *rows);
void retrieve_count(struct retrieval *, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x);
/* Compares the choice with that by exact logits. */
void retrieve_audit(struct retrieval *, uint32_t l, const struct query *,
    const struct layer_rows *rows);
/* Compares the choice with that of the step before. */
void retrieve_compare_steps(struct retrieval *, uint32_t l, const struct layer_rows *rows);

#endif
