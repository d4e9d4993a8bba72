/* retrieval.h - sparse attention while decoding: reads only the rows which matter to the query
 *
 * One step for one layer: score the entries of an index, reduce over the query heads of a KV head
 * (GQA), take the top k within the budget, attend to these. The methods share this; they differ in
 * what competes, and have a file each (retrievals.h).
 *
 * Only ops, a device and shapes: no model, no cache. Letters as in ops.h. */
#ifndef KVPIPE_RETRIEVAL_H
#define KVPIPE_RETRIEVAL_H

#include "cache/index.h"
#include "offload/offload.h"
#include "retrieval/head_keys.h"

enum retrieve_method {
#define RETRIEVAL(NAME, symbol, word, alias, needs, about) RETRIEVE_##NAME,
#include "retrieval/retrievals.h"
#undef RETRIEVAL
	RETRIEVE_METHODS               /* how many */
};

struct retrieval_options {
	enum retrieve_method method;
	/* rows of each KV head and step. A KV head that has no more is read whole. */
	uint32_t budget;
	enum reduce reduce;
	uint32_t dense;                /* layers below this read everything */
	/* specontext: of the budget, rows at the positions below sinks, and those of the last
	 * `recent` tokens, which the newest one is always among; sinks + recent < budget */
	uint32_t sinks, recent;
	int audit;                     /* compare each choice with that of the true logits */
	int overlap;                   /* compare each choice with that of the step before */
	int offload;                   /* rows come from elsewhere, retrieval_use_offload() */
};

/* What was read of one KV head in one layer: sums over steps. */
struct retrieval_stats {
	uint64_t steps;
	uint64_t rows, of_rows;        /* rows read, and that there were */
	uint64_t index_bytes, key_bytes, value_bytes;
	uint64_t of_bytes;             /* dense attention would have read: keys and values */
	/* with audit: recall is |chosen and best| / k, best the k rows of the greatest true
	 * logits, reduced in the same way, k the rows that were read; mass is the share of the
	 * true softmax that the chosen rows have, mean over the query heads */
	double recall, mass;
	/* with overlap: pairs of adjacent steps that both left rows out, and the sum over them of
	 * |read now and in the step before| / |read now|, in rows */
	uint64_t pairs;
	double overlap;
	uint64_t fetched_bytes;        /* of offloaded layers: keys and values that were fetched */
};

struct retrieval;

/* "fier" ...; what its paper calls it, or "" where that is the same */
const char *retrieve_name(enum retrieve_method);
const char *retrieve_alias(enum retrieve_method);
/* The method with that name or alias, in upper or lower case, or -1. */
int retrieve_named(const char *);
/* The index that it needs of each layer; KV_UNKNOWN: none. */
enum kv_kind retrieve_needs(enum retrieve_method);
/* 1 << that, or 0 */
unsigned retrieve_kinds(enum retrieve_method);

/* For layers of one shape: L, H query heads, G KV heads of width E and rows of this dtype. freq as
 * in ops' rope(), device, the caller's; only shadow needs it. NULL without memory. */
struct retrieval *retrieval_new(const struct ops *, struct dev *, const struct retrieval_options *,
    uint32_t layers, uint32_t query_heads, uint32_t heads, uint32_t width, enum kv_dtype,
    const double *freq);
void retrieval_free(struct retrieval *);               /* NULL allowed */
const struct retrieval_options *retrieval_options(const struct retrieval *);

/* Stores the pointer (the caller's): steps of its layers read offloaded rows. Call it before
 * retrieval_reserve(); audit is not possible with it. Returns 0, or KV_ENOMEM. */
int retrieval_use_offload(struct retrieval *, struct offload *);
/* Returns how many offloaded rows of a KV head a step reads at most. x may be NULL where the method
 * needs no index. */
uint64_t retrieval_slots(const struct retrieval_options *, const struct layer_index *x);

/* Makes room for steps over rows->capacity rows (rows->len where that is NULL). To be called
 * for each layer that retrieves, after index_reserve(). Returns 0, or KV_ENOMEM. */
int retrieval_reserve(struct retrieval *, const struct layer_rows *, const struct layer_index *);

/* specontext: makes room for choices among all tokens of a text. Returns 0, or KV_ENOMEM. */
int specontext_reserve(struct retrieval *, const struct head_keys *);
/* specontext: scores all tokens of the text for the one whose key has just been appended; the next
 * steps of all layers choose by that. Other methods: nothing. */
void specontext_score(struct retrieval *, struct head_keys *);

/* specontext, after specontext_score(): starts to fetch the rows that the next step of layer l, an
 * offloaded one, reads, while other layers run. Does nothing for a layer without all rows, which
 * fetches in its step. */
void specontext_prefetch(struct retrieval *, uint32_t l, const struct layer_rows *);

/* o[H][E] <- attention of one query row, which sees all rows, in layer l. The index has been
 * extended. The dense layers, and layers whose KV heads all fit into the budget, are attend()'s; x
 * may be NULL for the former. */
void retrieve(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);
/* The same in parts, so that the attention of several texts is one call of run_attend_each():
 * chooses, and returns what is to be computed, which holds until the next step; rows NULL:
 * nothing; */
struct attention retrieve_begin(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);
/* and counts what has been read, with the same arguments. */
void retrieve_end(struct retrieval *, uint32_t l, const struct query *, const struct layer_rows *,
    const struct layer_index *x);

/* ---- steps as launches of a captured graph (step_graph.h) ---- */

/* Can steps that retrieve be captured, and launched while rows are appended? */
int retrieval_can_capture(const struct retrieval *);
/* Do steps of layer l that append a row to each KV head read as many rows of each where
 * these have had len[G] rows as where they have had other[G]? window: the layer's, of
 * struct query */
int retrieval_reads_as_many(const struct retrieval *, uint32_t l, const uint32_t *len,
    const uint32_t *other, uint32_t window);
/* The device memory of what is chosen from. Another one: what has been captured cannot be
 * launched. */
const void *retrieval_lists(const struct retrieval *);
/* While it is on, retrieve() is captured and does not run: it counts nothing. */
void retrieval_capture(struct retrieval *, int on);
/* What retrieve() does on the host, where its ops are launched. */
void retrieve_launched(struct retrieval *, uint32_t l, const struct layer_rows *,
    const struct layer_index *x, uint32_t window);

/* What the last retrieve() has read: candidates (index.h), with those that are always read. NULL:
 * all rows. Until the next one. */
const struct chosen *retrieval_chosen(const struct retrieval *);
/* [L][G] sums so far; where a device brings rows by itself, waits for it. */
const struct retrieval_stats *retrieval_stats(const struct retrieval *);
/* Adds to the sums of one KV head those of another. */
void retrieval_stats_add(struct retrieval_stats *sum, const struct retrieval_stats *more);
/* The bytes that were read as a share of those that dense attention would have read. */
double retrieval_stats_share(const struct retrieval_stats *);

#endif
