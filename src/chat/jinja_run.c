/* jinja_run.c - memory of a template and of a rendering, and failure of both */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

#ifndef FUZZ
#define BLOCK 65536
#else
/* one block for each allocation, so that AddressSanitizer sees its end */
#define BLOCK 0
#endif

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	_Alignas(16) char at[];
};

void
run_fail(struct run *r, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	n = snprintf(r->err, r->errlen, "%s: line %u: ", r->name, r->line);
	if (n >= 0 && (size_t)n < r->errlen) {
		va_start(ap, fmt);
		vsnprintf(r->err + n, r->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	r->code = code;
	longjmp(r->out, 1);
}

/* Adds a block with room for n bytes. A block of just this size is inserted second, so that the
 * rest of the first one is still used: blocks hold at most 4/3 of what was requested, and one
 * block. */
static struct arena_block *
add_block(struct run *r, size_t n)
{
	const size_t size = n > BLOCK / 4 ? n : BLOCK;
	struct arena_block *b = malloc(sizeof(*b) + size), **at = &r->blocks;

	if (b == NULL)
		run_fail(r, CHAT_ENOMEM, "no memory");
	b->used = 0;
	b->size = size;
	if (size != BLOCK && *at != NULL)
		at = &(*at)->next;
	b->next = *at;
	*at = b;
	return b;
}

void *
run_alloc(struct run *r, size_t n)
{
	struct arena_block *b = r->blocks;
	size_t at = b != NULL ? (b->used + 15) & ~(size_t)15 : 0;

	if (n > r->most || r->used > r->most - n)
		run_fail(r, CHAT_EUNSUPPORTED, "more than %zu MiB of memory are used",
		    r->most >> 20);
	run_charge(r, 1, n);
	if (b == NULL || at > b->size || n > b->size - at) {
		b = add_block(r, n);
		at = 0;
	}
	b->used = at + n;
	r->used += (n + 15) & ~(size_t)15;
	return b->at + at;
}

void *
run_zalloc(struct run *r, size_t n)
{
	void *p = run_alloc(r, n);

	memset(p, 0, n);
	return p;
}

void
run_free(struct run *r)
{
	struct arena_block *b, *next;

	for (b = r->blocks; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	r->blocks = NULL;
}

void
run_charge(struct run *r, size_t elements, size_t bytes)
{
	const uint64_t steps = elements + bytes / CHARGED_BYTES;

	if (steps > r->most_steps - r->steps)
		run_fail(r, CHAT_EUNSUPPORTED, "more than %llu steps of work are needed",
		    (unsigned long long)r->most_steps);
	r->steps += steps;
}

void
run_enter(struct run *r)
{
	if (++r->depth > RUN_DEPTH)
		run_fail(r, CHAT_EUNSUPPORTED, "nested more than %d levels deep", RUN_DEPTH);
	run_charge(r, 1, 0);
}

void
run_leave(struct run *r)
{
	r->depth--;
}
