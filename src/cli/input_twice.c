/* input_twice.c - reads a snapshot twice */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/explain.h"
#include "cli/input_twice.h"
#include "cli/report.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

enum { PIECE = 1 << 16 };

/* Returns 1 if the descriptor can be read from its start again. */
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
				die(EXIT_RUN,
				    "a temporary file in %s for %s: write:", temporary_folder(),
				    name);
			n = 0;
		}
}

static int
spool(int from, const char *name)
{
	int to = temporary_file();
	char piece[PIECE];
	ssize_t n;

	for (;;) {
		report_enter(REPORT_WAIT);
		n = read(from, piece, sizeof piece);
		report_leave();
		if (n == 0)
			return to;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die(EXIT_RUN, "%s: read:", name);
		report_enter(REPORT_LOAD);
		write_all(to, piece, (size_t)n, name);
		report_leave();
	}
}

void
input_twice_start(struct input_twice *in, const char *path)
{
	int is_stdin = strcmp(path, "-") == 0, fd;

	if (is_stdin && isatty(STDIN_FILENO))
		die(EXIT_USAGE, "a snapshot is not read from a terminal: "
		    "name a file or use a pipe");
	in->name = is_stdin ? "stdin" : path;
	fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(EXIT_RUN, "%s: open:", in->name);
	in->fd = fd;
	if (!is_file(fd)) {
		in->fd = spool(fd, in->name);
		close(fd);
	}
}

struct kv_reader *
input_twice_open(const struct input_twice *in)
{
	struct kv_reader *r = NULL;
	int fd = dup(in->fd), code;
	char err[1024];

	if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0)
		die(EXIT_RUN, "%s: open:", in->name);
	report_enter(REPORT_LOAD);
	code = kv_open_fd(fd, in->name, &r);
	report_leave();
	report_reader(r);
	if (code < 0) {
		snprintf(err, sizeof err, "%s",
		    r != NULL ? kv_reader_error(r) : kv_error_name(code));
		explain_snapshot_open(in->fd, in->name, err, sizeof err);
		die(input_status(code), "%s", err);
	}
	return r;
}

void
input_twice_end(struct input_twice *in)
{
	close(in->fd);
}
