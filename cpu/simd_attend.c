/* simd_attend.c - attention of a block of query rows over a range of rows of one KV head
 *
 * FlashAttention's loop (Dao et al. 2022, algorithm 1; the running maximum is Milakov and
 * Gimelshein 2018): KEY_TILE rows of keys and values at a time are widened to f32 once, for
 * all query rows and for all query heads that share the KV head. The keys are transposed on
 * the way, so that both products, scores = q . k^T and o += p . v, have their output along
 * the lanes and no sum ever runs across them.
 *
 * With few query rows, that is when decoding, preparing the tile would cost more than using
 * it, and the limit is memory. Then keys and values are widened in registers, each time
 * they are needed: one row's dot products have the elements of the head along the lanes,
 * and the lanes of VL of them are added up together. */
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

/* Most query rows that are handled without preparing tiles, and how many of them at a time:
 * 4 keys for each fit the registers. */
#define FEW 8
#define QROWS (VL == 16 ? 4 : 2)

/* c[mr][nr vectors] <- a[mr][K] . b[K][nr vectors] of type (+ c when add) */
INLINE void
block(float *c, size_t ldc, const float *a, size_t lda, const void *b, const enum kv_dtype type,
    size_t ldb, size_t K, const int mr, const int nr, int add)
{
	vf sum[MR][NR], bv[NR], av;
	size_t k;
	int i, j;

UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nr; j++)
			sum[i][j] = add ? vload(c + i * ldc + j * VL) : vset(0);
	for (k = 0; k < K; k++) {
UNROLL		for (j = 0; j < nr; j++)
			bv[j] = vload_as(b, k * ldb + j * VL, type);
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
column(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M,
    size_t K, const int nr, int add)
{
	size_t m;

	for (m = 0; m + MR <= M; m += MR)
		block(c + m * ldc, ldc, a + m * lda, lda, b, KV_F32, ldb, K, MR, nr, add);
	for (; m + 2 <= M; m += 2)
		block(c + m * ldc, ldc, a + m * lda, lda, b, KV_F32, ldb, K, 2, nr, add);
	if (m < M)
		block(c + m * ldc, ldc, a + m * lda, lda, b, KV_F32, ldb, K, 1, nr, add);
}

/* c[M][cols] <- a[M][K] . b[K][cols] (+ c when add), cols a multiple of VL */
static void
product(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M,
    size_t cols, size_t K, int add)
{
	for (; cols >= NR * VL; cols -= NR * VL, b += NR * VL, c += NR * VL)
		column(c, ldc, a, lda, b, ldb, M, K, NR, add);
	for (; cols >= 2 * VL; cols -= 2 * VL, b += 2 * VL, c += 2 * VL)
		column(c, ldc, a, lda, b, ldb, M, K, 2, add);
	if (cols > 0)
		column(c, ldc, a, lda, b, ldb, M, K, 1, add);
}

/* ---- few query rows ---- */

/* Adds the upper half of the lanes of a and b to the lower, and interleaves what is left. */
INLINE vf
fold2(vf a, vf b)
{
	return LOW(a, b) + HIGH(a, b);
}

INLINE vf
fold4(vf a, vf b, vf c, vf d)
{
	return fold2(fold2(a, c), fold2(b, d));
}

/* Asks for the i-th of KEY_TILE/4 parts of a tile: a piece of its first half and one of its
 * second. What limits a single core is the number of lines that it waits for; two places at
 * a time, here and in the values, are fetched half again as fast as one. */
INLINE void
prefetch_part(const char *tile, size_t bytes, size_t i)
{
	const size_t half = bytes / 2, part = half / (KEY_TILE / 4);
	size_t at;

	for (at = i * part; at < (i + 1) * part; at += 64) {
		__builtin_prefetch(tile + at);
		__builtin_prefetch(tile + half + at);
	}
}

/* s[nq][VL] (rows KEY_TILE apart) <- q[nq][E] . k[VL][E]; rows that are not there repeat
 * the last one */
INLINE void
dots_of_keys(float *s, const float *q, const int nq, const void *k, const enum kv_dtype type,
    size_t rows, size_t E, const char *next_k, const char *next_v, size_t part0)
{
	const size_t tile = KEY_TILE * E * (type == KV_F32 ? 4 : 2);
	vf part[QROWS][VL / 4], sum[QROWS][4], kv[4], qv;
	size_t at[4], row, e;
	int g, i, m;

	/* Keys g, g + VL/4, g + VL/2, g + 3 VL/4: the folds then leave key i in lane i. */
	for (g = 0; g < VL / 4; g++) {
		if (next_k != NULL)
			prefetch_part(next_k, tile, part0 + g);
		if (next_v != NULL)
			prefetch_part(next_v, tile, part0 + g);
UNROLL		for (i = 0; i < 4; i++) {
			row = g + i * (VL / 4);
			at[i] = (row < rows ? row : rows - 1) * E;
UNROLL			for (m = 0; m < nq; m++)
				sum[m][i] = vset(0);
		}
		for (e = 0; e < E; e += VL) {
UNROLL			for (i = 0; i < 4; i++)
				kv[i] = vload_as(k, at[i] + e, type);
UNROLL			for (m = 0; m < nq; m++) {
				qv = vload(q + m * E + e);
UNROLL				for (i = 0; i < 4; i++)
					sum[m][i] = vmadd(kv[i], qv, sum[m][i]);
			}
		}
UNROLL		for (m = 0; m < nq; m++)
			part[m][g] = fold4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);
	}
UNROLL	for (m = 0; m < nq; m++)
#if VL == 16
		vstore(s + m * KEY_TILE, fold4(part[m][0], part[m][1], part[m][2], part[m][3]));
#elif VL == 8
		vstore(s + m * KEY_TILE, fold2(part[m][0], part[m][1]));
#else
		vstore(s + m * KEY_TILE, part[m][0]);
#endif
}

