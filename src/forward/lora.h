/* lora.h - the matrix products of a layer with LoRA (adapter.h)
 *
 * Arguments are those of run_project() and run_ffn() in compose.h. t[N][r] (device) is scratch. */
#ifndef KVPIPE_LORA_H
#define KVPIPE_LORA_H

#include "model/adapter.h"

/* y[N][out] += x[N][in] . A^T . B^T; does nothing without LoRA */
void lora_add(const struct ops *, struct dev *, float *y, const float *x, const struct lora *,
    float *t, uint32_t N);
/* As run_project(), adding to each product the LoRA of the same number; lora_ffn(): as run_ffn(),
 * with LoRA. */
void lora_project(const struct ops *, struct dev *, const struct product *,
    const struct lora *const *, uint32_t n, const float *x, const struct norm *, float *xn,
    float *t, uint32_t N);
void lora_ffn(const struct ops *, struct dev *, float *x, const struct ffn *,
    const struct adapter_layer *, float *xn, float *gate, float *up, float *t, uint32_t N);

#endif
