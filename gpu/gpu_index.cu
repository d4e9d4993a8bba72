/* gpu_index.cu - building indexes: one-bit keys (FIER; kv-snapshot(5), 4.15) and page bounds
 * (Quest; 4.16) */
#include "gpu/gpu_index.h"
#include "gpu/gpu_quantised.h"

enum { THREADS = 128 };

int
gpu_index_of(struct dev *d, struct index *x, const struct entries *e, uint32_t H)
{
	uint32_t g;

	if (e->heads == 0 || e->heads > MAX_HEADS || e->width == 0 || H % e->heads != 0)
		gpu_fail(d, "scores: %u query heads over %u KV heads of width %u", H, e->heads,
		    e->width);
	if (!gpu_ok(d))
		return 0;
	*x = { .data = (unsigned char *)e->data, .bytes = e->bytes, .G = e->heads, .E = e->width,
		.rows = e->rows, .start = {}, .done = {}, .len = {} };
	for (g = 0; g < e->heads; g++) {
		x->start[g] = e->start[g];
		x->done[g] = x->len[g] = e->len[g];
	}
	return 1;
}

/* Checks that an index with entries of so many bytes matches these rows. Returns 0 after
 * remembering a failure. */
static int
fits(struct dev *d, const struct entries *e, const struct layer_rows *rows, size_t bytes)
{
	uint32_t g;

	if (e->heads != rows->heads || e->width != rows->width || e->rows == 0 ||
	    e->bytes != bytes || kv_dtype_size(rows->dtype) == 0)
		gpu_fail(d, "index: %zu bytes for %u rows of %u KV heads of width %u, and keys of "
		    "%u of width %u", e->bytes, e->rows, e->heads, e->width, rows->heads,
		    rows->width);
	for (g = 0; g < e->heads && gpu_ok(d); g++)
		if (e->len[g] > rows->len[g] / e->rows)
			gpu_fail(d, "index: %u entries for %u rows", e->len[g], rows->len[g]);
	return gpu_ok(d);
}

int
gpu_bits_fit(struct dev *d, const struct entries *e, const struct layer_rows *rows)
{
	if (e->rows != 16 && e->rows != 32 && e->rows != 64 && e->rows != 128)
		gpu_fail(d, "index: keys in one bit for %u rows at a time", e->rows);
	return gpu_ok(d) && fits(d, e, rows, e->width * (4 + (size_t)e->rows / 8));
}

/* ---- building entries ---- */

/* Minimum and maximum of a channel over u keys, E apart. NaNs are ignored; where all are NaN
 * the result is infinity and -infinity. */
template <class T>
DEVICE void
bounds(float *least, float *most, const T *key, uint32_t u, uint32_t E)
{
	*least = INFINITY;
	*most = -INFINITY;
	for (uint32_t i = 0; i < u; i++) {
		const float k = widen(key[(size_t)i * E]);

		*least = fminf(*least, k);
		*most = fmaxf(*most, k);
	}
}

/* One block for each entry, one thread for each channel */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_pack_bits(const struct index x, const struct rows from)
{
	const uint32_t g = blockIdx.y, u = x.rows, E = x.E;
	const struct to_pack pack = entries_to_pack(x, from, g);
	const uint32_t i = pack.first + blockIdx.x;

	if (i >= pack.end)
		return;
	unsigned char *const entry = entry_at(x, g, i);
	f16 *const zero = (f16 *)entry, *const scale = zero + E;
	const T *key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E;
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		unsigned char *bits = entry + 4 * E + e * (u / 8);
		float least, most;

		bounds(&least, &most, key + e, u, E);
		if (least > most)
			least = most = 0;
		const float s = __fsub_rn(most, least);
		zero[e] = to_half(least);
		scale[e] = to_half(s);
		for (uint32_t r = 0; r < u; r += 8) {
			unsigned byte = 0;

			for (uint32_t b = 0; b < 8; b++)
				if (above(widen(key[(size_t)(r + b) * E + e]), least, s))
					byte |= 1u << b;
			bits[r / 8] = (unsigned char)byte;
		}
	}
}

/* One block for each entry, one thread for each channel */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_pack_pages(const struct index x, const struct rows from)
{
	const uint32_t g = blockIdx.y, u = x.rows, E = x.E;
	const struct to_pack pack = entries_to_pack(x, from, g);
	const uint32_t i = pack.first + blockIdx.x;

	if (i >= pack.end)
		return;
	T *const to = (T *)entry_at(x, g, i);
	const T *key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E;
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		float least, most;

		bounds(&least, &most, key + e, u, E);
		to[e] = bound<T>(least, least > most);
		to[E + e] = bound<T>(most, least > most);
	}
}

/* ---- the fast kernels: a thread has two neighbouring channels, and the loads of many rows
 * in flight ---- */

