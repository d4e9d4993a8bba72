/* gpu_mass.cu - attention mass: column sums of the softmax, from the log-sum-exp of each query
 *
 * attend_mass() is given the log-sum-exp. window_mass() computes it first, over the keys of
 * the layer and those of `own`: kernels write partial sums of each query, one for each block
 * of rows, and finish_lse() adds them in order. */
#include "gpu/gpu_mass.h"

enum { THREADS = 128 };

/* The sum over the lanes of the warp, in all of them */
DEVICE struct partial_sum
warp_add_sums(struct partial_sum p)
{
	for (int bit = 16; bit > 0; bit /= 2)
		p = add_sums(p, { __shfl_xor_sync(ALL_LANES, p.m, bit),
		    __shfl_xor_sync(ALL_LANES, p.l, bit) });
	return p;
}

template <class T>
DEVICE float
dot(const float *q, const T *k, uint32_t E)
{
	float sum = 0;

	for (uint32_t e = 0; e < E; e++)
		sum += q[e] * widen(k[e]);
	return sum;
}

DEVICE float
limited_logit(float logit, const struct limits &limits)
{
	return limits.cap > 0 ? softcapped(logit, limits) : logit;
}

/* ---- naive kernels ---- */

/* One block for each query row and head: parts[(n * H + h) * stride] <- the sum over the rows
 * it sees */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_sums(struct partial_sum *parts, size_t stride, const float *q, const struct rows r,
    const uint32_t *qpos, float scale, const struct limits limits)
{
	SHARED(struct partial_sum[THREADS / 32], of_warp);
	const uint32_t n = blockIdx.x, h = blockIdx.y, H = gridDim.y, g = h / (H / r.G);
	const float *row = q + ((size_t)n * H + h) * r.E;
	const uint32_t *const pos = r.pos + r.start[g];
	const uint32_t seen = seen_rows(pos, r.len[g], qpos[n]);
	const uint32_t from = first_seen(pos, seen, qpos[n], limits.reach);
	struct partial_sum p = { -INFINITY, 0 };

	for (uint32_t s = from + threadIdx.x; s < seen; s += THREADS)
		p = add_sums(p, { limited_logit(
		    dot(row, (const T *)r.k + (r.start[g] + s) * r.E, r.E) * scale, limits), 1 });
	p = warp_add_sums(p);
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = p;
	__syncthreads();
	for (int w = 1; w < THREADS / 32 && threadIdx.x == 0; w++)
		p = add_sums(p, of_warp[w]);
	if (threadIdx.x == 0)
		parts[((size_t)n * H + h) * stride] = p;
}

/* One thread for each row and query head. lse: natural logarithms. !add: stores instead of
 * accumulating. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_mass(float *mass, size_t stride, const float *q, const float *lse, const struct rows r,
    const uint32_t *qpos, uint32_t N, float scale, enum over_queries over, bool add,
    const struct limits limits)
{
	const uint32_t s = blockIdx.x * THREADS + threadIdx.x, h = blockIdx.y, H = gridDim.y;
	const uint32_t g = h / (H / r.G);
	float *to = mass + h * stride + s, sum = 0;

	if (s >= r.len[g])
		return;
	const T *k = (const T *)r.k + (r.start[g] + s) * r.E;
	const uint32_t pos = r.pos[r.start[g] + s];
	for (uint32_t n = pos > 0 ? seen_rows(qpos, N, pos - 1) : 0;
	    n < N && qpos[n] - pos <= limits.reach; n++) {
		const size_t at = (size_t)n * H + h;

		if (lse[at] != -INFINITY)
			sum = accumulate(sum, exp2f(limited_logit(
			    dot(q + at * r.E, k, r.E) * scale, limits) - lse[at] * LOG2_E), over);
	}
	*to = add ? accumulate(*to, sum, over) : sum;
}

/* One warp for each query row and head: its log-sum-exp from n partial sums. Written to lse
 * as a natural logarithm, or, where that is NULL, to the info of the packed queries with so
 * many units for each head */
static __global__ void __launch_bounds__(THREADS)
finish_lse(float *lse, struct query_info *info, uint32_t units, const struct partial_sum *parts,
    uint32_t n, uint32_t N, uint32_t H)
{
	const size_t i = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
	struct partial_sum p = { -INFINITY, 0 };

	if (i >= (size_t)N * H)
		return;
	for (uint32_t at = threadIdx.x % 32; at < n; at += 32)
		p = add_sums(p, parts[i * n + at]);
	p = warp_add_sums(p);
	const float sum = p.m + log2f(p.l);

	if (threadIdx.x % 32 != 0)
		return;
	if (lse != NULL)
		lse[i] = sum / LOG2_E;
	else
		info[i % H * units * MMA_QUERIES + i / H].lse = sum == -INFINITY ? INFINITY : sum;
}

/* One thread for each element; a NaN stays. */
static __global__ void __launch_bounds__(THREADS)
lse_merge(float *lse, const float *other, size_t n)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

	if (i >= n)
		return;
	const float high = lse[i] > other[i] ? lse[i] : other[i];
	const float low = lse[i] > other[i] ? other[i] : lse[i];

	lse[i] = low == -INFINITY ? high : high + log1pf(expf(low - high));
}

/* ---- the ops ---- */

static bool
start_quantised(struct dev *d, struct call *c, const struct layer_rows *l, const char *op)
{
	struct row_formats f;

	if (!gpu_formats_of(d, &f, l, op))
		return false;
	c->format = f.k;
	c->transformed = is_transformed(rows_k_type(l));
	c->query.q = gpu_queries_for(d, &c->query, rows_k_type(l), l->width);
	return gpu_ok(d);
}

