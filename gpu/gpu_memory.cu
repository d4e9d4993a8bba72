/* gpu_memory.cu - device memory: allocation, scratch, copies to and from the host, events
 *
 * Host memory of callers is not pinned: a direct copy would make the host wait for all work
 * before it. So copies go through pinned staging buffers (struct staging). put() returns as
 * soon as the bytes are in a buffer; get() overlaps the copy of one piece with the memcpy of
 * the piece before. Weights have buffers of their own, gpu_weights.cu. */
#include <stdlib.h>

#include "gpu/gpu_internal.h"
#include "gpu/gpu_team.h"

#define TOUCHED_ALONE ((size_t)64 << 20)       /* less pinned memory is not worth threads */

/* Memory for kernels, which the driver loads at their first launch, and for cuBLAS' handle: not
 * measured, said to be 50 to 250 MB. A device with less than SMALL_DEVICE is a test's. */
#define LOADED_LATER ((size_t)256 << 20)
#define SMALL_DEVICE ((size_t)1 << 30)

/* ---- allocation ----
 *
 * cudaMalloc() and cudaFree() may wait until the GPU is idle. So alloc() and free() are in the
 * order of the stream: what is freed can be allocated again at once, for work behind all that
 * used it, and nobody waits. The pool keeps what is freed until memory is short. Where the
 * driver has no pools, alloc() is cudaMalloc(). */

void
gpu_pool_open(struct dev *d)
{
	cudaMemPoolProps how = {};
	uint64_t keep = UINT64_MAX;
	int there = 0;

	if (!gpu_check(d, "cudaDeviceGetAttribute", cudaDeviceGetAttribute(&there,
	    cudaDevAttrMemoryPoolsSupported, d->index)) || !there)
		return;
	how.allocType = cudaMemAllocationTypePinned;
	how.location.type = cudaMemLocationTypeDevice;
	how.location.id = d->index;
	if (gpu_check(d, "cudaMemPoolCreate", cudaMemPoolCreate(&d->pool, &how)))
		gpu_check(d, "cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(d->pool,
		    cudaMemPoolAttrReleaseThreshold, &keep));
}

/* Everything of alloc() has been freed. */
void
gpu_pool_close(struct dev *d)
{
	if (d->pool == NULL)
		return;
	cudaStreamSynchronize(d->stream);
	cudaMemPoolDestroy(d->pool);
	d->pool = NULL;
}

/* Bytes that the pool keeps; 0 after a failure. Waits, since what is freed is the pool's again when
 * the stream has come to it. */
static size_t
kept(struct dev *d)
{
	uint64_t reserved, used;

	if (d->pool == NULL || !gpu_check_wait(d, "GPU", cudaStreamSynchronize(d->stream)) ||
	    !gpu_check(d, "cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(d->pool,
	    cudaMemPoolAttrReservedMemCurrent, &reserved)) ||
	    !gpu_check(d, "cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(d->pool,
	    cudaMemPoolAttrUsedMemCurrent, &used)))
		return 0;
	return reserved - used;
}

/* What the pool keeps can be allocated, too. */
void
gpu_mem_info(struct dev *d, size_t *free, size_t *total)
{
	cudaSetDevice(d->index);
	if (gpu_check(d, "cudaMemGetInfo", cudaMemGetInfo(free, total)))
		*free += kept(d);
	else
		*free = *total = 0;
	if (*total >= SMALL_DEVICE)
		*free -= min(*free, LOADED_LATER);
}

int
gpu_trim(struct dev *d)
{
	cudaGetLastError();
	return kept(d) > 0 && gpu_check(d, "cudaMemPoolTrimTo", cudaMemPoolTrimTo(d->pool, 0));
}

/* Memory of the pool; NULL: of cudaMalloc() */
static void *
allocate(struct dev *d, size_t bytes, cudaMemPool_t pool)
{
	cudaError_t e = cudaErrorMemoryAllocation;
	void *p = NULL;
	int turn;

	cudaSetDevice(d->index);
	gpu_refuse_capture(d, "alloc");
	if (bytes > SIZE_MAX / 2 || d->capturing)
		return NULL;
	bytes = bytes > 0 ? bytes : 1;
	for (turn = 0; turn < 2 && e == cudaErrorMemoryAllocation; turn++) {
		if (turn > 0 && !gpu_trim(d))
			return NULL;
		e = pool != NULL ? cudaMallocFromPoolAsync(&p, bytes, pool, d->stream) :
		    cudaMalloc(&p, bytes);
	}
	if (e == cudaSuccess)
		return p;
	cudaGetLastError();
	/* Any call may report the error of an earlier kernel. */
	if (e != cudaErrorMemoryAllocation)
		gpu_check_wait(d, pool != NULL ? "cudaMallocFromPoolAsync" : "cudaMalloc", e);
	return NULL;
}

