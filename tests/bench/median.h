/* median.h - of times that were measured */
#ifndef KVPIPE_MEDIAN_H
#define KVPIPE_MEDIAN_H

#include <stdlib.h>

static inline int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts t[n]. */
static inline double
median(double *t, int n)
{
	qsort(t, (size_t)n, sizeof *t, ascending);
	return t[n / 2];
}

#endif
