/* value_norms.h - norms of what the values of a layer add to the residual stream
 * (kv-snapshot(5), 4.23)
 *
 * They follow from the rows and the weights alone, so no cache keeps them: they are made when a
 * snapshot is written, or when rows are chosen. Letters as in ops.h. */
#ifndef KVPIPE_VALUE_NORMS_H
#define KVPIPE_VALUE_NORMS_H

#include "model/model.h"

/* norms (host) <- H/G lists for each KV head in order, a number for each row, as in vNRM. Returns
 * 0, or MODEL_ENOMEM; other failures are the device's. The layer must not have full rows behind
 * quantised ones. */
int layer_value_norms(const struct model *, uint32_t layer, const struct layer_rows *,
    int euclidean, float *norms);

#endif
