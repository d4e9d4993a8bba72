/* simd_bits.c - scores of rows from their keys in one bit (kv-snapshot(5), 4.15)
 *
 * A query's logit with a row is sum over channels of q * zero, the same for all rows of an
 * entry, and of q * scale where the row's bit is set (FIER). Rows stand along the
 * lanes: the bits of a channel are then a mask as they are stored, and keys are never
 * dequantized. A mask is read once for all query heads that share the KV head (GQA).
 *
 * With AVX-512 an addition under a mask is one instruction, and the two ports that add and
 * that fill mask registers are the limit: 2 heads' sums of 32 rows and their 2 masks make 6
 * operations a channel. Tables of the 16 sums of 4 channels, looked up by vpermps, need half
 * as many operations, but must be made for each entry, since scales differ: for 32 rows that
 * takes the other half. */
#include "cpu/simd.h"

/* Vectors of rows of one pass. Their sums for GROUP_HEADS query heads stay in registers; with twice
 * as many heads a pass would be faster by less than a tenth. */
#define VECS 2

#if VL == 16
typedef __mmask16 vmask;
typedef uint16_t vmask_any __attribute__((aligned(2), may_alias));
#else
/* Without mask registers: 1 in lane i where bit i is set. From a table, because the units that add
 * are busy and those that load are not. */
typedef vf vmask;

#if VL == 8
#define LANES(b) { (b) & 1, (b) >> 1 & 1, (b) >> 2 & 1, (b) >> 3 & 1, (b) >> 4 & 1, (b) >> 5 & 1, \
	(b) >> 6 & 1, (b) >> 7 & 1 }
#else
#define LANES(b) { (b) & 1, (b) >> 1 & 1, (b) >> 2 & 1, (b) >> 3 & 1 }
#endif
#define FOUR(b) LANES(b), LANES((b) + 1), LANES((b) + 2), LANES((b) + 3)
#define SIXTEEN(b) FOUR(b), FOUR((b) + 4), FOUR((b) + 8), FOUR((b) + 12)

static const vf lanes[1 << VL] = { SIXTEEN(0),
#if VL == 8
	SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112),
	SIXTEEN(128), SIXTEEN(144), SIXTEEN(160), SIXTEEN(176), SIXTEEN(192), SIXTEEN(208),
	SIXTEEN(224), SIXTEEN(240),
#endif
};
#endif

/* m[nv] <- the nv * VL bits at p */
INLINE void
load_bits(vmask *m, const unsigned char *p, const int nv)
{
	int v;

UNROLL	for (v = 0; v < nv; v++)
#if VL == 16
		m[v] = ((const vmask_any *)p)[v];
#else
		m[v] = lanes[p[v * VL / 8] >> v * VL % 8 & ((1 << VL) - 1)];
#endif
}

/* sum + w where the bit is set */
INLINE vf
add_where(vf sum, vmask m, vf w)
{
#if VL == 16
	return _mm512_mask_add_ps(sum, m, sum, w);
#else
	return vmadd(w, m, sum);
#endif
}

/* n channels of scale_queries(), from e on; n is VL, or less at the end */
INLINE void
scale_queries_part(vf *sum, float *w, const float *q, const int nh, const void *entry, size_t E,
    size_t e, const size_t n)
{
	vf zero, scale, qv;
	int h;

	zero = n == VL ? vload_as(entry, e, KV_F16) : vload_part(entry, e, n, KV_F16);
	scale = n == VL ? vload_as(entry, E + e, KV_F16) : vload_part(entry, E + e, n, KV_F16);
UNROLL	for (h = 0; h < nh; h++) {
		qv = n == VL ? vload(q + h * E + e) : vload_part(q, h * E + e, n, KV_F32);
		sum[h] = vmadd(qv, zero, sum[h]);
		vstore(w + h * PADDED(E) + e, qv * scale);
	}
}

