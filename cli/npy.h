/* npy.h - matrices of f32 as NumPy's .npy files, row by row (numpy.lib.format, version 1.0)
 *
 * Dies, naming the file. */
#ifndef KVPIPE_NPY_H
#define KVPIPE_NPY_H

#include <stdint.h>
#include <stdio.h>

/* A new file for rows x columns numbers, which npy_put() brings; it has its name after text_commit(). */
FILE *npy_create(const char *path, uint64_t rows, uint64_t columns);
void npy_put(FILE *f, const char *path, const float *row, uint64_t columns);

/* Opens a file of f32, little-endian, in C order, with so many columns. *rows <- how many there are. */
FILE *npy_open(const char *path, uint64_t *rows, uint64_t columns);
void npy_get(FILE *f, const char *path, float *row, uint64_t columns);

#endif
