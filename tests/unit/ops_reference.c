/* ops_reference.c - the formulas of ops/ops.h in double precision, one loop per sum sign */
#include <math.h>
#include <stdlib.h>

#include "tests/unit/ops_reference.h"

void
ref_rmsnorm(double *y, const float *x, const float *w, size_t N, size_t D, double eps)
{
	size_t n, i;
	double sum;

	for (n = 0; n < N; n++, x += D, y += D) {
		for (i = 0, sum = 0; i < D; i++)
			sum += (double)x[i] * x[i];
		for (i = 0; i < D; i++)
			y[i] = x[i] * w[i] / sqrt(sum / (double)D + eps);
	}
}

void
ref_matmul(double *y, const float *x, const float *w, const float *bias, size_t N, size_t in,
    size_t out, int add)
{
	size_t n, o, i;
	double sum;

	for (n = 0; n < N; n++)
		for (o = 0; o < out; o++) {
			sum = add ? y[n * out + o] : 0;
			if (bias != NULL)
				sum += bias[o];
			for (i = 0; i < in; i++)
				sum += (double)x[n * in + i] * w[o * in + i];
			y[n * out + o] = sum;
		}
}

void
ref_rope(double *y, const float *x, const uint32_t *pos, const double *freq, size_t N,
    size_t heads, size_t E)
{
	size_t n, h, i, half = E / 2;
	double c, s;

	for (n = 0; n < N; n++)
		for (h = 0; h < heads; h++, x += E, y += E) {
			for (i = 0; i < E; i++)
				y[i] = x[i];
			for (i = 0; i < half; i++) {
				c = cos(pos[n] * freq[i]);
				s = sin(pos[n] * freq[i]);
				y[i] = x[i] * c - x[i + half] * s;
				y[i + half] = x[i + half] * c + x[i] * s;
			}
		}
}

int
ref_sees(const struct query *query, uint32_t p, uint32_t pos)
{
	return pos <= p && (query->window == 0 || (int64_t)pos > (int64_t)p - query->window);
}

double
ref_cap(double logit, double softcap)
{
	return softcap > 0 ? softcap * tanh(logit / softcap) : logit;
}

/* logit[len] of query row i / H, query head i % H with the rows of its KV head, -inf where the row
 * is not seen; returns their log-sum-exp */
static double
logits(double *logit, const struct query *query, size_t i, const struct ref_rows *c)
{
	const size_t g = i % query->H / (query->H / c->G);
	const float *q = query->q + i * c->E;
	double top = -INFINITY, sum = 0;
	size_t s, row;

	for (s = 0; s < c->len[g]; s++) {
		row = c->start[g] + s;
		logit[s] = -INFINITY;
		if (!ref_sees(query, query->pos[i / query->H], c->pos[row]))
			continue;
		logit[s] = ref_cap(ref_key_score(q, c->k + row * c->E, c->E), query->softcap);
		top = fmax(top, logit[s]);
	}
	if (query->sinks != NULL) {
		top = fmax(top, query->sinks[i % query->H]);
		sum = exp(query->sinks[i % query->H] - top);
	}
	for (s = 0; s < c->len[g] && top > -INFINITY; s++)
		sum += exp(logit[s] - top);
	return top + log(sum);
}

static double *
longest_head(const struct ref_rows *c)
{
	size_t g, most = 1;

	for (g = 0; g < c->G; g++)
		most = c->len[g] > most ? c->len[g] : most;
	return malloc(most * sizeof(double));
}

void
ref_attend(double *o, double *lse, const struct query *query, const struct ref_rows *c)
{
	double *logit = longest_head(c), p;
	size_t i, g, s, e;

	for (i = 0; i < (size_t)query->N * query->H; i++, o += c->E) {
		g = i % query->H / (query->H / c->G);
		lse[i] = logits(logit, query, i, c);
		for (e = 0; e < c->E; e++)
			o[e] = 0;
		for (s = 0; s < c->len[g]; s++) {
			if (logit[s] == -INFINITY)
				continue;
			p = exp(logit[s] - lse[i]);
			for (e = 0; e < c->E; e++)
				o[e] += p * c->v[(c->start[g] + s) * c->E + e];
		}
	}
	free(logit);
}

