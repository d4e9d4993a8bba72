/* gpu_index.cu - indexes of keys: what they are, and making their entries (kv-snapshot(5), 4.15 and
 * 4.16) */
#include "gpu/gpu_index.h"

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

/* Whether an index, whose entries should have so many bytes, is one of such rows; no entry has
 * too many or too few. Returns 0 after remembering a failure. */
static int
fits(struct dev *d, const struct entries *e, const struct layer_rows *rows, size_t bytes)
{
	uint32_t g;

	if (e->heads != rows->heads || e->width != rows->width || e->rows == 0 ||
	    e->bytes != bytes || kv_dtype_size(rows->dtype) == 0)
		gpu_fail(d, "index: %zu bytes for %u rows of %u KV heads of width %u, and keys of %u "
		    "of width %u", e->bytes, e->rows, e->heads, e->width, rows->heads, rows->width);
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

/* ---- making entries ---- */

/* Least and greatest of a channel, whose keys stand E apart. A NaN counts nowhere; infinity and
 * -infinity are left where all are NaN. */
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

/* Bits of the f16 next to v, at most 65504 either way; what rounds to 0 has no sign, and a NaN,
 * the scale of keys that are all the same infinity, becomes 0. */
DEVICE uint16_t
half_bits(float v)
{
	if (!(fabsf(v) > 0x1p-25f))
		return 0;
	return narrow<f16>(fmaxf(-65504, fminf(65504, v))).bits;
}

/* Is a key above the middle? Twice the distance to the least is exact, where half the scale may
 * not be. */
DEVICE bool
above(float key, float least, float scale)
{
	const float d = __fsub_rn(key, least);

	return __fadd_rn(d, d) > scale;
}

/* A block for each entry, a thread for each channel */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_pack_bits(const struct index x, const struct rows from)
{
	const uint32_t g = blockIdx.y, i = x.done[g] + blockIdx.x, u = x.rows, E = x.E;

	if (i >= x.len[g])
		return;
	unsigned char *const entry = entry_at(x, g, i);
	uint16_t *const zero = (uint16_t *)entry, *const scale = zero + E;
	const T *key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E;
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		unsigned char *bits = entry + 4 * E + e * (u / 8);
		float least, most;

		bounds(&least, &most, key + e, u, E);
		if (least > most)
			least = most = 0;
		const float s = __fsub_rn(most, least);
		zero[e] = half_bits(least);
		scale[e] = half_bits(s);
		for (uint32_t r = 0; r < u; r += 8) {
			unsigned byte = 0;

			for (uint32_t b = 0; b < 8; b++)
				if (above(widen(key[(size_t)(r + b) * E + e]), least, s))
					byte |= 1u << b;
			bits[r / 8] = (unsigned char)byte;
		}
	}
}

template <class T> DEVICE T not_a_number(void);
template <> __device__ __forceinline__ float
not_a_number<float>(void)
{
	return __uint_as_float(0x7fc00000);
}
template <> __device__ __forceinline__ f16
not_a_number<f16>(void)
{
	return { 0x7e00 };
}
template <> __device__ __forceinline__ bf16
not_a_number<bf16>(void)
{
	return { 0x7fc0 };
}

/* A block for each entry, a thread for each channel. Adding 0 takes the sign of a zero. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_pack_pages(const struct index x, const struct rows from)
{
	const uint32_t g = blockIdx.y, i = x.done[g] + blockIdx.x, u = x.rows, E = x.E;

	if (i >= x.len[g])
		return;
	T *const to = (T *)entry_at(x, g, i);
	const T *key = (const T *)from.k + (from.start[g] + (size_t)i * u) * E;
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		float least, most;

		bounds(&least, &most, key + e, u, E);
		to[e] = least > most ? not_a_number<T>() : narrow<T>(least + 0.0f);
		to[E + e] = least > most ? not_a_number<T>() : narrow<T>(most + 0.0f);
	}
}

/* Counts the entries that are missing as there, and fills x and from for making them. Returns the
 * most that one KV head misses; 0 also after remembering a failure. */
static uint32_t
missing(struct dev *d, struct index *x, struct rows *from, struct entries *e,
    const struct layer_rows *rows)
{
	uint32_t g, most = 0;

	if (!gpu_index_of(d, x, e, e->heads) || !gpu_rows_of(d, from, rows, rows->heads, "index"))
		return 0;
	for (g = 0; g < e->heads; g++)
		if (rows->len[g] / e->rows > e->room[g]) {
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

void
gpu_pack_bits(struct dev *d, struct entries *e, const struct layer_rows *rows)
{
	struct index x;
	struct rows from;
	uint32_t most;

	if (!gpu_ok(d) || !gpu_bits_fit(d, e, rows) || (most = missing(d, &x, &from, e, rows)) == 0)
		return;
	with_type(rows->dtype, [&](auto t) {
		LAUNCH(d, reference_pack_bits<decltype(t)>, dim3(most, x.G), THREADS, 0, x, from);
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
	with_type(rows->dtype, [&](auto t) {
		LAUNCH(d, reference_pack_pages<decltype(t)>, dim3(most, x.G), THREADS, 0, x, from);
	});
}
