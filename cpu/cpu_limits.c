/* cpu_limits.c - what the limits of the process (ulimit -v, ulimit -d) leave of its memory
 *
 * What the system can spare is not known before somebody takes it; what it has forbidden is. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cpu/cpu_internal.h"

#define MIB ((size_t)1 << 20)

/* What oneDNN 2.6 allocates: code, made at the first product (6 MiB), and in each thread copies of
 * parts of the matrices, far less than 4 MiB. */
#define CODE (8 * MIB)
#define COPIES (4 * MIB)

/* Bytes of address space and of private data, from /proc/self/statm; 0 when it is not there. */
static int
used_memory(size_t *space, size_t *data)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned long all, private;
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%lu %*u %*u %*u %*u %lu", &all, &private) != 2)
		return 0;
	*space = all * page;
	*data = private * page;
	return 1;
}

/* *room and *total <- what a limit leaves, and that limit, if it leaves less. */
static void
apply(rlim_t limit, size_t used, size_t *room, size_t *total)
{
	const size_t left = limit > used ? limit - used : 0;

	if (limit == RLIM_INFINITY || left >= *room)
		return;
	*room = left;
	*total = limit;
}

static void
limits(size_t *room, size_t *total)
{
	struct rlimit space, data;
	size_t in_space, in_data;

	*room = *total = SIZE_MAX;
	if (getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 ||
	    (space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) ||
	    !used_memory(&in_space, &in_data))
		return;
	apply(space.rlim_cur, in_space, room, total);
	apply(data.rlim_cur, in_data, room, total);
}

static size_t
reserved(const struct dev *d)
{
	return (d->warm ? 0 : CODE) + (size_t)d->threads * COPIES;
}

void
cpu_mem_info(struct dev *d, size_t *room, size_t *total)
{
	limits(room, total);
	if (*room != SIZE_MAX)
		*room -= reserved(d) < *room ? reserved(d) : *room;
}

int
cpu_has_room(struct dev *d)
{
	size_t room, total;

	limits(&room, &total);
	if (room >= reserved(d))
		return 1;
	cpu_fail(d, "matmul: oneDNN needs %zu MiB for %d threads, of %.1f MiB %.1f are free",
	    reserved(d) / MIB, d->threads, (double)total / MIB, (double)room / MIB);
	return 0;
}
