/* gpu_latent.cu - multi-head latent attention: products of each query head with its own rows of a
 * matrix
 *
 * Few rows of x: each matrix of a head is read once, for all rows; the sums of a row are the same
 * however many others there are. More: one batched product of cuBLAS, of x rounded to bf16 where
 * the weights are bf16 (gpu_blas.cu). f16 weights, whose range x may exceed: the first way. */
#include "gpu/gpu_rows.h"

constexpr uint32_t THREADS = 256, WARPS = THREADS / 32;
constexpr uint32_t ROWS = 32;          /* rows of a head's matrix that a block has */

/* One call; x and y of row n and head h begin at (n H + h) times their strides */
struct head_call {
	float *y;
	const float *x;
	size_t y_stride, x_stride;
	const void *w;               /* row 0 of head 0 */
	size_t block;                /* elements from head to head */
	uint32_t heads, rows, in, N;
};

/* y <- A x: blockIdx.y is the head; a warp has every WARPS-th of ROWS rows of A, lanes are along
 * the columns, V neighbouring ones each. x of the head is in shared memory. */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
head_rows(const struct head_call p)
{
	DYN_SHARED(float, shared);                     /* [N][in] */
	const uint32_t h = blockIdx.y, lane = threadIdx.x % 32, first = blockIdx.x * ROWS;
	const T *const a = (const T *)p.w + h * p.block;

	for (uint32_t n = 0; n < p.N; n++)
		for (uint32_t j = threadIdx.x; j < p.in; j += THREADS)
			shared[n * p.in + j] = p.x[((size_t)n * p.heads + h) * p.x_stride + j];
	__syncthreads();
	for (uint32_t i = first + threadIdx.x / 32; i < min(first + ROWS, p.rows); i += WARPS) {
		float sum[GEMV_ROWS] = {};

		for (uint32_t j = lane * V; j < p.in; j += 32 * V) {
			float w[V];

			load_floats<V>(w, a + (size_t)i * p.in + j);
UNROLL			for (uint32_t n = 0; n < GEMV_ROWS; n++) {
				float of[V];

				if (n >= p.N)
					break;
				load_floats<V>(of, shared + n * p.in + j);
				for (int e = 0; e < V; e++)
					sum[n] += w[e] * of[e];
			}
		}
UNROLL		for (uint32_t n = 0; n < GEMV_ROWS; n++) {
			const float all = warp_sum(sum[n]);

			if (n < p.N && lane == 0)
				p.y[((size_t)n * p.heads + h) * p.y_stride + i] = all;
		}
	}
}

/* y <- A^T x: blockIdx.y is the head; a lane has V neighbouring columns of A, and a warp every
 * WARPS-th row. Their sums are added up in the order of the warps. */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
head_columns(const struct head_call p)
{
	DYN_SHARED(float, shared);                     /* [N][rows], [WARPS][32 V] */
	float *const part = shared + p.N * p.rows;
	const uint32_t h = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t first = blockIdx.x * 32 * V, j = first + lane * V;
	const T *const a = (const T *)p.w + h * p.block;
	float sum[GEMV_ROWS][V] = {};

	for (uint32_t n = 0; n < p.N; n++)
		for (uint32_t i = threadIdx.x; i < p.rows; i += THREADS)
			shared[n * p.rows + i] = p.x[((size_t)n * p.heads + h) * p.x_stride + i];
	__syncthreads();
	for (uint32_t i = warp; i < p.rows && j < p.in; i += WARPS) {
		float w[V];

		load_floats<V>(w, a + (size_t)i * p.in + j);
UNROLL		for (uint32_t n = 0; n < GEMV_ROWS; n++)
			for (int e = 0; e < V && n < p.N; e++)
				sum[n][e] += w[e] * shared[n * p.rows + i];
	}
UNROLL	for (uint32_t n = 0; n < GEMV_ROWS; n++) {
		if (n >= p.N)
			break;
		for (int e = 0; e < V; e++)
			part[warp * 32 * V + lane * V + e] = sum[n][e];
		__syncthreads();
		for (uint32_t c = threadIdx.x; c < 32 * V && first + c < p.in; c += THREADS) {
			float all = 0;

			for (uint32_t i = 0; i < WARPS; i++)
				all += part[i * 32 * V + c];
			p.y[((size_t)n * p.heads + h) * p.y_stride + first + c] = all;
		}
		__syncthreads();
	}
}

