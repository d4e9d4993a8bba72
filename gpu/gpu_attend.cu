/* gpu_attend.cu - attention of many queries
 *
 * A row of the cache is seen by a query when its position is not greater than the query's. Both
 * ascend, so that a query sees the first so many rows of a KV head, and no others. */

#include "gpu/gpu_internal.h"

/* ---- any shape and type ---- */

enum { NAIVE = 128 };            /* threads, and rows at a time */

/* A block for each query row and head, over all rows of the KV head or those of a list. Each thread has a row of the cache for the scores, and some
 * channels for the output. */
template <class T>
static __global__ void __launch_bounds__(NAIVE)
reference_attend(float *o, float *lse, const float *q, const struct rows c, const struct picks list,
    const uint32_t *qpos, uint32_t H)
{
	DYN_SHARED(float, query);                    /* [E], out [E], p [NAIVE] */
	const uint32_t E = c.E, n = blockIdx.x / H, h = blockIdx.x % H, g = h / (H / c.G);
	const uint32_t t = threadIdx.x, len = picked_rows(list, c, g);
	const uint32_t *pos = c.pos + c.start[g], last = list.at == NULL ? qpos[n] : UINT32_MAX;
	const T *k = (const T *)c.k + c.start[g] * E, *v = (const T *)c.v + c.start[g] * E;
	float *out = query + E, *p = out + E, m = -INFINITY, l = 0;

	for (uint32_t e = t; e < E; e += NAIVE) {
		query[e] = q[(size_t)blockIdx.x * E + e] / sqrtf((float)E);
		out[e] = 0;
	}
	for (uint32_t s = 0; s < len && pos[s] <= last; s += NAIVE) {
		float score = -INFINITY, top = m, sum = 0;

		__syncthreads();
		if (s + t < len && pos[s + t] <= last) {
			const T *key = k + (size_t)picked_row(list, g, s + t) * E;

			score = 0;
			for (uint32_t e = 0; e < E; e++)
				score += query[e] * widen(key[e]);
		}
		p[t] = score;
		__syncthreads();
		for (uint32_t i = 0; i < NAIVE; i++)
			top = fmaxf(top, p[i]);
		__syncthreads();
		p[t] = expf(score - top);
		__syncthreads();
		for (uint32_t i = 0; i < NAIVE; i++)
			sum += p[i];
		const float alpha = expf(m - top);
		const uint32_t rows = min(len - s, (uint32_t)NAIVE);
		m = top;
		l = l * alpha + sum;
		for (uint32_t e = t; e < E && o != NULL; e += NAIVE) {
			sum = 0;
			for (uint32_t i = 0; i < rows; i++)
				sum += p[i] * widen(v[(size_t)picked_row(list, g, s + i) * E + e]);
			out[e] = out[e] * alpha + sum;
		}
	}
	for (uint32_t e = t; e < E && o != NULL; e += NAIVE)
		o[(size_t)blockIdx.x * E + e] = l > 0 ? out[e] / l : 0;
	if (t == 0 && lse != NULL)
		lse[blockIdx.x] = l > 0 ? m + logf(l) : -INFINITY;
}

void
gpu_attend_any(struct dev *d, float *o, float *lse, const float *q, const struct rows *c,
    const struct picks *list, enum kv_dtype dtype, const uint32_t *qpos, uint32_t N, uint32_t H)
{
	const size_t shared = (2 * c->E + NAIVE) * sizeof(float);

	with_type(dtype, [&](auto t) {
		LAUNCH(d, reference_attend<decltype(t)>, N * H, NAIVE, shared, o, lse, q, *c, *list,
		    qpos, H);
	});
}

void
gpu_attend(struct dev *d, float *o, float *lse, const float *q, const struct layer_rows *l,
    const uint32_t *qpos, uint32_t N, uint32_t H)
{
	struct picks list;
	struct rows c;

	if (N <= FEW_QUERIES) {
		gpu_attend_few(d, o, lse, q, l, qpos, N, H);
		return;
	}
	if (!gpu_rows_of(d, &c, l, H, "attend") || !gpu_picks_of(d, &list, l, NULL) || N == 0 ||
	    H == 0)
		return;
	gpu_attend_any(d, o, lse, q, &c, &list, l->dtype, qpos, N, H);
}
