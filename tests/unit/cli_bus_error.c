/* cli_bus_error - what a program ends with whose mapped file cannot be read any more */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bus_error.h"

enum { SIZE = 100000, CUT = 5000, THREADS = 8 };

static int passed, failed;

static void
check(int ok, const char *what)
{
	passed += ok;
	failed += !ok;
	if (!ok)
		printf("FAILED: %s\n", what);
}

static void
at_end(int status)
{
	char text[] = "end 0\n";

	text[4] = (char)('0' + status);
	(void)!write(STDERR_FILENO, text, sizeof text - 1);
}

static void *
reads(void *at)
{
	return *(volatile char *)at != 0 ? at : NULL;
}

/* A child maps the file `name`, of SIZE bytes and CUT afterwards, and reads its last byte, in
 * several threads at once. said[size] <- what it says on standard error. Returns how it ended, as
 * waitpid() has it. */
static int
reads_cut(const char *name, int unlinked, char *said, size_t size)
{
	int end[2], fd, i, status = -1;
	pthread_t thread[THREADS];
	char *map;
	ssize_t n;
	pid_t child;

	fflush(stdout);
	if (pipe(end) != 0 || (child = fork()) < 0)
		exit(1);
	if (child == 0) {
		dup2(end[1], STDERR_FILENO);
		bus_error_catch("reader", at_end);
		fd = fileno(fopen(name, "w+"));
		if (ftruncate(fd, SIZE) != 0)
			_exit(9);
		map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
		if (ftruncate(fd, CUT) != 0 || (unlinked && unlink(name) != 0))
			_exit(9);
		for (i = 0; i < THREADS; i++)
			pthread_create(&thread[i], NULL, reads, (void *)(map + SIZE - 1));
		for (i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
		_exit(0);
	}
	close(end[1]);
	for (*said = '\0'; (n = read(end[0], said, size - 1)) > 0; said += n, size -= (size_t)n)
		said[n] = '\0';
	close(end[0]);
	waitpid(child, &status, 0);
	unlink(name);
	return status;
}

static void
test_cut(const char *folder)
{
	char name[200], said[1000], expected[1000];
	int status;

	snprintf(name, sizeof name, "%s/a file \033[31m", folder);
	status = reads_cut(name, 0, said, sizeof said);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "a file that is cut is a damaged one");
	snprintf(expected, sizeof expected, "reader: %s/a file ?[31m: cut short while it was in "
	    "use\nend 3\n", folder);
	check(strcmp(said, expected) == 0, "it is named, and what has to be done is done");
	status = reads_cut(name, 1, said, sizeof said);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 1, "of one without a name it is not "
	    "known");
	check(strstr(said, "a part of it cannot be read\nend 1\n") != NULL, "and this is said");
}

/* One that is sent, or has another cause, kills as it would have. */
static void
test_sent(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		close(STDERR_FILENO);
		bus_error_catch("reader", at_end);
		raise(SIGBUS);
		_exit(0);
	}
	waitpid(child, &status, 0);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "a signal that is sent kills");
}

int
main(void)
{
	char folder[] = "/tmp/bus_error.XXXXXX";

	check(mkdtemp(folder) != NULL, "a folder");
	test_cut(folder);
	test_sent();
	check(rmdir(folder) == 0, "nothing is left");
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
