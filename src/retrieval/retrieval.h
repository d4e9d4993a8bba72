/* retrieval.h - sparse attention while decoding: reads only the rows that matter to the query
 *
 * One step for one layer: score the entries of an index, reduce over the query heads of a KV head
 * (GQA), select the top k within the budget, attend to these. The methods share this; they differ
 * in what competes, and have a file each (retrievals.h).
 *
 * It knows ops, a device and shapes, but no model and no cache. Letters as in ops.h. */
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

/* Whose choice is one: specontext, for models with latent attention, whose layers have one KV head
 * (query_heads.c) */
enum choice_per {
	PER_MODEL,                     /* what fits the model: retrieval_resolve() */
	PER_KV_HEAD,                   /* the query heads of a KV head read the same rows */
	PER_QUERY_HEAD                 /* each query head reads its own rows of the KV head */
};

struct retrieval_options {
	enum retrieve_method method;
	/* rows of each choice and step. Of a KV head that has no more, all rows are read. */
	uint32_t budget;
	enum reduce reduce;
	enum choice_per per;
	uint32_t dense;                /* layers below this attend to all rows */
	/* specontext: rows at positions below sinks and of the last `recent` tokens, the current
	 * one included, are always read, within the budget; sinks + recent < budget */
	uint32_t sinks, recent;
	int audit;                     /* compare each choice with that by exact logits */
	int overlap;                   /* compare each choice with that of the step before */
	int offload;                   /* layers are offloaded: retrieval_use_offload() */
};

/* Sums over steps of what they have read of one KV head in one layer */
struct retrieval_stats {
	uint64_t steps;
	/* rows read, of how many; a row that several query heads have chosen is one */
	uint64_t rows, of_rows;
	uint64_t head_rows;            /* rows attended to, summed over the query heads */
	uint64_t index_bytes, key_bytes, value_bytes;
	uint64_t of_bytes;             /* keys and values that dense attention would have read */
	/* with audit: recall is |chosen and best| / k, where k rows were read and best are the k
	 * rows with the greatest exact logits, reduced in the same way; mass is the share of the
	 * exact softmax that the chosen rows get, mean over the query heads */
	double recall, mass;
	/* with overlap: pairs of adjacent steps that both left rows out, and the sum over these of
	 * |read now and in the step before| / |read now|, in rows */
	uint64_t pairs;
	double overlap;
	uint64_t fetched_bytes;        /* keys and values fetched, of offloaded layers */
};

struct retrieval;

/* Return "fier" ...; and the name in its paper, or "" if that is the same */
const char *retrieve_name(enum retrieve_method);
const char *retrieve_alias(enum retrieve_method);
/* Returns the method with that name or alias, in upper or lower case, or -1. */
int retrieve_named(const char *);
/* Returns the index that it needs of each layer; KV_UNKNOWN: none. */
enum kv_kind retrieve_needs(enum retrieve_method);
/* Returns 1 << retrieve_needs(), or 0 */
unsigned retrieve_kinds(enum retrieve_method);

/* Returns a retrieval for layers of one shape: H query heads, G KV heads of width E, rows of this
 * dtype; NULL without memory. freq: as in ops' rope(), device, the caller's; only shadow needs
 * it. */
struct retrieval *retrieval_new(const struct ops *, struct dev *, const struct retrieval_options *,
    uint32_t layers, uint32_t query_heads, uint32_t heads, uint32_t width, enum kv_dtype,
    const double *freq);
void retrieval_free(struct retrieval *);               /* NULL allowed */
const struct retrieval_options *retrieval_options(const struct retrieval *);

/* Stores the pointer (the caller's): steps of its offloaded layers read through it. Call it before
 * retrieval_reserve(); audit is not possible with it. Returns 0, or KV_ENOMEM. */
int retrieval_use_offload(struct retrieval *, struct offload *);
/* Returns how many offloaded rows of a KV head a step reads at most. x may be NULL where the method
 * needs no index. query_heads: H */
