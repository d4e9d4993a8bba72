/* gpu_sinks.cu - learned sink logits of attention (struct query): what attention gives without
 * them, scaled
 *
 * With the log-sum-exp of the rows known, a sink is one term more: the kernels of attention need
 * not know of it. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 128;

/* One warp for each query row and head */
DEVICE void
add_sink(const struct sinks_call &c, size_t i)
{
	if (i >= c.rows)
		return;
	const float sink = c.sinks[i % c.H], rows = c.lse[i], top = rows > sink ? rows : sink;
	const float weight = expf(rows - top), sum = weight + expf(sink - top);

	for (uint32_t e = threadIdx.x % 32; e < c.E && c.o != NULL; e += 32)
		c.o[i * c.E + e] *= weight / sum;
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		c.lse[i] = top + logf(sum);
}

static __global__ void __launch_bounds__(THREADS)
add_sinks(const __grid_constant__ struct sinks_call c)
{
	add_sink(c, (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
}

static __global__ void __launch_bounds__(THREADS)
add_sinks_each(const struct sinks_call *calls)
{
	add_sink(calls[blockIdx.y], (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
}

void
gpu_add_sinks(struct dev *d, const struct sinks_call *calls, uint32_t n)
{
	const struct sinks_call *table;
	size_t most = 0;

	for (uint32_t i = 0; i < n; i++)
		most = max(most, calls[i].rows);
	if (most == 0 || !gpu_ok(d))
		return;
	if (n == 1)
		LAUNCH(d, add_sinks, parts_of(most, THREADS / 32), THREADS, 0, calls[0]);
	else if ((table = (const struct sinks_call *)gpu_list(d, calls, n * sizeof *calls)) != NULL)
		LAUNCH(d, add_sinks_each, dim3(parts_of(most, THREADS / 32), n), THREADS, 0, table);
}

bool
gpu_sinks_of(struct dev *d, struct sinks_call *calls, struct attention *a, uint32_t n)
{
	size_t sums = 0;
	float *lse;

	for (uint32_t i = 0; i < n; i++)
		sums += a[i].lse == NULL ? (size_t)a[i].query.N * a[i].query.H : 0;
	if ((lse = (float *)gpu_scratch(d, SCRATCH_SUMS, sums * sizeof *lse + 1)) == NULL)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		struct query *q = &a[i].query;

		calls[i] = { a[i].o, a[i].lse != NULL ? a[i].lse : lse, q->sinks,
			q->sinks != NULL ? (size_t)q->N * q->H : 0, q->H, a[i].rows->width };
		if (q->sinks == NULL)
			continue;
		lse += a[i].lse == NULL ? (size_t)q->N * q->H : 0;
		a[i].lse = calls[i].lse;
		q->sinks = NULL;
	}
	return true;
}
