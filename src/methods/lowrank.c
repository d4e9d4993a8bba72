/* lowrank.c - principal directions by LAPACK, landmarks of chunks
 *
 * The singular value decomposition of many rows X[n][G*E] is not computed: its right singular
 * vectors are the eigenvectors of X^T X, which is small, and X times these is the left factor.
 * dsyevr (LAPACK) reduces that matrix to a tridiagonal one and finds the r wanted eigenvectors, in
 * double precision. For 1024 columns and rank 160 that is one and a half seconds with the
 * reference BLAS; dgesdd over 32768 rows would need a hundred times the arithmetic.
 *
 * Squaring costs precision: a direction along which rows are shorter than sqrt(relative error
 * of X^T X) times their length along the longest one is lost. With products in f32 that is
 * about a three thousandth, much less than the rounding of factors to bf16 or f16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/lowrank.h"
#include "methods/methods.h"

/* LAPACK. Matrices by columns; the hidden lengths of character arguments come last, as gfortran
 * passes them. */
void dsyevr_(const char *jobz, const char *range, const char *uplo, const int *n, double *a,
    const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
    const double *abstol, int *m, double *w, double *z, const int *ldz, int *isuppz, double *work,
    const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t, size_t);

/* ---- directions ---- */

/* z: r vectors of n, shortest first */
static void
columns(float *right, const double *z, uint32_t n, uint32_t r)
{
	const double *v;
	uint32_t e, j, most;

	for (j = 0; j < r; j++) {
		v = z + (size_t)(r - 1 - j) * n;
		for (e = 1, most = 0; e < n; e++)
			if (fabs(v[e]) > fabs(v[most]))
				most = e;
		for (e = 0; e < n; e++)
			right[(size_t)e * r + j] = (float)(v[most] < 0 ? -v[e] : v[e]);
	}
}

int
low_rank_directions(float *right, double *gram, uint32_t n, uint32_t r)
{
	const int N = (int)n, first = (int)(n - r + 1), nwork = 26 * N, niwork = 10 * N;
	const double none = 0;
	double *value = malloc(n * sizeof *value), *z = malloc((size_t)n * r * sizeof *z);
	double *work = malloc((size_t)nwork * sizeof *work);
	int *iwork = malloc((size_t)niwork * sizeof *iwork), *support, found = 0, info = 0;
	int code = LOW_RANK_ENOMEM;
	size_t i;

	support = malloc(2 * (size_t)r * sizeof *support);
	if (value == NULL || z == NULL || work == NULL || iwork == NULL || support == NULL)
		goto done;
	code = LOW_RANK_EKEY;
	for (i = 0; i < (size_t)n * n; i += n + 1)
		if (!isfinite(gram[i]))
			goto done;
	/* the upper triangle by rows is the lower one by columns */
	dsyevr_("V", "I", "L", &N, gram, &N, &none, &none, &first, &N, &none, &found, value, z, &N,
	    support, work, &nwork, iwork, &niwork, &info, 1, 1, 1);
	if (info != 0 || found != (int)r)
		goto done;
	columns(right, z, n, r);
	code = LOW_RANK_OK;
done:
	free(value);
	free(z);
	free(work);
	free(iwork);
	free(support);
	return code;
}

/* ---- landmarks ---- */

/* k[E] f32, m[E] f32 */
static float
cosine(const float *k, const float *m, uint32_t E)
{
	double km = 0, kk = 0, mm = 0;
	uint32_t e;

	for (e = 0; e < E; e++) {
		km += (double)k[e] * m[e];
		kk += (double)k[e] * k[e];
		mm += (double)m[e] * m[e];
	}
	return kk == 0 || mm == 0 ? 0 : (float)(km / (sqrt(kk) * sqrt(mm)));
}

/* mean[E] of dtype <- the mean of keys k[chunk][E] f32; m[E]: scratch. Returns the least
 * cosine. */
static float
landmark(void *mean, float *m, const float *k, uint32_t chunk, uint32_t E, enum kv_dtype dtype)
{
	float least = INFINITY, c;
	double sum;
	uint32_t e, i;

	for (e = 0; e < E; e++) {
		for (i = 0, sum = 0; i < chunk; i++)
			sum += k[(size_t)i * E + e];
		m[e] = (float)(sum / chunk);
	}
	kv_from_f32(mean, m, dtype, E);
	kv_to_f32(m, mean, dtype, E);
	for (i = 0; i < chunk; i++) {
		c = cosine(k + (size_t)i * E, m, E);
		if (!(c >= least))              /* a NaN stays */
			least = c;
	}
	return least;
}

int
low_rank_landmarks(void *mean, uint32_t *exact, uint32_t x, const void *keys, uint32_t chunks,
    uint32_t chunk, uint32_t E, enum kv_dtype dtype)
{
	const size_t size = kv_dtype_size(dtype);
	float *k = malloc(((size_t)chunk + 1) * E * sizeof *k);
	float *badly = malloc((chunks + (size_t)1) * sizeof *badly);
	const char *from = keys;
	char *to = mean;
	uint32_t i;
	int code = LOW_RANK_ENOMEM;

	if (k == NULL || badly == NULL)
		goto done;
	code = LOW_RANK_EKEY;
	for (i = 0; i < chunks; i++, from += chunk * E * size, to += E * size) {
		kv_to_f32(k, from, dtype, (size_t)chunk * E);
		badly[i] = -landmark(to, k + (size_t)chunk * E, k, chunk, E, dtype);
		if (isnan(badly[i]))
			goto done;
	}
	select_top(badly, chunks, x, exact);
	code = LOW_RANK_OK;
done:
	free(k);
	free(badly);
	return code;
}
