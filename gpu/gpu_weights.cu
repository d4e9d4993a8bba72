/* gpu_weights.cu - upload of weights from a mapped file to the GPU
 *
 * The GPU copies from pinned memory at the speed of its bus. One host thread fills pinned memory
 * at a fraction of that, slower still where it takes page faults of the mapping. So several
 * threads fill a buffer, each a part of it, while a stream of its own copies the buffers before
 * it. Tensors share buffers, and the host does not wait at the end of one: later work waits for
 * the copies on the GPU.
 *
 * Tensors are packed into one allocation for all of them (expect()). */
#include <stdlib.h>
#include <sys/mman.h>

#include "gpu/gpu_internal.h"
#include "gpu/gpu_team.h"

enum { BUFFERS = 3 };
#define MOST_BUFFER ((size_t)32 << 20)
#define LEAST_BUFFER ((size_t)1 << 20)
#define ALIGN ((size_t)256)
#define PAGE ((size_t)4096)

/* An allocation that holds weights; the device's list of them */
struct weights {
	struct weights *next;
	char *at;
	size_t size, used;
};

/* What exists while weights are uploaded */
struct upload {
	struct staging staging;
	cudaStream_t stream;
	cudaEvent_t done;
	struct team team;
};

/* ---- upload ---- */

/* all: bytes to upload, which bound the size of the buffers */
static void
upload_open(struct dev *d, size_t all)
{
	struct upload *u = (struct upload *)calloc(1, sizeof *u);
	size_t size = all / BUFFERS + 1 < MOST_BUFFER ? all / BUFFERS + 1 : MOST_BUFFER;

	if (u == NULL) {
		gpu_fail(d, "weights: no memory");
		return;
	}
	d->upload = u;
	cudaSetDevice(d->index);
	team_open(&u->team, d->threads);
	size = (size + LEAST_BUFFER - 1) / LEAST_BUFFER * LEAST_BUFFER;
	gpu_check(d, "weights", cudaStreamCreateWithFlags(&u->stream, cudaStreamNonBlocking));
	gpu_check(d, "weights", cudaEventCreateWithFlags(&u->done, cudaEventDisableTiming));
	if (gpu_ok(d))
		gpu_staging_open(d, &u->staging, BUFFERS, size,
		    team_alloc(&u->team, BUFFERS * size));
}

void
gpu_weights_end(struct dev *d)
{
	struct upload *u = d->upload;

	if (u == NULL)
		return;
	d->upload = NULL;
	if (u->stream != NULL)
		gpu_check(d, "weights", cudaStreamSynchronize(u->stream));
	team_close(&u->team);
	gpu_staging_close(&u->staging);
	if (u->done != NULL)
		cudaEventDestroy(u->done);
	if (u->stream != NULL)
		cudaStreamDestroy(u->stream);
	free(u);
}

static void
upload(struct dev *d, struct upload *u, char *to, const char *from, size_t bytes)
{
	char *const page = (char *)((uintptr_t)from / PAGE * PAGE);
	size_t at, n;
	char *p;

	/* readahead for a file that is not in the page cache */
	(void)madvise(page, (size_t)(from - page) + bytes, MADV_WILLNEED);
	for (at = 0; at < bytes && gpu_ok(d); at += n) {
		n = bytes - at;
		p = gpu_staging_next(d, &u->staging, u->stream, &n);
		if (!gpu_ok(d))
			return;
		team_copy(&u->team, p, from + at, n);
		gpu_check(d, "weights", cudaMemcpyAsync(to + at, p, n, cudaMemcpyHostToDevice,
		    u->stream));
	}
	d->no_early_start = true;
	if (gpu_check(d, "weights", cudaEventRecord(u->done, u->stream)))
		gpu_check(d, "weights", cudaStreamWaitEvent(d->stream, u->done, 0));
}

/* ---- allocation ---- */

/* An allocation with so many bytes left, a new one if needed. NULL when memory is short. */
static struct weights *
block(struct dev *d, size_t bytes)
{
	const size_t size = bytes > d->expected ? bytes : d->expected;
	struct weights *w;

	for (w = d->weights; w != NULL; w = w->next)
		if (bytes <= w->size - w->used)
			return w;
	if ((w = (struct weights *)calloc(1, sizeof *w)) == NULL)
		return NULL;
	if ((w->at = (char *)gpu_alloc_apart(d, size)) == NULL) {
		free(w);
		return NULL;
	}
	w->size = size;
	w->next = d->weights;
	d->weights = w;
	d->expected = 0;
	return w;
}

void
gpu_expect(struct dev *d, size_t bytes)
{
	d->expected = bytes;
}

const void *
gpu_weights(struct dev *d, const void *host, size_t bytes)
{
	const size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN, all = d->expected;
	struct weights *w;
	char *to;

	if (bytes > SIZE_MAX / 2 || (w = block(d, whole)) == NULL)
		return NULL;
	to = w->at + w->used;
	w->used += whole;
	if (d->upload == NULL && gpu_ok(d))
		upload_open(d, all > bytes ? all : bytes);
	if (gpu_ok(d))
		upload(d, d->upload, to, (const char *)host, bytes);
	return to;
}

void
gpu_weights_free(struct dev *d)
{
	struct weights *w;

	gpu_weights_end(d);
	while ((w = d->weights) != NULL) {
		d->weights = w->next;
		cudaFree(w->at);
		free(w);
	}
}
