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

/* ---- layernorm ---- */

/* The sum over the block, in all threads; part[] may be used again after the call */
DEVICE float
block_sum(float x, float *part)
{
	x = warp_sum(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (unsigned i = 0; i < THREADS / 32; i++)
		x += part[i];
	return x;
}

/* Two passes: the mean first, so that a row far from 0 loses nothing. blockIdx.x is the row. */
static __global__ void __launch_bounds__(THREADS)
layernorm(float *y, const float *x, const float *w, const float *bias, uint32_t heads, uint32_t D,
    float eps)
{
	SHARED(float[THREADS / 32], part);
	const size_t at = (size_t)(blockIdx.x % heads) * D;
	float sum = 0;

	x += (size_t)blockIdx.x * D;
	y += (size_t)blockIdx.x * D;
	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		sum += x[i];
	const float mean = block_sum(sum, part) / (float)D;
	sum = 0;
	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		sum += (x[i] - mean) * (x[i] - mean);
	const float scale = 1 / sqrtf(block_sum(sum, part) / (float)D + eps);
	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		y[i] = (x[i] - mean) * scale * w[at + i] + (bias != NULL ? bias[at + i] : 0);
}

void
gpu_layernorm(struct dev *d, float *y, const float *x, const float *w, const float *bias,
    uint32_t heads, uint32_t N, uint32_t D, float eps)
{
	if (N > 0)
		LAUNCH(d, layernorm, N, THREADS, 0, y, x, w, bias, heads, D, eps);
}

/* ---- clamp ---- */

static __global__ void __launch_bounds__(THREADS)
clamp(float *x, size_t n, float limit)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

void
gpu_clamp(struct dev *d, float *x, size_t n, float limit)
{
	if (n > 0)
		LAUNCH(d, clamp, grid_of(n, THREADS), THREADS, 0, x, n, limit);
}

/* ---- copy_channels ---- */

static __global__ void __launch_bounds__(THREADS)
copy_channels(float *y, size_t y_stride, const float *x, size_t x_stride, uint32_t width, size_t n)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		y[i / width * y_stride + i % width] = x[i / width * x_stride + i % width];
}

void
gpu_copy_channels(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    uint32_t width, size_t rows)
{
	const size_t n = rows * width;

	if (n > 0)
		LAUNCH(d, copy_channels, grid_of(n, THREADS), THREADS, 0, y, y_stride, x, x_stride,
		    width, n);
}

/* ---- split_pairs ---- */

constexpr uint32_t HEAD_MOST = 1024, HELD = HEAD_MOST / THREADS;

/* blockIdx.x is the head of a row, whose channels are in registers while they move. */
static __global__ void __launch_bounds__(THREADS)
split_pairs(float *x, uint32_t E, uint32_t dims)
{
	float held[HELD];

	x += (size_t)blockIdx.x * E;
	for (uint32_t j = 0; j < HELD; j++)
		if (threadIdx.x + j * THREADS < dims)
			held[j] = x[threadIdx.x + j * THREADS];
	__syncthreads();
	for (uint32_t j = 0; j < HELD; j++) {
		const uint32_t i = threadIdx.x + j * THREADS;

		if (i < dims)
			x[i / 2 + (i % 2 == 1 ? dims / 2 : 0)] = held[j];
	}
}

void
gpu_split_pairs(struct dev *d, float *x, uint32_t N, uint32_t heads, uint32_t E, uint32_t dims)
{
	if (dims > HEAD_MOST)
		gpu_fail(d, "split_pairs: %u channels of a head", dims);
	else if (N * heads > 0)
		LAUNCH(d, split_pairs, N * heads, THREADS, 0, x, E, dims);
}

/* ---- activate ---- */

DEVICE float
activation_of(float x, enum activation act, const struct xielu &p)
{
	switch (act) {
	case ACT_XIELU:
		return x > 0 ? p.positive * x * x + p.beta * x :
		    (expm1f(x > p.eps ? p.eps : x) - x) * p.negative + p.beta * x;
	case ACT_GELU:
		return x * 0.5f * (1 + erff(x * 0.70710678f));
	case ACT_GELU_TANH:
		return x / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
	case ACT_RELU2:
		return x > 0 ? x * x : 0;
	default:
		return x / (1 + expf(-x));
	}
}

static __global__ void __launch_bounds__(THREADS)
activate(float *x, size_t n, enum activation act, const struct xielu p)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		x[i] = activation_of(x[i], act, p);
}

static const struct xielu xielu_none = { 0, 0, 0, 0 };

void
gpu_activate(struct dev *d, float *x, size_t n, enum activation act, const struct xielu *xielu)
{
	const struct xielu p = act == ACT_XIELU ? *xielu : xielu_none;

	if (n > 0)
		LAUNCH(d, activate, grid_of(n, THREADS), THREADS, 0, x, n, act, p);
}
