/* softmax.h - private to methods/ */
#ifndef KVPIPE_SOFTMAX_H
#define KVPIPE_SOFTMAX_H

#include <math.h>
#include <stdint.h>

/* x[n] <- its softmax */
static inline void
softmax(double *x, uint32_t n)
{
	double most = -INFINITY, sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	for (i = 0; i < n; i++)
		sum += x[i] = exp(x[i] - most);
	for (i = 0; i < n; i++)
		x[i] /= sum;
}

#endif
