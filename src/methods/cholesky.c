/* cholesky.c - the Cholesky decomposition of a symmetric matrix, and forms of its inverse */
#include <math.h>

#include "methods/cholesky.h"

void
cholesky_add(double *a, const double *v, size_t n, double weight)
{
	size_t i, j;

	for (i = 0; i < n; i++)
		for (j = 0; j <= i; j++)
			a[i * n + j] += weight * v[i] * v[j];
}

int
cholesky_decompose(double *a, size_t n)
{
	size_t i, j, e;
	int rc = 0;

	for (j = 0; j < n; j++) {
		for (e = 0; e < j; e++)
			a[j * n + j] -= a[j * n + e] * a[j * n + e];
		if (!(a[j * n + j] > 0)) {
			a[j * n + j] = NAN;
			rc = -1;
		}
		a[j * n + j] = sqrt(a[j * n + j]);
		for (i = j + 1; i < n; i++) {
			for (e = 0; e < j; e++)
				a[i * n + j] -= a[i * n + e] * a[j * n + e];
			a[i * n + j] /= a[j * n + j];
		}
	}
	return rc;
}

void
cholesky_forms(double *form, const double *l, double *v, size_t n)
{
	double x[CHOLESKY_COLUMNS];
	size_t i, j, b;

	for (b = 0; b < CHOLESKY_COLUMNS; b++)
		form[b] = 0;
	for (i = 0; i < n; i++) {
		for (b = 0; b < CHOLESKY_COLUMNS; b++)
			x[b] = v[i * CHOLESKY_COLUMNS + b];
		for (j = 0; j < i; j++)
			for (b = 0; b < CHOLESKY_COLUMNS; b++)
				x[b] -= l[i * n + j] * v[j * CHOLESKY_COLUMNS + b];
		for (b = 0; b < CHOLESKY_COLUMNS; b++) {
			x[b] /= l[i * n + i];
			form[b] += x[b] * x[b];
			v[i * CHOLESKY_COLUMNS + b] = x[b];
		}
	}
}
