/* gpu_matmul.cu - y = x . w^T with weights in the dtype they are stored in
 *
 * Up to GEMV_ROWS rows: one pass over the weights, gpu_gemv.cu. More: GEMM by cuBLAS,
 * gpu_blas.cu. */
#include "gpu/gpu_internal.h"

#define MOST (1u << 30)        /* rows, columns */

/* ---- the naive kernel ---- */

enum { THREADS = 256 };

/* One thread for each element of y. Sums of partial sums of 16: a long row loses less to
 * rounding. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_matmul(float *y, const float *x, const T *w, const float *bias, uint32_t N, uint32_t in,
    uint32_t out, int add)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, n = i / out, o = i % out;
	float sum = 0, part, piece;

	if (n >= N)
		return;
	for (uint32_t k = 0; k < in;) {
		piece = 0;
		for (uint32_t to = min(in, k + 512); k < to;) {
			part = 0;
			for (uint32_t end = min(to, k + 16); k < end; k++)
				part += x[n * in + k] * widen(w[o * in + k]);
			piece += part;
		}
		sum += piece;
	}
	y[i] = sum + (bias != NULL ? bias[o] : 0) + (add ? y[i] : 0);
}

static void
reference(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t blocks = ((size_t)N * w->out + THREADS - 1) / THREADS;

	if (blocks > INT32_MAX) {
		gpu_fail(d, "matmul: %u rows by %u outputs are too many", N, w->out);
		return;
	}
	with_type(mat_elements(w), [&](auto t) {
		using T = decltype(t);

		LAUNCH(d, reference_matmul<T>, (unsigned)blocks, THREADS, 0, y, x,
		    (const T *)w->data, bias, N, w->in, w->out, add);
	});
}

int
gpu_product_fits(struct dev *d, const struct mat *w, uint32_t N)
{
	if (N <= MOST && w->in <= MOST && w->out <= MOST)
		return 1;
	gpu_fail(d, "matmul: %u rows, weights %u x %u", N, w->out, w->in);
	return 0;
}

void
gpu_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const struct product p = { y, w, bias };

	if (N == 0 || w->in == 0 || w->out == 0 || !gpu_product_fits(d, w, N))
		return;
	if (d->reference)
		reference(d, y, x, w, bias, N, add);
	else if (N <= GEMV_ROWS)
		gpu_gemv(d, &p, 1, x, NULL, N, add ? EPILOGUE_ADD : EPILOGUE_STORE);
	else
		gpu_blas_matmul(d, y, x, w, bias, N, add);
}
