/* footprint.h - KV footprint and peak, from an event log or from a configuration; the critical
 * footprint
 *
 * "Cache Me If You Can: How Many KVs Do You Need for Effective Long-Context LMs?" (PruLong),
 * section 2. The unit is an entry: one row of one KV head while one token runs. Row j exists from
 * its own token on, so the full cache of T tokens has T (T + 1) / 2 entries in each KV head. The
 * footprint is the number of entries over that of the full cache, the unweighted mean over KV
 * heads and layers.
 *
 * For the footprint each layer counts the tokens that it runs. Memory is the number of rows
 * summed over the time of the whole model, in which one layer takes 1/L of a token's time. The
 * two differ when layers run one after the other. */
#ifndef KVPIPE_FOOTPRINT_H
#define KVPIPE_FOOTPRINT_H

#include "libkvfile/kvfile.h"

/* Returns n (n + 1) / 2, below 2^63. */
static inline uint64_t
triangle(uint32_t n)
{
	return (uint64_t)n * ((uint64_t)n + 1) / 2;
}

/* ---- measured: from the events of a log, by the rules of formats/kv-snapshot.md 4.12 ---- */

struct footprint {
	uint32_t layers, heads;         /* L, G */
	uint64_t tokens;                /* T, the ids in TOKS */
	/* ignore tokens that run without being stored; set it before the first event */
	int stored_only;
	double *entries;                /* [L][G] for tokens that the layer ran; exact below 2^53 */
	/* [L][G] for all tokens, over the time of the whole model; times L, so that they are
	 * whole numbers */
	double *memory;
	uint32_t *rows;                 /* [L][G] after the last event */
	uint64_t *peak;                 /* [L][G] most rows at the end of an event */
	uint64_t *layer_peak;           /* [L] most rows of all KV heads together */
	uint64_t total_peak;            /* most rows of all KV heads of all layers */
};

/* The result for a set of KV heads. */
struct share {
	double footprint, memory, peak, kept;   /* of the full cache */
	uint64_t rows;                  /* rows left, in all */
};

/* Returns 0, or -1 without memory; call footprint_free() in both cases. */
int footprint_init(struct footprint *f, uint32_t layers, uint32_t heads, uint64_t tokens);
void footprint_free(struct footprint *f);

/* Adds the next event of a log, in the order of kv_log_next(). */
void footprint_add(struct footprint *f, const struct kv_event *e);

/* Return the result for the whole cache, one layer, one KV head. */
struct share footprint_all(const struct footprint *f);
struct share footprint_layer(const struct footprint *f, uint32_t l);
struct share footprint_head(const struct footprint *f, uint32_t l, uint32_t g);

/* ---- computed: the authors' script, eval/viz/kv_footprint.py (methods.md 25) ---- */

struct prulong {
	uint32_t prompt, generated;     /* P, R: together at least 1, below 2^32 */
	uint32_t chunk;                 /* prefill chunk; 0 = the whole prompt at once */
	/* rows that a streaming head keeps besides those of the chunk */
	uint32_t sink, recent;
	double head_sparsity;           /* share of streaming heads */
	/* share of each chunk's rows that the other heads evict; the script keeps 64 more of
	 * the remaining rows */
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

/* Where a score is reached: at or below the least measured footprint, between two of them, or
 * nowhere up to the greatest. */
enum crossing_kind { BELOW_LEAST, CROSSED, ABOVE_GREATEST };

struct crossing {
	enum crossing_kind kind;
	/* footprint; BELOW_LEAST: the least; ABOVE_GREATEST: the greatest */
	double at;
};

struct critical {
	/* the critical footprint: the score is reached at every greater measured one */
	struct crossing stays;
	/* where the score is first reached; differs from `stays` if scores are not monotone */
	struct crossing first;
};

/* Returns the critical footprint for score `want` by linear interpolation. Sorts the n > 0
 * points by footprint; no two may be equal. A score that misses `want` by a rounding error
 * (1e-9 of it) reaches it. */
struct critical footprint_critical(struct point *points, size_t n, double want);

#endif
