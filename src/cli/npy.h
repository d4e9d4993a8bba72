/* npy.h - arrays as NumPy's .npy files, front to back (numpy.lib.format, version 1.0)
 *
 * Dies, naming the file. */
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
	uint64_t axis[NPY_AXES];        /* what the header says: the numbers need not be there */
};

/* Does the file begin as one? It stands where it stood. */
int npy_begins(FILE *f);
/* *x <- the header of a file of f16, f32 or f64, little-endian, in C order. */
void npy_start(struct npy *x, FILE *f, const char *path);
/* value[n] <- the next numbers. */
void npy_take(struct npy *x, double *value, size_t n);
/* Behind the last number the file ends. */
void npy_end(struct npy *x);

/* ---- matrices of f32 ---- */

/* A new file for rows x columns numbers, which npy_put() brings; it has its name after
 * text_commit(). */
FILE *npy_create(const char *path, uint64_t rows, uint64_t columns);
void npy_put(FILE *f, const char *path, const float *row, uint64_t columns);

/* Opens a file of f32, little-endian, in C order, with so many columns. *rows <- how many there
 * are. */
FILE *npy_open(const char *path, uint64_t *rows, uint64_t columns);
void npy_get(FILE *f, const char *path, float *row, uint64_t columns);

#endif
