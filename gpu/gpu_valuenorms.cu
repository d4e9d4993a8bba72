/* gpu_valuenorms.cu - norms of what values add to the residual stream (kv-snapshot(5), 4.23)
 *
 * A block has ROWS values of one query head, and walks through the output channels OUTS at a time.
 * Lane i of each warp has value i, and OUTS / WARPS channels of it, whose weights are the same for
 * all lanes. Products are in f32 and are summed in the order of channels; only norms are stored. */
#include "gpu/gpu_internal.h"

constexpr uint32_t ROWS = 32, OUTS = 64, DEPTH = 64;
constexpr uint32_t WARPS = 8, THREADS = WARPS * 32, EACH = OUTS / WARPS;

/* v[ROWS][DEPTH + 1] and w[OUTS][DEPTH] <- channels from `at` on, zeros behind the ends */
template <class T>
DEVICE void
load(float (*vs)[DEPTH + 1], float (*ws)[DEPTH], const T *w, const struct value_outputs &of,
    uint32_t in, uint32_t out, uint32_t out0, uint32_t at)
{
	const uint32_t E = of.width, row0 = blockIdx.x * ROWS;

	for (uint32_t t = threadIdx.x; t < ROWS * DEPTH; t += THREADS) {
		const uint32_t row = t / DEPTH, e = t % DEPTH;

		vs[row][e] = row0 + row < of.n && at + e < E ?
		    of.v[(size_t)(row0 + row) * E + at + e] : 0;
	}
	for (uint32_t t = threadIdx.x; t < OUTS * DEPTH; t += THREADS) {
		const uint32_t o = t / DEPTH, e = t % DEPTH;
		const size_t head = (size_t)(of.first + blockIdx.y) * E;

		ws[o][e] = out0 + o < out && at + e < E ?
		    widen(w[(size_t)(out0 + o) * in + head + at + e]) : 0;
	}
}

template <class T>
static __global__ void __launch_bounds__(THREADS, 2)
value_norms(float *norms, size_t stride, const T *w, const struct value_outputs of, uint32_t in,
    uint32_t out)
{
	SHARED(float[ROWS][DEPTH + 1], vs);
	SHARED(float[OUTS][DEPTH], ws);
	SHARED(float[WARPS][ROWS], part);
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t row = blockIdx.x * ROWS + lane;
	float sum = 0;

	for (uint32_t out0 = 0; out0 < out; out0 += OUTS) {
		float y[EACH] = {};

		for (uint32_t at = 0; at < of.width; at += DEPTH) {
			__syncthreads();
			load(vs, ws, w, of, in, out, out0, at);
			__syncthreads();
			for (uint32_t e = 0; e < DEPTH; e++)
UNROLL				for (uint32_t j = 0; j < EACH; j++)
					y[j] += vs[lane][e] * ws[warp * EACH + j][e];
		}
UNROLL		for (uint32_t j = 0; j < EACH; j++)
			sum += of.euclidean ? y[j] * y[j] : fabsf(y[j]);
	}
	part[warp][lane] = sum;
	__syncthreads();
	if (warp == 0 && row < of.n) {
		float all = 0;

		for (uint32_t i = 0; i < WARPS; i++)
			all += part[i][lane];
		norms[blockIdx.y * stride + row] = of.euclidean ? sqrtf(all) : all;
	}
}

void
gpu_value_norms(struct dev *d, float *norms, size_t stride, const struct value_outputs *of)
{
	if (of->n == 0)
		return;
	with_type(mat_elements(of->wo), [&](auto type) {
		using T = decltype(type);

		LAUNCH(d, value_norms<T>, dim3(parts_of(of->n, ROWS), of->heads), THREADS, 0,
		    norms, stride, (const T *)of->wo->data, *of, of->wo->in, of->wo->out);
	});
}