/* s[M][KEY_TILE] <- q[M][E] . k[rows][E]; the next tiles of k, and of v unless NULL, are on
 * their way when it returns */
INLINE void
few_scores(float *s, const float *q, size_t M, const char *k, const char *v,
    const enum kv_dtype type, size_t rows, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2, tile = KEY_TILE * E * size;
	const char *keys, *nk, *nv;
	size_t row, m;

	for (row = 0; row < rows; row += VL) {
		keys = k + row * E * size;
		nk = k + tile;
		nv = v == NULL ? NULL : v + tile;
		for (m = 0; m + QROWS <= M; m += QROWS, nk = nv = NULL)
			dots_of_keys(s + m * KEY_TILE + row, q + m * E, QROWS, keys, type,
			    rows - row, E, nk, nv, row / 4);
		for (; m < M; m++, nk = nv = NULL)
			dots_of_keys(s + m * KEY_TILE + row, q + m * E, 1, keys, type,
			    rows - row, E, nk, nv, row / 4);
	}
}

/* o[mr][E] += p[mr][rows] . v[rows][E] */
INLINE void
few_outputs_of(float *o, const float *p, const int mr, const char *v, const enum kv_dtype type,
    size_t rows, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t e;

	for (e = 0; e + NR * VL <= E; e += NR * VL)
		block(o + e, E, p, KEY_TILE, v + e * size, type, E, rows, mr, NR, 1);
	for (; e < E; e += VL)
		block(o + e, E, p, KEY_TILE, v + e * size, type, E, rows, mr, 1, 1);
}

INLINE void
few_outputs(float *o, const float *p, size_t M, const char *v, const enum kv_dtype type,
    size_t rows, size_t E)
{
	size_t m;

	for (m = 0; m + QROWS <= M; m += QROWS)
		few_outputs_of(o + m * E, p + m * KEY_TILE, QROWS, v, type, rows, E);
	for (; m < M; m++)
		few_outputs_of(o + m * E, p + m * KEY_TILE, 1, v, type, rows, E);
}

/* ---- many query rows ---- */

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
					r[i] = row + i < rows
					    ? vload_part(k, (row + i) * E + e, n, type)
					    : vset(0);
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

/* ---- both ---- */

/* How many rows of the tile [s, s + rows) query row m sees */
INLINE size_t
seen_in_tile(const struct attend_job *j, size_t m, size_t s, size_t rows)
{
	if (j->seen[m] <= s)
		return 0;
	return j->seen[m] - s < rows ? j->seen[m] - s : rows;
}

