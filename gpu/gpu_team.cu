/* gpu_team.cu - see gpu_team.h */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/gpu_team.h"

#define ALONE ((size_t)512 << 10)      /* up to so many bytes the caller copies alone */
#define PAGE ((size_t)4096)
#define LARGE_PAGE ((size_t)2 << 20)

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

static unsigned
processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Helpers block all signals: these are for the program's own thread. Without helpers the
 * caller copies alone. */
void
team_open(struct team *t, unsigned threads)
{
	sigset_t all, before;

	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->begin, NULL);
	pthread_cond_init(&t->end, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (threads == 0)
		threads = processors();
	while (t->helpers + 1 < threads && t->helpers < MOST_HELPERS &&
	    pthread_create(&t->id[t->helpers], NULL, help, t) == 0)
		t->helpers++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void
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

void
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

void *
team_alloc(struct team *t, size_t bytes)
{
	void *p = aligned_alloc(LARGE_PAGE, (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);

	if (p == NULL)
		return NULL;
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	team_copy(t, (char *)p, NULL, bytes);
	return p;
}
