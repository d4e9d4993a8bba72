/* pyramid.c - PyramidKV: early layers keep more rows than late ones
 *
 * PyramidKV (Cai et al. 2024): attention is spread over the text in the first layers and
 * concentrated on few rows in the last, so budgets fall linearly from the first layer to the last.
 * The last layer gets 1/20 of the mean (the authors' beta), the first one 2 - 1/20. The formulas
 * are those of the authors' code (KVCache-Factory, integers, budgets without the always-kept
 * window) and of kvpress (real numbers, budgets with the window); the paper's own notation differs
 * from both, and the authors say that the code counts.
 *
 * With integers the step is rounded down, so that all layers but the first get a little more:
 * 32 layers, C = 128, a window of 8: 133.5 rows on average. pyramid-exact is the same line in
 * fractions, rounded such that the mean over the layers is C: each layer has its floor, and the
 * missing rows go to the layers with the largest remainders, of equal ones to the first. So a
 * layer never has more than an earlier one, as remainders fall with the line where floors are
 * equal. It is exact if all layers have the same rows. */
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

/* The line of budgets without always-kept rows, as fractions: layer l has (first - l * step) /
 * over. */
struct line {
	int64_t first, step, over;
};

/* B: the mean; most: all rows */
static struct line
exact_line(int64_t B, int64_t most, int64_t L)
{
	if ((2 * BETA - 1) * B > BETA * most)
		return (struct line){ most * (L - 1), 2 * (most - B), L - 1 };
	return (struct line){ (2 * BETA - 1) * B * (L - 1), 2 * (BETA - 1) * B, BETA * (L - 1) };
}

uint32_t
layers_pyramid_exact(const struct layer_share *s)
{
	const uint32_t n = s->n, C = s->wanted;
	const int64_t B = (int64_t)C - s->always, L = (int64_t)s->L - s->skipped;
	const int64_t own = (int64_t)s->l - s->skipped_before;
	int64_t at, rest, missing, before = 0, l;
	struct line x;

	if (n <= C)
		return n;
	if (B < 0 || n < 2 * B || L < 2)
		return C;
	x = exact_line(B, (int64_t)n - s->always, L);
	rest = (x.first - own * x.step) % x.over;
	for (l = 0, missing = L * B; l < L; l++) {
		at = x.first - l * x.step;
		missing -= at / x.over;
		before += at % x.over > rest || (at % x.over == rest && l < own);
	}
	return (uint32_t)((x.first - own * x.step) / x.over + (before < missing)) + s->always;
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
