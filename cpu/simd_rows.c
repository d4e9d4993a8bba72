/* simd_rows.c - one row at a time: norm, rotation, activation */
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

void
FN(swiglu)(float *y, const float *gate, const float *up, size_t n)
{
	size_t i;
	vf g, u;

	for (i = 0; i + VL <= n; i += VL) {
		g = vload(gate + i);
		vstore(y + i, g / (1.0f + vexp(-g)) * vload(up + i));
	}
	if (i < n) {
		g = vload_part(gate, i, n - i, KV_F32);
		u = vload_part(up, i, n - i, KV_F32);
		u = g / (1.0f + vexp(-g)) * u;
		memcpy(y + i, &u, (n - i) * sizeof *y);
	}
}