static bool
start_call(struct dev *d, struct call *c, const struct layer_rows *l, const char *op)
{
	if (!gpu_rows_of(d, &c->rows, l, c->query.H, op))
		return false;
	c->dtype = l->dtype;
	c->quantised = is_quantised(rows_k_type(l));
	if (c->quantised && !start_quantised(d, c, l, op))
		return false;
	c->scale = LOG2_E / sqrtf((float)l->width);
	c->limits = limits_of(&c->query, M_LOG2E);
	c->fast = !d->reference && gpu_tiles_take(c);
	return true;
}

/* The number of partial sums that make_sums() writes for each query */
static uint32_t
parts_for(const struct call *c)
{
	return c->fast ? gpu_tiles_parts(c) : longest_head(&c->rows) > 0;
}

/* parts[(n * H + h) * stride ..] <- partial sums over the rows of c; q is read only where c
 * is fast */
static void
make_sums(struct dev *d, const struct call *c, const struct packed_queries *q,
    struct partial_sum *parts, size_t stride)
{
	if (parts_for(c) == 0)
		return;
	if (c->fast && c->quantised)
		gpu_quantised_sums(d, c, q, parts, stride);
	else if (c->fast)
		gpu_tiles_sums(d, c, q, parts, stride);
	else if (c->quantised)
		gpu_sums_any(d, c, parts, stride);
	else
		with_type(c->dtype, [&](auto t) {
			LAUNCH(d, reference_sums<decltype(t)>, dim3(c->query.N, c->query.H),
			    THREADS, 0, parts, stride, c->query.q, c->rows, c->query.pos, c->scale,
			    c->limits);
		});
}

/* mass += (or, !add, <-) the mass of the rows of c; reads q where c is fast, else lse */
static void
make_mass(struct dev *d, const struct call *c, const struct packed_queries *q, const float *lse,
    float *mass, size_t stride, bool add)
{
	if (c->fast && c->quantised)
		gpu_quantised_mass(d, c, q, mass, stride, add);
	else if (c->fast)
		gpu_tiles_mass(d, c, q, mass, stride, add);
	else if (c->quantised)
		gpu_mass_any(d, c, lse, mass, stride, add);
	else
		with_type(c->dtype, [&](auto t) {
			LAUNCH(d, reference_mass<decltype(t)>,
			    dim3(parts_of(longest_head(&c->rows), THREADS), c->query.H), THREADS, 0,
			    mass, stride, c->query.q, lse, c->rows, c->query.pos, c->query.N,
			    c->scale, c->over, add, c->limits);
		});
}

void
gpu_lse_merge(struct dev *d, float *lse, const float *other, size_t n)
{
	if (n > 0)
		LAUNCH(d, lse_merge, parts_of(n, THREADS), THREADS, 0, lse, other, n);
}

void
gpu_attend_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const float *lse, const struct layer_rows *l, enum over_queries over)
{
	struct call c = { .query = *query, .over = over, .rows = {}, .dtype = KV_F32, .scale = 0,
		.limits = {}, .fast = false, .format = {}, .quantised = false,
		.transformed = false };
	struct packed_queries packed = {};

	if (!start_call(d, &c, l, "attend_mass") || query->N == 0 || longest_head(&c.rows) == 0)
		return;
	if (c.fast)
		packed = gpu_tiles_pack(d, &c, lse);
	make_mass(d, &c, &packed, lse, mass, stride, true);
}

/* The log-sum-exp of each query over the rows of c and of o (which may have none), where
 * make_mass() reads it: in q where c is fast, else in lse. parts: as many as both write. */
static void
window_sums(struct dev *d, struct call *c, struct call *o, struct packed_queries *q, float *lse,
    struct partial_sum *parts)
{
	const uint32_t n = parts_for(c), all = n + parts_for(o);

	make_sums(d, c, q, parts, all);
	make_sums(d, o, q, parts + n, all);
	LAUNCH(d, finish_lse, parts_of((size_t)c->query.N * c->query.H, THREADS / 32), THREADS, 0,
	    c->fast ? NULL : lse, (struct query_info *)q->info, q->units, parts, all, c->query.N,
	    c->query.H);
}

static void
device_window_mass(struct dev *d, float *mass, size_t stride, struct call *c, struct call *o)
{
	const size_t queries = (size_t)c->query.N * c->query.H;
	const size_t n = queries * (parts_for(c) + (size_t)parts_for(o));
	struct partial_sum *parts = (struct partial_sum *)gpu_scratch(d, SCRATCH_PARTS,
	    n * sizeof *parts + queries * sizeof(float));
	float *lse = (float *)(parts + n);
	struct packed_queries q = {};

	if (!gpu_ok(d))
		return;
	if (c->fast)
		q = gpu_tiles_pack(d, c, NULL);
	window_sums(d, c, o, &q, lse, parts);
	make_mass(d, c, &q, lse, mass, stride, false);
}

void
gpu_window_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const struct layer_rows *l, const struct layer_rows *own, enum over_queries over)
{
	const uint32_t W = query->N, H = query->H;
	struct call c = { .query = *query, .over = over, .rows = {}, .dtype = KV_F32, .scale = 0,
		.limits = {}, .fast = false, .format = {}, .quantised = false,
		.transformed = false }, o = c;

	if (!start_call(d, &c, l, "window_mass") ||
	    (own != NULL && !start_call(d, &o, own, "window_mass")))
		return;
	/* queries are packed once, as the layer's keys want them */
	o.fast = o.fast && c.fast && o.dtype == c.dtype && o.transformed == c.transformed;
	for (uint32_t h = 0; h < H && W == 0; h++)
		gpu_clear(d, mass + h * stride, c.rows.len[h / (H / c.rows.G)] * sizeof *mass);
	if (W > 0 && longest_head(&c.rows) > 0)
		device_window_mass(d, mass, stride, &c, &o);
}
