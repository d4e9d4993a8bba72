/* simd_attend.c - attention of a block of query rows over a range of rows of one KV head
 *
 * FlashAttention's loop (Dao et al. 2022, algorithm 1; the running maximum is Milakov and Gimelshein 2018): KEY_TILE rows of
 * keys and values at a time are widened to f32 once, for all query rows and for all query heads that share the KV head. The keys are
 * transposed on the way, so that both products, scores = q . k^T and o += p . v, have their output along the lanes
 * and no sum ever runs across them.
 *
 * Decoding takes the same path: with few query rows the widening costs more than the products, but both fit into the time that
 * the keys and values need to come from memory. */
#include "cpu/simd.h"

/* Output block of the products in registers: MR rows of NR vectors. */
#if VL == 16
#define MR 6
#define NR 4
#elif VL == 8
#define MR 6
#define NR 2
#else
#define MR 4
#define NR 2
#endif

/* c[mr][nr vectors] <- a[mr][K] . b[K][nr vectors] (+ c when add) */
INLINE void
block(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t K, const int mr, const int nr,
    int add)
{
	vf sum[MR][NR], bv[NR], av;
	size_t k;
	int i, j;

UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nr; j++)
			sum[i][j] = add ? vload(c + i * ldc + j * VL) : vset(0);
	for (k = 0; k < K; k++) {
UNROLL		for (j = 0; j < nr; j++)
			bv[j] = vload(b + k * ldb + j * VL);
UNROLL		for (i = 0; i < mr; i++) {
			av = vset(a[i * lda + k]);
UNROLL			for (j = 0; j < nr; j++)
				sum[i][j] = vmadd(av, bv[j], sum[i][j]);
		}
	}
UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nr; j++)
			vstore(c + i * ldc + j * VL, sum[i][j]);
}

/* The same for any number of rows. */
INLINE void
column(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M, size_t K, const int nr, int add)
{
	size_t m;

	for (m = 0; m + MR <= M; m += MR)
		block(c + m * ldc, ldc, a + m * lda, lda, b, ldb, K, MR, nr, add);
	c += m * ldc;
	a += m * lda;
	switch (M - m) {
#if MR == 6
	case 5:
		block(c, ldc, a, lda, b, ldb, K, 5, nr, add);
		break;
	case 4:
		block(c, ldc, a, lda, b, ldb, K, 4, nr, add);
		break;
#endif
	case 3:
		block(c, ldc, a, lda, b, ldb, K, 3, nr, add);
		break;
	case 2:
		block(c, ldc, a, lda, b, ldb, K, 2, nr, add);
		break;
	case 1:
		block(c, ldc, a, lda, b, ldb, K, 1, nr, add);
		break;
	}
}

/* c[M][cols] <- a[M][K] . b[K][cols] (+ c when add), cols a multiple of VL */
static void
product(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M, size_t cols, size_t K, int add)
{
	for (; cols >= NR * VL; cols -= NR * VL, b += NR * VL, c += NR * VL)
		column(c, ldc, a, lda, b, ldb, M, K, NR, add);
#if NR == 4
	if (cols == 3 * VL)
		column(c, ldc, a, lda, b, ldb, M, K, 3, add);
	if (cols == 2 * VL)
		column(c, ldc, a, lda, b, ldb, M, K, 2, add);
#endif
	if (cols == VL)
		column(c, ldc, a, lda, b, ldb, M, K, 1, add);
}

/* kt[E][KEY_TILE] <- rows of k[rows][E], transposed; rows that are not there are 0 */
INLINE void
transpose_keys(float *kt, const void *k, const enum kv_dtype type, size_t rows, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t row, e, i, n;
	vf r[VL];

	for (row = 0; row < KEY_TILE; row += VL)
		for (e = 0; e < E; e += VL) {
			n = E - e < VL ? E - e : VL;
			if (row + VL <= rows && n == VL) {
UNROLL				for (i = 0; i < VL; i++) {
					__builtin_prefetch((const char *)k + ((row + i + KEY_TILE) * E + e) * size);
					r[i] = vload_as(k, (row + i) * E + e, type);
				}
			} else
				for (i = 0; i < VL; i++)
					r[i] = row + i < rows ? vload_part(k, (row + i) * E + e, n, type) : vset(0);
			vtranspose(r);
			for (i = 0; i < n; i++)
				vstore(kt + (e + i) * KEY_TILE + row, r[i]);
		}
}

/* vt[rows][PADDED(E)] <- v[rows][E]; the padding is 0 */
INLINE void
widen_values(float *vt, const void *v, const enum kv_dtype type, size_t rows, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t row, e;

	for (row = 0; row < rows; row++, vt += PADDED(E)) {
		for (e = 0; e + VL <= E; e += VL) {
			__builtin_prefetch((const char *)v + ((row + KEY_TILE) * E + e) * size);
			vstore(vt + e, vload_as(v, row * E + e, type));
		}
		for (; e < PADDED(E); e += VL)
			vstore(vt + e, e < E ? vload_part(v, row * E + e, E - e, type) : vset(0));
	}
}

