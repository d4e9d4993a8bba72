/* cli_mapped_file - files that are cut short while they are mapped */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/mapped_file.h"

enum { SIZE = 1 << 20, CUT = 300000, THREADS = 4 };

static int passed, failed;

static void
check(int ok, const char *what)
{
	passed += ok;
	failed += !ok;
	if (!ok)
		printf("FAILED: %s\n", what);
}

/* A file of bytes 1, without a name. */
static int
make_file(void)
{
	char name[] = "/tmp/mapped.XXXXXX", *ones = malloc(SIZE);
	int fd = mkstemp(name);

	memset(ones, 1, SIZE);
	check(fd >= 0 && unlink(name) == 0 && write(fd, ones, SIZE) == SIZE, "a file");
	free(ones);
	return fd;
}

static unsigned long
sum(const char *p, size_t n)
{
	unsigned long all = 0;

	while (n > 0)
		all += (unsigned char)p[--n];
	return all;
}

static void *
read_all(void *with)
{
	return (void *)sum(with, SIZE);
}

static void
test_cut(void)
{
	int fd = make_file(), other = make_file(), i;
	struct mapped_file *m = mapped_files.map(fd, SIZE), *whole = mapped_files.map(other, SIZE);
	pthread_t thread[THREADS];
	void *got;

	check(m != NULL && whole != NULL && sum(mapped_files.data(m), SIZE) == SIZE &&
	    !mapped_files.broken(m), "a file is read through its mapping");
	check(ftruncate(fd, CUT) == 0, "it is cut");
	for (i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, read_all, (void *)(uintptr_t)mapped_files.data(m));
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &got);
		check((unsigned long)got == CUT, "what is left is read, and zeros");
	}
	check(mapped_files.broken(m) && !mapped_files.broken(whole), "and that one is known to be "
	    "broken");
	check(sum(mapped_files.data(whole), SIZE) == SIZE, "another file is as it was");
	mapped_files.unmap(m);
	m = mapped_files.map(other, SIZE);
	check(m != NULL && !mapped_files.broken(m) && sum(mapped_files.data(m), SIZE) == SIZE,
	    "its place is taken by a file that is not");
	mapped_files.unmap(m);
	mapped_files.unmap(whole);
	close(fd);
	close(other);
}

static void
test_refused(void)
{
	int end[2], fd = make_file();

	check(pipe(end) == 0 && mapped_files.map(end[0], SIZE) == NULL, "a pipe cannot be mapped");
	check(mapped_files.map(fd, 0) == NULL, "nothing cannot be mapped");
	check(mapped_files.map(fd, (size_t)1 << 60) == NULL, "nor more than there are addresses");
	close(fd);
	close(end[0]);
	close(end[1]);
}

static sigjmp_buf back;

static void
on_other(int sig)
{
	siglongjmp(back, sig);
}

/* Those of a mapping that is not ours go to the handler that was there before the first of ours. */
static void
test_other(void)
{
	int fd = make_file();
	volatile char *p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);

	check(ftruncate(fd, 0) == 0, "it is cut");
	if (sigsetjmp(back, 1) == 0)
		check(p[SIZE - 1] == 2, "there is no such byte");
	else
		check(1, "the handler of before is called");
	munmap((void *)(uintptr_t)p, SIZE);
	close(fd);
}

int
main(void)
{
	struct sigaction act = { .sa_handler = on_other };

	sigemptyset(&act.sa_mask);
	sigaction(SIGBUS, &act, NULL);
	test_cut();
	test_refused();
	test_other();
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
