/* retrieval_internal.h - what the files of retrieval share */
#ifndef KVPIPE_RETRIEVAL_INTERNAL_H
#define KVPIPE_RETRIEVAL_INTERNAL_H

#include "retrieval/retrieval.h"

/* quest-eval: the last page of each KV head, where it is not whole, as an entry of the index */
struct last_pages {
	/* as many rows as a page has: its own, and the last of them again and again */
	struct chosen rows;
	uint32_t *list;                /* host [G][rows.stride] the same */
	struct entries pages;          /* the index's, and these; start, len, capacity are ours */
};

/* overlap, host: what the last step has read of each layer and KV head */
struct last_read {
	uint32_t *bits;                /* [L][G][words], a bit for each row: it was read */
	size_t words;
	uint8_t *chose;                /* [L][G] it left rows out; else the bits mean nothing */
};

/* specontext: what the head says of a step */
struct specontext {
	float *score;                  /* device [H of the head][stride] */
	float *joint;                  /* device [G][stride] of each position; +inf: always read */
	float *always;                 /* host [sinks or recent + 1] +inf */
	size_t stride;
	uint32_t heads;                /* that score has room for */
	uint32_t n;                    /* positions that are scored */
	int chosen;                    /* t->chosen are the best of all positions */
	uint64_t bytes;                /* of keys that this read, and no layer has counted yet */
};

struct retrieval {
	const struct ops *ops;
	struct dev *dev;
	struct retrieval_options opt;
	const struct retrieval_method *method;
	uint32_t L, H, G, E;
	enum kv_dtype dtype;
	const double *freq;            /* device [E/2] */

	size_t stride;                 /* of the lists below: retrieve_stride() */
	float *score;                  /* device [H][stride] of entries; ranks reduce it in place */
	float *joint;                  /* device [G][stride]; [0] is +inf, the scores follow */
	float *candidate;              /* device [G][stride] */
	struct chosen chosen, best;
	struct layer_rows view;        /* rows that the choice is among: the layer's, with seen */
	/* shadow: the rows of the chosen chunks; quest-eval: those that last pages are made of */
	struct layer_rows copy;
	uint32_t *n, *always;          /* host [G] candidates; how many of them have label 0 */
	uint32_t most;                 /* struct counts of n */
	/* host [G] rows of which the choice is one: all, or without a last candidate that is cut
	 * short and was not chosen */
	uint32_t *seen;
	struct last_pages last;
	struct specontext specontext;
	struct offload *offload;      /* NULL: all rows are on the device */
	/* host [G][stride], [G]: the rows that the last step of an offloaded layer reads, and how
	 * many */
	uint32_t *offload_list, *offload_n;
	int offload_listed;                /* specontext: they are the choice from all positions */
	uint64_t *offload_bytes;           /* host [G] */

	struct retrieval_stats *stats; /* [L][G] */
	int capturing;                 /* retrieval_capture(): nothing is counted */
	int whole;                     /* the last step has read all rows */
	float *logits;                 /* audit, host [H][stride] */
	uint32_t *list, *best_list;    /* audit, overlap, host [stride]: of a KV head */
	struct last_read before;
};

