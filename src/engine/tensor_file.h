/* tensor_file.h - numbers that were computed for a model beforehand, from a safetensors file:
 * Q-Filters, query statistics */
#ifndef KVPIPE_TENSOR_FILE_H
#define KVPIPE_TENSOR_FILE_H

#include "engine/engine_error.h"
#include "model/safetensors.h"

/* *files <- a file, or a folder with model.safetensors. Returns ENGINE_EDAMAGED for another. */
int tensor_file_open(struct tensor_set **files, const char *path, struct engine_error *);

/* *t <- the tensor, which must have `ndim` dimensions, named in `shape` ("layers, KV heads and head
 * width"), each below 2^32, numbers of a type that can be read, all finite. Returns
 * ENGINE_EDAMAGED for another. */
int tensor_file_find(const struct tensor_set *, const char *path, const char *name, unsigned ndim,
    const char *shape, const struct tensor **t, struct engine_error *);

/* Returns the number of elements. */
size_t tensor_elements(const struct tensor *);

/* hash[17] <- 16 hexadecimal digits, of the numbers as f32. */
void tensor_file_hash(char hash[17], const struct tensor *const *t, unsigned n);

#endif
