/* gpu_weights.cu - upload of weights from a mapped file to the GPU
 *
 * The GPU copies from pinned memory at the speed of its bus. One host thread fills pinned memory
 * at a fraction of that, slower still where it takes page faults of the mapping. So several
 * threads fill a buffer, each a part of it, while a stream of its own copies the buffers before
 * it. Tensors share buffers, and the host does not wait at the end of one: later work waits for
 * the copies on the GPU.
 *
 * Tensors are packed into one allocation for all of them (expect()). */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gpu/gpu_internal.h"

enum { BUFFERS = 3, MOST_HELPERS = 15 };
#define MOST_BUFFER ((size_t)32 << 20)
#define LEAST_BUFFER ((size_t)1 << 20)
#define ALONE ((size_t)512 << 10)      /* up to so many bytes the caller copies alone */
#define ALIGN ((size_t)256)
#define PAGE ((size_t)4096)
#define LARGE_PAGE ((size_t)2 << 20)

/* An allocation that holds weights; the device's list of them */
struct weights {
	struct weights *next;
	char *at;
	size_t size, used;
};

/* Threads that copy in parallel, the caller one of them; one round for each team_copy() */
struct team {
	pthread_t id[MOST_HELPERS];
	unsigned helpers, started;     /* started: gives each thread its part */
	pthread_mutex_t lock;
	pthread_cond_t begin, end;
	unsigned round, busy;
	int over;
	char *to;
	const char *from;
	size_t bytes;
};

/* What exists while weights are uploaded */
struct upload {
	struct staging staging;
	cudaStream_t stream;
	cudaEvent_t done;
	struct team team;
};

/* ---- threads ---- */

/* Copies part i of n. from NULL: zeros. Page faults of the mapping come as pages are read, with
 * their neighbours; MADV_POPULATE_READ before was slower, see SPEED.md. */
static void
copy_part(char *to, const char *from, size_t bytes, unsigned i, unsigned n)
{
	const size_t part = (bytes / n + PAGE) / PAGE * PAGE;
	const size_t first = i * part < bytes ? i * part : bytes;
	const size_t size = bytes - first < part ? bytes - first : part;

	if (size == 0)
		return;
	if (from == NULL) {
		memset(to + first, 0, size);
		return;
	}
	memcpy(to + first, from + first, size);
}

static void *
help(void *arg)
{
	struct team *t = (struct team *)arg;
	unsigned seen = 0, mine;

	pthread_mutex_lock(&t->lock);
	mine = ++t->started;
	for (;;) {
		while (t->round == seen && !t->over)
			pthread_cond_wait(&t->begin, &t->lock);
		if (t->over)
			break;
		seen = t->round;
		pthread_mutex_unlock(&t->lock);
		copy_part(t->to, t->from, t->bytes, mine, t->helpers + 1);
		pthread_mutex_lock(&t->lock);
		if (--t->busy == 0)
			pthread_cond_signal(&t->end);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* Helpers block all signals: these are for the program's own thread. Without helpers the
 * caller copies alone. */
static void
team_open(struct team *t, unsigned threads)
{
	sigset_t all, before;

	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->begin, NULL);
	pthread_cond_init(&t->end, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	while (t->helpers + 1 < threads && t->helpers < MOST_HELPERS &&
	    pthread_create(&t->id[t->helpers], NULL, help, t) == 0)
		t->helpers++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void
team_close(struct team *t)
{
	pthread_mutex_lock(&t->lock);
	t->over = 1;
	pthread_cond_broadcast(&t->begin);
	pthread_mutex_unlock(&t->lock);
	while (t->helpers > 0)
		pthread_join(t->id[--t->helpers], NULL);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->begin);
	pthread_cond_destroy(&t->end);
}

static void
team_copy(struct team *t, char *to, const char *from, size_t bytes)
{
	if (t->helpers == 0 || bytes <= ALONE) {
		copy_part(to, from, bytes, 0, 1);
		return;
	}
	pthread_mutex_lock(&t->lock);
	t->to = to;
	t->from = from;
	t->bytes = bytes;
	t->busy = t->helpers;
	t->round++;
	pthread_cond_broadcast(&t->begin);
	pthread_mutex_unlock(&t->lock);
	copy_part(to, from, bytes, 0, t->helpers + 1);
	pthread_mutex_lock(&t->lock);
	while (t->busy > 0)
		pthread_cond_wait(&t->end, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static unsigned
processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* ---- upload ---- */

/* Prefaulted memory, in huge pages where the system has them; NULL when there is none. The
 * runtime allocates pinned memory page by page, half a millisecond for a MiB, and frees it
 * not much faster: for all buffers that is a quarter of the time in which 16 GB can be
 * copied. Registering memory that threads have touched takes a fifth of that
 * (github.com/NVIDIA/cudf/pull/23457). */
static void *
prefaulted(struct team *t, size_t bytes)
{
	void *p = aligned_alloc(LARGE_PAGE, (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);

	if (p == NULL)
		return NULL;
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	team_copy(t, (char *)p, NULL, bytes);
	return p;
}

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
	team_open(&u->team, d->threads > 0 ? d->threads : processors());
	size = (size + LEAST_BUFFER - 1) / LEAST_BUFFER * LEAST_BUFFER;
	gpu_check(d, "weights", cudaStreamCreateWithFlags(&u->stream, cudaStreamNonBlocking));
	gpu_check(d, "weights", cudaEventCreateWithFlags(&u->done, cudaEventDisableTiming));
	if (gpu_ok(d))
		gpu_staging_open(d, &u->staging, BUFFERS, size,
		    prefaulted(&u->team, BUFFERS * size));
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
