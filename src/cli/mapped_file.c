/* mapped_file.c - maps a file for reading and survives its truncation */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/mapped_file.h"

enum { MOST = 256 };                            /* mappings at a time */

/* Read by the handler: data is set last. */
struct mapped_file {
	_Atomic(char *) data;                   /* NULL: not in use */
	size_t size;
	atomic_int broken;
};

static struct mapped_file all[MOST];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static int installed;
static size_t page;

/* Replaces the page at the address by one of zeros. If the page is not in one of our mappings,
 * restores the previous handler and lets the instruction run again. */
static void
on_bus_error(int sig, siginfo_t *info, void *context)
{
	const uintptr_t at = (uintptr_t)info->si_addr;
	const int saved = errno;
	size_t i;

	(void)context;
	for (i = 0; i < MOST; i++) {
		char *data = atomic_load(&all[i].data);

		if (data == NULL || at - (uintptr_t)data >= all[i].size)
			continue;
		atomic_store(&all[i].broken, 1);
		if (mmap((void *)(at / page * page), page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
		    MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
		errno = saved;
		return;
	}
	sigaction(sig, &before, NULL);
	errno = saved;
}

static int
install(void)
{
	struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	if (installed)
		return 1;
	page = (size_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&act.sa_mask);
	return installed = sigaction(SIGBUS, &act, &before) == 0;
}

/* A mapping's addresses would be missing for later allocations. */
static int
addresses_are_limited(void)
{
	struct rlimit space;

	return getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
}

static struct mapped_file *
map_locked(int fd, size_t size)
{
	char *data;
	size_t i;

	for (i = 0; i < MOST && atomic_load(&all[i].data) != NULL; i++)
		;
	if (i == MOST || size == 0 || addresses_are_limited() || !install())
		return NULL;
	if ((data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
		return NULL;
	madvise(data, size, MADV_RANDOM);
	all[i].size = size;
	atomic_store(&all[i].broken, 0);
	atomic_store(&all[i].data, data);
	return &all[i];
}

static struct mapped_file *
map_file(int fd, size_t size)
{
	struct mapped_file *m;

	pthread_mutex_lock(&changing);
	m = map_locked(fd, size);
	pthread_mutex_unlock(&changing);
	return m;
}

static void
unmap_file(struct mapped_file *m)
{
	char *data;

	if (m == NULL)
		return;
	pthread_mutex_lock(&changing);
	data = atomic_load(&m->data);
	atomic_store(&m->data, NULL);
	munmap(data, m->size);
	pthread_mutex_unlock(&changing);
}

static const char *
mapped_data(const struct mapped_file *m)
{
	return m->data;
}

static int
mapped_broken(const struct mapped_file *m)
{
	return m->broken;
}

const struct file_mapper mapped_files = { map_file, unmap_file, mapped_data, mapped_broken };
