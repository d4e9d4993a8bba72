/* gpu_latent_attend.h - attention over rows whose values are their keys (struct layer_rows,
 * v_in_k), on tensor cores */
#ifndef GPU_LATENT_ATTEND_H
#define GPU_LATENT_ATTEND_H

#include "gpu/gpu_internal.h"

/* attend(), or with a list of rows attend_chosen() (query->pos NULL), of such rows; false: it has
 * done nothing, since the kernels do not take the call: 576 or 288 channels of 16 bits, without
 * window and softcap. */
bool gpu_attend_latent(struct dev *, float *o, float *lse, const struct query *,
    enum kv_dtype, const struct rows *, const struct row_list *);

#endif
