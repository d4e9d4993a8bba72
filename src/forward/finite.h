/* finite.h - is what the model computes a number?
 *
 * NaN or an infinity in a weight matrix reaches every row of the residual stream, one in the
 * embedding of a token every later row through attention. So the last row of a call stands for all:
 * looking at it costs nothing beside a layer. / */
#ifndef KVPIPE_FINITE_H
#define KVPIPE_FINITE_H

#include "forward/forward_internal.h"

/* x[D] (device) is the last row, at this position, after layers l0 .. l1-1 have run. Waits for the
 * device. Returns 0, or MODEL_EIO: err names the first of these layers whose keys or values of
 * that row are not finite, or whose output is not. */
int check_row(const struct cache *c, struct workspace *ws, const float *x, uint32_t position,
    uint32_t l0, uint32_t l1, char *err, size_t errlen);

/* text[size] <- why what layers below l1 have computed is not finite: the first weight that is not,
 * rows of c (which may be NULL) in f16 that hold an infinity, or neither. Reads all these weights.
 * Returns text. */
const char *finite_cause(const struct model *, const struct cache *c, uint32_t l1, char *text,
    size_t size);

#endif
