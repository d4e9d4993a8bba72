/* unrotate.c - keys before rotary embedding
 *
 * The pair (k[i], k[i + pairs]) of a stored key, i from in.rope_first on, has been rotated by
 * position * freq[i] and multiplied by rope_factor (YaRN). Both are undone in double precision;
 * other channels stay. What is left of the difference to the model's key is the rounding of the
 * stored one.
 *
 * Sines and cosines would take longer than all else that is done with a row: those of a position
 * are made from two of a table, by one product each, with an error of some 2^-52. */
#include <math.h>
#include <stdlib.h>

#include "methods/unrotate.h"

static void
set_base(struct unrotation *u, const struct score_input *in, uint32_t base)
{
	uint32_t i;

	for (i = 0; i < u->pairs; i++) {
		u->base_cos[i] = cos(base * in->freq[i]) / in->rope_factor;
		u->base_sin[i] = sin(base * in->freq[i]) / in->rope_factor;
	}
	u->base = base;
}

int
unrotation_init(struct unrotation *u, const struct score_input *in)
{
	const size_t pairs = in->rope_dims / 2, n = UNROTATE_STEP * pairs;
	size_t p, i;

	*u = (struct unrotation){ .pairs = in->rope_dims / 2,
	    .cos = malloc((2 * (n + pairs) + 1) * sizeof *u->cos) };
	if (u->cos == NULL)
		return -1;
	u->sin = u->cos + n;
	u->base_cos = u->sin + n;
	u->base_sin = u->base_cos + pairs;
	for (p = 0; p < UNROTATE_STEP; p++)
		for (i = 0; i < pairs; i++) {
			u->cos[p * pairs + i] = cos((double)p * in->freq[i]);
			u->sin[p * pairs + i] = sin((double)p * in->freq[i]);
		}
	set_base(u, in, 0);
	return 0;
}

void
unrotation_free(struct unrotation *u)
{
	free(u->cos);
	u->cos = NULL;
}

void
unrotate_key(double *key, struct unrotation *u, const struct score_input *in, const float *stored,
    uint32_t position)
{
	const uint32_t pairs = u->pairs, step = position % UNROTATE_STEP;
	const double *step_cos = u->cos + (size_t)step * pairs;
	const double *step_sin = u->sin + (size_t)step * pairs;
	const uint32_t first = in->rope_first, end = first + 2 * pairs;
	const float *from = stored + first;
	double *to = key + first, c, s;
	uint32_t i;

	if (position - step != u->base)
		set_base(u, in, position - step);
	for (i = 0; i < pairs; i++) {
		c = u->base_cos[i] * step_cos[i] - u->base_sin[i] * step_sin[i];
		s = u->base_sin[i] * step_cos[i] + u->base_cos[i] * step_sin[i];
		to[i] = from[i] * c + from[i + pairs] * s;
		to[i + pairs] = from[i + pairs] * c - from[i] * s;
	}
	for (i = 0; i < in->width; i++)
		if (i < first || i >= end)
			key[i] = stored[i];
}