void *
gpu_alloc(struct dev *d, size_t bytes)
{
	return allocate(d, bytes, d->pool);
}

void *
gpu_alloc_apart(struct dev *d, size_t bytes)
{
	return allocate(d, bytes, NULL);
}

void
gpu_free(struct dev *d, void *p)
{
	if (p == NULL)
		return;
	gpu_refuse_capture(d, "free");
	if (d->capturing)
		return;
	/* nobody may have waited for other streams, if that has failed */
	if (!gpu_ok(d) && d->side_stream != NULL)
		cudaStreamSynchronize(d->side_stream);
	if (!gpu_ok(d) && d->fetching.stream != NULL)
		cudaStreamSynchronize(d->fetching.stream);
	if (d->pool == NULL)
		cudaFree(p);
	else if (cudaFreeAsync(p, d->stream) != cudaSuccess)
		cudaGetLastError();
}

void *
gpu_scratch(struct dev *d, enum scratch which, size_t bytes)
{
	if (!gpu_ok(d))
		return NULL;
	if (bytes <= d->scratch[which].bytes)
		return d->scratch[which].at;
	gpu_refuse_capture(d, "more scratch");
	if (!gpu_ok(d))
		return NULL;
	d->scratch_moves++;
	gpu_free(d, d->scratch[which].at);
	d->scratch[which].bytes = 0;
	if ((d->scratch[which].at = gpu_alloc(d, bytes)) == NULL) {
		gpu_fail(d, "no room for %zu bytes of scratch on the GPU", bytes);
		return NULL;
	}
	d->scratch[which].bytes = bytes;
	d->no_early_start = true;
	gpu_check(d, "scratch", cudaMemsetAsync(d->scratch[which].at, 0, bytes, d->stream));
	return d->scratch[which].at;
}

/* ---- staging buffers ---- */

void
gpu_staging_open(struct dev *d, struct staging *s, unsigned buffers, size_t size, void *memory)
{
	unsigned i;

	s->buffers = buffers;
	s->size = size;
	s->ours = memory != NULL && cudaHostRegister(memory, buffers * size,
	    cudaHostRegisterDefault) == cudaSuccess;
	if (memory != NULL && !s->ours) {
		cudaGetLastError();
		free(memory);
	}
	if (s->ours)
		s->at = (char *)memory;
	else
		gpu_check(d, "pinned memory", cudaMallocHost((void **)&s->at, buffers * size));
	for (i = 0; i < buffers && gpu_ok(d); i++)
		gpu_check(d, "cudaEventCreate", cudaEventCreateWithFlags(&s->done[i],
		    cudaEventDisableTiming));
}

void
gpu_staging_close(struct staging *s)
{
	unsigned i;

	for (i = 0; i < s->buffers; i++)
		if (s->done[i] != NULL)
			cudaEventDestroy(s->done[i]);
	if (s->ours) {
		cudaHostUnregister(s->at);
		free(s->at);
	} else
		cudaFreeHost(s->at);
	*s = {};
}

/* Small pieces share a buffer: the wait is for the copies of a whole round of buffers ago. */
char *
gpu_staging_next(struct dev *d, struct staging *s, cudaStream_t stream, size_t *n)
{
	char *at;

	if (s->used >= s->size) {
		gpu_check(d, "put", cudaEventRecord(s->done[s->turn], stream));
		s->turn = (s->turn + 1) % s->buffers;
		s->used = 0;
		gpu_sync_event(d, "put", s->done[s->turn]);
	}
	if (*n > s->size - s->used)
		*n = s->size - s->used;
	at = s->at + s->turn * s->size + s->used;
	s->used += (*n + 63) / 64 * 64;
	return at;
}

char *
gpu_put_next(struct dev *d, size_t *bytes)
{
	char *p;

	gpu_forget(d);
	gpu_refuse_capture(d, "put");
	if (!gpu_ok(d))
		return NULL;
	cudaSetDevice(d->index);        /* the current device is per host thread */
	p = gpu_staging_next(d, &d->out, d->stream, bytes);
	d->no_early_start = true;
	return gpu_ok(d) ? p : NULL;
}

void
gpu_put_done(struct dev *d, void *dst, const void *written, size_t bytes)
{
	if (gpu_ok(d))
		gpu_check(d, "put", cudaMemcpyAsync(dst, written, bytes, cudaMemcpyHostToDevice,
		    d->stream));
}

