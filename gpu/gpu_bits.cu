/* gpu_bits.cu - scores of rows from their keys in one bit (kv-snapshot(5), 4.15) */
#include "gpu/gpu_index.h"

enum { THREADS = 128, WARPS = THREADS / 32 };

/* A block for each entry, a thread for each row; each query head in turn */
static __global__ void __launch_bounds__(THREADS)
reference_bits(float *score, size_t stride, const float *q, const struct index x, uint32_t R,
    float scale)
{
	const uint32_t g = blockIdx.y, i = blockIdx.x, u = x.rows, E = x.E, r = threadIdx.x;

	if (i >= x.len[g] || r >= u)
		return;
	const unsigned char *const entry = entry_at(x, g, i);
	const f16 *const zero = (const f16 *)entry, *const step = zero + E;
	const unsigned char *const bits = entry + 4 * E + r / 8;
	for (uint32_t h = g * R; h < (g + 1) * R; h++) {
		float sum = 0;

		for (uint32_t e = 0; e < E; e++) {
			const float k = bits[e * (u / 8)] >> r % 8 & 1 ? widen(step[e]) : 0;

			sum += q[(size_t)h * E + e] * (widen(zero[e]) + k);
		}
		score[h * stride + (size_t)i * u + r] = sum * scale;
	}
}

/* The rows that have no entry, with their keys: a warp for each */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_bits_rest(float *score, size_t stride, const float *q, const struct index x,
    const struct rows r, uint32_t R, float scale)
{
	const uint32_t g = blockIdx.y;
	const size_t i = (size_t)x.len[g] * x.rows + blockIdx.x * WARPS + threadIdx.x / 32;

	if (i < r.len[g])
		score_key(score + (size_t)g * R * stride + i, stride, q + (size_t)g * R * r.E, R,
		    (const T *)r.k + (r.start[g] + i) * r.E, r.E, scale);
}

void
gpu_bits_scores(struct dev *d, float *score, size_t stride, const float *q,
    const struct entries *bits, const struct layer_rows *rows, uint32_t H)
{
	const float scale = (float)(1 / sqrt((double)rows->width));
	struct index x;
	struct rows r;
	uint32_t entries, g, rest = 0;

	if (!gpu_ok(d) || !gpu_bits_fit(d, bits, rows) || !gpu_index_of(d, &x, bits, H) ||
	    !gpu_rows_of(d, &r, rows, H, "scores"))
		return;
	entries = greatest(x.len, x.G);
	for (g = 0; g < x.G; g++)
		if (r.len[g] - x.len[g] * x.rows > rest)
			rest = r.len[g] - x.len[g] * x.rows;
	if (entries > 0)
		LAUNCH(d, reference_bits, dim3(entries, x.G), THREADS, 0, score, stride, q, x, H / x.G,
		    scale);
	if (rest > 0)
		with_type(rows->dtype, [&](auto t) {
			LAUNCH(d, reference_bits_rest<decltype(t)>, dim3(parts_of(rest, WARPS), x.G),
			    THREADS, 0, score, stride, q, x, r, H / x.G, scale);
		});
}
