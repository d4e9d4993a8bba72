/* gpu_device.cu - a GPU as a device: its stream, memory, the first error, and the table of ops */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_internal.h"

#define STAGING ((size_t)4 << 20)
#define LEAST_MAJOR 8                  /* compute capability 8.0: mma of bf16, cp.async */

static int force_reference;

void
gpu_force_reference(int on)
{
	force_reference = on;
}

void
gpu_fail(struct dev *d, const char *fmt, ...)
{
	va_list ap;

	if (d->error[0] != '\0')
		return;
	va_start(ap, fmt);
	vsnprintf(d->error, sizeof d->error, fmt, ap);
	va_end(ap);
}

int
gpu_check(struct dev *d, const char *what, cudaError_t e)
{
	if (e == cudaSuccess)
		return 1;
	gpu_fail(d, "%s: %s", what, cudaGetErrorString(e));
	return 0;
}

/* Shared memory beyond 48 KiB must be asked for, kernel by kernel. */
int
gpu_may_launch(struct dev *d, const void *kernel, size_t shared)
{
	if (!gpu_ok(d))
		return 0;
	if (shared <= 48 << 10)
		return 1;
	if (shared > d->most_shared) {
		gpu_fail(d, "a kernel needs %zu bytes of shared memory, this GPU has %zu", shared,
		    d->most_shared);
		return 0;
	}
#ifndef CUDA_EMULATED
	return gpu_check(d, "shared memory", cudaFuncSetAttribute(kernel,
	    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
#else
	(void)kernel;
	return 1;
#endif
}

void
gpu_launched(struct dev *d, const char *kernel)
{
	gpu_check(d, kernel, cudaGetLastError());
}

/* ---- opening ---- */

static void
gpu_close(struct dev *d)
{
	int i;

	if (d == NULL)
		return;
	cudaSetDevice(d->index);
	if (d->stream != NULL)
		cudaStreamSynchronize(d->stream);
	for (i = 0; i < SCRATCHES; i++)
		cudaFree(d->scratch[i].at);
	for (i = 0; i < 2; i++) {
		if (d->staging[i].free != NULL)
			cudaEventDestroy(d->staging[i].free);
		cudaFreeHost(d->staging[i].at);
	}
	gpu_blas_close(d);
	if (d->stream != NULL)
		cudaStreamDestroy(d->stream);
	free(d);
}

/* Is there a GPU of that number that we can use? Else the reason in err. */
static int
usable(int index, cudaDeviceProp *p, char *err, size_t errlen)
{
	int driver = 0, runtime = 0, n = 0;
	cudaError_t e;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver == 0) {
		snprintf(err, errlen, "no NVIDIA driver");
		return 0;
	}
	if (driver / 1000 < runtime / 1000) {
		snprintf(err, errlen,
		    "the NVIDIA driver is for CUDA %d.%d, this program needs one for CUDA %d.0",
		    driver / 1000, driver % 1000 / 10, runtime / 1000);
		return 0;
	}
	if ((e = cudaGetDeviceCount(&n)) != cudaSuccess || n == 0) {
		snprintf(err, errlen, "%s", e != cudaSuccess ? cudaGetErrorString(e) : "no GPU");
		return 0;
	}
	if (index < 0 || index >= n) {
		snprintf(err, errlen, "there is no GPU number %d, only 0 to %d", index, n - 1);
		return 0;
	}
	if ((e = cudaGetDeviceProperties(p, index)) != cudaSuccess) {
		snprintf(err, errlen, "GPU %d: %s", index, cudaGetErrorString(e));
		return 0;
	}
	if (p->major < LEAST_MAJOR) {
		snprintf(err, errlen, "GPU %d (%s) has compute capability %d.%d, needed is %d.0",
		    index, p->name, p->major, p->minor, LEAST_MAJOR);
		return 0;
	}
	return 1;
}

static struct dev *
gpu_open(int index, int threads, char *err, size_t errlen)
{
	cudaDeviceProp p;
	struct dev *d;
	int i;

	(void)threads;
	if (!usable(index, &p, err, errlen))
		return NULL;
	if ((d = (struct dev *)calloc(1, sizeof *d)) == NULL) {
		snprintf(err, errlen, "no memory");
		return NULL;
	}
	d->index = index;
	d->sms = (unsigned)p.multiProcessorCount;
	d->most_shared = p.sharedMemPerBlockOptin;
	d->reference = force_reference;
	snprintf(d->text, sizeof d->text, "%s, compute capability %d.%d, %zu MiB", p.name, p.major,
	    p.minor, p.totalGlobalMem >> 20);
	gpu_check(d, "cudaSetDevice", cudaSetDevice(index));
	gpu_check(d, "cudaStreamCreate", cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
	for (i = 0; i < 2 && gpu_ok(d); i++) {
		gpu_check(d, "pinned memory", cudaMallocHost((void **)&d->staging[i].at, STAGING));
		gpu_check(d, "cudaEventCreate", cudaEventCreateWithFlags(&d->staging[i].free,
		    cudaEventDisableTiming));
	}
	if (!gpu_ok(d)) {
		snprintf(err, errlen, "GPU %d: %s", index, d->error);
		gpu_close(d);
		return NULL;
	}
	return d;
}

static const char *
gpu_sync(struct dev *d)
{
	if (gpu_ok(d))
		gpu_check(d, "GPU", cudaStreamSynchronize(d->stream));
	return gpu_ok(d) ? NULL : d->error;
}

static const char *
gpu_describe(struct dev *d)
{
	return d->text;
}

/* ---- memory ---- */

static void *
gpu_alloc(struct dev *d, size_t bytes)
{
	void *p = NULL;

	cudaSetDevice(d->index);
	if (bytes > SIZE_MAX / 2 || cudaMalloc(&p, bytes > 0 ? bytes : 1) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return p;
}

static void
gpu_free(struct dev *d, void *p)
{
	(void)d;
	cudaFree(p);
}

void *
gpu_scratch(struct dev *d, enum scratch which, size_t bytes)
{
	if (!gpu_ok(d))
		return NULL;
	if (bytes <= d->scratch[which].bytes)
		return d->scratch[which].at;
	cudaFree(d->scratch[which].at);
	d->scratch[which].bytes = 0;
	if ((d->scratch[which].at = gpu_alloc(d, bytes)) == NULL) {
		gpu_fail(d, "no room for %zu bytes of scratch on the GPU", bytes);
		return NULL;
	}
	d->scratch[which].bytes = bytes;
	return d->scratch[which].at;
}

/* Through pinned memory, so that the copy goes on while the next piece is brought there. */
static void
gpu_put(struct dev *d, void *dst, const void *src, size_t bytes)
{
	size_t at, n;

	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		auto &s = d->staging[d->turn];

		d->turn ^= 1;
		n = bytes - at < STAGING ? bytes - at : STAGING;
		gpu_check(d, "put", cudaEventSynchronize(s.free));
		memcpy(s.at, (const char *)src + at, n);
		gpu_check(d, "put", cudaMemcpyAsync((char *)dst + at, s.at, n,
		    cudaMemcpyHostToDevice, d->stream));
		gpu_check(d, "put", cudaEventRecord(s.free, d->stream));
	}
}

void *
gpu_list(struct dev *d, const void *host, size_t bytes)
{
	void *p = gpu_scratch(d, SCRATCH_LIST, bytes);

	if (p != NULL)
		gpu_put(d, p, host, bytes);
	return p;
}

static void
gpu_get(struct dev *d, void *dst, const void *src, size_t bytes)
{
	if (gpu_ok(d) && gpu_check(d, "get", cudaMemcpyAsync(dst, src, bytes,
	    cudaMemcpyDeviceToHost, d->stream)))
		gpu_check(d, "get", cudaStreamSynchronize(d->stream));
}

static void
gpu_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
	if (gpu_ok(d))
		gpu_check(d, "copy", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
		    d->stream));
}

