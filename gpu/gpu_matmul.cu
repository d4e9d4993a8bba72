/* gpu_matmul.cu - y = x . w^T with weights in the type they are stored in */
#include "gpu/gpu_internal.h"

/* ---- the naive kernel ---- */

enum { SIDE = 16 };

/* A block for SIDE x SIDE elements of y. Both operands go through shared memory, so that the
 * reads of global memory are of consecutive addresses whichever thread needs them. */
template <class T>
static __global__ void __launch_bounds__(SIDE * SIDE)
reference_matmul(float *y, const float *x, const T *w, const float *bias, uint32_t N, uint32_t in,
    uint32_t out, int add)
{
	SHARED(float[SIDE][SIDE + 1], xs);
	SHARED(float[SIDE][SIDE + 1], ws);
	const uint32_t i = threadIdx.x, j = threadIdx.y;
	const uint32_t tiles = (out + SIDE - 1) / SIDE;
	const size_t o0 = (size_t)(blockIdx.x % tiles) * SIDE, n0 = (size_t)(blockIdx.x / tiles) * SIDE;
	float sum = 0;

	for (size_t k = 0; k < in; k += SIDE) {
		const bool there = k + i < in;

		xs[j][i] = there && n0 + j < N ? x[(n0 + j) * in + k + i] : 0;
		ws[j][i] = there && o0 + j < out ? widen(w[(o0 + j) * in + k + i]) : 0;
		__syncthreads();
		float part = 0;        /* sums of sums: a long row loses less to rounding */
		for (uint32_t e = 0; e < SIDE; e++)
			part += xs[j][e] * ws[i][e];
		sum += part;
		__syncthreads();
	}
	if (n0 + j < N && o0 + i < out) {
		float *to = y + (n0 + j) * out + o0 + i;

		*to = sum + (bias != NULL ? bias[o0 + i] : 0) + (add ? *to : 0);
	}
}

void
gpu_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const size_t blocks = (size_t)parts_of(N, SIDE) * parts_of(w->out, SIDE);

	if (N == 0 || w->in == 0 || w->out == 0)
		return;
	if (blocks > INT32_MAX) {
		gpu_fail(d, "matmul: %u rows by %u outputs are too many", N, w->out);
		return;
	}
	with_type(w->dtype, [&](auto t) {
		using T = decltype(t);

		LAUNCH(d, reference_matmul<T>, (unsigned)blocks, dim3(SIDE, SIDE), 0, y, x,
		    (const T *)w->data, bias, N, w->in, w->out, add);
	});
}
