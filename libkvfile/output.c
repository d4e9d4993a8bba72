/* output.c - the output of a snapshot: a file that gets its name at the end, or a stream */

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define BUFFER 65536            /* smaller pieces are collected */
#define PIPE_SIZE (1 << 20)

static int
fail(struct kv_output *o, const char *what, int error, struct kv_message *why)
{
	return kv_say(why, error == ENOMEM ? KV_ENOMEM : KV_EIO, "%.600s: %s: %s", o->name, what,
	    strerror(error));
}

/* Creates a file beside final, with the mode of the old one, or this one. */
static int
create_temporary(struct kv_output *o, const struct stat *old, mode_t mode, struct kv_message *why)
{
	if (old != NULL)
		mode = old->st_mode & 0600;
	o->fd = kv_temporary_create(&o->temporary, o->final, mode);
	if (o->fd < 0)
		return fail(o, "create a temporary file beside it", errno, why);
	o->close = 1;
	if (old != NULL && fchmod(o->fd, old->st_mode & 07777) != 0)
		return fail(o, "keep the mode", errno, why);
	return KV_OK;
}

static int
open_private(struct kv_output *o, const char *path, struct kv_message *why)
{
	char *folder = kv_folder_of(path);
	struct stat st;
	mode_t mode = 0600;

	if (folder != NULL && stat(folder, &st) == 0)
		mode |= (st.st_mode & (S_IWGRP | S_IWOTH)) << 1;
	free(folder);
	if ((o->final = strdup(path)) == NULL)
		return fail(o, "create", errno, why);
	return create_temporary(o, NULL, mode, why);
}

static int
open_path(struct kv_output *o, const char *path, struct kv_message *why)
{
	struct stat st;
	int exists = stat(path, &st) == 0;

	if (*path == '\0')
		return kv_say(why, KV_EIO, "the name of the output is empty");
	if (exists && S_ISDIR(st.st_mode))
		return fail(o, "create", EISDIR, why);
	if (exists && !S_ISREG(st.st_mode)) {
		o->fd = open(path, O_WRONLY | O_CLOEXEC);
		if (o->fd < 0)
			return fail(o, "open", errno, why);
		o->close = 1;
		return KV_OK;
	}
	if (exists && access(path, W_OK) != 0)          /* rename() would not ask */
		return fail(o, "replace", errno, why);
	o->final = kv_final_name(path);
	if (o->final == NULL)
		return fail(o, "create", errno, why);
	return create_temporary(o, exists ? &st : NULL, 0666, why);
}

int
kv_output_open(struct kv_output *o, const char *path, unsigned flags, struct kv_message *why)
{
	struct stat st;
	int code = KV_OK, standard = strcmp(path, "-") == 0;

	memset(o, 0, sizeof *o);
	o->fd = -1;
	o->name = strdup(standard ? "stdout" : path);
	o->buf = malloc(BUFFER);
	if (o->name == NULL || o->buf == NULL)
		return kv_say(why, KV_ENOMEM, "no memory for output");
	if (standard)
		o->fd = STDOUT_FILENO;
	else
		code = flags & KV_PRIVATE ? open_private(o, path, why) : open_path(o, path, why);
	if (code == KV_OK && fstat(o->fd, &st) == 0 && S_ISFIFO(st.st_mode))
		(void)fcntl(o->fd, F_SETPIPE_SZ, PIPE_SIZE);
	return code;
}

/* Writes all of v[n], in as many calls as needed. */
static int
write_all(int fd, struct iovec *v, int n)
{
	struct pollfd wait = { .fd = fd, .events = POLLOUT };
	ssize_t k;

	while (n > 0) {
		if (v->iov_len == 0) {
			v++, n--;
			continue;
		}
		k = writev(fd, v, n);
		if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			(void)poll(&wait, 1, -1);
			continue;
		}
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return errno;
		for (; n > 0 && (size_t)k >= v->iov_len; v++, n--)
			k -= (ssize_t)v->iov_len;
		if (n > 0) {
			v->iov_base = (char *)v->iov_base + k;
			v->iov_len -= (size_t)k;
		}
	}
	return 0;
}

static int
write_out(struct kv_output *o, const void *data, size_t n, struct kv_message *why)
{
	struct iovec v[2] = { { o->buf, o->used }, { (void *)(uintptr_t)data, n } };
	uint64_t start = o->size - o->used;
	char what[60];
	int error;

	kv_watch_begin(o->watch, o->final != NULL ? KV_DOING_WRITE : KV_DOING_WAIT);
	error = write_all(o->fd, v, 2);
	kv_watch_end(o->watch);
	if (error != 0) {
		snprintf(what, sizeof what, "write from byte %llu on", (ull)start);
		return fail(o, what, error, why);
	}
	o->used = 0;
	return KV_OK;
}

int
kv_output_put(struct kv_output *o, const void *data, size_t n, struct kv_message *why)
{
	int code = KV_OK;

	if (n == 0)
		return KV_OK;
	if (n <= BUFFER - o->used) {
		memcpy(o->buf + o->used, data, n);
		o->used += n;
	} else
		code = write_out(o, data, n, why);
	o->size += n;
	if (o->watch != NULL)
		o->watch->bytes_out += n;
	return code;
}

int
kv_output_flush(struct kv_output *o, struct kv_message *why)
{
	return write_out(o, NULL, 0, why);
}

/* The rename itself must survive a power failure too. */
static int
sync_directory(const char *final)
{
	const char *slash = strrchr(final, '/');
	char *dir = slash == NULL ? strdup(".") :
	    strndup(final, slash == final ? 1 : (size_t)(slash - final));
	int fd, error = 0;

	if (dir == NULL)
		return ENOMEM;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	if (fd < 0)
		return errno == EACCES ? 0 : errno;     /* writable, but not readable: fine */
	if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
		error = errno;
	close(fd);
	return error;
}

int
kv_output_commit(struct kv_output *o, struct kv_message *why)
{
	int error, fd;

	if (kv_output_flush(o, why) != KV_OK)
		return why->code;
	if (o->final == NULL) {
		/* Some file systems report a full disk only on close(); standard output stays
		 * open for its owner. */
		fd = o->close ? o->fd : dup(o->fd);
		if (o->close)
			o->fd = -1;
		if (fd >= 0 && close(fd) != 0 && errno != EINTR)
			return fail(o, "close", errno, why);
		return KV_OK;
	}
	if (fsync(o->fd) != 0)
		return fail(o, "synchronise", errno, why);
	error = close(o->fd) != 0 && errno != EINTR ? errno : 0;
	o->fd = -1;
	if (error != 0)
		return fail(o, "close", error, why);
	if (kv_temporary_rename(&o->temporary, o->final) != 0)
		return fail(o, "rename the temporary file", errno, why);
	error = sync_directory(o->final);
	return error != 0 ? fail(o, "synchronise its directory", error, why) : KV_OK;
}

void
kv_output_free(struct kv_output *o)
{
	if (o->fd >= 0 && o->close)
		close(o->fd);
	kv_temporary_end(&o->temporary);
	free(o->final);
	free(o->name);
	free(o->buf);
	memset(o, 0, sizeof *o);
	o->fd = -1;
}
