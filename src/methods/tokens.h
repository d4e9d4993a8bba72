/* tokens.h - token selection: which tokens of a prompt run through later layers, chosen during
 * prefill
 *
 * Unlike a scorer (methods.h) these choose rows for all heads at once, before later layers have
 * seen them. Rows are the N that ran through a layer, ascending in position; keep lists those
 * that continue, ascending. Ties: the lower row. Letters as in methods.h. */
#ifndef KVPIPE_TOKENS_H
#define KVPIPE_TOKENS_H

#include "methods/methods.h"

/* Token-selective propagation (tsp.c). */
struct tsp {
	double rate;            /* share of the rows that continue */
	uint32_t window;        /* last rows, whose queries decide and which always continue */
	uint32_t kernel;        /* pooling width, odd */
	enum pool pool;
};

/* keep[k] <- the rows that continue; window <= k <= N. mass[H][N]: attention mass, summed over
 * the window's queries. Returns 0, or -1 when out of memory. */
int keep_tsp(const struct tsp *o, const float *mass, uint32_t H, uint32_t N, uint32_t k,
    uint32_t *keep);

#define GEMFILTER_KERNEL 5

/* keep[k] <- the tokens that GemFilter runs again; k <= N. product[N]: q.k of the last query,
 * summed over the query heads. Returns 0, or -1 when out of memory. */
int keep_gemfilter(const float *product, uint32_t N, uint32_t k, uint32_t *keep);

/* PyramidInfer during prefill (pyramidinfer.c). */
struct pyramidinfer {
	uint32_t interval;      /* rows are dropped after layers 0, interval, 2 interval, ... */
	double decay;           /* p: the kept share of the context falls from 1 to p */
	double recent;          /* share of the prompt, its end, that is never dropped */
	double weight;          /* of the last query, relative to the first one's 1 */
	uint32_t least;         /* rows of context up to which nothing is dropped */
};

/* Returns how many rows at the end of a prompt of T decide and are never dropped: 1 + floor(T
 * recent), at most T. */
uint32_t pyramidinfer_tail(const struct pyramidinfer *o, uint32_t T);

/* Returns how many of the N rows that ran through layer l of L continue; N: none is dropped.
 * tail: from pyramidinfer_tail(). */
uint32_t pyramidinfer_rows(const struct pyramidinfer *o, uint32_t l, uint32_t L, uint32_t N,
    uint32_t tail);

/* keep[k] <- the rows that continue, k < N from pyramidinfer_rows(). mass[H][N]: attention
 * mass, weighted and summed over the tail's queries. Returns 0, or -1 when out of memory. */
int keep_pyramidinfer(const float *mass, uint32_t H, uint32_t N, uint32_t tail, uint32_t k,
    uint32_t *keep);

#endif
