/* gpu_memory.cu - memory of a GPU: allocation, scratch, copies to and from the host, rows that move
 *
 * Host memory of callers is not pinned, and a copy from there would make the host wait for all work
 * before it. So bytes go through pinned buffers (struct staging): what is put is taken over at
 * once, and what is got arrives while the piece before it is brought to its place. Weights have
 * buffers of their own, gpu_weights.cu. */
#include "gpu/gpu_internal.h"

/* Bytes that keep() gathers before it writes them back: they are still in the second-level cache
 * then, of 40 MiB and more on GPUs that this is for. */
#define KEEP_PIECE ((size_t)16 << 20)

enum { THREADS = 256 };

void
gpu_room(struct dev *d, size_t *free, size_t *total)
{
	cudaSetDevice(d->index);
	if (!gpu_check(d, "cudaMemGetInfo", cudaMemGetInfo(free, total)))
		*free = *total = 0;
}

void *
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

void
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
	gpu_check(d, "scratch", cudaMemsetAsync(d->scratch[which].at, 0, bytes, d->stream));
	return d->scratch[which].at;
}

/* ---- pinned buffers ---- */

void
gpu_staging_open(struct dev *d, struct staging *s, unsigned buffers, size_t size)
{
	unsigned i;

	s->buffers = buffers;
	s->size = size;
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
	cudaFreeHost(s->at);
	*s = {};
}

/* Many small pieces share a buffer, so that one waits for copies only when a whole round of
 * buffers has been filled since. */
char *
gpu_staging_next(struct dev *d, struct staging *s, cudaStream_t stream, size_t *n)
{
	char *at;

	if (s->used >= s->size) {
		gpu_check(d, "put", cudaEventRecord(s->done[s->turn], stream));
		s->turn = (s->turn + 1) % s->buffers;
		s->used = 0;
		gpu_wait(d, "put", s->done[s->turn]);
	}
	if (*n > s->size - s->used)
		*n = s->size - s->used;
	at = s->at + s->turn * s->size + s->used;
	s->used += (*n + 63) / 64 * 64;
	return at;
}

void
gpu_put(struct dev *d, void *dst, const void *src, size_t bytes)
{
	size_t at, n;
	char *p;

	gpu_forget(d);
	cudaSetDevice(d->index);        /* other threads may have opened it */
	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		n = bytes - at;
		p = gpu_staging_next(d, &d->out, d->stream, &n);
		if (!gpu_ok(d))
			return;
		memcpy(p, (const char *)src + at, n);
		gpu_check(d, "put", cudaMemcpyAsync((char *)dst + at, p, n,
		    cudaMemcpyHostToDevice, d->stream));
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

/* One piece more is on its way into buffer number i. */
static void
ask(struct dev *d, unsigned i, const char *from, size_t n)
{
	gpu_check(d, "get", cudaMemcpyAsync(d->in.at + i * d->in.size, from, n,
	    cudaMemcpyDeviceToHost, d->stream));
	gpu_check(d, "get", cudaEventRecord(d->in.done[i], d->stream));
}

void
gpu_get(struct dev *d, void *dst, const void *src, size_t bytes)
{
	const size_t most = d->in.size;
	size_t asked = 0, at, n;
	unsigned i;

	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		for (; asked < bytes && asked < at + 2 * most && gpu_ok(d); asked += n) {
			n = bytes - asked < most ? bytes - asked : most;
			ask(d, asked / most % 2, (const char *)src + asked, n);
		}
		i = at / most % 2;
		n = bytes - at < most ? bytes - at : most;
		if (gpu_wait(d, "get", d->in.done[i]))
			memcpy((char *)dst + at, d->in.at + i * most, n);
	}
}

void
gpu_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
	gpu_forget(d);
	if (gpu_ok(d) && bytes > 0)
		gpu_check(d, "copy", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
		    d->stream));
}

void
gpu_clear(struct dev *d, void *dst, size_t bytes)
{
	gpu_forget(d);
	if (gpu_ok(d) && bytes > 0)
		gpu_check(d, "clear", cudaMemsetAsync(dst, 0, bytes, d->stream));
}

/* ---- rows that move together ---- */

/* to[n][per] <- the rows of at[][per] that are listed */
template <class T>
static __global__ void __launch_bounds__(THREADS)
take_rows(T *__restrict__ to, const T *__restrict__ at, const uint32_t *__restrict__ rows,
    uint32_t n, uint32_t per)
{
	const size_t all = (size_t)n * per;

	for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all;
	    i += (size_t)gridDim.x * THREADS) {
		const uint32_t row = (uint32_t)(i / per);

		to[i] = at[(size_t)rows[row] * per + (i - (size_t)row * per)];
	}
}

template <class T>
static void
take(struct dev *d, void *to, const void *at, size_t bytes, const uint32_t *rows, uint32_t n)
{
	const uint32_t per = (uint32_t)(bytes / sizeof(T));
	const unsigned most = 32 * d->sms, want = parts_of((size_t)n * per, THREADS);

	LAUNCH(d, take_rows<T>, want < most ? want : most, THREADS, 0, (T *)to, (const T *)at, rows,
	    n, per);
}

/* Rows go to scratch, as many as find room there, and from there to their places. Rows that come
 * later stand behind all places that were written: row i never moves backwards over i. */
void
gpu_keep(struct dev *d, void *at, size_t bytes, const uint32_t *rows, uint32_t n)
{
	const uint32_t most = bytes < KEEP_PIECE ? (uint32_t)(KEEP_PIECE / bytes) : 1;
	const size_t parity = (uintptr_t)at | bytes;
	const uint32_t *list;
	uint32_t i, first, part;
	char *held;

	for (first = 0; first < n && rows[first] == first; first++)
		;                                       /* these stay where they are */
	n -= first;
	if (n == 0 || bytes == 0)
		return;
	held = (char *)gpu_scratch(d, SCRATCH_ROWS, bytes * (n < most ? n : most));
	list = (const uint32_t *)gpu_list(d, rows + first, n * sizeof *rows);
	for (i = 0; i < n && gpu_ok(d); i += part) {
		part = n - i < most ? n - i : most;
		if (parity % 16 == 0)
			take<uint4>(d, held, at, bytes, list + i, part);
		else if (parity % 4 == 0)
			take<uint32_t>(d, held, at, bytes, list + i, part);
		else
			take<unsigned char>(d, held, at, bytes, list + i, part);
		gpu_copy(d, (char *)at + (size_t)(first + i) * bytes, held, part * bytes);
	}
}
