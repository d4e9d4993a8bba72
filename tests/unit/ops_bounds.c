/* ops_bounds.c - the largest errors that the arithmetic of products, rope and scores allows, for
 * each number
 *
 * u = 2^-24 is the unit roundoff of f32, gamma(n) = n u / (1 - n u) the bound for n roundings one
 * after another, in any order of a sum (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
 * ed., 3.1). */
#include "tests/unit/ops_check.h"

static double
gamma_of(double n, double u)
{
	return n * u / (1 - n * u);
}

/* A sum of n products a b, scaled; magnitude is the sum of |a b|, scaled.
 *
 * In f32: each product is rounded once and passes at most n - 1 additions; four more roundings are
 * of the scale, of q times the scale, of a channel's scale times q, and of the result: gamma(n + 4)
 * magnitude.
 *
 * On tensor cores products are exact, but 16 of them and the sum before are cut off, not rounded,
 * where they are added: 17 / 16 n times 2 u. And q is two parts of f16, of 11 bits each, scaled by
 * its greatest element: it loses 2^-22 of that; so do the scales of one-bit keys by theirs. loss is
 * the scaled sum of |b| times the greatest |a|, and of |a| times the greatest |b|. */
double
score_bound(double n, double magnitude, double loss, int tensor_cores)
{
	if (!tensor_cores)
		return gamma_of(n + 4, 0x1p-24) * magnitude;
	return gamma_of(n * 17 / 16 + 4, 0x1p-23) * magnitude + 0x1p-22 * loss;
}

/* bound[i] for y of ref_matmul(), whose x and w are random numbers of both signs, with w of the
 * type. magnitude, for each of y, is the sum of |x w|, of |bias|, and of |y| where that is added
 * to.
 *
 * In f32: gamma(in + 2) magnitude as above, as long as there are at most 8 roundings. It grows with
 * `in`, and the error does not: a sum of k such products is about sqrt(k) of them, and its
 * roundings have both signs, too. Where x and w are even in [-1, 1], k products have the variance k
 * / 9, a rounding of their sum at most u^2 / 3 of that; n of them after one another u^2 n^2 / 54,
 * and the sum of |x w| is n / 4: a standard deviation of 0.55 u magnitude, whatever n is, and less
 * in any other order (Higham and Mary, Sharper Probabilistic Backward Error Analysis for Basic
 * Linear Algebra Kernels with Random Data, 2020). gamma(8) is 14 of them.
 *
 * Where products are of numbers of 16 bits, x is rounded to the type of w: u of that more. And
 * tensor cores cut off, always towards 0: score_bound(). */
void
matmul_bound(double *bound, const double *magnitude, size_t ny, size_t in, enum kv_dtype type,
    int rounds)
{
	const double roundings = fmin((double)in + 2, 8);
	const double rounding_x = type == KV_F16 ? 0x1p-11 : 0x1p-8;
	size_t i;

	for (i = 0; i < ny; i++)
		bound[i] = !rounds || type == KV_F32 ? gamma_of(roundings, 0x1p-24) * magnitude[i] :
		    score_bound((double)in + 2, magnitude[i], 0, 1) + rounding_x * magnitude[i];
}

/* bound[i] for y of ref_rope(): x c - y s, and y c + x s.
 *
 * The angle is a product in f64 that the reference has, too. It is reduced to quarter turns in f64,
 * which loses two roundings of it, 2^-53 each, and turned back with pi / 2: 2^-51 of the angle is
 * more. What remains, at most half a quarter turn, becomes f32: 2^-26 of a quarter. sincospif() is
 * right to a unit in the last place (CUDA C++ Programming Guide, mathematical functions), below 1
 * that is 2^-24. Both are errors of c and s. The product and the sum are two roundings:
 * gamma(2). */
void
rope_bound(double *bound, const float *x, const uint32_t *pos, const double *freq, size_t N,
    size_t heads, size_t E)
{
	const size_t half = E / 2;
	double angle, of_c, both, c, s;
	size_t n, h, i;

	for (n = 0; n < N; n++)
		for (h = 0; h < heads; h++, x += E, bound += E) {
			for (i = 2 * half; i < E; i++)
				bound[i] = 0;
			for (i = 0; i < half; i++) {
				angle = pos[n] * freq[i];
				c = fabs(cos(angle));
				s = fabs(sin(angle));
				of_c = angle * 0x1p-51 + 0x1p-26 * 1.5707963267948966 + 0x1p-24;
				both = (fabs(x[i]) + fabs(x[i + half])) * of_c;
				bound[i] = both + gamma_of(2, 0x1p-24) *
				    (fabs(x[i]) * c + fabs(x[i + half]) * s);
				bound[i + half] = both + gamma_of(2, 0x1p-24) *
				    (fabs(x[i + half]) * c + fabs(x[i]) * s);
			}
		}
}

/* The bound of a number that is rounded to the type afterwards: half a unit in its last place, and
 * half the least subnormal number */
double
rounded_bound(double bound, double want, enum kv_dtype type)
{
	const double u = type == KV_F32 ? 0 : type == KV_F16 ? 0x1p-11 : 0x1p-8;

	return bound + u / (1 - u) * (fabs(want) + bound) + (type == KV_F16 ? 0x1p-25 : 0);
}