/* The tile of keys, and of values where wanted, that begins at row s */
static void
load_tile(const struct attend_job *j, size_t s, size_t rows)
{
	const size_t at = s * j->E * (j->dtype == KV_F32 ? 4 : 2);
	const char *k = (const char *)j->k + at, *v = j->v == NULL ? NULL : (const char *)j->v + at;
	size_t vrows = v == NULL ? 0 : rows;

	switch (j->dtype) {
	case KV_BF16:
		transpose_keys(j->kt, k, KV_BF16, rows, j->E);
		widen_values(j->vt, v, KV_BF16, vrows, j->E);
		break;
	case KV_F16:
		transpose_keys(j->kt, k, KV_F16, rows, j->E);
		widen_values(j->vt, v, KV_F16, vrows, j->E);
		break;
	case KV_F32:
		transpose_keys(j->kt, k, KV_F32, rows, j->E);
		widen_values(j->vt, v, KV_F32, vrows, j->E);
		break;
	}
}

/* How many rows of the tile [s, s + rows) query row m sees */
INLINE size_t
seen_in_tile(const struct attend_job *j, size_t m, size_t s, size_t rows)
{
	if (j->seen[m] <= s)
		return 0;
	return j->seen[m] - s < rows ? j->seen[m] - s : rows;
}

/* Scores of query row m become exp(score - maximum so far); m, l and o follow when the maximum rises. */
INLINE void
soften(const struct attend_job *j, size_t m, float *s, size_t seen)
{
	float *o = j->o + m * PADDED(j->E), *l = j->l + m * 16;
	vf p, sum, alpha, top = vset(-INFINITY);
	float largest;
	size_t i;

	for (i = seen; i < KEY_TILE; i++)
		s[i] = -INFINITY;
UNROLL	for (i = 0; i < KEY_TILE / VL; i++)
		top = vmax(top, vload(s + i * VL));
	largest = vlargest(top);
	if (largest > j->m[m]) {
		alpha = vexp(vset(j->m[m] - largest));
		j->m[m] = largest;
		vstore(l, vload(l) * alpha);
		for (i = 0; j->v != NULL && i < PADDED(j->E); i += VL)
			vstore(o + i, vload(o + i) * alpha);
	}
	top = vset(j->m[m]);
	sum = vload(l);
UNROLL	for (i = 0; i < KEY_TILE / VL; i++) {
		p = vexp(vload(s + i * VL) - top);
		vstore(s + i * VL, p);
		sum += p;
	}
	vstore(l, sum);
}

void
FN(attend)(const struct attend_job *j)
{
	const size_t wide = PADDED(j->E);
	size_t s, rows, m, n, i, seen, most;

	for (s = j->first; s < j->last; s += rows) {
		rows = j->last - s < KEY_TILE ? j->last - s : KEY_TILE;
		load_tile(j, s, rows);
		for (m = 0; m < j->M; m += n) {
			n = j->M - m < SCORE_ROWS ? j->M - m : SCORE_ROWS;
			for (i = 0, most = 0; i < n; i++)
				if ((seen = seen_in_tile(j, m + i, s, rows)) > most)
					most = seen;
			if (most == 0)
				continue;
			product(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n, KEY_TILE, j->E, 0);
			for (i = 0; i < n; i++)
				if ((seen = seen_in_tile(j, m + i, s, rows)) > 0)
					soften(j, m + i, j->s + i * KEY_TILE, seen);
				else
					memset(j->s + i * KEY_TILE, 0, KEY_TILE * sizeof *j->s);
			if (j->v != NULL)
				product(j->o + m * wide, wide, j->s, KEY_TILE, j->vt, wide, n, wide, rows, 1);
		}
	}
}

void
FN(mass)(const struct attend_job *j, float *mass, size_t stride, size_t R)
{
	size_t s, rows, m, n, i, k, seen;
	float *score, *sum;
	vf lse;

	for (s = j->first; s < j->last; s += rows) {
		rows = j->last - s < KEY_TILE ? j->last - s : KEY_TILE;
		load_tile(j, s, rows);
		for (m = 0; m < j->M; m += n) {
			n = j->M - m < SCORE_ROWS ? j->M - m : SCORE_ROWS;
			product(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n, KEY_TILE, j->E, 0);
			for (i = 0; i < n; i++) {
				seen = seen_in_tile(j, m + i, s, rows);
				score = j->s + i * KEY_TILE;
				sum = mass + (m + i) % R * stride + s;
				lse = vset(j->m[m + i]);
				for (k = 0; k < seen; k += VL)
					vstore(score + k, vexp(vload(score + k) - lse));
				for (k = 0; k < seen; k++)
					sum[k] += score[k];
			}
		}
	}
}
