/* gpu_rope_append.cu - rotary embedding (RoPE) of queries and keys, append to the cache, and
 * both in one kernel
 *
 * As in gpu_rows.cu the limit is memory bandwidth or launch latency. All heads of a row have
 * the same angles, so each block computes sines and cosines once. */
#include "gpu/gpu_quantised.h"
#include "gpu/gpu_rows.h"

constexpr unsigned THREADS = 256;

/* ---- rope ---- */

constexpr unsigned ROPE_THREADS = 128;
constexpr int ROPE_V = 4;              /* pairs that a thread of rope_append has */

/* cosine[half], followed by sine[half], of the angles of a position, times the factor; by the whole
 * block */
DEVICE void
angles(float *cosine, uint32_t pos, const struct rotary &r, uint32_t half)
{
	for (uint32_t i = threadIdx.x; i < half; i += ROPE_THREADS) {
		cos_sin(&cosine[i], &cosine[half + i], (double)pos * r.freq[i]);
		cosine[i] *= r.factor;
		cosine[half + i] *= r.factor;
	}
	__syncthreads();
}

/* Rotates V pairs (a, b) by neighbouring angles */
template <int V>
DEVICE void
rotate(float *a, float *b, const float *cosine, const float *sine)
{
	for (int e = 0; e < V; e++) {
		const float x = a[e];

		a[e] = x * cosine[e] - b[e] * sine[e];
		b[e] = b[e] * cosine[e] + x * sine[e];
	}
}

/* blockIdx.x is the row, blockIdx.y a group of its heads. A thread rotates V neighbouring
 * pairs. */
template <int V>
static __global__ void __launch_bounds__(ROPE_THREADS)
rope(float *x, const uint32_t *pos, const struct rotary r, uint32_t heads, uint32_t each,
    uint32_t E)
{
	DYN_SHARED(float, cosine);                     /* [half], and sine[half] */
	const uint32_t half = r.dims / 2, h0 = blockIdx.y * each, per_head = half / V;

	angles(cosine, pos[blockIdx.x], r, half);
	for (uint32_t j = threadIdx.x; j < min(each, heads - h0) * per_head; j += ROPE_THREADS) {
		const uint32_t i = j % per_head * V;
		float *p = x + ((size_t)blockIdx.x * heads + h0 + j / per_head) * E + i;
		float a[V], b[V];

		load_floats<V>(a, p);
		load_floats<V>(b, p + half);
		rotate<V>(a, b, cosine + i, cosine + half + i);
		store_floats<V>(p, a);
		store_floats<V>(p + half, b);
	}
}

/* Heads of a block. Many rows: all heads. Few rows: the heads are split over blocks such that
 * a thread has V pairs of one head. */
static uint32_t
heads_each(const struct dev *d, uint32_t N, uint32_t heads, uint32_t half, uint32_t V)
{
	const uint32_t turns = half > 0 ? parts_of(ROPE_THREADS * V, half) : heads;

	return N < 2 * d->sms && turns < heads ? turns : heads;
}

void
gpu_rope(struct dev *d, float *x, const uint32_t *pos, const struct rotary *r, uint32_t N,
    uint32_t heads, uint32_t E)
{
	const bool wide = E % 8 == 0 && r->dims % 8 == 0 && aligned_16(d, x, E * sizeof *x);
	const uint32_t half = r->dims / 2, each = heads_each(d, N, heads, half, wide ? 4 : 1);
	const dim3 grid(N, heads > 0 ? parts_of(heads, each) : 0);

	if (N == 0 || heads == 0 || half == 0)
		return;
	if (wide)
		LAUNCH(d, rope<4>, grid, ROPE_THREADS, E * sizeof *x, x, pos, *r, heads, each, E);
	else
		LAUNCH(d, rope<1>, grid, ROPE_THREADS, E * sizeof *x, x, pos, *r, heads, each, E);
}

/* ---- append ---- */

/* blockIdx.x is the row; a thread converts V elements of it */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
append(const struct rows to, const float *k, const float *v, const uint32_t *pos, uint32_t *to_pos)
{
	const uint32_t n = blockIdx.x, i = V * (blockIdx.y * THREADS + threadIdx.x), g = i / to.E;
	const uint32_t e = i % to.E;

	if (g >= to.G)
		return;
	const size_t from = (size_t)n * to.G * to.E + i, row = to.start[g] + to.len[g] +
	    appended_rows(to) + n;
	for (int which = 0; which < 2; which++) {
		const void *base = which == 0 ? to.k : to.v;
		float f[V];

		if (base == NULL)
			continue;
		load_floats<V>(f, (which == 0 ? k : v) + from);
		store_narrow<T, V>((T *)base + row * to.E + e, f);
	}
	if (e == 0)
		to_pos[row] = pos[n];
}

