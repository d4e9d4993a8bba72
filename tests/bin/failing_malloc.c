/* failing_malloc.c - a preloaded library in which one allocation fails
 *
 * FAIL_AT=N: the Nth call of malloc() or one of its kin returns NULL, the others do as always.
 * COUNT_TO=FILE: when the process ends, the number of calls stands in FILE.
 *
 * Not counted, and never failing, are calls before main(), where the CUDA runtime registers its
 * kernels and does not look at what it gets, and calls by libraries that end the process by
 * themselves when there is no memory: oneDNN and the C++ library (std::bad_alloc), libgomp. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *memalign(size_t align, size_t size);
int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
    void (*)(void), void *);

static struct {
	uintptr_t begin, end;
} spared[8];
static size_t n_spared;
static atomic_ulong calls;
static unsigned long fail_at;
static int ready;

static int
spare(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char *const names[] = { "/libdnnl.so", "/libstdc++.so", "/libgomp.so" };
	uintptr_t begin = UINTPTR_MAX, end = 0, at;
	size_t i;

	(void)size;
	(void)arg;
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD) {
			at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			begin = at < begin ? at : begin;
			at += info->dlpi_phdr[i].p_memsz;
			end = at > end ? at : end;
		}
	for (i = 0; i < sizeof names / sizeof *names; i++)
		if (strstr(info->dlpi_name, names[i]) != NULL &&
		    n_spared < sizeof spared / sizeof *spared) {
			spared[n_spared].begin = begin;
			spared[n_spared++].end = end;
		}
	return 0;
}

__attribute__((constructor)) static void
start(void)
{
	const char *text = getenv("FAIL_AT");

	fail_at = text != NULL ? strtoul(text, NULL, 10) : 0;
	dl_iterate_phdr(spare, NULL);
}

static int (*program)(int, char **, char **);

static int
counted(int argc, char **argv, char **env)
{
	ready = 1;
	return program(argc, argv, env);
}

/* The program's own main() is called by the C library, from here. */
int
__libc_start_main(int (*its_main)(int, char **, char **), int argc, char **argv, void (*init)(void),
    void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	union {
		void *at;
		int (*call)(int (*)(int, char **, char **), int, char **, void (*)(void),
		    void (*)(void), void (*)(void), void *);
	} next = { dlsym(RTLD_NEXT, "__libc_start_main") };

	program = its_main;
	return next.call(counted, argc, argv, init, fini, rtld_fini, stack_end);
}

__attribute__((destructor)) static void
end(void)
{
	const char *path = getenv("COUNT_TO");
	unsigned long n = atomic_load(&calls);
	FILE *f;

	ready = 0;
	if (path != NULL && (f = fopen(path, "w")) != NULL) {
		fprintf(f, "%lu\n", n);
		fclose(f);
	}
}

/* caller: the return address of the call */
static int
fails(void *caller)
{
	const uintptr_t at = (uintptr_t)caller;
	size_t i;

	if (!ready)
		return 0;
	for (i = 0; i < n_spared; i++)
		if (at >= spared[i].begin && at < spared[i].end)
			return 0;
	if (atomic_fetch_add(&calls, 1) + 1 != fail_at)
		return 0;
	errno = ENOMEM;
	return 1;
}

#define FAILS() fails(__builtin_return_address(0))

void *
malloc(size_t size)
{
	return FAILS() ? NULL : __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	return FAILS() ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *p, size_t size)
{
	return FAILS() ? NULL : __libc_realloc(p, size);
}

void *
memalign(size_t align, size_t size)
{
	return FAILS() ? NULL : __libc_memalign(align, size);
}

void *
aligned_alloc(size_t align, size_t size)
{
	return FAILS() ? NULL : __libc_memalign(align, size);
}

int
posix_memalign(void **p, size_t align, size_t size)
{
	void *q = FAILS() ? NULL : __libc_memalign(align, size);

	if (q == NULL)
		return ENOMEM;
	*p = q;
	return 0;
}