static void
add_weights(double *mass, size_t stride, const struct query *query, const struct ref_rows *c,
    const struct ref_rows *own, enum over_queries over)
{
	double *logit = longest_head(c), *other = longest_head(own != NULL ? own : c), lse, p, *to;
	const size_t H = query->H;
	struct query bare = *query;
	size_t i, g, s;

	bare.sinks = NULL;
	for (i = 0; i < query->N * H; i++) {
		g = i % H / (H / c->G);
		lse = logits(logit, query, i, c);
		if (own != NULL)
			lse = log(exp(lse) + exp(logits(other, &bare, i, own)));
		for (s = 0; s < c->len[g]; s++) {
			if (logit[s] == -INFINITY)
				continue;
			p = exp(logit[s] - lse);
			to = &mass[i % H * stride + s];
			*to = over == QUERIES_SUM ? *to + p : fmax(*to, p);
		}
	}
	free(logit);
	free(other);
}

void
ref_attend_mass(double *mass, size_t stride, const struct query *query, const struct ref_rows *c,
    enum over_queries over)
{
	add_weights(mass, stride, query, c, NULL, over);
}

void
ref_window_mass(double *mass, size_t stride, const struct query *query, const struct ref_rows *c,
    const struct ref_rows *own, enum over_queries over)
{
	size_t h, s;

	for (h = 0; h < query->H; h++)
		for (s = 0; s < c->len[h / (query->H / c->G)]; s++)
			mass[h * stride + s] = 0;
	add_weights(mass, stride, query, c, own, over);
}

void
ref_swiglu(double *y, const float *gate, const float *up, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		y[i] = gate[i] / (1 + exp(-(double)gate[i])) * up[i];
}

void
ref_geglu(double *y, const float *gate, const float *up, size_t n)
{
	size_t i;
	double x;

	for (i = 0; i < n; i++) {
		x = gate[i];
		y[i] = x / 2 *
		    (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))) *
		    up[i];
	}
}

/* ---- indexes ---- */

/* x as the nearest f16, ties to even, no further than 65504, 0 without a sign; by arithmetic,
 * as libkvfile does it by bits */
static unsigned
half(double x)
{
	double a = fmin(fabs(x), 65504), unit;
	int exponent = -14;

	if (a >= ldexp(1, -14))
		frexp(a, &exponent), exponent--;
	unit = ldexp(1, exponent - 10);
	a = nearbyint(a / unit);                       /* at most 2048: then the next exponent */
	if (a == 0)
		return 0;
	return (x < 0 ? 0x8000u : 0) + (unsigned)(exponent + 14) * 1024 + (unsigned)a;
}

static double
from_half(const unsigned char *p)
{
	unsigned h = p[0] + 256u * p[1], exponent = h >> 10 & 31;
	double x = ldexp((h & 1023) + (exponent > 0 ? 1024 : 0),
	    (exponent > 0 ? (int)exponent : 1) - 25);

	return h & 0x8000 ? -x : x;
}

/* Least and greatest of the keys of channel c that are numbers; NaN when none is */
static void
bounds(double *least, double *most, const float *k, size_t u, size_t E, size_t c)
{
	size_t i;

	*least = *most = NAN;
	for (i = 0; i < u; i++) {
		*least = fmin(*least, k[i * E + c]);
		*most = fmax(*most, k[i * E + c]);
	}
}