/* One thread for each element of y; for all shapes */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_head_products(const struct head_call p, bool transposed)
{
	const uint32_t out = transposed ? p.in : p.rows, depth = transposed ? p.rows : p.in;
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, vector = i / out, at = i % out;
	const T *const a = (const T *)p.w + vector % p.heads * p.block;
	float sum = 0;

	if (vector >= (size_t)p.N * p.heads)
		return;
	for (uint32_t j = 0; j < depth; j++)
		sum += p.x[vector * p.x_stride + j] *
		    widen(a[transposed ? (size_t)j * p.in + at : at * p.in + j]);
	p.y[vector * p.y_stride + at] = sum;
}

/* ---- the op ---- */

/* x and y from row n on, n.N rows of them */
static struct head_call
rows_from(struct head_call p, uint32_t n)
{
	p.y += (size_t)n * p.heads * p.y_stride;
	p.x += (size_t)n * p.heads * p.x_stride;
	p.N = min(p.N - n, (uint32_t)GEMV_ROWS);
	return p;
}

template <class T, int V>
static void
launch_few(struct dev *d, const struct head_call &all, bool transposed)
{
	for (uint32_t n = 0; n < all.N; n += GEMV_ROWS) {
		const struct head_call p = rows_from(all, n);

		if (transposed)
			LAUNCH(d, (head_columns<T, V>), dim3(parts_of(p.in, 32 * V), p.heads),
			    THREADS, (p.N * p.rows + WARPS * 32 * V) * sizeof(float), p);
		else
			LAUNCH(d, (head_rows<T, V>), dim3(parts_of(p.rows, ROWS), p.heads),
			    THREADS, p.N * p.in * sizeof(float), p);
	}
}

/* Do x of GEMV_ROWS rows and a head's partial sums fit into shared memory? */
static bool
fits_few(const struct dev *d, const struct head_call &p, bool transposed)
{
	const size_t floats = (size_t)GEMV_ROWS * (transposed ? p.rows : p.in) + THREADS * 8;

	return !d->reference && floats * sizeof(float) <= d->most_shared && p.heads <= 65535;
}

void
gpu_head_products(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *a, int transposed, uint32_t N)
{
	const enum kv_dtype dtype = mat_elements(a->w);
	const uint32_t in = a->w->in;
	const size_t before = (size_t)a->first * in * kv_dtype_size(dtype);
	const struct head_call p = { .y = y, .x = x, .y_stride = y_stride, .x_stride = x_stride,
		.w = (const char *)a->w->data + before, .block = (size_t)a->block * in,
		.heads = a->heads, .rows = a->rows, .in = in, .N = N };
	const size_t all = (size_t)N * a->heads * (transposed ? in : a->rows);

	if (all == 0 || !gpu_ok(d))
		return;
	if (N > GEMV_ROWS && dtype != KV_F16 && !d->reference) {
		gpu_blas_heads(d, y, y_stride, x, x_stride, a, transposed, N);
		return;
	}
	with_type(dtype, [&](auto t) {
		using T = decltype(t);

		if (!fits_few(d, p, transposed))
			LAUNCH(d, reference_head_products<T>, parts_of(all, THREADS), THREADS, 0, p,
			    transposed != 0);
		else if (in % 8 == 0 && (uintptr_t)p.w % 16 == 0)
			launch_few<T, 8>(d, p, transposed);
		else
			launch_few<T, 1>(d, p, transposed);
	});
}
