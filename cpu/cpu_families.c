/* cpu_families.c - ops of rows that families of models beyond Llama need */
#include <math.h>

#include "cpu/cpu_internal.h"

struct temper {
	float *x;
	const uint32_t *pos;
	size_t width;
	float beta;
	uint32_t period;
};

static void
temper_row(void *arg, size_t n, int thread)
{
	const struct temper *t = arg;
	const uint32_t turns = t->pos[n] / t->period;
	const double by = 1 + t->beta * log(1 + (double)turns);
	float *x = t->x + n * t->width;
	size_t i;

	(void)thread;
	for (i = 0; turns > 0 && i < t->width; i++)
		x[i] = (float)(x[i] * by);
}

void
cpu_temper(struct dev *d, float *x, const uint32_t *pos, uint32_t N, uint32_t D, float beta,
    uint32_t period)
{
	struct temper t = { x, pos, D, beta, period };

	if (d->error[0] == '\0')
		cpu_run(d, temper_row, &t, N, N * t.width);
}