/* The most that one of query rows m .. m+n-1 sees of it */
INLINE size_t
most_seen(const struct attend_job *j, size_t m, size_t n, size_t s, size_t rows)
{
	size_t i, seen, most = 0;

	for (i = 0; i < n; i++)
		if ((seen = seen_in_tile(j, m + i, s, rows)) > most)
			most = seen;
	return most;
}

/* Scores of query row m become exp(score - maximum so far); m, l and o follow when the
 * maximum rises. */
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

static int
is_few(const struct attend_job *j)
{
	return j->M <= FEW && j->E % 16 == 0;
}

/* s[n][KEY_TILE] <- scores of query rows m .. m+n-1 with the tile at row s */
static void
scores(const struct attend_job *j, size_t s, size_t rows, size_t m, size_t n)
{
	const float *q = j->q + m * j->E;
	const size_t at = s * j->E * (j->dtype == KV_F32 ? 4 : 2);
	const char *k = (const char *)j->k + at, *v = j->v == NULL ? NULL : (const char *)j->v + at;

	if (!is_few(j))
		product(j->s, KEY_TILE, q, j->E, j->kt, KEY_TILE, n, KEY_TILE, j->E, 0);
	else if (j->dtype == KV_BF16)
		few_scores(j->s, q, n, k, v, KV_BF16, rows, j->E);
	else if (j->dtype == KV_F16)
		few_scores(j->s, q, n, k, v, KV_F16, rows, j->E);
	else
		few_scores(j->s, q, n, k, v, KV_F32, rows, j->E);
}

/* o of query rows m .. m+n-1 += what scores() and soften() left in s, times the values of
 * the tile */
static void
outputs(const struct attend_job *j, size_t s, size_t rows, size_t m, size_t n)
{
	const size_t wide = PADDED(j->E);
	float *o = j->o + m * wide;
	const char *v;

	if (j->v == NULL)
		return;
	v = (const char *)j->v + s * j->E * (j->dtype == KV_F32 ? 4 : 2);
	if (!is_few(j))
		product(o, wide, j->s, KEY_TILE, j->vt, wide, n, wide, rows, 1);
	else if (j->dtype == KV_BF16)
		few_outputs(o, j->s, n, v, KV_BF16, rows, j->E);
	else if (j->dtype == KV_F16)
		few_outputs(o, j->s, n, v, KV_F16, rows, j->E);
	else
		few_outputs(o, j->s, n, v, KV_F32, rows, j->E);
}

void
FN(attend)(const struct attend_job *j)
{
	size_t s, rows, m, n, i, seen;

	for (s = j->first; s < j->last; s += rows) {
		rows = j->last - s < KEY_TILE ? j->last - s : KEY_TILE;
		if (!is_few(j))
			load_tile(j, s, rows);
		for (m = 0; m < j->M; m += n) {
			n = j->M - m < SCORE_ROWS ? j->M - m : SCORE_ROWS;
			if (most_seen(j, m, n, s, rows) == 0)
				continue;
			scores(j, s, rows, m, n);
			for (i = 0; i < n; i++)
				if ((seen = seen_in_tile(j, m + i, s, rows)) > 0)
					soften(j, m + i, j->s + i * KEY_TILE, seen);
				else
					memset(j->s + i * KEY_TILE, 0, KEY_TILE * sizeof *j->s);
			outputs(j, s, rows, m, n);
		}
	}
}

/* a[n] <- the greater of a and b. A NaN stays, whichever side it comes from. */
INLINE void
greater(float *a, const float *b, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
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
			if (most_seen(j, m, n, s, rows) == 0)
				continue;
			product(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n,
			    KEY_TILE, j->E, 0);
			for (i = 0; i < n; i++) {
				seen = seen_in_tile(j, m + i, s, rows);
				score = j->s + i * KEY_TILE;
				sum = mass + (m + i) % R * stride + s - j->first;
				lse = vset(j->m[m + i]);
				for (k = 0; k < seen; k += VL)
					vstore(score + k, vexp(vload(score + k) - lse));
				if (j->over == OVER_MAX)
					greater(sum, score, seen);
				else
					for (k = 0; k < seen; k++)
						sum[k] += score[k];
			}
		}
	}
}
