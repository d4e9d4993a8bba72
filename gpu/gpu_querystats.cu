/* gpu_querystats.cu - sums over queries before rotary embedding, of which methods make mean and
 * covariance (kv-snapshot(5), 4.22)
 *
 * A thread has one number of a query head, a sum over the queries in their order: the bytes of the
 * CPU. It multiplies two channels from shared memory in f64, exactly; so what limits it is widening
 * them, two for each product: 8 products a clock and SM (H100), 38 ms for 32 layers of 32 heads of
 * width 128 and 8,192 tokens. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 256;
constexpr uint32_t TILE = 4096;          /* channels of queries in shared memory */

/* Number e of the W/2 + E + E (E + 1) / 2 of a head: channels i, j that it multiplies */
struct number {
	enum kind { NONE, SUM, MODULUS, PRODUCT } kind;
	uint32_t i, j;
	size_t at;                       /* in the sums of all heads */
};

DEVICE struct number
number_of(uint32_t e, uint32_t h, uint32_t H, uint32_t E, uint32_t rotated, uint32_t half)
{
	const uint32_t triangle = E * (E + 1) / 2;
	const size_t moduli = (size_t)H * E, products = moduli + (size_t)H * half;

	if (e < E)
		return { number::SUM, e, e, (size_t)h * E + e };
	e -= E;
	if (e < half)
		return { number::MODULUS, rotated + e, rotated + e + half,
			moduli + (size_t)h * half + e };
	e -= half;
	if (e >= triangle)
		return { number::NONE, 0, 0, 0 };
	/* row i begins at i (i + 1) / 2; the root is off by one at most */
	uint32_t i = (uint32_t)((sqrtf(8.0f * (float)e + 1) - 1) / 2);

	if (i * (i + 1) / 2 > e)
		i--;
	else if ((i + 1) * (i + 2) / 2 <= e)
		i++;
	return { number::PRODUCT, i, e - i * (i + 1) / 2,
		products + (size_t)h * triangle + e };
}

static __global__ void __launch_bounds__(THREADS)
query_stats(double *sums, const float *q, uint32_t N, uint32_t H, uint32_t E, uint32_t rotated,
    uint32_t half)
{
	SHARED(float[TILE], tile);
	const uint32_t h = blockIdx.y, at_once = TILE / E;
	const struct number mine = number_of(blockIdx.x * THREADS + threadIdx.x, h, H, E, rotated,
	    half);
	double sum = mine.kind != number::NONE ? sums[mine.at] : 0;

	for (uint32_t first = 0; first < N; first += at_once) {
		const uint32_t n = min(at_once, N - first);

		for (uint32_t t = threadIdx.x; t < n * E; t += THREADS)
			tile[t] = q[((size_t)(first + t / E) * H + h) * E + t % E];
		__syncthreads();
		for (uint32_t t = 0; t < n; t++) {
			const double a = tile[t * E + mine.i], b = tile[t * E + mine.j];

			sum += mine.kind == number::SUM ? a :
			    mine.kind == number::MODULUS ? sqrt(a * a + b * b) : a * b;
		}
		__syncthreads();
	}
	if (mine.kind != number::NONE)
		sums[mine.at] = sum;
}

void
gpu_query_stats(struct dev *d, double *sums, const float *q, uint32_t N, uint32_t H, uint32_t E,
    uint32_t first, uint32_t dims)
{
	const size_t numbers = E + dims / 2 + (size_t)E * (E + 1) / 2;
	const dim3 grid(parts_of(numbers, THREADS), H);

	if (N > 0)
		LAUNCH(d, query_stats, grid, THREADS, 0, sums, q, N, H, E, first, dims / 2);
}
