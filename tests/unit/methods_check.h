/* methods_check.h - one line for each check that fails */
#ifndef METHODS_CHECK_H
#define METHODS_CHECK_H

#include <stdio.h>

static int failures;

#define check(condition, ...) \
	((condition) ? (void)0 : (failures++, \
	    (void)fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), \
	    (void)fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr)))

#endif