static const void *
gpu_weights(struct dev *d, const void *host, size_t bytes)
{
	void *p = gpu_alloc(d, bytes);

	if (p != NULL)
		gpu_put(d, p, host, bytes);
	return p;
}

/* One block moves the pieces one after another: each goes to where an earlier one stood, or to
 * its own place. What the block's threads have read is not written before all have read it. */
static __global__ void __launch_bounds__(1024)
keep_rows(char *at, size_t bytes, const uint32_t *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const char *from = at + rows[i] * bytes;
		char *to = at + i * bytes;

		for (size_t b = threadIdx.x; b < bytes && from != to; b += blockDim.x)
			to[b] = from[b];
		__syncthreads();
	}
}

static void
gpu_keep(struct dev *d, void *at, size_t bytes, const uint32_t *rows, uint32_t n)
{
	const uint32_t *list;

	if (n > 0 && (list = (const uint32_t *)gpu_list(d, rows, n * sizeof *rows)) != NULL)
		LAUNCH(d, keep_rows, 1, 256, 0, (char *)at, bytes, list, n);
}

int
gpu_rows_of(struct dev *d, struct rows *r, const struct layer_rows *l, uint32_t H, const char *op)
{
	uint32_t g;

	if (l->heads == 0 || l->heads > MAX_HEADS || H % l->heads != 0)
		gpu_fail(d, "%s: %u query heads over %u KV heads", op, H, l->heads);
	if (!gpu_ok(d))
		return 0;
	*r = { .k = l->k, .v = l->v, .pos = l->pos, .G = l->heads, .E = l->width, .start = {},
		.len = {} };
	for (g = 0; g < l->heads; g++) {
		r->start[g] = l->start[g];
		r->len[g] = l->len[g];
	}
	return 1;
}

const struct ops gpu_ops = {
	.name = "cuda",
	.open = gpu_open,
	.close = gpu_close,
	.sync = gpu_sync,
	.describe = gpu_describe,
	.alloc = gpu_alloc,
	.free = gpu_free,
	.put = gpu_put,
	.get = gpu_get,
	.copy = gpu_copy,
	.keep = gpu_keep,
	.weights = gpu_weights,
	.embed = gpu_embed,
	.rmsnorm = gpu_rmsnorm,
	.matmul = gpu_matmul,
	.rope = gpu_rope,
	.store = gpu_store,
	.attend = gpu_attend,
	.attend_mass = gpu_attend_mass,
	.window_mass = gpu_window_mass,
	.pack_bits = gpu_pack_bits,
	.pack_pages = gpu_pack_pages,
	.bits_scores = gpu_bits_scores,
	.page_scores = gpu_page_scores,
	.key_scores = gpu_key_scores,
	.join = gpu_join,
	.top = gpu_top,
	.spread = gpu_spread,
	.attend_chosen = gpu_attend_chosen,
	.gather = gpu_gather,
	.rebuild = gpu_rebuild,
	.swiglu = gpu_swiglu,
};
