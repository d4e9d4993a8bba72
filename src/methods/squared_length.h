/* squared_length.h - private to methods/ */
#ifndef KVPIPE_SQUARED_LENGTH_H
#define KVPIPE_SQUARED_LENGTH_H

#include <stdint.h>

/* Returns the squared Euclidean norm of x[E]. In double precision: the square of an f32 may
 * overflow. */
static inline double
squared_length(const float *x, uint32_t E)
{
	double sum = 0;
	uint32_t e;

	for (e = 0; e < E; e++)
		sum += (double)x[e] * x[e];
	return sum;
}

#endif