/* A difference of two f32 is rounded to f32 by rounding the difference in double. */
void
ref_pack_bits(unsigned char *entry, const float *k, size_t u, size_t E)
{
	double least, most, s;
	unsigned char *bits = entry + 4 * E;
	size_t c, i, n = 0;
	unsigned z;

	memset(bits, 0, E * u / 8);
	for (c = 0; c < E; c++) {
		bounds(&least, &most, k, u, E, c);
		s = (float)(most - least);
		for (i = 0; i < u; i++, n++)
			if ((float)(k[i * E + c] - least) > s / 2)
				bits[n / 8] |= 1 << n % 8;
		z = isnan(least) ? 0 : half(least);
		entry[2 * c] = z & 255;
		entry[2 * c + 1] = z >> 8;
		z = isnan(s) ? 0 : half(s);
		entry[2 * E + 2 * c] = z & 255;
		entry[2 * E + 2 * c + 1] = z >> 8;
	}
}

void
ref_pack_page(unsigned char *entry, const float *k, enum kv_dtype type, size_t u, size_t E)
{
	const size_t size = kv_dtype_size(type);
	double least, most;
	float bound[2];
	size_t c;

	for (c = 0; c < E; c++) {
		bounds(&least, &most, k, u, E, c);
		bound[0] = least == 0 ? 0 : isnan(least) ? NAN : (float)least;
		bound[1] = most == 0 ? 0 : isnan(most) ? NAN : (float)most;
		kv_from_f32(entry + c * size, &bound[0], type, 1);
		kv_from_f32(entry + (E + c) * size, &bound[1], type, 1);
	}
}

double
ref_bits_score(const float *q, const unsigned char *entry, size_t u, size_t E, size_t i)
{
	double sum = 0;
	size_t c, n;

	for (c = 0; c < E; c++) {
		n = c * u + i;
		sum += q[c] * from_half(entry + 2 * c);
		if (entry[4 * E + n / 8] >> n % 8 & 1)
			sum += q[c] * from_half(entry + 2 * E + 2 * c);
	}
	return sum / sqrt((double)E);
}

double
ref_page_score(const float *q, const unsigned char *entry, enum kv_dtype type, size_t E)
{
	const size_t size = kv_dtype_size(type);
	double sum = 0;
	float bound[2];
	size_t c;

	for (c = 0; c < E; c++) {
		kv_to_f32(&bound[0], entry + c * size, type, 1);
		kv_to_f32(&bound[1], entry + (E + c) * size, type, 1);
		sum += fmax((double)q[c] * bound[0], (double)q[c] * bound[1]);
	}
	return sum / sqrt((double)E);
}

double
ref_key_score(const float *q, const float *k, size_t E)
{
	double sum = 0;
	size_t c;

	for (c = 0; c < E; c++)
		sum += (double)q[c] * k[c];
	return sum / sqrt((double)E);
}

static void
add_term(struct ref_terms *t, double a, double b)
{
	a = fabs(a);
	b = fabs(b);
	t->n++;
	t->magnitude += a * b;
	t->a += a;
	t->b += b;
	t->most_a = fmax(t->most_a, a);
	t->most_b = fmax(t->most_b, b);
}

struct ref_terms
ref_bits_terms(const float *q, const unsigned char *entry, size_t u, size_t E, size_t i)
{
	struct ref_terms t = { 0 };
	size_t c, n;

	for (c = 0; c < E; c++) {
		n = c * u + i;
		add_term(&t, q[c], from_half(entry + 2 * c));
		add_term(&t, q[c], (entry[4 * E + n / 8] >> n % 8 & 1) *
		    from_half(entry + 2 * E + 2 * c));
	}
	return t;
}

struct ref_terms
ref_page_terms(const float *q, const unsigned char *entry, enum kv_dtype type, size_t E)
{
	const size_t size = kv_dtype_size(type);
	struct ref_terms t = { 0 };
	float bound[2];
	size_t c;

	for (c = 0; c < E; c++) {
		kv_to_f32(&bound[0], entry + c * size, type, 1);
		kv_to_f32(&bound[1], entry + (E + c) * size, type, 1);
		add_term(&t, q[c], q[c] < 0 ? bound[0] : bound[1]);
	}
	return t;
}

struct ref_terms
ref_key_terms(const float *q, const float *k, size_t E)
{
	struct ref_terms t = { 0 };
	size_t c;

	for (c = 0; c < E; c++)
		add_term(&t, q[c], k[c]);
	return t;
}
