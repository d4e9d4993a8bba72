/* simd_rows.c - one row at a time: norm, rotation, transform, activation, softcap; and sums of
 * products of channels */
#include "cpu/simd.h"

/* The sum of squares is f32 in 2*VL lanes: D/(2 VL) additions each, all of one sign, so its
 * relative error is far below that of the result's own rounding after the root. */
void
FN(rmsnorm)(float *y, const float *x, const float *w, size_t D, float eps)
{
	vf a = vset(0), b = vset(0), v;
	float scale;
	size_t i;

	for (i = 0; i + 2 * VL <= D; i += 2 * VL) {
		v = vload(x + i);
		a = vmadd(v, v, a);
		v = vload(x + i + VL);
		b = vmadd(v, v, b);
	}
	for (; i < D; i += VL) {
		v = D - i >= VL ? vload(x + i) : vload_part(x, i, D - i, KV_F32);
		a = vmadd(v, v, a);
	}
	scale = 1.0f / sqrtf(vsum(a + b) / (float)D + eps);
	for (i = 0; i < D; i++)
		y[i] = x[i] * scale * w[i];
}

/* Two passes: the mean first, so that a row far from 0 loses nothing. */
void
FN(layernorm)(float *y, const float *x, const float *w, const float *bias, size_t D, float eps)
{
	vf a = vset(0), v;
	float mean, sum, scale;
	size_t i;

	for (i = 0; i + VL <= D; i += VL)
		a += vload(x + i);
	for (sum = vsum(a); i < D; i++)
		sum += x[i];
	mean = sum / (float)D;
	a = vset(0);
	for (i = 0; i + VL <= D; i += VL) {
		v = vload(x + i) - vset(mean);
		a = vmadd(v, v, a);
	}
	for (sum = vsum(a); i < D; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	scale = 1.0f / sqrtf(sum / (float)D + eps);
	for (i = 0; i < D; i++)
		y[i] = (x[i] - mean) * scale * w[i] + (bias != NULL ? bias[i] : 0);
}

/* Double precision, half as many lanes */
#define DL (VL / 2)
typedef double vd __attribute__((vector_size(8 * DL)));
typedef uint64_t vq __attribute__((vector_size(8 * DL)));
typedef float vf_half __attribute__((vector_size(4 * DL)));

INLINE vd
vchoose(vq mask, vd a, vd b)
{
	return (vd)(((vq)a & mask) | ((vq)b & ~mask));
}

/* The angle grows with the position: at position 100000 an f32 angle would be wrong in its
 * second decimal. So all is in double here, and only the results are f32. As in fdlibm's
 * __kernel_sin and __kernel_cos, after the nearest multiple n of pi/2 was taken off in three
 * parts; the first two have so few bits that their products with n < 2^32 are exact. */
INLINE void
vcos_sin(vf_half *c, vf_half *s, vd angle)
{
	const double magic = 0x1.8p52;
	vd t = angle * 0x1.45f306dc9c883p-1 + magic, n = t - magic, r, z, sine, cosine;
	vq odd = 0 - ((vq)t & 1), flip = ((vq)t & 2) << 62, flip_cosine = (((vq)t + 1) & 2) << 62;

	r = angle - n * 0x1.921fbp0 - n * 0x5.4442p-24 - n * 0xd.18469898cc517p-44;
	z = r * r;
	sine = z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
	sine = z * sine + 2.75573137070700676789e-06;
	sine = z * sine - 1.98412698298579493134e-04;
	sine = z * sine + 8.33333333332248946124e-03;
	sine = z * sine - 1.66666666666666324348e-01;
	sine = r + r * z * sine;
	cosine = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
	cosine = z * cosine - 2.75573143513906633035e-07;
	cosine = z * cosine + 2.48015872894767294178e-05;
	cosine = z * cosine - 1.38888888888741095749e-03;
	cosine = z * cosine + 4.16666666666666019037e-02;
	cosine = 1.0 - (0.5 * z - z * z * cosine);
	*s = __builtin_convertvector((vd)((vq)vchoose(odd, cosine, sine) ^ flip), vf_half);
	*c = __builtin_convertvector((vd)((vq)vchoose(odd, sine, cosine) ^ flip_cosine), vf_half);
}

void
FN(cos_sin)(float *c, float *s, uint32_t pos, const double *freq, size_t half)
{
	vf_half cosine, sine;
	vd f = { 0 };
	size_t i, n;

	for (i = 0; i < half; i += n) {
		n = half - i < DL ? half - i : DL;
		memcpy(&f, freq + i, n * sizeof *freq);
		vcos_sin(&cosine, &sine, f * (double)pos);
		memcpy(c + i, &cosine, n * sizeof *c);
		memcpy(s + i, &sine, n * sizeof *s);
	}
}

void
FN(rotate)(
    float *restrict x, const float *restrict c, const float *restrict s, size_t heads, size_t E)
{
	size_t half = E / 2, h, i;
	float a, b;

	for (h = 0; h < heads; h++, x += E)
		for (i = 0; i < half; i++) {
			a = x[i];
			b = x[i + half];
			x[i] = a * c[i] - b * s[i];
			x[i + half] = b * c[i] + a * s[i];
		}
}

/* Lane i of the result is lane i ^ n. */
#if VL == 16
#define PARTNERS(v, n) SHUFFLE(v, v, 0 ^ n, 1 ^ n, 2 ^ n, 3 ^ n, 4 ^ n, 5 ^ n, 6 ^ n, 7 ^ n, \
    8 ^ n, 9 ^ n, 10 ^ n, 11 ^ n, 12 ^ n, 13 ^ n, 14 ^ n, 15 ^ n)