DEVICE float2
load_two(const float *p)
{
	return *(const float2 *)p;
}

template <class T>
DEVICE float2
load_two(const T *p)
{
	const uint32_t w = *(const uint32_t *)p;

	return make_float2(widen(T{ (uint16_t)w }), widen(T{ (uint16_t)(w >> 16) }));
}

DEVICE void
store_two(float *p, float first, float second)
{
	*(float2 *)p = make_float2(first, second);
}

template <class T>
DEVICE void
store_two(T *p, T first, T second)
{
	*(uint32_t *)p = first.bits | (uint32_t)second.bits << 16;
}

/* bounds() of two channels */
struct bounds_of_two {
	float2 least, most;
};

DEVICE void
widen_bounds(struct bounds_of_two *b, float2 k)
{
	b->least = make_float2(fminf(b->least.x, k.x), fminf(b->least.y, k.y));
	b->most = make_float2(fmaxf(b->most.x, k.x), fmaxf(b->most.y, k.y));
}

DEVICE constexpr struct bounds_of_two
no_bounds(void)
{
	return { { INFINITY, INFINITY }, { -INFINITY, -INFINITY } };
}

/* The entry and the first channel of this thread; returns 0 when it has none. */
DEVICE int
my_channels(const struct index &x, const struct rows &from, uint32_t g, uint32_t *i, uint32_t *e)
{
	const struct to_pack pack = entries_to_pack(x, from, g);
	const size_t n = (size_t)blockIdx.x * THREADS + threadIdx.x;

	*i = pack.first + (uint32_t)(n / (x.E / 2));
	*e = (uint32_t)(n % (x.E / 2)) * 2;
	return n / (x.E / 2) < pack.end - pack.first;
}

/* k[HELD] <- two channels of HELD rows */
template <uint32_t HELD, class T>
DEVICE void
load_rows(float2 k[HELD], const T *key, uint32_t E)
{
UNROLL	for (uint32_t r = 0; r < HELD; r++)
		k[r] = load_two(key + (size_t)r * E);
}

/* Stores the bits of two channels in HELD rows, `step` bytes apart. */
template <uint32_t HELD>
DEVICE void
store_bits(unsigned char *to, uint32_t step, const float2 k[HELD], const struct bounds_of_two &b,
    float2 s)
{
	uint2 word = make_uint2(0, 0);

UNROLL	for (uint32_t r = 0; r < HELD; r++) {
		word.x |= above(k[r].x, b.least.x, s.x) ? 1u << r : 0;
		word.y |= above(k[r].y, b.least.y, s.y) ? 1u << r : 0;
	}
	if (HELD == 16)
		*(uint32_t *)to = word.x | word.y << 16;
	else if (step == 4)
		*(uint2 *)to = word;
	else {
		*(uint32_t *)to = word.x;
		*(uint32_t *)(to + step) = word.y;
	}
}

/* Builds one-bit keys. Rows of entries of HELD rows stay in registers between the two passes
 * (bounds, bits); longer entries are read twice. */
template <class T, uint32_t HELD>
static __global__ void __launch_bounds__(THREADS)
pack_bits(const struct index x, const struct rows from)
{
	const uint32_t g = blockIdx.y, u = x.rows, E = x.E;
	struct bounds_of_two b = no_bounds();
	uint32_t i, e;
	float2 k[HELD];

	if (!my_channels(x, from, g, &i, &e))
		return;
	unsigned char *const entry = entry_at(x, g, i);
	f16 *const zero = (f16 *)entry;
	const T *const key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E + e;
	for (uint32_t r = 0; r < u; r += HELD) {
		load_rows<HELD>(k, key + (size_t)r * E, E);
UNROLL		for (uint32_t j = 0; j < HELD; j++)
			widen_bounds(&b, k[j]);
	}
	if (b.least.x > b.most.x)
		b.least.x = b.most.x = 0;
	if (b.least.y > b.most.y)
		b.least.y = b.most.y = 0;
	const float2 s =
	    make_float2(__fsub_rn(b.most.x, b.least.x), __fsub_rn(b.most.y, b.least.y));
	store_two(zero + e, to_half(b.least.x), to_half(b.least.y));
	store_two(zero + E + e, to_half(s.x), to_half(s.y));
	for (uint32_t r = 0; r < u; r += HELD) {
		if (u > HELD)
			load_rows<HELD>(k, key + (size_t)r * E, E);
		store_bits<HELD>(entry + 4 * E + e * (u / 8) + r / 8, u / 8, k, b, s);
	}
}

