/* tensor_shape.h - a tensor that must be there, in its shape and of a type that we compute with
 *
 * Internal to model/. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_TENSOR_SHAPE_H
#define KVPIPE_TENSOR_SHAPE_H

#include "model/safetensors.h"

/* *out <- the tensor [rows][cols], with cols 0 the vector [rows]. where: what the message names
 * when there is none. */
int tensor_need(const struct tensor_set *, const char *where, const char *name, uint32_t rows,
    uint32_t cols, const struct tensor **out, char *err, size_t errlen);

/* Has the tensor this shape? */
int tensor_shape(const struct tensor *, const uint64_t *dim, unsigned ndim, char *err,
    size_t errlen);

/* Has the tensor this shape, and a type that we compute with? */
int tensor_check(const struct tensor *, const uint64_t *dim, unsigned ndim, char *err,
    size_t errlen);

/* *at <- the first value that is NaN or infinite. Returns 0 where all are finite. */
int tensor_not_finite(const struct tensor *, size_t *at);

#endif
