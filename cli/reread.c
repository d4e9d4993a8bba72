/* reread.c - a snapshot that is read two times */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/tool.h"
#include "cli/reread.h"

enum { PIECE = 1 << 16 };

/* A descriptor that can be read from the start as often as one likes. */
static int
is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && lseek(fd, 0, SEEK_CUR) == 0;
}

static void
write_all(int fd, const char *data, size_t size, const char *name)
{
	ssize_t n;

	for (; size > 0; data += n, size -= (size_t)n)
		if ((n = write(fd, data, size)) < 0) {
			if (errno != EINTR)
				die(EXIT_RUN, "the temporary file for %s: write:", name);
			n = 0;
		}
}

static int
spool(int from, const char *name)
{
	int to = temporary_file();
	char piece[PIECE];
	ssize_t n;

	while ((n = read(from, piece, sizeof piece)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die(EXIT_RUN, "%s: read:", name);
		write_all(to, piece, (size_t)n, name);
	}
	return to;
}

void
twice_start(struct twice *t, const char *path)
{
	int is_stdin = strcmp(path, "-") == 0, fd;

	if (is_stdin && isatty(STDIN_FILENO))
		die(EXIT_USAGE, "a snapshot is not read from a terminal: "
		    "name a file or use a pipe");
	t->name = is_stdin ? "stdin" : path;
	fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(EXIT_RUN, "%s: open:", t->name);
	t->fd = fd;
	if (!is_file(fd)) {
		t->fd = spool(fd, t->name);
		close(fd);
	}
}

struct kv_reader *
twice_open(const struct twice *t)
{
	struct kv_reader *r = NULL;
	int fd = dup(t->fd), code;

	if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0)
		die(EXIT_RUN, "%s: open:", t->name);
	if ((code = kv_open_fd(fd, t->name, &r)) < 0)
		input_failed(r, code);
	return r;
}

void
twice_end(struct twice *t)
{
	close(t->fd);
}