uint64_t retrieval_slots(const struct retrieval_options *, const struct layer_index *x,
    uint32_t query_heads);

/* Returns the most rows of a KV head that retrieval_reserve() makes room for. */
uint64_t retrieval_most(const struct layer_rows *);
/* Returns the bytes on the device of the lists that retrieval_reserve() allocates for so many rows
 * of a KV head, and specontext_reserve() for a text of so many tokens, with a retrieval head of
 * head_heads query heads. o->per is not PER_MODEL. */
uint64_t retrieval_list_bytes(const struct retrieval_options *o, uint32_t query_heads,
    uint32_t heads, uint32_t head_heads, uint64_t rows, uint64_t text);
/* Makes room for steps over rows->capacity rows (rows->len if that is NULL). Call it for each layer
 * that retrieves, after index_reserve(). Returns 0, or KV_ENOMEM. */
int retrieval_reserve(struct retrieval *, const struct layer_rows *, const struct layer_index *);

/* specontext: makes room for choices among all tokens of a text. Returns 0, or KV_ENOMEM. */
int specontext_reserve(struct retrieval *, const struct head_keys *);
/* specontext: scores all tokens of the text by the query of the one whose key has just been
 * appended; the next steps of all layers choose by these scores. Other methods: does nothing. */
void specontext_score(struct retrieval *, struct head_keys *);

/* specontext, after specontext_score(): starts to fetch the rows that the next step of layer l, an
 * offloaded one, reads, while other layers run. Does nothing for a layer that has lost rows: it
 * fetches in its step. */
void specontext_prefetch(struct retrieval *, uint32_t l, const struct layer_rows *);

/* o[H][E] <- attention of one query row, which sees all rows, in layer l. The index has been
 * extended. Does attend() in dense layers, for which x may be NULL, and in layers whose KV heads
 * all fit into the budget. */
void retrieve(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);
/* First part of retrieve(), so that the attention of several texts can be one call of
 * run_attend_each(): chooses, and returns the attention to compute, valid until the next step; its
 * rows NULL: none. */
struct attention retrieve_begin(struct retrieval *, uint32_t l, float *o, const struct query *,
    const struct layer_rows *, const struct layer_index *x);
/* Second part of retrieve(), with the same arguments: counts what has been read. */
void retrieve_end(struct retrieval *, uint32_t l, const struct query *, const struct layer_rows *,
    const struct layer_index *x);

/* ---- steps as launches of a captured graph (step_graph.h) ---- */

/* Can steps that retrieve be captured, and launched while rows are appended? */
int retrieval_can_capture(const struct retrieval *);
/* Does a step of layer l that appends a row to each KV head read as many rows of each from lengths
 * len[G] as from lengths other[G]? window: the layer's, as in struct query */
int retrieval_reads_as_many(const struct retrieval *, uint32_t l, const uint32_t *len,
    const uint32_t *other, uint32_t window);
/* Returns the device memory of the scores. If it has changed, what was captured cannot be
 * launched. */
const void *retrieval_lists(const struct retrieval *);
/* Sets whether ops are being captured: then retrieve() counts nothing. */
void retrieval_capture(struct retrieval *, int on);
/* Does the host's part of retrieve() for a step whose ops are launched from a graph. */
void retrieve_launched(struct retrieval *, uint32_t l, const struct layer_rows *,
    const struct layer_index *x, uint32_t window);

/* Returns the candidates (index.h) that the last retrieve() has read, those that are always read
 * included, a list for each choice; NULL: it has read all rows. Valid until the next one. */
const struct chosen *retrieval_chosen(const struct retrieval *);
/* Returns the sums so far, [L][G]. Waits for the device if it fetches offloaded rows. */
const struct retrieval_stats *retrieval_stats(const struct retrieval *);
/* Adds to the sums of one KV head those of another. */
void retrieval_stats_add(struct retrieval_stats *sum, const struct retrieval_stats *more);
/* Returns the bytes read as a share of those that dense attention would have read. */
double retrieval_stats_share(const struct retrieval_stats *);

#endif
