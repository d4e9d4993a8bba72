/* tokenizer_check.h - what the tokenizer_*.c tests share; each includes it once */
#ifndef TOKENIZER_CHECK_H
#define TOKENIZER_CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

static unsigned passed, failed;

/* Counts one check; the message, printed when it fails, says which. */
__attribute__((format(printf, 2, 3))) static void
check(int ok, const char *fmt, ...)
{
	va_list ap;

	if (ok) {
		passed++;
		return;
	}
	failed++;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static int
report(const char *what)
{
	printf("%s: %u passed, %u failed\n", what, passed, failed);
	return failed != 0 || passed == 0;
}

#endif
