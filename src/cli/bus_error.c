/* bus_error.c - ends the program with a message when a page of a mapped file cannot be read
 *
 * Everything here runs in a signal handler: no stdio, no allocation, no lock. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bus_error.h"
#include "cli/tool.h"

static const char *name;
static void (*at_end)(int status);
static atomic_flag taken = ATOMIC_FLAG_INIT;    /* by the thread that ends the program */

/* A mapping, from a line of /proc/self/maps: "start-end perms offset dev inode      path" */
struct mapping {
	uint64_t start, end, offset, inode;
	const char *path;
};

/* Returns the next number in the line; *p <- after it and the character that ends it. */
static uint64_t
number(char **p, int base)
{
	const uint64_t n = strtoull(*p, p, base);

	*p += **p != '\0';
	return n;
}

static void
pass_word(char **p)
{
	*p += strcspn(*p, " ");
	*p += strspn(*p, " ");
}

static int
is_at(char *line, uint64_t at, struct mapping *m)
{
	m->start = number(&line, 16);
	m->end = number(&line, 16);
	pass_word(&line);
	m->offset = number(&line, 16);
	pass_word(&line);
	m->inode = number(&line, 10);
	line += strspn(line, " ");
	m->path = line;
	return m->start <= at && at < m->end;
}

/* Finds the file mapping of this address; returns 0 if there is none. Its path is in
 * line[size]. */
static int
find(uint64_t at, struct mapping *m, char *line, size_t size)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), found = 0;
	char piece[1024];
	size_t used = 0;
	ssize_t n, i;

	while (!found && (n = read(fd, piece, sizeof piece)) > 0)
		for (i = 0; i < n && !found; i++) {
			if (piece[i] != '\n' && used < size - 1)
				line[used++] = piece[i];
			if (piece[i] != '\n')
				continue;
			line[used] = '\0';
			used = 0;
			found = is_at(line, at, m);
		}
	if (fd >= 0)
		close(fd);
	return found && m->path[0] == '/';
}

/* Returns whether the file has no byte of this page; 0 if its name is gone. */
static int
is_cut(const struct mapping *m, uint64_t at)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), place = m->offset + (at - m->start);
	struct stat st;

	return stat(m->path, &st) == 0 && st.st_ino == m->inode &&
	    place / page * page >= (uint64_t)st.st_size;
}

static void
say(const char *path, const char *what)
{
	char text[PATH_MAX + 200], *p;

	text[0] = '\0';
	strncat(text, name, 60);
	strcat(text, ": ");
	strncat(text, path, PATH_MAX);
	strcat(text, ": ");
	strncat(text, what, 100);
	/* control characters, which a terminal would obey */
	for (p = text; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f ||
		    (p[0] == '\xc2' && (p[1] & 0xe0) == 0x80))
			*p = '?';
	*p++ = '\n';
	(void)!write(STDERR_FILENO, text, (size_t)(p - text));
}

static void
on_bus_error(int sig, siginfo_t *info, void *context)
{
	const uint64_t at = (uintptr_t)info->si_addr;
	static char line[PATH_MAX + 200];
	struct mapping m;
	int cut;

	(void)context;
	while (atomic_flag_test_and_set(&taken))
		pause();
	if (info->si_code == BUS_ADRERR && find(at, &m, line, sizeof line)) {
		cut = is_cut(&m, at);
		say(m.path, cut ? "cut short while it was in use" : "a part of it cannot be read");
		at_end(cut ? EXIT_DAMAGED : EXIT_RUN);
		_exit(cut ? EXIT_DAMAGED : EXIT_RUN);
	}
	at_end(0);
	signal(sig, SIG_DFL);
	raise(sig);
}

void
bus_error_catch(const char *program, void (*end)(int status))
{
	struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	name = program;
	at_end = end;
	sigfillset(&act.sa_mask);
	sigaction(SIGBUS, &act, NULL);
}
