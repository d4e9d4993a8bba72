/* input.c - where a snapshot comes from: a mapping of a regular file, or a stream */

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPE_SIZE (1 << 20)     /* what Linux allows everyone; fewer switches of process */
#define DROP_UNIT ((uint64_t)1 << 21)

int
kv_input_open(struct kv_input *in, int fd)
{
	struct stat st;
	void *map;

	memset(in, 0, sizeof *in);
	in->fd = fd;
	if (fstat(fd, &st) != 0)
		return errno;
	if (S_ISDIR(st.st_mode))
		return EISDIR;
	if (S_ISFIFO(st.st_mode))
		(void)fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE);
	in->regular = S_ISREG(st.st_mode);
	/* Read from the middle ("tool < file" after another reader) is a stream: offsets count
	 * from here. */
	in->whole = in->regular && lseek(fd, 0, SEEK_CUR) == 0;
	if (!in->whole || st.st_size <= 0 || (uint64_t)st.st_size > SIZE_MAX)
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return 0;                               /* some file systems cannot: read it */
	(void)madvise(map, (size_t)st.st_size, MADV_SEQUENTIAL);
	in->map = map;
	in->size = (uint64_t)st.st_size;
	return 0;
}

/* read() that waits where the descriptor does not. */
static ssize_t
read_some(int fd, void *buf, size_t n)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	ssize_t k;

	for (;;) {
		k = read(fd, buf, n);
		if (k >= 0)
			return k;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			(void)poll(&wait, 1, -1);
		else if (errno != EINTR)
			return -1;
	}
}

const uint8_t *
kv_input_take(struct kv_input *in, void *buf, size_t n, size_t *got)
{
	const uint8_t *p = buf;
	size_t have = 0;
	ssize_t k;

	if (in->map != NULL) {
		p = in->map + in->pos;
		have = n < in->size - in->pos ? n : (size_t)(in->size - in->pos);
		in->pos += have;
	} else
		while (have < n && in->error == 0) {
			kv_watch_begin(in->watch, in->regular ? KV_DOING_READ : KV_DOING_WAIT);
			k = read_some(in->fd, (uint8_t *)buf + have, n - have);
			kv_watch_end(in->watch);
			if (k < 0)
				in->error = errno;
			if (k <= 0)
				break;
			have += (size_t)k;
			in->pos += (uint64_t)k;
		}
	if (in->watch != NULL)
		in->watch->bytes_in += have;
	if (got != NULL)
		*got = have;
	return have == n ? p : NULL;
}

int
kv_input_skip(struct kv_input *in, uint64_t n)
{
	if (n > in->size - in->pos) {
		in->pos = in->size;
		return -1;
	}
	in->pos += n;
	return 0;
}

void
kv_input_drop(struct kv_input *in)
{
	uint64_t to = in->pos / DROP_UNIT * DROP_UNIT;

	if (in->map == NULL || to <= in->dropped)
		return;
	(void)madvise((void *)(uintptr_t)(in->map + in->dropped), (size_t)(to - in->dropped),
	    MADV_DONTNEED);
	in->dropped = to;
}

void
kv_input_close(struct kv_input *in)
{
	if (in->map != NULL)
		munmap((void *)(uintptr_t)in->map, (size_t)in->size);
	in->map = NULL;
}
