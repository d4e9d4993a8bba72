/* evictor.h - chooses the rows of a cache to keep, layer by layer, by one budget with its policy
 *
 * An evictor knows no snapshot and no cache and moves no data. It adds to methods/evict.c the
 * options that concern all layers: skipped layers, a head mask, a budget for all layers together.
 * Several may be in use at the same time. */
#ifndef KVPIPE_EVICTOR_H
#define KVPIPE_EVICTOR_H

#include "engine/engine_error.h"
#include "methods/methods.h"

enum { EVICTOR_LAYERS = 4096 };         /* kv-snapshot(5), 4.1 */

struct evictor {
	struct evict_options options;
	int of_tokens;                  /* options.rate is a share of tokens seen, not of rows */
	/* 1: only the head mask drops rows, options.rate is 1, and no layer needs scores */
	int mask_alone;
	/* maximum over all choices, where more rows than the budget are always kept: the rows
	 * beyond the budget of a KV head, or of the whole cache under a policy that looks ahead */
	uint64_t beyond;
	/* sums over all choices so far of the members of struct kept */
	uint64_t given, budgets;
	double budget;
	/* the rest belongs to evictor.c */
	uint8_t skip[EVICTOR_LAYERS];   /* 1 = the layer keeps all rows */
	uint32_t skip_end;              /* after the last one; 0 = none is skipped */
	const char *mask_name, *budgets_name, *rows_name;
	struct head_mask mask;          /* full NULL = none */
	struct head_budgets budgets_of; /* budget NULL = none */
	/* line NULL = none; else this list chooses the rows, and options are not used */
	struct row_list rows;
	uint8_t *streaming;             /* [layers][heads] of the mask */
	struct global *all_layers;
	/* [L][G] rows to keep, set when all layers have been seen */
	const uint32_t *all_counts;
};

/* Initializes an evictor without skipped layers and without a mask. */
void evictor_init(struct evictor *, const struct evict_options *);
/* Frees its members; all zero is allowed. */
void evictor_free(struct evictor *);

/* Has layers first .. last, last < EVICTOR_LAYERS, keep all rows. */
void evictor_skip(struct evictor *, uint32_t first, uint32_t last);
/* Sets the streaming heads: by the mask in text[len] (methods.h; text[len] is zero), or with a
 * sparsity >= 0 this share of the heads. name: for messages, it must outlive the evictor. Call it
 * at most once. ENGINE_EDAMAGED: the text is no mask. */
int evictor_mask(struct evictor *, const char *name, const char *text, size_t len, double sparsity,
    struct engine_error *);

/* Gives each KV head of each layer a budget of its own, in place of options.budget and rate: those
 * of the table in text[len]. name, errors: as for evictor_mask(). Call it at most once. */
int evictor_budgets(struct evictor *, const char *name, const char *text, size_t len,
    struct engine_error *);

/* Has exactly the rows of the list in text[len] kept (methods.h), without scores and options. name:
 * as for evictor_mask(). Call it at most once. ENGINE_EDAMAGED: the text is no list. */
int evictor_list(struct evictor *, const char *name, const char *text, size_t len,
    struct engine_error *);

/* Is no row ever dropped (a rate of 1)? */
int evictor_keeps_all(const struct evictor *);
/* Does this layer need scores? */
int evictor_needs_scores(const struct evictor *, uint32_t layer);
/* Does the policy compare the scores of all layers? Then call evictor_look() for every layer, in
 * order, before the first choice. */
int evictor_looks_ahead(const struct evictor *);

/* out <- the rows of a layer to keep; to be freed by kept_free(). Reads these members of in: layer,
 * layers, rows, score (NULL if not needed), next_position, and tokens, the number of token ids seen
 * so far. ENGINE_EOPTION when more rows than the budget are always kept and that is refused, or
 * rows or scores do not fit the options; ENGINE_EDAMAGED when the head mask, or the table of
 * budgets, is of another shape, or
 * the list does not fit the rows. */
int evictor_choose(struct evictor *, const struct evict_input *, struct kept *out,
    struct engine_error *);
/* As evict_plans() and evict_plan() of methods.h, for a choice by the device, with in as for
 * evictor_choose(). evictor_look(): shows a layer, see evictor_looks_ahead(). */
int evictor_plans(const struct evictor *, const struct evict_input *);
int evictor_plan(struct evictor *, const struct evict_input *, const uint32_t *scored,
    struct evict_plan *out, struct engine_error *);
int evictor_look(struct evictor *, const struct evict_input *, struct engine_error *);

#endif
