/* gpu_device.cu - a GPU as a device: its stream, the first error, and the table of ops */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_selfcheck.h"

#define STAGING ((size_t)4 << 20)
#define LITTLE_STAGING ((size_t)64 << 10)
#define LEAST_MAJOR 8                  /* compute capability 8.0: mma of bf16, cp.async */

static int force_reference, force_no_pdl, force_wgmma;

void
gpu_force_reference(int on)
{
	force_reference = on;
}

void
gpu_force_no_pdl(int on)
{
	force_no_pdl = on;
}

void
gpu_force_wgmma(int on)
{
	force_wgmma = on;
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

/* cudaGetLastError() clears the error, so that the next launch is not blamed for it. */
int
gpu_check(struct dev *d, const char *what, cudaError_t e)
{
	if (e == cudaSuccess)
		return 1;
	cudaGetLastError();
	gpu_fail(d, "%s: %s", what, cudaGetErrorString(e));
	return 0;
}

int
gpu_check_wait(struct dev *d, const char *what, cudaError_t e)
{
	if (e == cudaSuccess)
		return 1;
	cudaGetLastError();
	gpu_fail(d, "%s: %s%s%s", what, cudaGetErrorString(e),
	    d->kernel != NULL ? "; the last kernel was " : "", d->kernel != NULL ? d->kernel : "");
	return 0;
}

int
gpu_sync_event(struct dev *d, const char *what, cudaEvent_t e)
{
	if (gpu_ok(d) && gpu_check_wait(d, what, cudaEventSynchronize(e)))
		gpu_check_refused(d);
	return gpu_ok(d);
}

/* ---- launches ---- */

/* A kernel that uses more than 48 KiB of shared memory, static and dynamic, must opt in. No
 * kernel has more than a third of that static and asks for dynamic memory, too. */
#define UNASKED ((size_t)32 << 10)
/* Dynamic shared memory is aligned to 1024 bytes (DYN_SHARED), so static memory before it
 * takes that much, however small it is. Kernels that may use all of it have no more static
 * memory. */
#define DECLARED ((size_t)1 << 10)

/* Opt-ins so far. They belong to a kernel on a GPU, whichever struct dev asked, and must never
 * shrink. */
static struct {
	const void *kernel;
	int index;
	size_t shared;
} granted[1024];
static unsigned n_granted;
static pthread_mutex_t granting = PTHREAD_MUTEX_INITIALIZER;

/* Opts in once, not at each launch: some drivers wait for pending copies then. */
static cudaError_t
grant(int index, const void *kernel, size_t shared)
{
	cudaError_t e = cudaSuccess;
	unsigned i;

	pthread_mutex_lock(&granting);
	for (i = 0; i < n_granted; i++)
		if (granted[i].kernel == kernel && granted[i].index == index)
			break;
	if (i == n_granted || granted[i].shared < shared) {
		e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
		    (int)shared);
		if (e == cudaSuccess && i < sizeof granted / sizeof granted[0]) {
			granted[i] = { kernel, index, shared };
			n_granted += i == n_granted;
		}
	}
	pthread_mutex_unlock(&granting);
	return e;
}

int
gpu_may_launch(struct dev *d, const void *kernel, size_t shared)
{
	gpu_forget(d);
	if (!gpu_ok(d))
		return 0;
	cudaSetDevice(d->index);        /* the current device is per host thread */
	if (shared <= UNASKED)
		return 1;
	if (shared > d->most_shared) {
		gpu_fail(d, "a kernel needs %zu bytes of shared memory, this GPU has %zu", shared,
		    d->most_shared);
		return 0;
	}
	return gpu_check(d, "shared memory", grant(d->index, kernel, shared));
}

void
gpu_launched(struct dev *d, const char *kernel)
{
	const char *before = d->kernel;
	cudaError_t e = cudaGetLastError();

	d->kernel = kernel;
	d->no_early_start = false;
	if (e != cudaSuccess)        /* the launch was refused, or the kernel before has failed */
		gpu_fail(d, "%s: %s%s%s", kernel, cudaGetErrorString(e),
		    before != NULL ? "; the kernel before was " : "", before != NULL ? before : "");
}

/* ---- opening ---- */

void
gpu_close(struct dev *d)
{
	int i;

	if (d == NULL)
		return;
	gpu_checks_close(d);
	cudaSetDevice(d->index);
	if (d->stream != NULL)
		cudaStreamSynchronize(d->stream);
	gpu_fetches_free(d);
	gpu_graph_drop(d);
	gpu_host_free(d, d->refused);
	gpu_free(d, d->appended);
	for (i = 0; i < SCRATCHES; i++)
		gpu_free(d, d->scratch[i].at);
	gpu_weights_free(d);
	gpu_staging_close(&d->out);
	gpu_staging_close(&d->in);
	gpu_blas_close(d);
	gpu_pool_close(d);
	for (i = 0; i < EVENTS; i++)
		if (d->events[i] != NULL)
			cudaEventDestroy(d->events[i]);
	if (d->side_stream != NULL)
		cudaStreamDestroy(d->side_stream);
	if (d->stream != NULL)
		cudaStreamDestroy(d->stream);
	free(d);
}

