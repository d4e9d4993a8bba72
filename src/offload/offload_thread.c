/* offload_thread.c - a thread that reads the rows of layers while others run */
#include <pthread.h>
#include <stdlib.h>

#include "offload/offload_read.h"
#include "offload/offload_thread.h"

struct offload_thread {
	struct offload *f;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, done;
	uint32_t *queue;                /* [L] layers, a ring */
	uint64_t begun, ended;          /* number of reads so far */
	uint64_t *number;               /* [L] of the layer's last read, counted from 1 */
	int stop;
};

static void *
fetch_all(void *arg)
{
	struct offload_thread *r = arg;
	uint32_t l;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (r->ended == r->begun && !r->stop)
			pthread_cond_wait(&r->more, &r->lock);
		if (r->stop)
			break;
		l = r->queue[r->ended % r->f->L];
		pthread_mutex_unlock(&r->lock);
		offload_read_layer(r->f, l);
		pthread_mutex_lock(&r->lock);
		r->ended++;
		pthread_cond_signal(&r->done);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void
free_memory(struct offload_thread *r)
{
	pthread_cond_destroy(&r->more);
	pthread_cond_destroy(&r->done);
	pthread_mutex_destroy(&r->lock);
	free(r->queue);
	free(r->number);
	free(r);
}

struct offload_thread *
offload_thread_new(struct offload *f)
{
	struct offload_thread *r = calloc(1, sizeof *r);

	if (r == NULL)
		return NULL;
	r->f = f;
	r->queue = calloc(f->L, sizeof *r->queue);
	r->number = calloc(f->L, sizeof *r->number);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->more, NULL);
	pthread_cond_init(&r->done, NULL);
	if (r->queue != NULL && r->number != NULL &&
	    pthread_create(&r->thread, NULL, fetch_all, r) == 0)
		return r;
	free_memory(r);
	return NULL;
}

void
offload_thread_free(struct offload_thread *r)
{
	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = 1;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	free_memory(r);
}

void
offload_thread_begin(struct offload_thread *r, uint32_t l)
{
	pthread_mutex_lock(&r->lock);
	r->queue[r->begun % r->f->L] = l;
	r->number[l] = ++r->begun;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
}

void
offload_thread_wait(struct offload_thread *r, uint32_t l)
{
	pthread_mutex_lock(&r->lock);
	while (r->ended < r->number[l])
		pthread_cond_wait(&r->done, &r->lock);
	pthread_mutex_unlock(&r->lock);
}
