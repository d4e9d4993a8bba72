/* standardise.h - private to methods/ */
#ifndef KVPIPE_STANDARDISE_H
#define KVPIPE_STANDARDISE_H

#include <math.h>
#include <stdint.h>

/* Takes the mean off the numbers x[n], and divides them by their standard deviation (n - 1), or by
 * `least`, which is above 0, if it is less. */
static inline void
standardise(float *x, uint64_t n, double least)
{
	double mean = 0, square = 0, deviation;
	uint64_t i;

	for (i = 0; i < n; i++)
		mean += x[i] / (double)n;
	for (i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean);
	deviation = n > 1 ? sqrt(square / (double)(n - 1)) : 0;
	for (i = 0; i < n; i++)
		x[i] = (float)((x[i] - mean) / (deviation > least ? deviation : least));
}

#endif
