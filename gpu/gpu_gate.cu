/* gpu_gate.cu - the ops of gates: networks that say from a hidden state how much a row matters
 *
 * Plain kernels: beside the products in front of them they are little. A thread has one number, or
 * one row of one KV head. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 128;

/* Returns by what RMSNorm multiplies x[m], without its weights. */
DEVICE float
norm_scale(const float *x, float eps, uint32_t m)
{
	float sum = 0;

	for (uint32_t i = 0; i < m; i++)
		sum += x[i] * x[i];
	return 1 / sqrtf(sum / (float)m + eps);
}

/* Thread t has KV head t % G of row t / G. */
static __global__ void __launch_bounds__(THREADS)
gate_scores(float *score, const float *q, const float *k, const struct gate_sinks w, size_t n)
{
	const size_t t = blockIdx.x * (size_t)THREADS + threadIdx.x;
	const uint32_t g = t % w.heads, m = w.width, S = w.sinks;
	const float scale = 1 / sqrtf((float)m);
	float mean = 0;

	if (t >= n)
		return;
	k += t * m;
	const float k_scale = norm_scale(k, w.k_norm.eps, m);
	for (uint32_t r = 0; r < w.group; r++) {
		const float *row = q + (t * w.group + r) * m;
		const float q_scale = norm_scale(row, w.q_norm.eps, m) * scale;
		float own = 0, sum = 0;

		for (uint32_t i = 0; i < m; i++)
			own += k[i] * k_scale * w.k_norm.w[i] * row[i] * q_scale * w.q_norm.w[i];
		own += w.bias[g * w.group + r];
		for (uint32_t s = 0; s < S; s++) {
			float sink = 0;

			for (uint32_t i = 0; i < m; i++)
				sink += w.base[((size_t)g * m + i) * S + s] * row[i] * q_scale *
				    w.q_norm.w[i];
			sum += expf(sink - own);
		}
		mean += 1 / (1 + sum);
	}
	score[t] = mean / (float)w.group;
}

void
gpu_gate_scores(struct dev *d, float *score, const float *q, const float *k,
    const struct gate_sinks *w, uint32_t N)
{
	const size_t n = (size_t)N * w->heads;

	if (n > 0)
		LAUNCH(d, gate_scores, parts_of(n, THREADS), THREADS, 0, score, q, k, *w, n);
}
