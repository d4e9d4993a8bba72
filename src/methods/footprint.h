/* footprint.h - KV footprint and peak, from an event log or from a configuration; the critical
 * footprint
 *
 * "Cache Me If You Can: How Many KVs Do You Need for Effective Long-Context LMs?" (PruLong),
 * section 2. The unit is an entry: one row of one KV head, there while one token is run. Row j
 * exists from its own token on, so the full cache of T tokens has T (T + 1) / 2 entries in each
 * KV head. The footprint is the entries that there were over those of the full cache, averaged
 * over KV heads and layers, all of one weight.
 *
 * In the footprint each layer counts the tokens that it runs. Memory is the rows that there are,
 * added up over the time of the whole model, in which running one layer takes 1/L of a token's
 * time: they differ when layers run one after the other. */
#ifndef KVPIPE_FOOTPRINT_H
#define KVPIPE_FOOTPRINT_H

#include "libkvfile/kvfile.h"

/* n (n + 1) / 2, below 2^63. */
static inline uint64_t
triangle(uint32_t n)
{
	return (uint64_t)n * ((uint64_t)n + 1) / 2;
}

/* ---- measured: from the events of a log, by the rules of formats/kv-snapshot.md 4.12 ---- */

struct footprint {
	uint32_t layers, heads;         /* L, G */
	uint64_t tokens;                /* T, the ids in TOKS */
	int stored_only;                /* tokens that are run and not stored do not count; set it
	                                 * before the first event */
	double *entries;                /* [L][G] of tokens that the layer ran; exact below 2^53 */
	/* [L][G] of all tokens that ran, by the time of the whole model; times L, so that they are
	 * whole numbers */
	double *memory;
	uint32_t *rows;                 /* [L][G] after the last event */
	uint64_t *peak;                 /* [L][G] most rows at the end of an event */
	uint64_t *layer_peak;           /* [L] most rows of all heads together */
	uint64_t total_peak;            /* most rows of all heads of all layers */
};

/* Some KV heads together. */
struct share {
	double footprint, memory, peak, kept;   /* of the full cache */
	uint64_t rows;                  /* that are left, in all */
};

/* 0, or -1 without memory; footprint_free() either way. */
int footprint_init(struct footprint *f, uint32_t layers, uint32_t heads, uint64_t tokens);
void footprint_free(struct footprint *f);

/* The events of one log, in order, as kv_log_next() gives them. */
void footprint_add(struct footprint *f, const struct kv_event *e);

/* Of everything, one layer, one KV head. */
struct share footprint_all(const struct footprint *f);
struct share footprint_layer(const struct footprint *f, uint32_t l);
struct share footprint_head(const struct footprint *f, uint32_t l, uint32_t g);

/* ---- computed: the authors' script, eval/viz/kv_footprint.py (methods.md 25) ---- */

struct prulong {
	uint32_t prompt, generated;     /* P, R: together at least 1, below 2^32 */
	uint32_t chunk;                 /* prefill chunk; 0 = the whole prompt at once */
	uint32_t sink, recent;          /* rows that a streaming head keeps besides the new ones */
	double head_sparsity;           /* share of streaming heads */
	/* share of each chunk's rows that the other heads evict; of what is left over they keep
	 * 64 more, as the script has it */
	double sparsity;
};

struct prulong_result {
	uint64_t streaming, evicting, full;     /* entries of a head */
	double footprint, peak;                 /* shares of the full cache */
};

struct prulong_result footprint_prulong(const struct prulong *p);

/* ---- critical: the smallest footprint with a score that is good enough ---- */

struct point {
	double footprint, score;
};

/* Where a score is reached: below the least footprint measured, between two of them, or above
 * the greatest. */
enum crossing_kind { BELOW_LEAST, CROSSED, ABOVE_GREATEST };

struct crossing {
	enum crossing_kind kind;
	double at;                      /* BELOW_LEAST: the least; ABOVE_GREATEST: the greatest */
};

struct critical {
	/* the critical footprint: every greater one that was measured is good enough */
	struct crossing stays;
	/* where the score is reached for the first time; differs when scores are not monotone */
	struct crossing first;
};

/* Sorts the n > 0 points by footprint, no two of them with the same one. Lines between
 * neighbours; a score that misses `want` by a rounding error (1e-9 of it) reaches it. */
struct critical footprint_critical(struct point *points, size_t n, double want);

#endif