#elif VL == 8
#define PARTNERS(v, n) SHUFFLE(v, v, 0 ^ n, 1 ^ n, 2 ^ n, 3 ^ n, 4 ^ n, 5 ^ n, 6 ^ n, 7 ^ n)
#else
#define PARTNERS(v, n) SHUFFLE(v, v, 0 ^ n, 1 ^ n, 2 ^ n, 3 ^ n)
#endif

/* Pairs (a, b) of lanes i and i + n, i with bit n clear, become (a + b, a - b): to the partner of
 * each lane its own number is added, or, in the upper lane, that with the other sign. */
INLINE vf
butterflies(vf v, vf partners, const int n)
{
	vu sign;
	int i;

	for (i = 0; i < VL; i++)
		sign[i] = i & n ? 0x80000000 : 0;
	return partners + (vf)((vu)v ^ sign);
}

INLINE vf
transform_lanes(vf v)
{
	v = butterflies(v, PARTNERS(v, 1), 1);
	v = butterflies(v, PARTNERS(v, 2), 2);
#if VL >= 8
	v = butterflies(v, PARTNERS(v, 4), 4);
#endif
#if VL >= 16
	v = butterflies(v, PARTNERS(v, 8), 8);
#endif
	return v;
}

void
FN(transform)(float *x, size_t E, size_t n)
{
	size_t h, i, j;
	float scale = 1;
	vf a, b;

	if (E < VL) {
		kv_rows_rotate(x, E, n);
		return;
	}
	for (h = E; h >= 4; h /= 4)
		scale /= 2;
	if (h == 2)
		scale *= 0.70710678f;
	for (; n > 0; n--, x += E) {
		for (i = 0; i < E; i += VL)
			vstore(x + i, transform_lanes(vload(x + i)));
		for (h = VL; h < E; h *= 2)
			for (i = 0; i < E; i += 2 * h)
				for (j = i; j < i + h; j += VL) {
					a = vload(x + j);
					b = vload(x + j + h);
					vstore(x + j, a + b);
					vstore(x + j + h, a - b);
				}
		for (i = 0; i < E; i += VL)
			vstore(x + i, vload(x + i) * scale);
	}
}

/* silu(x) = x / (1 + exp(-x)); gelu(x) = x/2 (1 + tanh(u)) = x / (1 + exp(-2u)) */
INLINE vf
silu(vf x)
{
	return x / (1.0f + vexp(-x));
}

INLINE vf
gelu(vf x)
{
	return x / (1.0f + vexp(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
}

#define GATED(name, activation) \
void \
FN(name)(float *y, const float *gate, const float *up, size_t n) \
{ \
	size_t i; \
	vf u; \
\
	for (i = 0; i + VL <= n; i += VL) \
		vstore(y + i, activation(vload(gate + i)) * vload(up + i)); \
	if (i < n) { \
		u = activation(vload_part(gate, i, n - i, KV_F32)) * \
		    vload_part(up, i, n - i, KV_F32); \
		memcpy(y + i, &u, (n - i) * sizeof *y); \
	} \
}

GATED(swiglu, silu)
GATED(geglu, gelu)

void
FN(gelu_tanh)(float *x, size_t n)
{
	size_t i;
	vf v;

	for (i = 0; i + VL <= n; i += VL)
		vstore(x + i, gelu(vload(x + i)));
	if (i < n) {
		v = gelu(vload_part(x, i, n - i, KV_F32));
		memcpy(x + i, &v, (n - i) * sizeof *x);
	}
}

void
FN(cap)(float *x, size_t n, float c)
{
	const vf cap = vset(c), by = vset(1 / c);
	size_t i;
	vf v;

	for (i = 0; i + VL <= n; i += VL)
		vstore(x + i, vcap(vload(x + i), cap, by));
	if (i < n) {
		v = vcap(vload_part(x, i, n - i, KV_F32), cap, by);
		memcpy(x + i, &v, (n - i) * sizeof *x);
	}
}

/* s <- s + x[t][i] * x[t][..], t = 0 .. n-1; x points to x[0][j], a to x[0][i] */
INLINE vd
products_of(vd s, const double *a, const double *x, size_t E, size_t n)
{
	size_t t;
	vd v;

	for (t = 0; t < n; t++) {
		memcpy(&v, x + t * E, sizeof v);
		s += a[t * E] * v;
	}
	return s;
}

/* A product of two f32 is exact in f64, so fused or not, the sums are the same. What is left of a
 * row is a vector, too, of which some lanes are not stored. */
void
FN(add_products)(double *sum, const double *x, size_t E, size_t i, size_t n)
{
	const size_t whole = (i + 1) / DL * DL, left = i + 1 - whole;
	size_t j;
	vd s;

	for (j = 0; j < whole; j += DL) {
		memcpy(&s, sum + j, sizeof s);
		s = products_of(s, x + i, x + j, E, n);
		memcpy(sum + j, &s, sizeof s);
	}
	if (left == 0)
		return;
	s = (vd){ 0 };
	memcpy(&s, sum + whole, left * sizeof *sum);
	s = products_of(s, x + i, x + whole, E, n);
	memcpy(sum + whole, &s, left * sizeof *sum);
}
