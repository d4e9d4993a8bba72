/* gpu_mass.cu - attention mass: what each row receives, from the log-sum-exp of each query
 *
 * attend_mass() is given the log-sum-exp; window_mass() makes it first, from the keys of the layer
 * and of `own`: kernels leave the sum of each query over their rows as a part, and
 * total() puts the parts together in order. Everything is in powers of two: a logit here
 * is q.k log2(e) / sqrt(E). */
#include <math.h>

#include "gpu/gpu_internal.h"

#define LOG2_E 1.4426950408889634f

enum { THREADS = 128 };

/* A sum of powers of two, l 2^m; m is their greatest exponent, -inf where there are none. */
struct part { float m, l; };

DEVICE struct part
join(struct part a, struct part b)
{
	const float m = fmaxf(a.m, b.m);

	if (m == -INFINITY)
		return { m, a.l + b.l };               /* no terms; or a NaN, which stays */
	return { m, a.l * exp2f(a.m - m) + b.l * exp2f(b.m - m) };
}

/* That of all lanes of the warp, in all of them */
DEVICE struct part
warp_join(struct part p)
{
	for (int bit = 16; bit > 0; bit /= 2)
		p = join(p, { __shfl_xor_sync(ALL_LANES, p.m, bit), __shfl_xor_sync(ALL_LANES, p.l, bit) });
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

/* ---- naive kernels ---- */

/* A block for each query row and head: parts[(n * H + h) * stride] <- over the rows it sees */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_sums(struct part *parts, size_t stride, const float *q, const struct rows r,
    const uint32_t *qpos, float scale)
{
	SHARED(struct part[THREADS / 32], of_warp);
	const uint32_t n = blockIdx.x, h = blockIdx.y, H = gridDim.y, g = h / (H / r.G);
	const float *row = q + ((size_t)n * H + h) * r.E;
	struct part p = { -INFINITY, 0 };

	for (uint32_t s = threadIdx.x; s < r.len[g]; s += THREADS)
		if (r.pos[r.start[g] + s] <= qpos[n])
			p = join(p, { dot(row, (const T *)r.k + (r.start[g] + s) * r.E, r.E) * scale, 1 });
	p = warp_join(p);
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = p;
	__syncthreads();
	for (int w = 1; w < THREADS / 32 && threadIdx.x == 0; w++)
		p = join(p, of_warp[w]);
	if (threadIdx.x == 0)
		parts[((size_t)n * H + h) * stride] = p;
}

/* What a row gets from a call, and what it had */
DEVICE float
put_together(float had, float gets, enum over over)
{
	return over == OVER_SUM ? had + gets : gets > had || gets != gets ? gets : had;
}

/* A thread for each row and query head. lse: natural logarithms. !add: nothing was there. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_mass(float *mass, size_t stride, const float *q, const float *lse, const struct rows r,
    const uint32_t *qpos, uint32_t N, float scale, enum over over, bool add)
{
	const uint32_t s = blockIdx.x * THREADS + threadIdx.x, h = blockIdx.y, H = gridDim.y;
	const uint32_t g = h / (H / r.G);
	float *to = mass + h * stride + s, sum = 0;

	if (s >= r.len[g])
		return;
	const T *k = (const T *)r.k + (r.start[g] + s) * r.E;
	const uint32_t pos = r.pos[r.start[g] + s];
	for (uint32_t n = 0; n < N; n++) {
		const size_t at = (size_t)n * H + h;

		if (pos <= qpos[n] && lse[at] != -INFINITY)
			sum = put_together(sum,
			    exp2f(dot(q + at * r.E, k, r.E) * scale - lse[at] * LOG2_E), over);
	}
	*to = add ? put_together(*to, sum, over) : sum;
}

/* A warp for each query row and head: its log-sum-exp from n parts */
static __global__ void __launch_bounds__(THREADS)
total(float *lse, const struct part *parts, uint32_t n, size_t queries)
{
	const size_t i = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
	struct part p = { -INFINITY, 0 };

	if (i >= queries)
		return;
	for (uint32_t at = threadIdx.x % 32; at < n; at += 32)
		p = join(p, parts[i * n + at]);
	p = warp_join(p);
	if (threadIdx.x % 32 == 0)
		lse[i] = (p.m + log2f(p.l)) / LOG2_E;
}

/* ---- the ops ---- */

static uint32_t
longest(const struct rows *r)
{
	uint32_t most = 0;

	for (uint32_t g = 0; g < r->G; g++)
		most = r->len[g] > most ? r->len[g] : most;
	return most;
}

/* One call of either op */
struct call {
	const float *q;
	const uint32_t *qpos;
	uint32_t N, H;
	struct rows rows;
	enum kv_dtype dtype;
	float scale;
	enum over over;
};

static bool
start_call(struct dev *d, struct call *c, const struct layer_rows *l, const char *op)
{
	c->dtype = l->dtype;
	c->scale = LOG2_E / sqrtf((float)l->width);
	return gpu_rows_of(d, &c->rows, l, c->H, op);
}

static void
naive_sums(struct dev *d, const struct call *c, struct part *parts, size_t stride)
{
	with_type(c->dtype, [&](auto t) {
		LAUNCH(d, reference_sums<decltype(t)>, dim3(c->N, c->H), THREADS, 0, parts, stride, c->q,
		    c->rows, c->qpos, c->scale);
	});
}

static void
naive_mass(struct dev *d, const struct call *c, float *mass, size_t stride, const float *lse,
    bool add)
{
	with_type(c->dtype, [&](auto t) {
		LAUNCH(d, reference_mass<decltype(t)>, dim3(parts_of(longest(&c->rows), THREADS), c->H),
		    THREADS, 0, mass, stride, c->q, lse, c->rows, c->qpos, c->N, c->scale, c->over, add);
	});
}

void
gpu_attend_mass(struct dev *d, float *mass, size_t stride, const float *q, const float *lse,
    const struct layer_rows *l, const uint32_t *qpos, uint32_t N, uint32_t H, enum over over)
{
	struct call c = { .q = q, .qpos = qpos, .N = N, .H = H, .rows = {}, .dtype = KV_F32,
		.scale = 0, .over = over };

	if (start_call(d, &c, l, "attend_mass") && N > 0 && longest(&c.rows) > 0)
		naive_mass(d, &c, mass, stride, lse, true);
}

/* mass (host, lists at h*stride) <- from (device, lists at h*most) */
static void
to_host(struct dev *d, float *mass, size_t stride, const float *from, size_t most,
    const struct call *c)
{
	const uint32_t R = c->H / c->rows.G;

	for (uint32_t h = 0; h < c->H && gpu_ok(d); h++)
		gpu_check(d, "window_mass", cudaMemcpyAsync(mass + h * stride, from + h * most,
		    c->rows.len[h / R] * sizeof *mass, cudaMemcpyDeviceToHost, d->stream));
	if (gpu_ok(d))
		gpu_check(d, "window_mass", cudaStreamSynchronize(d->stream));
}

void
gpu_window_mass(struct dev *d, float *mass, size_t stride, const float *q,
    const struct layer_rows *l, const struct layer_rows *own, const uint32_t *qpos, uint32_t W,
    uint32_t H, enum over over)
{
	struct call c = { .q = q, .qpos = qpos, .N = W, .H = H, .rows = {}, .dtype = KV_F32,
		.scale = 0, .over = over }, o = c;
	const size_t queries = (size_t)W * H;
	struct part *parts;
	uint32_t most;
	float *lse, *on_device;

	if (!start_call(d, &c, l, "window_mass") ||
	    (own != NULL && !start_call(d, &o, own, "window_mass")))
		return;
	if ((most = longest(&c.rows)) == 0)
		return;
	for (uint32_t h = 0; h < H && W == 0; h++)
		memset(mass + h * stride, 0, c.rows.len[h / (H / c.rows.G)] * sizeof *mass);
	if (W == 0)
		return;
	lse = (float *)gpu_scratch(d, SCRATCH_PARTS, (queries + 1) * (sizeof *lse + 2 * sizeof *parts));
	on_device = (float *)gpu_scratch(d, SCRATCH_MASS, (size_t)H * most * sizeof *on_device);
	if (lse == NULL || on_device == NULL)
		return;
	parts = (struct part *)(lse + (queries + 1) / 2 * 2);
	naive_sums(d, &c, parts, own != NULL ? 2 : 1);
	if (own != NULL)
		naive_sums(d, &o, parts + 1, 2);
	LAUNCH(d, total, parts_of(queries, THREADS / 32), THREADS, 0, lse, parts,
	    own != NULL ? 2 : 1, queries);
	naive_mass(d, &c, on_device, most, lse, false);
	to_host(d, mass, stride, on_device, most, &c);
}