/* Fills to. Returns 0 after a failure, also when the capacity is too small for N more rows. */
static int
appendable(struct dev *d, struct rows *to, const struct layer_rows *c, uint32_t N, uint32_t H)
{
	if (!gpu_capturable_rows_of(d, to, c, H, "store"))
		return 0;
	for (uint32_t g = 0; g < c->heads; g++)
		if (c->len[g] > c->capacity[g] || N > c->capacity[g] - c->len[g]) {
			gpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->capacity[g], N);
			return 0;
		}
	to->v = own_values(c);
	return 1;
}

static void
appended(struct layer_rows *c, uint32_t N)
{
	for (uint32_t g = 0; g < c->heads; g++)
		c->len[g] += N;
}

void
gpu_append(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	const size_t elements = (size_t)c->heads * c->width;
	struct rows to;

	if (!appendable(d, &to, c, N, c->heads) || N == 0 || elements == 0)
		return;
	if (has_quantised(c)) {
		gpu_append_quantised(d, &to, c->pos, k, v, pos, N, c);
		appended(c, N);
		return;
	}
	with_type(c->dtype, [&](auto t) {
		using T = decltype(t);
		constexpr int V = 16 / sizeof t;
		const size_t row = c->width * sizeof t;

		if (aligned_16(d, c->k, row) && aligned_16(d, c->v, row) && aligned_16(d, k, 0) &&
		    aligned_16(d, v, 0))
			LAUNCH(d, (append<T, V>), dim3(N, parts_of(elements, V * THREADS)), THREADS,
			    0, to, k, v, pos, c->pos);
		else
			LAUNCH(d, (append<T, 1>), dim3(N, parts_of(elements, THREADS)), THREADS, 0,
			    to, k, v, pos, c->pos);
	});
	appended(c, N);
}

/* ---- both ---- */

/* Where a row goes that has a cache of its own */
struct place {
	void *k, *v;
	uint32_t *pos;
	uint64_t row[MAX_HEADS];     /* of each KV head */
};

/* One call. The heads of a row are numbered through: H of queries, G of keys, G of values. */
struct rope_call {
	struct rows to;              /* all rows into one cache, behind each other */
	uint32_t *to_pos;
	const struct place *places;  /* [N]; not NULL: each row into another cache instead */
	float *q;                    /* [N][H][E] */
	const float *k, *v;          /* [N][G][E] */
	const uint32_t *pos;
	struct rotary rope;
	uint32_t H, heads;           /* of queries; all, without values where to.v is NULL */
	uint32_t each;               /* heads of one block */
};

/* RoPE and append: blockIdx.x is the row, blockIdx.y a group of its heads. A thread has V
 * elements of each half of a head; values are not rotated. */
template <class T, int V>
static __global__ void __launch_bounds__(ROPE_THREADS)
rope_append(const __grid_constant__ struct rope_call p)
{
	DYN_SHARED(float, cosine);                     /* [half], and sine[half] */
	const uint32_t n = blockIdx.x, E = p.to.E, G = p.to.G, half = E / 2, per_head = half / V;
	const uint32_t first = blockIdx.y * p.each, heads = min(p.each, p.heads - first);
	const uint32_t appended = appended_rows(p.to);
	const struct place *const place = p.places != NULL ? &p.places[n] : NULL;

	pdl_trigger();
	pdl_wait();
	angles(cosine, p.pos[n], p.rope, half);
	for (uint32_t j = threadIdx.x; j < heads * per_head; j += ROPE_THREADS) {
		const uint32_t h = first + j / per_head, i = j % per_head * V;
		const uint32_t g = h < p.H ? 0 : (h - p.H) % G;
		const bool query = h < p.H, key = !query && h < p.H + G;
		const float *x = query ? p.q + ((size_t)n * p.H + h) * E :
		    (key ? p.k : p.v) + ((size_t)n * G + g) * E;
		float a[V], b[V];

		load_floats<V>(a, x + i);
		load_floats<V>(b, x + half + i);
		if (query || key)
			rotate<V>(a, b, cosine + i, cosine + half + i);
		if (query) {
			store_floats<V>((float *)x + i, a);
			store_floats<V>((float *)x + half + i, b);
			continue;
		}
		const size_t row = appended + (place != NULL ? place->row[g] :
		    p.to.start[g] + p.to.len[g] + n);
		const void *base = place == NULL ? (key ? p.to.k : p.to.v) :
		    key ? place->k : place->v;
		T *to = (T *)base + row * E + i;

		store_narrow<T, V>(to, a);
		store_narrow<T, V>(to + half, b);
		if (key && i == 0)
			(place != NULL ? place->pos : p.to_pos)[row] = p.pos[n];
	}
}

