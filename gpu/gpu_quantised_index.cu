/* gpu_quantised_index.cu - indexes of keys of quantised types: one-bit keys and page bounds
 *
 * Entries are made from the numbers that rows stand for, so transformed rows are transformed back
 * first, CHUNK of them at a time in shared memory: a warp has a row then, and for bounds and bits a
 * thread has channels. The bytes are those that gpu_index.cu makes from these numbers. */
#include "gpu/gpu_index.h"
#include "gpu/gpu_quantised.h"

constexpr uint32_t THREADS = 128, WARPS = THREADS / 32;
constexpr uint32_t CHUNK = 8;            /* rows: a byte of bits */

struct pack_call {
	struct row_format k;
	uint32_t transformed;
	enum kv_dtype dtype;         /* of bounds */
};

/* rows[CHUNK][E] <- n keys, by the whole block; ends with a barrier */
DEVICE void
load_chunk(float *rows, const unsigned char *keys, uint32_t n, uint32_t E,
    const struct pack_call &p)
{
	const uint32_t lane = threadIdx.x % 32;

	__syncthreads();                       /* the chunk before has been read */
	for (uint32_t r = threadIdx.x / 32; r < n; r += WARPS) {
		float *const row = rows + r * E;

		for_channels(keys + (size_t)r * p.k.bytes, p.k, E, lane, 32,
		    [&](uint32_t e, float x) {
			row[e] = x;
		});
		__syncwarp();
		if (p.transformed)
			transform_row(row, E);
	}
	__syncthreads();
}

/* least[E], most[E] <- those over u keys; a thread has every THREADS-th channel, here and wherever
 * they are read. NaNs are ignored, as in bounds() of gpu_index.cu. */
DEVICE void
find_bounds(float *least, float *most, float *rows, const unsigned char *keys, uint32_t u,
    uint32_t E, const struct pack_call &p)
{
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		least[e] = INFINITY;
		most[e] = -INFINITY;
	}
	for (uint32_t first = 0; first < u; first += CHUNK) {
		const uint32_t n = min(u - first, CHUNK);

		load_chunk(rows, keys + (size_t)first * p.k.bytes, n, E, p);
		for (uint32_t e = threadIdx.x; e < E; e += THREADS)
			for (uint32_t r = 0; r < n; r++) {
				least[e] = fminf(least[e], rows[r * E + e]);
				most[e] = fmaxf(most[e], rows[r * E + e]);
			}
	}
}

/* One block for each entry */
static __global__ void __launch_bounds__(THREADS)
pack_quantised_bits(const __grid_constant__ struct index x,
    const __grid_constant__ struct rows from, const struct pack_call p)
{
	DYN_SHARED(float, rows);                       /* [CHUNK][E], least[E], most[E] */
	const uint32_t g = blockIdx.y, u = x.rows, E = x.E;
	const struct to_pack pack = entries_to_pack(x, from, g);
	const uint32_t i = pack.first + blockIdx.x;
	float *const least = rows + CHUNK * E, *const most = least + E;

	if (i >= pack.end)
		return;
	const unsigned char *const keys = (const unsigned char *)from.k +
	    (from.start[g] + (size_t)i * u) * p.k.bytes;
	unsigned char *const entry = entry_at(x, g, i);
	f16 *const zero = (f16 *)entry;

	find_bounds(least, most, rows, keys, u, E, p);
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		if (least[e] > most[e])
			least[e] = most[e] = 0;
		most[e] = __fsub_rn(most[e], least[e]);        /* the scale, from here on */
		zero[e] = to_half(least[e]);
		zero[E + e] = to_half(most[e]);
	}
	for (uint32_t first = 0; first < u; first += CHUNK) {
		load_chunk(rows, keys + (size_t)first * p.k.bytes, CHUNK, E, p);
		for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
			uint32_t byte = 0;

			for (uint32_t r = 0; r < CHUNK; r++)
				byte |= above(rows[r * E + e], least[e], most[e]) ? 1u << r : 0;
			entry[4 * E + e * (u / 8) + first / 8] = (unsigned char)byte;
		}
	}
}

DEVICE void
store_bound(unsigned char *entry, uint32_t e, float x, bool none, enum kv_dtype dtype)
{
	if (dtype == KV_F32)
		((float *)entry)[e] = bound<float>(x, none);
	else if (dtype == KV_F16)
		((f16 *)entry)[e] = bound<f16>(x, none);
	else
		((bf16 *)entry)[e] = bound<bf16>(x, none);
}

/* One block for each entry */
static __global__ void __launch_bounds__(THREADS)
pack_quantised_pages(const __grid_constant__ struct index x,
    const __grid_constant__ struct rows from, const struct pack_call p)
{
	DYN_SHARED(float, rows);                       /* [CHUNK][E], least[E], most[E] */
	const uint32_t g = blockIdx.y, E = x.E;
	const struct to_pack pack = entries_to_pack(x, from, g);
	const uint32_t i = pack.first + blockIdx.x;
	float *const least = rows + CHUNK * E, *const most = least + E;

	if (i >= pack.end)
		return;
	find_bounds(least, most, rows, (const unsigned char *)from.k +
	    (from.start[g] + (size_t)i * x.rows) * p.k.bytes, x.rows, E, p);
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		const bool none = least[e] > most[e];

		store_bound(entry_at(x, g, i), e, least[e], none, p.dtype);
		store_bound(entry_at(x, g, i), E + e, most[e], none, p.dtype);
	}
}

void
gpu_pack_quantised(struct dev *d, const struct index *x, const struct rows *from,
    const struct layer_rows *l, int pages, uint32_t most)
{
	struct pack_call p = { .k = {}, .transformed = is_transformed(rows_k_type(l)),
		.dtype = l->dtype };
	const size_t shared = (CHUNK + 2) * (size_t)l->width * sizeof(float);
	struct row_formats f;

	if (!gpu_formats_of(d, &f, l, "index"))
		return;
	p.k = f.k;
	if (pages)
		LAUNCH(d, pack_quantised_pages, dim3(most, x->G), THREADS, shared, *x, *from, p);
	else
		LAUNCH(d, pack_quantised_bits, dim3(most, x->G), THREADS, shared, *x, *from, p);
}
