/* compose.h - the fused ops, which a backend may leave out, and the number of rows that suits a
 * backend
 *
 * Each function calls the backend's op. Where the op is NULL or returns 0, it runs the composition
 * of elementary ops that defines the op. Arguments as in ops.h. */
#ifndef KVPIPE_COMPOSE_H
#define KVPIPE_COMPOSE_H

#include "ops/ops.h"

/* y[N][D] <- the norm of x: rmsnorm() or layernorm() */
void run_norm(const struct ops *, struct dev *, float *y, const float *x, const struct norm *,
    uint32_t N, uint32_t D);
void run_project(const struct ops *, struct dev *, const struct product *, uint32_t n,
    const float *x, const struct norm *, float *xn, uint32_t N);
void run_rope_append(const struct ops *, struct dev *, struct layer_rows *, float *q, float *k,
    const float *v, const uint32_t *pos, const struct rotary *, uint32_t N, uint32_t H);
void run_rope_append_each(const struct ops *, struct dev *, struct layer_rows *const *rows,
    uint32_t n, float *q, float *k, const float *v, const uint32_t *pos, const struct rotary *,
    uint32_t H);
void run_ffn(const struct ops *, struct dev *, float *x, const struct ffn *, float *xn, float *gate,
    float *up, uint32_t N);
void run_attend_each(const struct ops *, struct dev *, const struct attention *, uint32_t n);
/* attend_apart() of ops.h */
void run_attend_apart(const struct ops *, struct dev *, const struct attention *);

/* Norm and scale that some families apply to the term added to the residual stream */
struct residual {
	struct norm norm;            /* of the term; w NULL: none */
	float scale;                 /* the term is multiplied by this */
};
/* x[N][out] += scale * norm(in[N][in] . w^T + bias). t[N][out] is scratch. residual NULL: only x +=
 * in . w^T + bias */
void run_add(const struct ops *, struct dev *, float *x, const float *in, const struct mat *w,
    const float *bias, const struct residual *, float *t, uint32_t N);

/* Biases of a feed-forward network, NULL: none */
struct ffn_bias {
	const float *gate, *up, *down;
};
/* gate[N][F] <- act(gate) * up, by the activation of the network: swiglu() or geglu() */
void run_gate(const struct ops *, struct dev *, float *gate, const float *up, const struct ffn *,
    uint32_t N);
/* run_ffn() with biases and residual, which no fused op has. residual NULL: none. gate is not used
 * where the network has none. */
void run_ffn_with(const struct ops *, struct dev *, float *x, const struct ffn *,
    const struct ffn_bias *, const struct residual *, float *xn, float *gate, float *up,
    uint32_t N);

/* Scratch of run_mixture(), device */
struct mixture_scratch {
	float *xn, *sum;             /* [N][D] */
	float *gate, *up, *score;    /* [N][F], [N][F], [N] of a network for all rows */
	void *rows;                  /* expert_rows_at()'s */
};
/* x[N][D] += what experts make of norm(x), and what the network has made of it that all rows take
 * (ffn; gate.out 0: there is none), times the sigmoid of score . norm(x) (out 0: as it is).
 * residual as run_add()'s. */
void run_mixture(const struct ops *, struct dev *, float *x, const struct ffn *,
    const struct experts *, const struct mat *score, const struct residual *,
    const struct mixture_scratch *, uint32_t N);

/* Returns how many rows run at once by default, which bounds the memory of activations. A GPU needs
 * more rows than a CPU to be busy. */
uint32_t ops_tile(const struct ops *);

#endif