/* How a method differs from the others. NULL: it does not. */
struct retrieval_method {
	/* Counts the candidates of a step (retrieve_set_choice()) and returns their scores, device
	 * [G][stride]; topk() chooses. */
	const float *(*rank)(struct retrieval *, const struct query *, const struct layer_rows *,
	    const struct layer_index *);
	/* Called after topk(). */
	void (*after_topk)(struct retrieval *);
	/* In place of these: leaves the choice in t->chosen. */
	void (*choose)(struct retrieval *, const struct layer_rows *);
	/* Makes room for steps over `most` rows of a KV head. Returns 0, or KV_ENOMEM. */
	int (*reserve)(struct retrieval *, const struct layer_index *, uint64_t most);
	/* Returns how many offloaded rows a step reads at least, whatever the budget. */
	uint64_t (*slots)(const struct retrieval_options *, const struct layer_index *);
	/* Returns the attention of a step, in place of that to the chosen rows, which are at
	 * `where` in rows. Keys of candidates behind the first t->always[g] are not read. */
	struct attention (*attend)(struct retrieval *, float *o, const struct query *,
	    const struct layer_rows *rows, const struct chosen *where, const struct layer_index *);
	/* Adds the bytes of the index that a step has read for KV head g. The keys of the chosen
	 * rows are counted: adds those of other rows that it has read, subtracts those that it has
	 * not. Not NULL. */
	void (*count)(struct retrieval_stats *, const struct retrieval *, uint32_t g,
	    const struct layer_rows *, const struct layer_index *);
	/* Its steps can be captured and launched. Counts the candidates of one that was
	 * launched. */
	void (*launched)(struct retrieval *, const struct layer_rows *);
};

#define RETRIEVAL(NAME, symbol, word, alias, needs, about) \
	extern const struct retrieval_method retrieval_##symbol;
#include "retrieval/retrievals.h"
#undef RETRIEVAL
const struct retrieval_method *retrieval_method(enum retrieve_method);

/* Does a step of layer l read all of so many rows [G]? window: of the query */
int retrieve_is_whole(const struct retrieval *, uint32_t l, const uint32_t *len, uint32_t window);

/* Chooses the candidates of a step: t->chosen, of t->n, t->always, t->seen. */
void retrieve_choose(struct retrieval *, const struct query *, const struct layer_rows *,
    const struct layer_index *x);

/* How many candidates, of u rows each, are read of KV head g: all where it fits into the budget,
 * else those that are always read and `of_budget` others. */
void retrieve_set_choice(struct retrieval *, const struct layer_rows *rows, uint32_t g, uint32_t u,
    uint64_t always, uint32_t of_budget);
struct counts retrieve_candidates(const struct retrieval *);
/* Reduces the scores of the entries over the query heads, and returns those of candidates: each has
 * that of the entry that its label names (index.h). */
const float *retrieve_by_label(struct retrieval *, const uint32_t *n_entries,
    const struct labels *);
/* Returns the stride of lists of n elements. */
size_t retrieve_stride(uint64_t n);
/* Gives t->copy a capacity of so many rows of each KV head; its contents are lost. Returns 0, or
 * KV_ENOMEM. */
int retrieve_reserve_copy(struct retrieval *, uint64_t rows);
void specontext_free(struct retrieval *);

/* t->offload_list, t->offload_n <- the rows of the choice, or all. Returns 0 where the device has
 * failed: what it has written is no choice then, and who waits for it is told. */
int retrieve_list_offloaded(struct retrieval *, const struct layer_rows *rows);
/* retrieve_begin() of an offloaded layer; t->whole is known. What could not be read leaves 0, and
 * its reason in the store. */
struct attention retrieve_offloaded(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);

/* Counts the bytes that the step of layer l has fetched; and all that the device has fetched, which
 * it counts itself. */
void retrieve_count_step_bytes(struct retrieval *, uint32_t l);
void retrieve_count_fetched_bytes(const struct retrieval *);
/* Returns how many rows the chosen candidates of KV head g have: a last one that is cut short is
 * one of them, or is not among t->seen. */
uint64_t retrieve_chosen_rows(const struct retrieval *, uint32_t g);
/* After a step of layer l: counts what it has read of rows, all of them or the choice. */
void retrieve_count_whole(struct retrieval *, uint32_t l, const struct layer_rows *rows);
void retrieve_count(struct retrieval *, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x);
/* Compares what was chosen with what the true logits would have chosen. */
void retrieve_audit(struct retrieval *, uint32_t l, const struct query *,
    const struct layer_rows *rows);
/* Compares it with what the step before has chosen. */
void retrieve_compare_steps(struct retrieval *, uint32_t l, const struct layer_rows *rows);

#endif