/* Builds page bounds. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
pack_pages(const struct index x, const struct rows from)
{
	enum { AHEAD = 8 };
	const uint32_t g = blockIdx.y, u = x.rows, E = x.E;
	struct bounds_of_two b = no_bounds();
	uint32_t i, e, r;
	float2 k[AHEAD];

	if (!my_channels(x, from, g, &i, &e))
		return;
	T *const to = (T *)entry_at(x, g, i) + e;
	const T *const key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E + e;
	for (r = 0; r + AHEAD <= u; r += AHEAD) {
		load_rows<AHEAD>(k, key + (size_t)r * E, E);
UNROLL		for (uint32_t j = 0; j < AHEAD; j++)
			widen_bounds(&b, k[j]);
	}
	for (; r < u; r++)
		widen_bounds(&b, load_two(key + (size_t)r * E));
	store_two(to, bound<T>(b.least.x, b.least.x > b.most.x),
	    bound<T>(b.least.y, b.least.y > b.most.y));
	store_two(to + E, bound<T>(b.most.x, b.least.x > b.most.x),
	    bound<T>(b.most.y, b.least.y > b.most.y));
}

/* ---- the ops ---- */

/* Increases e->len by the missing entries, and fills x and from to build them. Returns the
 * greatest number that a KV head misses; 0 also after remembering a failure. */
static uint32_t
missing(struct dev *d, struct index *x, struct rows *from, struct entries *e,
    const struct layer_rows *rows)
{
	uint32_t g, most = 0;

	if (!gpu_index_of(d, x, e, e->heads) ||
	    !gpu_capturable_rows_of(d, from, rows, rows->heads, "index"))
		return 0;
	for (g = 0; g < e->heads; g++)
		if (rows->len[g] / e->rows > e->capacity[g]) {
			gpu_fail(d, "index: no room for %u entries", rows->len[g] / e->rows);
			return 0;
		}
	for (g = 0; g < e->heads; g++) {
		e->len[g] = x->len[g] = rows->len[g] / e->rows;
		if (x->len[g] - x->done[g] > most)
			most = x->len[g] - x->done[g];
	}
	return most;
}

/* Does the fast kernel take the shape? */
static int
in_pairs(const struct dev *d, const struct index &x, const struct rows &from, enum kv_dtype dtype)
{
	return !d->reference && x.E % 2 == 0 && (uintptr_t)from.k % (2 * kv_dtype_size(dtype)) == 0;
}

/* Where nothing is missing, once all the same: kernels of a graph must have run before. A
 * graph has one for the entries that are to come. */
void
gpu_pack_bits(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index x;
	struct rows from;
	uint32_t most;

	if (!gpu_ok(d) || !gpu_bits_fit(d, e, rows))
		return;
	most = missing(d, &x, &from, e, rows);
	if (!gpu_ok(d))
		return;
	const int fast = in_pairs(d, x, from, rows->dtype);
	const int quantised = is_quantised(rows_k_type(rows));
	const unsigned kernel = 1u << (quantised ? 0 : 3 * rows->dtype +
	    (!fast ? 0 : x.rows == 16 ? 1 : 2));
	if (most == 0 && !d->capturing && (d->packed & kernel) != 0)
		return;
	d->packed |= kernel;
	most = max(most, 1u);
	if (quantised) {
		gpu_pack_quantised(d, &x, &from, rows, 0, most);
		return;
	}
	const dim3 blocks(parts_of((size_t)most * (x.E / 2), THREADS), x.G);
	with_type(rows->dtype, [&](auto t) {
		using T = decltype(t);

		if (!fast)
			LAUNCH(d, reference_pack_bits<T>, dim3(most, x.G), THREADS, 0, x, from);
		else if (x.rows == 16)
			LAUNCH(d, (pack_bits<T, 16>), blocks, THREADS, 0, x, from);
		else
			LAUNCH(d, (pack_bits<T, 32>), blocks, THREADS, 0, x, from);
	});
}

void
gpu_pack_pages(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index x;
	struct rows from;
	uint32_t most;

	if (!gpu_ok(d) || !fits(d, e, rows, 2 * (size_t)e->width * kv_dtype_size(rows->dtype)) ||
	    (most = missing(d, &x, &from, e, rows)) == 0)
		return;
	from.appended = NULL;
	gpu_fixes_lengths(d);
	if (is_quantised(rows_k_type(rows))) {
		gpu_pack_quantised(d, &x, &from, rows, 1, most);
		return;
	}
	const dim3 blocks(parts_of((size_t)most * (x.E / 2), THREADS), x.G);
	const int fast = in_pairs(d, x, from, rows->dtype);
	with_type(rows->dtype, [&](auto t) {
		using T = decltype(t);

		if (fast)
			LAUNCH(d, pack_pages<T>, blocks, THREADS, 0, x, from);
		else
			LAUNCH(d, reference_pack_pages<T>, dim3(most, x.G), THREADS, 0, x, from);
	});
}
