/* bf16_avx512.c - the inner loops of products in bf16, with the instructions of AVX512-BF16
 *
 * VDPBF16PS multiplies pairs: to each of 16 sums it adds the products of two neighbours of x and
 * of two of w. So 16 weight rows stand side by side in a vector, a pair of channels of each, and a
 * pair of x is the same for all of them. That order is made by transposing pairs, once for all rows
 * of x; x is taken as it lies. BF16_ROWS x BF16_COLS sums stay in registers from the first channel
 * of a panel to its last: 24 of 32, so that for each three loads of weights there are 24
 * instructions that multiply.
 *
 * The instruction rounds to the nearest, takes subnormal numbers for 0, and rounds between the two
 * products of a pair. Each sum goes over the channels in order, whatever it is computed with. */
#include "cpu/simd.h"

#if defined(__AVX512BF16__)

#define PAIRS (VL * 2)                   /* channels of one vector */
#define VECTORS (BF16_COLS / VL)

/* i .. i+PAIRS-1 of a row of in, of which what is behind its end counts as 0 */
INLINE __m512i
load_pairs(const uint16_t *row, size_t i, size_t in)
{
	const __mmask32 there = in - i < PAIRS ? ((__mmask32)1 << (in - i)) - 1 : ~(__mmask32)0;

	return _mm512_maskz_loadu_epi16(there, row + i);
}

static void
round_rows(uint16_t *dst, size_t ld, const float *x, size_t rows, size_t in)
{
	const __mmask16 all = 0xffff;
	__mmask16 low, high;
	size_t n, i, left;

	for (n = 0; n < rows; n++, dst += ld, x += in)
		for (i = 0; i < ld; i += PAIRS) {
			left = in - i;
			low = left < VL ? (__mmask16)((1u << left) - 1) : all;
			high = left >= PAIRS ? all : left <= VL ? 0 :
			    (__mmask16)((1u << (left - VL)) - 1);
			_mm512_storeu_si512(dst + i, (__m512i)_mm512_cvtne2ps_pbh(
			    _mm512_maskz_loadu_ps(high, x + i + VL),
			    _mm512_maskz_loadu_ps(low, x + i)));
		}
}

static void
pack(uint32_t *panel, const uint16_t *w, size_t ldw, size_t cols, size_t in)
{
	vf r[VL];
	size_t v, i, p;

	for (v = 0; v < VECTORS && v * VL < cols; v++)
		for (i = 0; i < in; i += PAIRS) {
UNROLL			for (p = 0; p < VL; p++)
				r[p] = v * VL + p < cols ?
				    (vf)load_pairs(w + (v * VL + p) * ldw, i, in) : vset(0);
			vtranspose(r);
UNROLL			for (p = 0; p < VL; p++)
				vstore((float *)panel + (i / 2 + p) * BF16_COLS + v * VL, r[p]);
		}
}

/* nv: vectors of columns, the last of which has the columns in mask */
INLINE void
block(float *y, size_t ldy, const uint16_t *x, size_t ldx, const uint32_t *panel, size_t rows,
    const int nv, __mmask16 mask, size_t in, const float *bias, int add)
{
	__m512 sum[BF16_ROWS][VECTORS];
	__m512bh w[VECTORS], pair;
	__mmask16 m;
	uint32_t two;
	size_t i;
	int n, v;

UNROLL	for (n = 0; n < BF16_ROWS; n++)
UNROLL		for (v = 0; v < nv; v++)
			sum[n][v] = _mm512_setzero_ps();
	for (i = 0; i < in; i += 2, panel += BF16_COLS) {
UNROLL		for (v = 0; v < nv; v++)
			w[v] = (__m512bh)_mm512_loadu_si512(panel + v * VL);
UNROLL		for (n = 0; n < BF16_ROWS; n++) {
			memcpy(&two, x + n * ldx + i, sizeof two);
			pair = (__m512bh)_mm512_set1_epi32((int)two);
UNROLL			for (v = 0; v < nv; v++)
				sum[n][v] = _mm512_dpbf16_ps(sum[n][v], pair, w[v]);
		}
	}
UNROLL	for (n = 0; n < BF16_ROWS; n++)
UNROLL		for (v = 0; v < nv; v++) {
			if ((size_t)n >= rows)
				continue;
			m = v == nv - 1 ? mask : 0xffff;
			if (bias != NULL)
				sum[n][v] += _mm512_maskz_loadu_ps(m, bias + v * VL);
			if (add)
				sum[n][v] += _mm512_maskz_loadu_ps(m, y + n * ldy + v * VL);
			_mm512_mask_storeu_ps(y + n * ldy + v * VL, m, sum[n][v]);
		}
}

static void
multiply(float *y, size_t ldy, const uint16_t *x, size_t ldx, const uint32_t *panel, size_t rows,
    size_t cols, size_t in, const float *bias, int add)
{
	const size_t nv = (cols + VL - 1) / VL;
	const __mmask16 mask = (__mmask16)(0xffffu >> (nv * VL - cols));

	if (nv == 3)
		block(y, ldy, x, ldx, panel, rows, 3, mask, in, bias, add);
	else if (nv == 2)
		block(y, ldy, x, ldx, panel, rows, 2, mask, in, bias, add);
	else
		block(y, ldy, x, ldx, panel, rows, 1, mask, in, bias, add);
}

const struct bf16_products bf16_avx512 = {
	.name = "avx512bf16",
	.round_rows = round_rows,
	.pack = pack,
	.multiply = multiply,
};

#endif