void
gpu_put(struct dev *d, void *dst, const void *src, size_t bytes)
{
	size_t at, n;
	char *p;

	gpu_forget(d);
	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		n = bytes - at;
		if ((p = gpu_put_next(d, &n)) == NULL)
			return;
		memcpy(p, (const char *)src + at, n);
		gpu_put_done(d, (char *)dst + at, p, n);
	}
}

void *
gpu_list(struct dev *d, const void *host, size_t bytes)
{
	void *p;

	if (d->capturing)
		return gpu_graph_list(d, host, bytes);
	d->listed += gpu_list_size(bytes);
	if ((p = gpu_scratch(d, SCRATCH_LIST, bytes)) != NULL)
		gpu_put(d, p, host, bytes);
	return p;
}

/* Starts the copy of one piece into buffer i. */
static void
start_get(struct dev *d, cudaStream_t stream, unsigned i, const char *from, size_t n)
{
	d->no_early_start |= stream == d->stream;
	gpu_check(d, "get", cudaMemcpyAsync(d->in.at + i * d->in.size, from, n,
	    cudaMemcpyDeviceToHost, stream));
	gpu_check(d, "get", cudaEventRecord(d->in.done[i], stream));
}

/* Double buffering: the next piece is copied from the device while this one goes to its
 * destination. */
static void
get_staged(struct dev *d, cudaStream_t stream, void *dst, const void *src, size_t bytes)
{
	const size_t most = d->in.size;
	size_t started = 0, at, n;
	unsigned i;

	gpu_refuse_capture(d, "get");
	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		for (; started < bytes && started < at + 2 * most && gpu_ok(d); started += n) {
			n = bytes - started < most ? bytes - started : most;
			start_get(d, stream, started / most % 2, (const char *)src + started, n);
		}
		i = at / most % 2;
		n = bytes - at < most ? bytes - at : most;
		if (gpu_sync_event(d, "get", d->in.done[i]))
			memcpy((char *)dst + at, d->in.at + i * most, n);
	}
}

void
gpu_get(struct dev *d, void *dst, const void *src, size_t bytes)
{
	get_staged(d, d->stream, dst, src, bytes);
}

void
gpu_get_side(struct dev *d, void *dst, const void *src, size_t bytes)
{
	get_staged(d, d->side_stream, dst, src, bytes);
}

/* Pinned memory: copies to it are asynchronous. */
void *
gpu_host_alloc(struct dev *d, size_t bytes)
{
	struct team team = {};
	void *p;

	cudaSetDevice(d->index);
	team_open(&team, bytes < TOUCHED_ALONE ? 1 : d->threads);
	p = team_alloc(&team, bytes > 0 ? bytes : 1);
	team_close(&team);
	if (p != NULL && cudaHostRegister(p, bytes > 0 ? bytes : 1, cudaHostRegisterDefault) !=
	    cudaSuccess) {
		cudaGetLastError();
		free(p);
		p = NULL;
	}
	return p;
}

/* A copy to the memory, or a kernel that reads it, may be under way. */
void
gpu_host_free(struct dev *d, void *p)
{
	if (p == NULL)
		return;
	cudaSetDevice(d->index);
	cudaDeviceSynchronize();
	cudaHostUnregister(p);
	free(p);
}

void
gpu_get_async(struct dev *d, void *dst, const void *src, size_t bytes)
{
	d->no_early_start = true;
	if (gpu_ok(d) && bytes > 0)
		gpu_check(d, "fetch", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost,
		    d->stream));
}

/* ---- events ---- */

uint64_t
gpu_event_record(struct dev *d)
{
	cudaEvent_t *e = &d->events[d->events_recorded % EVENTS];

	gpu_refuse_capture(d, "mark");
	cudaSetDevice(d->index);        /* an event belongs to the device it is created on */
	if (gpu_ok(d) && *e == NULL)
		gpu_check(d, "cudaEventCreate", cudaEventCreateWithFlags(e,
		    cudaEventDisableTiming));
	if (gpu_ok(d))
		gpu_check(d, "mark", cudaEventRecord(*e, d->stream));
	return d->events_recorded++;
}

const char *
gpu_event_wait(struct dev *d, uint64_t event)
{
	gpu_sync_event(d, "GPU", d->events[event % EVENTS]);
	return gpu_ok(d) ? NULL : d->error;
}

void
gpu_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
	gpu_forget(d);
	d->no_early_start = true;
	if (gpu_ok(d) && bytes > 0)
		gpu_check(d, "copy", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
		    d->stream));
}

void
gpu_clear(struct dev *d, void *dst, size_t bytes)
{
	gpu_forget(d);
	d->no_early_start = true;
	if (gpu_ok(d) && bytes > 0)
		gpu_check(d, "clear", cudaMemsetAsync(dst, 0, bytes, d->stream));
}
