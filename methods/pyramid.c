/* pyramid.c - PyramidKV: early layers keep more rows than late ones
 *
 * PyramidKV (Cai et al. 2024): attention spreads over the text in the first layers and
 * gathers on few rows in the last, so budgets fall in a straight line from the first layer to
 * the last. The last layer gets 1/20 of the mean (the authors' beta), the first one 2 - 1/20.
 * The formulas are those of the authors' code (KVCache-Factory, integers, budgets without the
 * window that is always kept) and of kvpress (real numbers, budgets with the window); the
 * paper's own notation differs from both, and the authors say that the code counts.
 *
 * With integers the step is rounded down, so that all layers but the first get a little more:
 * 32 layers, C = 128, a window of 8: 133.5 rows on average. */
#include <math.h>

#include "methods/budgets.h"

enum { BETA = 20 };

uint32_t
layers_pyramid(const struct layer_share *s)
{
	const uint32_t n = s->n, C = s->wanted;
	int64_t B = (int64_t)C - s->always, most = (int64_t)n - s->always, min, max, step;

	if (n <= C)
		return n;
	if (B < 0 || n < 2 * B || s->L < 2)
		return C;
	min = B / BETA;
	max = 2 * B - min;
	if (max >= most) {
		max = most;
		min = 2 * B - max;
	}
	step = (max - min) / (s->L - 1);
	return (uint32_t)(max - s->l * step) + s->always;
}

uint32_t
layers_pyramid_kvpress(const struct layer_share *s)
{
	const uint32_t n = s->n, always = s->always, L = s->L;
	const double C = s->wanted_real;
	double min = C / BETA, max = 2 * C - min, kept;

	if (n <= C)
		return n;
	if (max >= (double)n - always) {
		max = (double)n - always;
		min = 2 * C - max;
	}
	if (L < 2 || n < max || max < min || min < always)
		kept = rint(C);
	else
		kept = rint(max - s->l * ((max - min) / (L - 1)));
	return kept < n ? (uint32_t)kept : n;
}