/* w[nh][PADDED(E)] <- q[nh][E] * scale[E]; base[nh] <- q . zero. entry: zero[E], scale[E] */
INLINE void
scale_queries(float *w, float *base, const float *q, const int nh, const void *entry, size_t E)
{
	vf sum[GROUP_HEADS];
	size_t e;
	int h;

UNROLL	for (h = 0; h < nh; h++)
		sum[h] = vset(0);
	for (e = 0; e + VL <= E; e += VL)
		scale_queries_part(sum, w, q, nh, entry, E, e, VL);
	if (e < E)
		scale_queries_part(sum, w, q, nh, entry, E, e, E - e);
UNROLL	for (h = 0; h < nh; h++)
		base[h] = vsum(sum[h]);
}

/* score[nh][nv * VL] (stride apart) <- base + sums of w over the channels with bits at bits +
 * c * step. With few heads there are few sums, and each addition waits for the one before: there
 * channels are dealt to several sets of sums in turn. */
INLINE void
add_bits(float *score, size_t stride, const float *w, const float *base, const int nh,
    const int nv, const unsigned char *bits, const size_t step, size_t E)
{
	const int sets = nh == 1 ? 4 : nh == 2 ? 2 : 1;
	vf sum[4][GROUP_HEADS][VECS], wv;
	vmask m[VECS];
	size_t c = 0;
	int t, h, v;

UNROLL	for (t = 0; t < sets; t++)
UNROLL		for (h = 0; h < nh; h++)
UNROLL			for (v = 0; v < nv; v++)
				sum[t][h][v] = vset(t == 0 ? base[h] : 0);
	for (; c + sets <= E; c += sets)
UNROLL		for (t = 0; t < sets; t++) {
			load_bits(m, bits + (c + t) * step, nv);
UNROLL			for (h = 0; h < nh; h++) {
				wv = vset(w[h * PADDED(E) + c + t]);
UNROLL				for (v = 0; v < nv; v++)
					sum[t][h][v] = add_where(sum[t][h][v], m[v], wv);
			}
		}
	for (; c < E; c++) {
		load_bits(m, bits + c * step, nv);
UNROLL		for (h = 0; h < nh; h++)
UNROLL			for (v = 0; v < nv; v++)
				sum[0][h][v] = add_where(sum[0][h][v], m[v],
				    vset(w[h * PADDED(E) + c]));
	}
UNROLL	for (t = sets / 2; t > 0; t /= 2)
UNROLL		for (h = 0; h < t * nh; h++)
UNROLL			for (v = 0; v < nv; v++)
				sum[h / nh][h % nh][v] += sum[h / nh + t][h % nh][v];
UNROLL	for (h = 0; h < nh; h++)
UNROLL		for (v = 0; v < nv; v++)
			vstore(score + h * stride + v * VL, sum[0][h][v]);
}

/* nh heads from head m on, all entries, of u rows */
INLINE void
score_heads(const struct entries_job *j, size_t m, const int nh, const size_t u)
{
	const int nv = u < VECS * VL ? 1 : VECS;
	const size_t E = j->E, ahead = (j->bytes < 4096 ? 4096 / j->bytes : 1) * j->bytes;
	const char *entry = j->data;
	float base[GROUP_HEADS], *score = j->score + m * j->stride;
	size_t i, at;

	for (i = 0; i < j->n; i++, entry += j->bytes, score += u) {
		for (at = 0; m == 0 && at < j->bytes; at += 64)
			__builtin_prefetch(entry + ahead + at);
		scale_queries(j->w, base, j->q + m * E, nh, entry, E);
		for (at = 0; at < u; at += nv * VL)
			add_bits(score + at, j->stride, j->w, base, nh, nv,
			    (const unsigned char *)entry + 4 * E + at / 8, u / 8, E);
	}
}

INLINE void
score_all(const struct entries_job *j, const size_t u)
{
	size_t m = 0;

	for (; m + GROUP_HEADS <= j->M; m += GROUP_HEADS)
		score_heads(j, m, GROUP_HEADS, u);
	if (m + 2 <= j->M) {
		score_heads(j, m, 2, u);
		m += 2;
	}
	if (m < j->M)
		score_heads(j, m, 1, u);
}

void
FN(bits_scores)(const struct entries_job *j)
{
	switch (j->rows) {
	case 16:
		score_all(j, 16);
		break;
	case 32:
		score_all(j, 32);
		break;
	case 64:
		score_all(j, 64);
		break;
	case 128:
		score_all(j, 128);
		break;
	}
}
