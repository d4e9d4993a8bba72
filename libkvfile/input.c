/* input.c - the input of a snapshot: a regular file, or a stream
 *
 * A file is read, not mapped: checked bytes cannot change later, and a file that is truncated
 * or unreadable is an error here and not a signal. From the page cache both take the same time. */

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPE_SIZE (1 << 20)     /* the largest size without privileges; fewer context switches */

_Static_assert(sizeof(off_t) == 8, "offsets in files have 64 bits: -D_FILE_OFFSET_BITS=64");

int
kv_input_open(struct kv_input *in, int fd)
{
	struct stat st;

	memset(in, 0, sizeof *in);
	in->fd = fd;
	if (fstat(fd, &st) != 0)
		return errno;
	if (S_ISDIR(st.st_mode))
		return EISDIR;
	if (S_ISFIFO(st.st_mode))
		(void)fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE);
	in->regular = S_ISREG(st.st_mode);
	/* A file not read from its start ("tool < file" after another reader) is a stream:
	 * offsets count from here. */
	in->whole = in->regular && lseek(fd, 0, SEEK_CUR) == 0;
	if (in->whole)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

/* A read() that also waits on non-blocking descriptors. A file from its beginning is read by
 * offset: its descriptor may be shared with another reader. */
static ssize_t
read_some(const struct kv_input *in, void *buf, size_t n)
{
	struct pollfd wait = { .fd = in->fd, .events = POLLIN };
	ssize_t k;

	for (;;) {
		k = in->whole ? pread(in->fd, buf, n, (off_t)in->pos) : read(in->fd, buf, n);
		if (k >= 0)
			return k;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			(void)poll(&wait, 1, -1);
		else if (errno != EINTR)
			return -1;
	}
}

int
kv_input_take(struct kv_input *in, void *buf, size_t n, size_t *got)
{
	size_t have = 0;
	ssize_t k;

	while (have < n && in->error == 0) {
		kv_watch_begin(in->watch, in->regular ? KV_DOING_READ : KV_DOING_WAIT);
		k = read_some(in, (uint8_t *)buf + have, n - have);
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
	return have == n ? 0 : -1;
}

int
kv_input_skip(struct kv_input *in, uint64_t n)
{
	struct stat st;

	if (fstat(in->fd, &st) != 0) {
		in->error = errno;
		return -1;
	}
	if (in->pos > (uint64_t)st.st_size || n > (uint64_t)st.st_size - in->pos) {
		in->pos = (uint64_t)st.st_size;
		return -1;
	}
	in->pos += n;
	return 0;
}