/* A call but for where its rows go */
static struct rope_call
plan_rope(const struct dev *d, const struct layer_rows *c, float *q, const float *k, const float *v,
    const uint32_t *pos, const struct rotary *rope, uint32_t N, uint32_t H)
{
	const uint32_t heads = H + (own_values(c) != NULL ? 2 : 1) * c->heads;

	return { .to = {}, .to_pos = c->pos, .places = NULL, .q = q, .k = k, .v = v, .pos = pos,
		.rope = *rope, .H = H, .heads = heads,
		.each = heads_each(d, N, heads, c->width / 2, ROPE_V) };
}

/* Does the kernel take the call? Halves of f32 are aligned where heads are; it has no channels that
 * stay. */
static bool
takes_rope(const struct dev *d, const struct layer_rows *c, const struct rope_call *p)
{
	const uintptr_t all = (uintptr_t)p->q | (uintptr_t)p->k | (uintptr_t)p->v |
	    (uintptr_t)c->k | (uintptr_t)c->v;

	return aligned_16(d, (const void *)all, c->width * 2) && p->rope.dims == c->width &&
	    !has_quantised(c);
}

static void
launch_rope(struct dev *d, const struct rope_call &p, enum kv_dtype dtype, uint32_t N)
{
	with_type(dtype, [&](auto t) {
		LAUNCH_PDL(d, (rope_append<decltype(t), ROPE_V>),
		    dim3(N, parts_of(p.heads, p.each)), ROPE_THREADS, p.to.E * sizeof(float), p);
	});
}

int
gpu_rope_append(struct dev *d, struct layer_rows *c, float *q, float *k, const float *v,
    const uint32_t *pos, const struct rotary *rope, uint32_t N, uint32_t H)
{
	struct rope_call p = plan_rope(d, c, q, k, v, pos, rope, N, H);

	if (!takes_rope(d, c, &p))
		return 0;
	if (!appendable(d, &p.to, c, N, H) || N == 0 || c->width == 0)
		return 1;
	launch_rope(d, p, c->dtype, N);
	appended(c, N);
	return 1;
}

/* Most rows of one launch: their places are on the stack. */
constexpr uint32_t TOGETHER = 32;

/* One launch for n rows, n <= TOGETHER */
static void
append_together(struct dev *d, struct layer_rows *const *c, uint32_t n, struct rope_call p)
{
	struct place place[TOGETHER];

	for (uint32_t i = 0; i < n; i++) {
		if (!appendable(d, &p.to, c[i], 1, p.H))
			return;
		place[i].k = c[i]->k;
		place[i].v = own_values(c[i]);
		place[i].pos = c[i]->pos;
		for (uint32_t g = 0; g < c[i]->heads; g++)
			place[i].row[g] = c[i]->start[g] + c[i]->len[g];
	}
	if ((p.places = (const struct place *)gpu_list(d, place, n * sizeof *place)) == NULL)
		return;
	launch_rope(d, p, c[0]->dtype, n);
	for (uint32_t i = 0; i < n; i++)
		appended(c[i], 1);
}

int
gpu_rope_append_each(struct dev *d, struct layer_rows *const *c, uint32_t n, float *q, float *k,
    const float *v, const uint32_t *pos, const struct rotary *rope, uint32_t H)
{
	const size_t E = c[0]->width, kv = c[0]->heads * E;

	for (uint32_t i = 0; i < n; i++) {
		const struct rope_call p = plan_rope(d, c[i], q, k, v, pos, rope, n, H);

		if (!takes_rope(d, c[i], &p) || c[i]->dtype != c[0]->dtype ||
		    c[i]->width != c[0]->width || c[i]->heads != c[0]->heads ||
		    (own_values(c[i]) == NULL) != (own_values(c[0]) == NULL))
			return 0;
	}
	for (uint32_t i = 0; i < n && gpu_ok(d) && E > 0; i += TOGETHER) {
		const uint32_t some = min(n - i, TOGETHER);

		append_together(d, c + i, some, plan_rope(d, c[i], q + i * H * E, k + i * kv,
		    v + i * kv, pos + i, rope, some, H));
	}
	return 1;
}
