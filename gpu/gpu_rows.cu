/* gpu_rows.cu - ops that handle one row at a time: embed, rmsnorm, rope, store, swiglu */
#include "gpu/gpu_internal.h"

enum { THREADS = 256 };

/* A block for each row */
template <class T>
static __global__ void __launch_bounds__(THREADS)
embed(float *x, const T *table, const uint32_t *tok, uint32_t D)
{
	const T *row = table + (size_t)tok[blockIdx.x] * D;

	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		x[(size_t)blockIdx.x * D + i] = widen(row[i]);
}

void
gpu_embed(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const uint32_t *list;

	for (uint32_t n = 0; n < N; n++)
		if (tok[n] >= table->out)
			gpu_fail(d, "embed: token %u of a vocabulary of %u", tok[n], table->out);
	if (N == 0 || (list = (const uint32_t *)gpu_list(d, tok, N * sizeof *tok)) == NULL)
		return;
	with_type(table->dtype, [&](auto t) {
		using T = decltype(t);

		LAUNCH(d, embed<T>, N, THREADS, 0, x, (const T *)table->data, list, table->in);
	});
}

/* A block for each row; the sum of squares by warps, then by the first of them */
static __global__ void __launch_bounds__(THREADS)
rmsnorm(float *y, const float *x, const float *w, uint32_t D, float eps)
{
	SHARED(float[THREADS / 32], part);
	const float *row = x + (size_t)blockIdx.x * D;
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		sum += row[i] * row[i];
	sum = warp_sum(sum);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = 0;
	for (int i = 0; i < THREADS / 32; i++)
		sum += part[i];
	const float scale = 1 / sqrtf(sum / (float)D + eps);
	for (uint32_t i = threadIdx.x; i < D; i += THREADS)
		y[(size_t)blockIdx.x * D + i] = row[i] * scale * w[i];
}

void
gpu_rmsnorm(struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps)
{
	if (N > 0)
		LAUNCH(d, rmsnorm, N, THREADS, 0, y, x, w, D, eps);
}

/* A thread for a pair of channels of one row: its angle is the same for all heads. */
static __global__ void __launch_bounds__(THREADS)
rope(float *x, const uint32_t *pos, const double *freq, uint32_t heads, uint32_t E)
{
	const uint32_t half = E / 2, i = blockIdx.y * THREADS + threadIdx.x;
	float *row = x + (size_t)blockIdx.x * heads * E;
	double s, c;

	if (i >= half)
		return;
	sincos(pos[blockIdx.x] * freq[i], &s, &c);
	for (uint32_t h = 0; h < heads; h++, row += E) {
		const float a = row[i], b = row[i + half];

		row[i] = a * (float)c - b * (float)s;
		row[i + half] = b * (float)c + a * (float)s;
	}
}

void
gpu_rope(struct dev *d, float *x, const uint32_t *pos, const double *freq, uint32_t N,
    uint32_t heads, uint32_t E)
{
	if (N > 0 && E > 1)
		LAUNCH(d, rope, dim3(N, parts_of(E / 2, THREADS)), THREADS, 0, x, pos, freq, heads, E);
}

/* A block for each row and KV head */
template <class T>
static __global__ void __launch_bounds__(THREADS)
store(const struct rows to, const float *k, const float *v, const uint32_t *pos, uint32_t *to_pos)
{
	const uint32_t n = blockIdx.x, g = blockIdx.y;
	const size_t from = ((size_t)n * to.G + g) * to.E, row = to.start[g] + to.len[g] + n;

	for (uint32_t e = threadIdx.x; e < to.E; e += THREADS) {
		((T *)to.k)[row * to.E + e] = narrow<T>(k[from + e]);
		if (to.v != NULL)
			((T *)to.v)[row * to.E + e] = narrow<T>(v[from + e]);
	}
	if (threadIdx.x == 0)
		to_pos[row] = pos[n];
}

void
gpu_store(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	struct rows to;

	if (!gpu_rows_of(d, &to, c, c->heads, "store"))
		return;
	for (uint32_t g = 0; g < c->heads; g++)
		if (c->len[g] > c->room[g] || N > c->room[g] - c->len[g]) {
			gpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->room[g], N);
			return;
		}
	if (N == 0)
		return;
	with_type(c->dtype, [&](auto t) {
		LAUNCH(d, store<decltype(t)>, dim3(N, c->heads), THREADS, 0, to, k, v, pos, c->pos);
	});
	for (uint32_t g = 0; g < c->heads; g++)
		c->len[g] += N;
}

static __global__ void __launch_bounds__(THREADS)
swiglu(float *y, const float *gate, const float *up, size_t n)
{
	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
	    i += (size_t)gridDim.x * THREADS)
		y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

void
gpu_swiglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	const size_t n = (size_t)N * F;

	if (n > 0)
		LAUNCH(d, swiglu, parts_of(n, THREADS) < 65536 ? parts_of(n, THREADS) : 65536, THREADS,
		    0, y, gate, up, n);
}
