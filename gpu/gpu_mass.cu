/* gpu_mass.cu - attention mass: column sums of the softmax, from the log-sum-exp of each query
 *
 * attend_mass() is given the log-sum-exp. window_mass() computes it first, over the keys of
 * the layer and those of `own`: kernels write partial sums of each query, one for each block
 * of rows, and finish_lse() adds them in order. */
#include "gpu/gpu_mass.h"

enum { THREADS = 128 };

/* One warp for each query row and head: its log-sum-exp from n partial sums, and of a sink where
 * there is one. Written to lse as a natural logarithm, or, where that is NULL, to the info of the
 * packed queries with so many units for each head */
static __global__ void __launch_bounds__(THREADS)
finish_lse(float *lse, struct query_info *info, uint32_t units, const struct partial_sum *parts,
    uint32_t n, const float *sinks, uint32_t N, uint32_t H)
{
	const size_t i = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
	struct partial_sum p = { -INFINITY, 0 };

	if (i >= (size_t)N * H)
		return;
	for (uint32_t at = threadIdx.x % 32; at < n; at += 32)
		p = add_sums(p, parts[i * n + at]);
	p = warp_add_sums(p);
	if (sinks != NULL)
		p = add_sums(p, { sinks[i % H] * LOG2_E, 1 });
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
start_call(struct dev *d, struct call *c, const struct layer_rows *l, const char *op)
{
	struct row_formats f;

	if (!gpu_rows_of(d, &c->rows, l, c->query.H, op) || !gpu_formats_of(d, &f, l, op))
		return false;
	c->dtype = l->dtype;
	c->format = f.k;
	c->quantised = is_quantised(rows_k_type(l));
	c->transformed = is_transformed(rows_k_type(l));
	c->query.q = gpu_queries_for(d, &c->query, rows_k_type(l), l->width);
	if (!gpu_ok(d))
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
	else
		gpu_sums_naive(d, c, parts, stride);
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
	else
		gpu_mass_naive(d, c, lse, mass, stride, add);
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
	if (gpu_mass_wgmma(d, &c, lse, mass, stride))
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
	    c->fast ? NULL : lse, (struct query_info *)q->info, q->units, parts, all,
	    c->query.sinks, c->query.N, c->query.H);
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
