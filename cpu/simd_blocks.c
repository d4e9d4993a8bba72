/* simd_blocks.c - products of a few rows of x with weights in blocks, in integers; and blocks as
 * numbers
 *
 * A weight row is decoded chunk by chunk; with several rows of x once for all of them. The sum over
 * a row has the same order for any number of rows. With AVX512-VNNI: vnni_blocks.c. */
#include "cpu/simd_blocks.h"

/* ---- x ---- */

/* Rounds the 32 channels from x on. A channel that is not finite makes the scale NaN, and so each
 * product with these channels. */
INLINE void
round_group(struct x_chunk *to, size_t g, const float *x)
{
	const float magic = 0x1.8p23f;
	float greatest = 0, scale, by;
	int sum = 0, four, finite = 1;
	size_t i, j;

	for (i = 0; i < 32; i++) {
		greatest = fabsf(x[i]) > greatest ? fabsf(x[i]) : greatest;
		finite &= fabsf(x[i]) <= FLT_MAX;
	}
	scale = finite ? greatest / 127 : NAN;
	by = finite && greatest > 0 ? 127 / greatest : 0;
	for (i = 0; i < 32; i++)
		to->code[32 * g + i] = finite ? (int8_t)((x[i] * by + magic) - magic) : 0;
	for (i = 0; i < 32; i += 4) {
		for (four = 0, j = 0; j < 4; j++)
			four += to->code[32 * g + i + j];
		to->bias[8 * g + i / 4] = -128 * four;
		sum += four;
		if (i == 12 || i == 28) {
			to->scale[2 * g + i / 16] = scale;
			to->sum[2 * g + i / 16] = scale * (float)sum;
			sum = 0;
		}
	}
}

void
FN(round_x)(struct x_chunk *dst, const float *x, size_t N, size_t in)
{
	float last[32];
	size_t n, i;

	for (n = 0; n < N; n++, x += in, dst += chunks_of(in))
		for (i = 0; i < chunks_of(in) * CHUNK; i += 32) {
			const float *from = x + i;

			if (i + 32 > in) {
				memset(last, 0, sizeof last);
				if (i < in)
					memcpy(last, from, (in - i) * sizeof *last);
				from = last;
			}
			round_group(dst + i / CHUNK, i % CHUNK / 32, from);
		}
}

/* ---- products ---- */

#if defined(__AVX2__)
typedef __m256 sums;

INLINE sums
no_sum(void)
{
	return _mm256_setzero_ps();
}

/* Eight minima from the g-th on; 0 behind n channels */
INLINE __m256
first_mins(const struct chunk *w, int g, const size_t n)
{
	const __m256i at = _mm256_add_epi32(_mm256_set1_epi32(16 * g),
	    _mm256_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112));
	const __m256 all = _mm256_load_ps(w->min + g);

	return n == CHUNK ? all : _mm256_and_ps(all, _mm256_castsi256_ps(
	    _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), at)));
}

/* sum += the products of a chunk. The products of 32 codes are added by fours, and each eight of
 * these have two scales. n: channels that count */
INLINE sums
add_part(sums sum, const struct chunk *w, const struct x_chunk *x, const enum weight_type type,
    const size_t n)
{
	const __m256i pairs = _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0);
	const __m256i ones = _mm256_set1_epi16(1), high = _mm256_set1_epi8((char)0x80);
	__m256i a, b, four;
	__m256 by;
	size_t v;

UNROLL	for (v = 0; 32 * v < n; v++) {
		a = _mm256_xor_si256(_mm256_load_si256((const void *)(w->code + 32 * v)), high);
		b = _mm256_sign_epi8(_mm256_load_si256((const void *)(x->code + 32 * v)), a);
		four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(a), b), ones);
		by = _mm256_mul_ps(
		    _mm256_permutevar8x32_ps(_mm256_loadu_ps(w->scale + v / 4 * 8),
			_mm256_add_epi32(pairs, _mm256_set1_epi32((int)(v % 4 * 2)))),
		    _mm256_set1_ps(x->scale[2 * v]));
		sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(four), by, sum);
	}
	if (has_min(type)) {
		sum = _mm256_fmadd_ps(first_mins(w, 0, n), _mm256_load_ps(x->sum), sum);
		sum = _mm256_fmadd_ps(first_mins(w, 8, n), _mm256_load_ps(x->sum + 8), sum);
	}
	return sum;
}

INLINE float
total(sums s)
{
	float lane[8];

	_mm256_storeu_ps(lane, s);
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
	    ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}
#else
typedef float sums;

INLINE sums
no_sum(void)
{
	return 0;
}

INLINE sums
add_part(sums sum, const struct chunk *w, const struct x_chunk *x, const enum weight_type type,
    const size_t n)
{
	size_t g, i;
	int s;

	for (g = 0; 16 * g < n; g++) {
		for (s = 0, i = 16 * g; i < 16 * g + 16; i++)
			s += (w->code[i] - 128) * x->code[i];
		sum += (float)s * (w->scale[g] * x->scale[g]);
		if (has_min(type))
			sum += w->min[g] * x->sum[g];
	}
	return sum;
}

INLINE float
total(sums s)
{
	return s;
}
#endif

INLINE sums
add_chunk(sums sum, const struct chunk *w, const struct x_chunk *x, const enum weight_type type)
{
	return add_part(sum, w, x, type, CHUNK);
}

/* sum += the products of the first n channels of a chunk. What is behind them is read, up to a
 * whole chunk. */
INLINE sums
add_blocks(sums sum, const uint8_t *w, const struct x_chunk *x, const enum weight_type type,
    const size_t n)
{
	struct chunk c;

	if (n == CHUNK)
		decode(&c, w, type);
	else
		decode_begin(&c, w, type, n);
	return add_part(sum, &c, x, type, n);
}

#define BLOCK_DOTS FN(block_dots)
#include "cpu/simd_blockdots.h"

/* ---- blocks as numbers ---- */

INLINE void
widen(float *dst, const uint8_t *w, const enum weight_type type, size_t in)
{
	const size_t step = weight_row_bytes(type, CHUNK);
	struct chunk c;
	float x[CHUNK];
	size_t i, j;

	for (i = 0; i < in; i += CHUNK, w += step) {
		const size_t n = in - i < CHUNK ? in - i : CHUNK;

		decode_part(&c, w, type, n);
		for (j = 0; j < CHUNK; j++) {
			x[j] = (float)(c.code[j] - 128) * c.scale[j / 16];
			if (has_min(type))
				x[j] += c.min[j / 16];
		}
		memcpy(dst + i, x, n * sizeof *x);
	}
}

void
FN(widen_blocks)(float *dst, const void *w, enum weight_type type, size_t in)
{
	switch (type) {
#define CASE(t) case t: widen(dst, w, t, in); break;
	BLOCK_TYPES(CASE)
#undef CASE
	default:
		break;
	}
}
