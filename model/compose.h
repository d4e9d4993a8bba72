/* compose.h - the fused ops, which a backend may leave out
 *
 * Each function calls the backend's op. Where that is NULL or returns 0, it runs the composition of
 * elementary ops that the op is defined by. Arguments as in ops.h. */
#ifndef KVPIPE_COMPOSE_H
#define KVPIPE_COMPOSE_H

#include "model/ops.h"

void run_project(const struct ops *, struct dev *, const struct product *, uint32_t n,
    const float *x, const struct norm *, float *xn, uint32_t N);
void run_rope_append(const struct ops *, struct dev *, struct layer_rows *, float *q, float *k,
    const float *v, const uint32_t *pos, const struct rotary *, uint32_t N, uint32_t H);
void run_ffn(const struct ops *, struct dev *, float *x, const struct ffn *, float *xn, float *gate,
    float *up, uint32_t N);

#endif
