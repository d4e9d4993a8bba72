/* cholesky.h - the Cholesky decomposition of a symmetric matrix, and the quadratic forms of its
 * inverse; private to methods/ */
#ifndef KVPIPE_CHOLESKY_H
#define KVPIPE_CHOLESKY_H

#include <stddef.h>

#define CHOLESKY_COLUMNS 16     /* vectors whose forms are made together */

/* The lower triangle of a[n][n] += weight v v'. */
void cholesky_add(double *a, const double *v, size_t n, double weight);
/* The lower triangle of a[n][n] <- L, where L L' is the matrix whose lower triangle is in a.
 * Returns 0, or -1 if it is not positive definite; then forms made from it are NaN. */
int cholesky_decompose(double *a, size_t n);
/* form[CHOLESKY_COLUMNS] <- v' (L L')^-1 v = |L^-1 v|^2 for each column v of
 * v[n][CHOLESKY_COLUMNS], which becomes L^-1 v. n^2 / 2 products for each. */
void cholesky_forms(double *form, const double *l, double *v, size_t n);

#endif
