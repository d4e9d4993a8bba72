/* npy.h - reads and writes arrays as NumPy's .npy files, front to back (numpy.lib.format, version
 * 1.0)
 *
 * All functions die and name the file. */
#ifndef KVPIPE_NPY_H
#define KVPIPE_NPY_H

#include <stdint.h>
#include <stdio.h>

/* ---- any array of reals ---- */

enum { NPY_AXES = 8 };

struct npy {
	FILE *file;                     /* the caller's */
	const char *path;
	unsigned item;                  /* bytes of a number: 2, 4, 8 */
	unsigned axes;
	/* from the header, which may promise more numbers than the file has */
	uint64_t axis[NPY_AXES];
};

/* Returns whether the file begins with NumPy's magic; keeps the file position. */
int npy_begins(FILE *f);
/* *x <- the header of a file of f16, f32 or f64, little-endian, in C order. */
void npy_start(struct npy *x, FILE *f, const char *path);
/* value[n] <- the next numbers. */
void npy_take(struct npy *x, double *value, size_t n);
/* Checks that the file ends after the last number. */
void npy_end(struct npy *x);

/* ---- matrices of f32 ---- */

/* Creates a file for rows x columns numbers, to be written by npy_put(); text_commit() gives it
 * its name. */
FILE *npy_create(const char *path, uint64_t rows, uint64_t columns);
void npy_put(FILE *f, const char *path, const float *row, uint64_t columns);

/* Opens a file of f32, little-endian, in C order, with this many columns. *rows <- its rows. */
FILE *npy_open(const char *path, uint64_t *rows, uint64_t columns);
void npy_get(FILE *f, const char *path, float *row, uint64_t columns);

#endif
