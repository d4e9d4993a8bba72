/* tokens.h - which tokens of a prompt go on to later layers, chosen while the prompt runs
 *
 * Other than a scorer (methods.h) these choose rows for all heads at once, and before later
 * layers have seen them. Rows are the N that ran through a layer, ascending in position; keep
 * lists those that stay, ascending. Ties: the lower row. Letters as in methods.h. */
#ifndef KVPIPE_TOKENS_H
#define KVPIPE_TOKENS_H

#include "methods/methods.h"

/* Token-selective propagation (tsp.c). */
struct tsp {
	double rate;            /* share of the rows that go on */
	uint32_t window;        /* last rows, whose queries decide and which always go on */
	uint32_t kernel;        /* pooling width, odd */
	enum pool pool;
};

/* keep[k] <- the rows that go on; window <= k <= N. mass[H][N]: attention that the window's
 * queries pay, summed over them. Returns 0, or -1 when out of memory. */
int keep_tsp(const struct tsp *o, const float *mass, uint32_t H, uint32_t N, uint32_t k,
    uint32_t *keep);

#define GEMFILTER_KERNEL 5

/* keep[k] <- the tokens that GemFilter runs again; k <= N. product[N]: q.k of the last query,
 * summed over the query heads. Returns 0, or -1 when out of memory. */
int keep_gemfilter(const float *product, uint32_t N, uint32_t k, uint32_t *keep);

/* PyramidInfer while the prompt runs (pyramidinfer.c). */
struct pyramidinfer {
	uint32_t interval;      /* rows are dropped after layers 0, interval, 2 interval, ... */
	double decay;           /* p: the share of the context that stays falls from 1 to p */
	double recent;          /* share of the prompt that is never dropped, its end */
	double weight;          /* of the last query, when the first one's is 1 */
	uint32_t least;         /* rows of context below which nothing is dropped */
};

/* How many rows at the end of a prompt of T decide, and are never dropped: 1 + floor(T recent),
 * T at most. */
uint32_t pyramidinfer_tail(const struct pyramidinfer *o, uint32_t T);

/* How many of the N rows that ran through layer l of L go on: N when none is dropped. tail as
 * above. */
uint32_t pyramidinfer_rows(const struct pyramidinfer *o, uint32_t l, uint32_t L, uint32_t N,
    uint32_t tail);

/* keep[k] <- the rows that go on, k from pyramidinfer_rows() and less than N. mass[H][N]:
 * attention that the tail's queries pay, weighted and summed over them. Returns 0, or -1 when out
 * of memory. */
int keep_pyramidinfer(const float *mass, uint32_t H, uint32_t N, uint32_t tail, uint32_t k,
    uint32_t *keep);

#endif
