/* gpu_naive.cu - attention and attention mass over rows of any type by naive kernels, for shapes
 * that the others do not take, and for gpu_force_reference; keys and values have types of their
 * own */
#include "gpu/gpu_mass.h"
#include "gpu/gpu_quantised.h"

constexpr uint32_t THREADS = 128, ROWS = 64;

/* The row of KV head g with this number */
DEVICE const unsigned char *
row_at(const void *tensor, const struct row_format &f, const struct rows &c, uint32_t g, uint32_t s)
{
	return (const unsigned char *)tensor + (c.start[g] + s) * f.bytes;
}

DEVICE float
dot(const float *q, const unsigned char *row, const struct row_format &f, uint32_t E)
{
	float sum = 0;

	for_channels(row, f, E, 0, 1, [&](uint32_t e, float x) {
		sum += q[e] * x;
	});
	return sum;
}

/* One thread for each query row and head, over all rows that it sees (list.at NULL: by position),
 * or those of a list. o accumulates the output before the division by the sum of weights. */
static __global__ void __launch_bounds__(ROWS)
reference_attend(float *o, float *lse, const float *q, const struct rows c,
    const struct row_list list, const uint32_t *qpos, size_t rows, uint32_t H,
    const struct limits limits, const struct row_formats f)
{
	const size_t i = (size_t)blockIdx.x * ROWS + threadIdx.x;
	const uint32_t E = c.E, n = (uint32_t)(i / H), g = (uint32_t)(i % H) / (H / c.G);

	if (i >= rows)
		return;
	const uint32_t len = list.n[g] + appended_rows(c), *pos = c.pos + c.start[g];
	const uint32_t last = list.at == NULL ? qpos[n] : UINT32_MAX;
	uint32_t s = 0;
	float m = -INFINITY, l = 0;

	if (list.at == NULL && last > limits.reach)
		s = seen_rows(pos, len, last - limits.reach - 1);
	for (uint32_t e = 0; e < E && o != NULL; e++)
		o[i * E + e] = 0;
	for (; s < len && pos[s] <= last; s++) {
		const uint32_t row = listed_row(list, g, s);
		float score = dot(q + i * E, row_at(c.k, f.k, c, g, row), f.k, E) / sqrtf((float)E);

		if (limits.cap > 0)
			score = softcapped(score, limits);
		const float top = fmaxf(m, score), alpha = expf(m - top), p = expf(score - top);
		m = top;
		l = l * alpha + p;
		if (o != NULL)
			for_channels(row_at(c.v, f.v, c, g, row), f.v, E, 0, 1,
			    [&](uint32_t e, float x) {
				o[i * E + e] = o[i * E + e] * alpha + p * x;
			});
	}
	for (uint32_t e = 0; e < E && o != NULL; e++)
		o[i * E + e] = l > 0 ? o[i * E + e] / l : 0;
	if (lse != NULL)
		lse[i] = l > 0 ? m + logf(l) : -INFINITY;
}

void
gpu_attend_naive(struct dev *d, float *o, float *lse, const struct query *query,
    const struct rows *c, const struct row_list *list, const struct row_formats *f)
{
	const size_t rows = (size_t)query->N * query->H;

	LAUNCH(d, reference_attend, parts_of(rows, ROWS), ROWS, 0, o, lse, query->q, *c, *list,
	    query->pos, rows, query->H, limits_of(query, 1), *f);
}

/* ---- attention mass ---- */

DEVICE float
logit(const float *q, const struct rows &r, const struct row_format &f, uint32_t g, uint32_t s,
    float scale, const struct limits &limits)
{
	const float x = dot(q, row_at(r.k, f, r, g, s), f, r.E) * scale;

	return limits.cap > 0 ? softcapped(x, limits) : x;
}

/* One block for each query row and head: parts[(n * H + h) * stride] <- the sum over the rows
 * it sees */
static __global__ void __launch_bounds__(THREADS)
reference_sums(struct partial_sum *parts, size_t stride, const float *q, const struct rows r,
    const uint32_t *qpos, float scale, const struct limits limits, const struct row_format f)
{
	SHARED(struct partial_sum[THREADS / 32], of_warp);
	const uint32_t n = blockIdx.x, h = blockIdx.y, H = gridDim.y, g = h / (H / r.G);
	const float *row = q + ((size_t)n * H + h) * r.E;
	const uint32_t *const pos = r.pos + r.start[g];
	const uint32_t seen = seen_rows(pos, r.len[g], qpos[n]);
	const uint32_t from = first_seen(pos, seen, qpos[n], limits.reach);
	struct partial_sum p = { -INFINITY, 0 };

	for (uint32_t s = from + threadIdx.x; s < seen; s += THREADS)
		p = add_sums(p, { logit(row, r, f, g, s, scale, limits), 1 });
	p = warp_add_sums(p);
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = p;
	__syncthreads();
	for (uint32_t w = 1; w < THREADS / 32 && threadIdx.x == 0; w++)
		p = add_sums(p, of_warp[w]);
	if (threadIdx.x == 0)
		parts[((size_t)n * H + h) * stride] = p;
}

/* One thread for each row and query head. lse: natural logarithms. !add: stores instead of
 * accumulating. */
static __global__ void __launch_bounds__(THREADS)
reference_mass(float *mass, size_t stride, const float *q, const float *lse,
    const struct rows r, const uint32_t *qpos, uint32_t N, float scale, enum over_queries over,
    bool add, const struct limits limits, const struct row_format f)
{
	const uint32_t s = blockIdx.x * THREADS + threadIdx.x, h = blockIdx.y, H = gridDim.y;
	const uint32_t g = h / (H / r.G);
	float *to = mass + h * stride + s, sum = 0;

	if (s >= r.len[g])
		return;
	const uint32_t pos = r.pos[r.start[g] + s];
	for (uint32_t n = pos > 0 ? seen_rows(qpos, N, pos - 1) : 0;
	    n < N && qpos[n] - pos <= limits.reach; n++) {
		const size_t at = (size_t)n * H + h;

		if (lse[at] != -INFINITY)
			sum = accumulate(sum, exp2f(logit(q + at * r.E, r, f, g, s, scale, limits) -
			    lse[at] * LOG2_E), over);
	}
	*to = add ? accumulate(*to, sum, over) : sum;
}

void
gpu_sums_naive(struct dev *d, const struct call *c, struct partial_sum *parts, size_t stride)
{
	LAUNCH(d, reference_sums, dim3(c->query.N, c->query.H), THREADS, 0, parts, stride,
	    c->query.q, c->rows, c->query.pos, c->scale, c->limits, c->format);
}

void
gpu_mass_naive(struct dev *d, const struct call *c, const float *lse, float *mass, size_t stride,
    bool add)
{
	LAUNCH(d, reference_mass, dim3(parts_of(longest_head(&c->rows), THREADS), c->query.H),
	    THREADS, 0, mass, stride, c->query.q, lse, c->rows, c->query.pos, c->query.N, c->scale,
	    c->over, add, c->limits, c->format);
}