/* Returns 1 and fills p when there is a GPU of that number that we support; else 0, with the
 * reason in err. */
static int
usable(int index, cudaDeviceProp *p, char *err, size_t errlen)
{
	int driver = 0, runtime = 0, n = 0;
	cudaError_t e;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver == 0) {
		snprintf(err, errlen, "there is no NVIDIA driver, needed is one for CUDA %d.0",
		    runtime / 1000);
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

#ifndef CUDA_EMULATED
static __global__ void nothing(void) { }
#endif

/* Has this GPU code with a pdl_wait() that waits? Code compiled for sm_80 .. sm_89 has none,
 * also where the driver runs it on a newer GPU: such kernels must not be launched by PDL. */
static bool
pdl_supported(void)
{
#ifndef CUDA_EMULATED
	cudaFuncAttributes a;

	if (cudaFuncGetAttributes(&a, nothing) == cudaSuccess)
		return a.ptxVersion >= 90;
	cudaGetLastError();
	return false;
#else
	return true;
#endif
}

/* Opens what a device needs to run ops; staging: bytes of each of its buffers */
static void
open_streams(struct dev *d, size_t staging)
{
	gpu_check(d, "cudaSetDevice", cudaSetDevice(d->index));
	gpu_check(d, "cudaStreamCreate",
	    cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
	gpu_check(d, "cudaStreamCreate",
	    cudaStreamCreateWithFlags(&d->side_stream, cudaStreamNonBlocking));
	if (gpu_ok(d))
		gpu_pool_open(d);
	if (gpu_ok(d))
		gpu_staging_open(d, &d->out, 2, staging, NULL);
	if (gpu_ok(d))
		gpu_staging_open(d, &d->in, 2, staging, NULL);
}

static struct dev *
gpu_open(int index, int threads, char *err, size_t errlen)
{
	cudaDeviceProp p;
	struct dev *d;

	if (!usable(index, &p, err, errlen))
		return NULL;
	if ((d = (struct dev *)calloc(1, sizeof *d)) == NULL) {
		snprintf(err, errlen, "no memory");
		return NULL;
	}
	d->index = index;
	d->threads = threads > 0 ? (unsigned)threads : 0;
	d->sms = (unsigned)p.multiProcessorCount;
	d->l2 = (size_t)p.l2CacheSize;
	d->most_shared = p.sharedMemPerBlockOptin - DECLARED;
	d->hopper = p.major == 9 && p.minor == 0;
	d->any_wgmma = force_wgmma;
	d->reference = force_reference;
	snprintf(d->text, sizeof d->text, "%s, compute capability %d.%d, %zu MiB", p.name, p.major,
	    p.minor, p.totalGlobalMem >> 20);
	gpu_check(d, "cudaSetDevice", cudaSetDevice(index));
	d->pdl = !force_no_pdl && pdl_supported();
	open_streams(d, STAGING);
	if (!gpu_ok(d)) {
		snprintf(err, errlen, "GPU %d: %s", index, d->error);
		gpu_close(d);
		return NULL;
	}
	return d;
}

struct dev *
gpu_open_small(const struct dev *like)
{
	struct dev *d = (struct dev *)calloc(1, sizeof *d);

	if (d == NULL)
		return NULL;
	d->index = like->index;
	d->threads = 1;
	d->sms = like->sms;
	d->l2 = like->l2;
	d->most_shared = like->most_shared;
	d->hopper = like->hopper;
	d->pdl = like->pdl;
	open_streams(d, LITTLE_STAGING);
	return d;
}

static const char *
gpu_sync(struct dev *d)
{
	gpu_weights_end(d);
	if (gpu_ok(d))
		gpu_check_wait(d, "GPU", cudaStreamSynchronize(d->stream));
	gpu_check_refused(d);
	gpu_fetches_end(d);
	return gpu_ok(d) ? NULL : d->error;
}

static const char *
gpu_describe(struct dev *d)
{
	return d->text;
}

void
gpu_refuse_capture(struct dev *d, const char *op)
{
	if (d->capturing)
		gpu_fail(d, "%s cannot be captured", op);
}

int
gpu_one_query_row(struct dev *d, const struct query *query)
{
	if (query->N != 1)
		gpu_fail(d, "retrieval for %u query rows, not 1", query->N);
	if (query->window != 0)
		gpu_fail(d, "retrieval in sliding-window attention, of %u positions, is not "
		    "supported", query->window);
	return gpu_ok(d);
}

int
gpu_rows_of(struct dev *d, struct rows *r, const struct layer_rows *l, uint32_t H, const char *op)
{
	if (!gpu_capturable_rows_of(d, r, l, H, op))
		return 0;
	r->appended = NULL;
	gpu_fixes_lengths(d);
	return 1;
}

int
gpu_capturable_rows_of(struct dev *d, struct rows *r, const struct layer_rows *l, uint32_t H,
    const char *op)
{
	uint32_t g;

	if (l->heads == 0 || l->heads > MAX_HEADS || H % l->heads != 0)
		gpu_fail(d, "%s: %u query heads over %u KV heads", op, H, l->heads);
	if (!gpu_ok(d))
		return 0;
	*r = { .k = l->k, .v = l->v, .pos = l->pos, .G = l->heads, .E = l->width,
		.appended = d->capturing ? d->appended : NULL, .start = {}, .len = {} };
	for (g = 0; g < l->heads; g++) {
		r->start[g] = l->start[g];
		r->len[g] = l->len[g];
	}
	return 1;
}

uint32_t
gpu_rows_to_come(const struct dev *d, const struct layer_rows *l)
{
	uint32_t g, most = 0;

	for (g = 0; d->capturing && l->capacity != NULL && g < l->heads; g++)
		most = l->capacity[g] > most ? l->capacity[g] : most;
	return most;
}

const struct ops gpu_ops = {
	.name = "cuda",
	.runs_ahead = 1,
	.takes_recent = 0,
	.shares_memory = 0,
	.open = gpu_open,
	.close = gpu_close,
	.sync = gpu_sync,
	.describe = gpu_describe,
	.products_in_bf16 = NULL,        /* it rounds to the type of the weights anyway */
	.blocks_in_f32 = NULL,
	.use_kernels = gpu_use_kernels,
	.event_record = gpu_event_record,
	.event_wait = gpu_event_wait,
	.mem_info = gpu_mem_info,
	.alloc = gpu_alloc,
	.free = gpu_free,
	.put = gpu_put,
	.put_scattered = gpu_put_scattered,
	.get = gpu_get,
	.get_side = gpu_get_side,
	.host_alloc = gpu_host_alloc,
	.host_free = gpu_host_free,
	.get_async = gpu_get_async,
	.copy = gpu_copy,
	.clear = gpu_clear,
	.expect = gpu_expect,
	.weights = gpu_weights,
	.graph_begin = gpu_graph_begin,
	.graph_end = gpu_graph_end,
	.graph_launch = gpu_graph_launch,
	.embed = gpu_embed,
	.embed_ids = gpu_embed_ids,
	.rmsnorm = gpu_rmsnorm,
	.layernorm = gpu_layernorm,
	.matmul = gpu_matmul,
	.rope = gpu_rope,
	.split_pairs = gpu_split_pairs,
	.append = gpu_append,
	.compact = gpu_compact,
	.compact_listed = gpu_compact_listed,
	.round = gpu_round,
	.swiglu = gpu_swiglu,
	.geglu = gpu_geglu,
	.softcap = gpu_softcap,
	.clamp = gpu_clamp,
	.mix = gpu_mix,
	.copy_channels = gpu_copy_channels,
	.head_products = gpu_head_products,
	.temper = gpu_temper,
	.repeat_heads = gpu_repeat_heads,
	.experts = gpu_experts,
	.scale_rows = gpu_scale_rows,
	.project = gpu_project,
	.rope_append = gpu_rope_append,
	.rope_append_each = gpu_rope_append_each,
	.ffn = gpu_ffn,
	.attend = gpu_checked_attend,
	.attend_each = gpu_checked_attend_each,
	.attend_apart = NULL,
	.lse_merge = gpu_lse_merge,
	.attend_mass = gpu_checked_attend_mass,
	.query_stats = gpu_query_stats,
	.value_norms = gpu_value_norms,
	.activate = gpu_activate,
	.gate_scores = gpu_gate_scores,
	.window_mass = gpu_checked_window_mass,
	.knorm = gpu_knorm,
	.keydiff = gpu_keydiff,
	.rank_rows = gpu_rank_rows,
	.argmax = gpu_argmax,
	.pack_bits = gpu_pack_bits,
	.pack_pages = gpu_pack_pages,
	.bits_scores = gpu_checked_bits_scores,
	.page_scores = gpu_page_scores,
	.key_scores = gpu_key_scores,
	.group_reduce = gpu_group_reduce,
	.topk = gpu_topk,
	.scores_by_label = gpu_scores_by_label,
	.attend_chosen = gpu_checked_attend_chosen,
	.gather = gpu_gather,
	.rebuild = gpu_rebuild,
	.fetch_chosen = gpu_fetch_chosen,
	.fetch_wait = gpu_fetch_wait,
};
