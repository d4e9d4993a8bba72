/* gpu_team.h - host threads that copy memory together, for pinned memory
 *
 * One thread fills pinned memory at a fraction of the rate of the GPU's bus. */
#ifndef GPU_TEAM_H
#define GPU_TEAM_H

#include <pthread.h>
#include <stddef.h>

enum { MOST_HELPERS = 15 };

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

/* Starts the threads, `threads` with the caller, 0: as many as there are processors. Where threads
 * cannot be had the caller copies alone. */
void team_open(struct team *, unsigned threads);
void team_close(struct team *);

/* Copies; from NULL: zeros. */
void team_copy(struct team *, char *to, const char *from, size_t bytes);

/* Returns memory of zeros that the threads have touched, in huge pages where the system has them,
 * to be registered as pinned memory and released by free(); NULL when there is none. The runtime
 * allocates pinned memory page by page, half a millisecond for a MiB, and frees it not much faster;
 * registering memory that threads have touched takes a fifth of that
 * (github.com/NVIDIA/cudf/pull/23457); on an H200's host 96 MiB were touched in 5 ms and
 * registered in 8. */
void *team_alloc(struct team *, size_t bytes);

#endif
