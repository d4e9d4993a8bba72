/* finite.h - checks that what the model computes is finite
 *
 * NaN or an infinity in a weight matrix reaches every row of the residual stream, one in the
 * embedding of a token every later row through attention. So it is enough to check the last row of
 * a call, which costs little compared with a layer. */
#ifndef KVPIPE_FINITE_H
#define KVPIPE_FINITE_H

#include "forward/forward_internal.h"

/* Checks the last row x[D] (device), at this position, after layers l0 .. l1-1 have run. Waits for
 * the device. Returns 0, or MODEL_EIO: err names the first of these layers in which the row's keys,
 * values or output are not finite. */
int check_row(const struct cache *c, struct workspace *ws, const float *x, uint32_t position,
    uint32_t l0, uint32_t l1, char *err, size_t errlen);

/* text[size] <- why layers below l1 have computed a number that is not finite: the first weight
 * that is not finite, rows of c (NULL allowed) in f16 with an infinity, or neither. Reads all
 * weights of these layers. Returns text. */
const char *finite_cause(const struct model *, const struct cache *c, uint32_t l1, char *text,
    size_t size);

#endif
