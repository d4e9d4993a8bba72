/* cpu_threads.c - the threads of a device
 *
 * Work is a number of items; the caller and the workers take the next one until there is
 * none. Not OpenMP's loops, for one reason: there every thread must arrive at the end of
 * every loop, and those that have arrived spin. A token has a hundred loops of half a
 * millisecond; with one other process on a machine of two cores each took eight, because
 * the missing thread was waiting for the processor that the other was spinning on. And
 * pipelines are made of processes. Here nobody waits for a thread that has not taken an
 * item, and whoever waits long sleeps. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/cpu_internal.h"

#define SPINS 1000           /* looks for new work before sleeping: some 50 microseconds */

struct worker {
	struct thread_pool *pool;
	pthread_t id;
	int thread;              /* 1 .. threads-1; the caller is 0 */
};

struct thread_pool {
	pthread_mutex_t lock;    /* of what follows, except the atomics */
	pthread_cond_t begin, end;
	atomic_uint job;         /* number of the current job; changes under the lock */
	atomic_size_t next;      /* first item that nobody has taken */
	atomic_int busy;         /* workers inside the current job */
	int open;                /* a worker may still enter the current job */
	int sleeping;            /* workers that need a signal */
	int quit;
	void (*work)(void *, size_t, int);
	void *arg;
	size_t items;
	int workers;
	struct worker worker[];
};

static inline void
pause_a_little(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void
take_items(struct thread_pool *p, int thread)
{
	size_t item;

	while ((item = atomic_fetch_add(&p->next, 1)) < p->items)
		p->work(p->arg, item, thread);
}

/* Waits for a job other than seen, and enters it. Returns 0 when the pool closes. */
static int
enter_job(struct thread_pool *p, unsigned *seen)
{
	int i;

	for (i = 0; i < SPINS && atomic_load(&p->job) == *seen; i++)
		pause_a_little();
	pthread_mutex_lock(&p->lock);
	while (!p->quit && (atomic_load(&p->job) == *seen || !p->open)) {
		*seen = atomic_load(&p->job);
		p->sleeping++;
		pthread_cond_wait(&p->begin, &p->lock);
		p->sleeping--;
	}
	*seen = atomic_load(&p->job);
	if (!p->quit)
		atomic_fetch_add(&p->busy, 1);
	pthread_mutex_unlock(&p->lock);
	return !p->quit;
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	struct thread_pool *p = w->pool;
	unsigned seen = 0;

	cpu_blas_threads(1);
	while (enter_job(p, &seen)) {
		take_items(p, w->thread);
		pthread_mutex_lock(&p->lock);
		if (atomic_fetch_sub(&p->busy, 1) == 1)
			pthread_cond_signal(&p->end);
		pthread_mutex_unlock(&p->lock);
	}
	return NULL;
}

struct thread_pool *
cpu_pool_open(int threads)
{
	struct thread_pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof p->worker[0]);
	struct worker *w;
	int error;

	if (p == NULL)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->begin, NULL);
	pthread_cond_init(&p->end, NULL);
	while (p->workers < threads - 1) {
		w = &p->worker[p->workers];
		*w = (struct worker){ .pool = p, .thread = p->workers + 1 };
		if ((error = pthread_create(&w->id, NULL, worker_main, w)) != 0) {
			cpu_pool_close(p);
			errno = error;
			return NULL;
		}
		p->workers++;
	}
	return p;
}

void
cpu_pool_close(struct thread_pool *p)
{
	int i;

	if (p == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = 1;
	pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < p->workers; i++)
		pthread_join(p->worker[i].id, NULL);
	pthread_cond_destroy(&p->end);
	pthread_cond_destroy(&p->begin);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void
cpu_pool_run(struct thread_pool *p, void (*work)(void *, size_t, int), void *arg, size_t items)
{
	int i;

	pthread_mutex_lock(&p->lock);
	p->work = work;
	p->arg = arg;
	p->items = items;
	p->open = 1;
	atomic_store(&p->next, 0);
	atomic_fetch_add(&p->job, 1);
	if (p->sleeping > 0)
		pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);
	take_items(p, 0);
	for (i = 0; i < SPINS && atomic_load(&p->busy) > 0; i++)
		pause_a_little();
	pthread_mutex_lock(&p->lock);
	p->open = 0;
	while (atomic_load(&p->busy) > 0)
		pthread_cond_wait(&p->end, &p->lock);
	pthread_mutex_unlock(&p->lock);
}
