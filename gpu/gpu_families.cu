/* gpu_families.cu - ops of rows that families of models beyond Llama need
 *
 * Plain kernels: beside the products of a layer they are little. */
#include "gpu/gpu_internal.h"

constexpr unsigned THREADS = 256;

/* ---- temper ---- */

/* blockIdx.x is the row. */
static __global__ void __launch_bounds__(THREADS)
temper(float *x, const uint32_t *pos, uint32_t D, float beta, uint32_t period)
{
	const uint32_t turns = pos[blockIdx.x] / period;
	const double by = 1 + (double)beta * log(1 + (double)turns);

	x += (size_t)blockIdx.x * D;
	for (uint32_t i = threadIdx.x; turns > 0 && i < D; i += THREADS)
		x[i] = (float)(x[i] * by);
}

void
gpu_temper(struct dev *d, float *x, const uint32_t *pos, uint32_t N, uint32_t D, float beta,
    uint32_t period)
{
	if (N > 0)
		LAUNCH(d, temper, N, THREADS, 0, x, pos, D, beta, period);
}
