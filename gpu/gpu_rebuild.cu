/* gpu_rebuild.cu - keys of chosen rows as products of two factors, turned to their positions */
#include "gpu/gpu_internal.h"

enum { THREADS = 128 };

/* What is rebuilt: rows of `to` that gather() made of the chosen entries */
struct rebuilding {
	const void *left, *right;
	const uint8_t *exact;
	const double *freq;
	uint32_t n, rank, chunk;     /* of the factors */
	const uint32_t *at;          /* the chosen entries */
	size_t stride;
	uint32_t rows;               /* of an entry */
};

/* The row of KV head g in the cache that is row i of those chosen, or UINT32_MAX where its key
 * stays as it is */
DEVICE uint32_t
row_of(const struct rebuilding &b, uint32_t g, uint32_t i)
{
	const uint64_t row = (uint64_t)b.at[g * b.stride + i / b.rows] * b.rows + i % b.rows;

	if (row >= b.n || b.exact[(size_t)g * (b.n / b.chunk) + row / b.chunk])
		return UINT32_MAX;
	return (uint32_t)row;
}

/* A block for each row: a thread makes some channels, then turns some pairs. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
reference_rebuild(const struct rows to, const struct rebuilding b)
{
	DYN_SHARED(float, key);                      /* [E] */
	const uint32_t g = blockIdx.y, i = blockIdx.x, E = to.E, half = E / 2;
	const uint32_t row = i < to.len[g] ? row_of(b, g, i) : UINT32_MAX;

	if (row == UINT32_MAX)
		return;
	const T *left = (const T *)b.left + (size_t)row * b.rank;
	for (uint32_t e = threadIdx.x; e < E; e += THREADS) {
		const T *right = (const T *)b.right + ((size_t)g * E + e) * b.rank;
		float sum = 0;

		for (uint32_t j = 0; j < b.rank; j++)
			sum += widen(left[j]) * widen(right[j]);
		key[e] = sum;
	}
	__syncthreads();
	T *out = (T *)to.k + (to.start[g] + i) * E;
	for (uint32_t e = threadIdx.x; e < half; e += THREADS) {
		const float x = key[e], y = key[e + half];
		double s, c;

		sincos(to.pos[to.start[g] + i] * b.freq[e], &s, &c);
		out[e] = narrow<T>(x * (float)c - y * (float)s);
		out[e + half] = narrow<T>(y * (float)c + x * (float)s);
	}
	if (threadIdx.x == 0 && E % 2 == 1)          /* the last channel has no pair */
		out[E - 1] = narrow<T>(key[E - 1]);
}

void
gpu_rebuild(struct dev *d, struct layer_rows *to, const struct chosen *chosen,
    const struct low_rank *low, const double *freq)
{
	uint32_t most = 0;
	struct rows r;

	if (chosen->rows == 0)
		gpu_fail(d, "chosen entries of 0 rows");
	for (uint32_t g = 0; g < to->heads; g++) {
		if (chosen->n[g] > chosen->stride)
			gpu_fail(d, "%u entries chosen of KV head %u, in a list of %zu", chosen->n[g],
			    g, chosen->stride);
		most = to->len[g] > most ? to->len[g] : most;
	}
	if (low->chunk == 0 || low->rank == 0 || low->dtype != to->dtype)
		gpu_fail(d, "rebuild: rank %u, chunks of %u rows, %s factors of %s keys", low->rank,
		    low->chunk, kv_dtype_name(low->dtype), kv_dtype_name(to->dtype));
	if (!gpu_rows_of(d, &r, to, to->heads, "rebuild") || most == 0 || low->n == 0)
		return;
	const struct rebuilding b = { low->left, low->right, low->exact, freq, low->n, low->rank,
		low->chunk, chosen->at, chosen->stride, chosen->rows };
	with_type(to->dtype, [&](auto t) {
		LAUNCH(d, reference_rebuild<decltype(t)>, dim3(most, r.G), THREADS,
		    r.E * sizeof(float), r, b);
	});
}
