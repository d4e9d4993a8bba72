/* simd_attend.c - attention of a block of query rows over a range of rows of one KV head
 *
 * FlashAttention's loop with online softmax (Dao et al. 2022, algorithm 1; the running maximum is
 * Milakov and Gimelshein 2018): KEY_TILE rows of keys and values at a time are widened to f32
 * once, for all query rows and for all query heads that share the KV head (GQA). The keys are
 * transposed on the way, so that both products, scores = q . k^T and o += p . v, are GEMMs with
 * their output along the lanes, and no sum runs across lanes.
 *
 * With few query rows, that is when decoding (GEMV, skinny GEMM), preparing the tile would cost
 * more than using it, and the limit is memory. Then keys and values are widened in registers,
 * each time they are needed: one row's dot products have the elements of the head along the
 * lanes, and the lanes of VL of them are added up together. */
#include "cpu/simd.h"

/* Block of the output that GEMM holds in registers: MR rows of NR vectors */
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

/* Up to so many query rows no tile is prepared; QROWS of them share the loads of keys and values:
 * their sums with 4 keys fit the registers. */
#define SKINNY_ROWS 8
#define QROWS (VL == 16 ? 4 : 2)

/* c[mr][nr vectors] <- a[mr][K] . b[K][nr vectors] (+ c when add) */
INLINE void
gemm_block(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t K,
    const int mr, const int nr, int add)
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
gemm_columns(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M,
    size_t K, const int nr, int add)
{
	size_t m;

	for (m = 0; m + MR <= M; m += MR)
		gemm_block(c + m * ldc, ldc, a + m * lda, lda, b, ldb, K, MR, nr, add);
	for (; m + 2 <= M; m += 2)
		gemm_block(c + m * ldc, ldc, a + m * lda, lda, b, ldb, K, 2, nr, add);
	if (m < M)
		gemm_block(c + m * ldc, ldc, a + m * lda, lda, b, ldb, K, 1, nr, add);
}

/* c[M][cols] <- a[M][K] . b[K][cols] (+ c when add), cols a multiple of VL */
static void
gemm(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t M,
    size_t cols, size_t K, int add)
{
	for (; cols >= NR * VL; cols -= NR * VL, b += NR * VL, c += NR * VL)
		gemm_columns(c, ldc, a, lda, b, ldb, M, K, NR, add);
	for (; cols >= 2 * VL; cols -= 2 * VL, b += 2 * VL, c += 2 * VL)
		gemm_columns(c, ldc, a, lda, b, ldb, M, K, 2, add);
	if (cols > 0)
		gemm_columns(c, ldc, a, lda, b, ldb, M, K, 1, add);
}

/* ---- few query rows: skinny GEMM ---- */

/* Up to KEY_TILE rows of one KV head: row i of the tile is row at[i] of k and v. */
struct tile {
	const char *k, *v;           /* v NULL: not wanted */
	const uint32_t *at;
	size_t rows;
	size_t ahead;                /* rows of the next tile, at[KEY_TILE] .. */
};

static const uint32_t in_order[2 * KEY_TILE] = {
#define FOUR(n) n, n + 1, n + 2, n + 3
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
	SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48),
	SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112),
};

INLINE void
prefetch(const char *p, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i += 64)
		__builtin_prefetch(p + i);
}

/* The limit of a core is the number of cache lines it can wait for. Rows in order: the next tile
 * is prefetched while scores are computed, here the i-th of KEY_TILE/4 parts of it. Two places at
 * a time, in the keys and in the values, are fetched half again as fast as one.
 *
 * The hardware's prefetchers cannot foresee listed rows, so a few lines are prefetched all the
 * time: the values of a tile while its scores are computed, and the next keys while its outputs
 * are. More than that would not stay in L1 until it is used. */
INLINE void
prefetch_part(const struct tile *t, size_t i, size_t row_bytes)
{
	const size_t part = 2 * row_bytes, half = KEY_TILE / 2 * row_bytes;
	const size_t at = (KEY_TILE + 2 * i) * row_bytes;

	prefetch(t->k + at, part);
	prefetch(t->k + at + half, part);
	if (t->v != NULL) {
		prefetch(t->v + at, part);
		prefetch(t->v + at + half, part);
	}
}

/* s[nq][VL] (rows KEY_TILE apart) <- q[nq][E] . rows row0 .. of the tile; rows that are not
 * there repeat the last one */
INLINE void
dots_of_keys(float *s, const float *q, const int nq, const struct tile *t, size_t row0,
    const enum kv_dtype type, size_t E, const int listed, int fetch)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	vf part[QROWS][VL / 4], sum[QROWS][4], kv[4], qv;
	size_t at[4], row, e;
	int g, i, m;

	/* Keys g, g + VL/4, g + VL/2, g + 3 VL/4: the folds then leave key i in lane i. */
	for (g = 0; g < VL / 4; g++) {
		if (fetch && !listed)
			prefetch_part(t, row0 / 4 + g, E * size);
UNROLL		for (i = 0; i < 4; i++) {
			row = row0 + g + i * (VL / 4);
			row = row < t->rows ? row : t->rows - 1;
			at[i] = (listed ? t->at[row] : row) * E;
UNROLL			for (m = 0; m < nq; m++)
				sum[m][i] = vset(0);
		}
		for (e = 0; e < E; e += VL) {
			for (i = 0; i < 4 && listed && fetch && e * size % 64 == 0; i++)
				__builtin_prefetch(t->v + (at[i] + e) * size);
UNROLL			for (i = 0; i < 4; i++)
				kv[i] = vload_as(t->k, at[i] + e, type);
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

/* CALL(n) with n query rows, a constant, 1 to QROWS of the M - m that are left */
#if QROWS == 4
#define FOR_SOME_ROWS(left, CALL) do { \
	if ((left) >= 4) CALL(4); else if ((left) == 3) CALL(3); \
	else if ((left) == 2) CALL(2); else CALL(1); \
} while (0)
#else
#define FOR_SOME_ROWS(left, CALL) do { if ((left) >= 2) CALL(2); else CALL(1); } while (0)
#endif

/* s[M][KEY_TILE] <- q[M][E] . keys of the tile; prefetches the next tile */
INLINE void
skinny_scores(float *s, const float *q, size_t M, const struct tile *t, const enum kv_dtype type,
    size_t E, const int listed)
{
	size_t row, m;

#define DOTS(n) dots_of_keys(s + m * KEY_TILE + row, q + m * E, n, t, row, type, E, listed, m == 0)
	for (row = 0; row < t->rows; row += VL)
		for (m = 0; m < M; m += QROWS)
			FOR_SOME_ROWS(M - m, DOTS);
#undef DOTS
}

/* o[mr][nr vectors] += p[mr][rows] . channels e .. of the values of the tile */
INLINE void
skinny_outputs_part(float *o, const float *p, const int mr, const struct tile *t,
    const enum kv_dtype type, size_t E, size_t e, const int nr, const int listed, int fetch)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	vf sum[QROWS][NR], v[NR], weight;
	size_t row;
	int i, j;

UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nr; j++)
			sum[i][j] = vload(o + i * E + e + j * VL);
	for (row = 0; row < t->rows; row++) {
		if (listed && fetch && row < t->ahead)
			prefetch(t->k + (t->at[KEY_TILE + row] * E + e) * size, nr * VL * size);
UNROLL		for (j = 0; j < nr; j++)
			v[j] = vload_as(t->v, (listed ? t->at[row] : row) * E + e + j * VL, type);
UNROLL		for (i = 0; i < mr; i++) {
			weight = vset(p[i * KEY_TILE + row]);
UNROLL			for (j = 0; j < nr; j++)
				sum[i][j] = vmadd(weight, v[j], sum[i][j]);
		}
	}
UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nr; j++)
			vstore(o + i * E + e + j * VL, sum[i][j]);
}

INLINE void
skinny_outputs_of(float *o, const float *p, const int mr, const struct tile *t,
    const enum kv_dtype type, size_t E, const int listed, int fetch)
{
	size_t e;

	for (e = 0; e + NR * VL <= E; e += NR * VL)
		skinny_outputs_part(o, p, mr, t, type, E, e, NR, listed, fetch);
	for (; e < E; e += VL)
		skinny_outputs_part(o, p, mr, t, type, E, e, 1, listed, fetch);
}

/* o[M][E] += p[M][KEY_TILE] . values of the tile */
INLINE void
skinny_outputs(float *o, const float *p, size_t M, const struct tile *t, const enum kv_dtype type,
    size_t E, const int listed)
{
	size_t m;

#define OUTPUTS(n) skinny_outputs_of(o + m * E, p + m * KEY_TILE, n, t, type, E, listed, m == 0)
	for (m = 0; m < M; m += QROWS)
		FOR_SOME_ROWS(M - m, OUTPUTS);
#undef OUTPUTS
}

/* ---- many query rows: tiles in f32 ---- */

/* kt[E][KEY_TILE] <- keys of the tile, transposed; rows that are not there are 0 */
INLINE void
transpose_keys(float *kt, const struct tile *t, const enum kv_dtype type, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t row, e, i, n;
	vf r[VL];

	for (row = 0; row < KEY_TILE; row += VL)
		for (e = 0; e < E; e += VL) {
			n = E - e < VL ? E - e : VL;
			for (i = 0; i < VL && row + i < t->ahead; i++)
				__builtin_prefetch(t->k + (t->at[KEY_TILE + row + i] * E + e) *
				    size);
			if (row + VL <= t->rows && n == VL) {
UNROLL				for (i = 0; i < VL; i++)
					r[i] = vload_as(t->k, t->at[row + i] * E + e, type);
			} else
				for (i = 0; i < VL; i++)
					r[i] = row + i < t->rows
					    ? vload_part(t->k, t->at[row + i] * E + e, n, type)
					    : vset(0);
			vtranspose(r);
			for (i = 0; i < n; i++)
				vstore(kt + (e + i) * KEY_TILE + row, r[i]);
		}
}

/* vt[rows][PADDED(E)] <- values of the tile; the padding is 0 */
INLINE void
widen_values(float *vt, const struct tile *t, const enum kv_dtype type, size_t E)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t row, e, at;

	for (row = 0; row < t->rows; row++, vt += PADDED(E)) {
		if (row < t->ahead)
			for (e = 0; e < E; e += 64 / size)
				__builtin_prefetch(t->v + (t->at[KEY_TILE + row] * E + e) * size);
		at = t->at[row] * E;
		for (e = 0; e + VL <= E; e += VL)
			vstore(vt + e, vload_as(t->v, at + e, type));
		for (; e < PADDED(E); e += VL)
			vstore(vt + e, e < E ? vload_part(t->v, at + e, E - e, type) : vset(0));
	}
}

INLINE void
load_tile_as(const struct attend_job *j, const struct tile *t, const enum kv_dtype type)
{
	transpose_keys(j->kt, t, type, j->E);
	if (t->v != NULL)
		widen_values(j->vt, t, type, j->E);
}

static void
load_tile(const struct attend_job *j, const struct tile *t)
{
	if (j->dtype == KV_BF16)
		load_tile_as(j, t, KV_BF16);
	else if (j->dtype == KV_F16)
		load_tile_as(j, t, KV_F16);
	else
		load_tile_as(j, t, KV_F32);
}

/* ---- both ---- */

/* The tile that begins with row s of the job */
static struct tile
tile_of(const struct attend_job *j, size_t s)
{
	const size_t skip = j->at != NULL ? 0 : s * j->E * (j->dtype == KV_F32 ? 4 : 2);
	const size_t left = j->last - s, rows = left < KEY_TILE ? left : KEY_TILE;
	struct tile t = { .k = (const char *)j->k + skip, .rows = rows };

	t.v = j->v == NULL ? NULL : (const char *)j->v + skip;
	t.at = j->at != NULL ? j->at + (s - j->first) : in_order;
	t.ahead = j->at == NULL ? KEY_TILE : left - rows < KEY_TILE ? left - rows : KEY_TILE;
	return t;
}

INLINE void
cap_scores(float *s, float c)
{
	const vf cap = vset(c), by = vset(1 / c);
	size_t i;

	for (i = 0; i < KEY_TILE; i += VL)
		vstore(s + i, vcap(vload(s + i), cap, by));
}

/* Query row m sees rows first .. the result - 1 of the tile [s, s + rows), or none. */
INLINE size_t
seen_in_tile(const struct attend_job *j, size_t m, size_t s, size_t rows, size_t *first)
{
	const size_t from = j->from[m], end = j->seen[m];

	*first = from <= s ? 0 : from - s;
	if (end <= s)
		return 0;
	return end - s < rows ? end - s : rows;
}

/* Does one of query rows m .. m+n-1 see any of it? */
INLINE int
is_seen(const struct attend_job *j, size_t m, size_t n, size_t s, size_t rows)
{
	size_t i, first;

	for (i = 0; i < n; i++)
		if (seen_in_tile(j, m + i, s, rows, &first) > first)
			return 1;
	return 0;
}

/* Scores of query row m become exp(score - maximum so far), those of rows outside first .. seen-1
 * become 0; m, l and o follow when the maximum rises. */
INLINE void
softmax_step(const struct attend_job *j, size_t m, float *s, size_t first, size_t seen)
{
	float *o = j->o + m * PADDED(j->E), *l = j->l + m * 16;
	vf p, sum, alpha, top = vset(-INFINITY);
	float largest;
	size_t i;

	if (j->softcap > 0)
		cap_scores(s, j->softcap);
	for (i = 0; i < first; i++)
		s[i] = -INFINITY;
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
is_skinny(const struct attend_job *j)
{
	return j->M <= SKINNY_ROWS && j->E % 16 == 0;
}

INLINE void
skinny_scores_as(const struct attend_job *j, const struct tile *t, size_t m, size_t n,
    const int listed)
{
	const float *q = j->q + m * j->E;

	if (j->dtype == KV_BF16)
		skinny_scores(j->s, q, n, t, KV_BF16, j->E, listed);
	else if (j->dtype == KV_F16)
		skinny_scores(j->s, q, n, t, KV_F16, j->E, listed);
	else
		skinny_scores(j->s, q, n, t, KV_F32, j->E, listed);
}

/* s[n][KEY_TILE] <- scores of query rows m .. m+n-1 with the tile */
static void
scores(const struct attend_job *j, const struct tile *t, size_t m, size_t n)
{
	if (!is_skinny(j))
		gemm(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n, KEY_TILE,
		    j->E, 0);
	else if (j->at != NULL)
		skinny_scores_as(j, t, m, n, 1);
	else
		skinny_scores_as(j, t, m, n, 0);
}

INLINE void
skinny_outputs_as(const struct attend_job *j, const struct tile *t, float *o, size_t n,
    const int listed)
{
	if (j->dtype == KV_BF16)
		skinny_outputs(o, j->s, n, t, KV_BF16, j->E, listed);
	else if (j->dtype == KV_F16)
		skinny_outputs(o, j->s, n, t, KV_F16, j->E, listed);
	else
		skinny_outputs(o, j->s, n, t, KV_F32, j->E, listed);
}

/* o of query rows m .. m+n-1 += what scores() and softmax_step() left in s, times the values of
 * the tile */
static void
outputs(const struct attend_job *j, const struct tile *t, size_t m, size_t n)
{
	const size_t width = PADDED(j->E);
	float *o = j->o + m * width;

	if (j->v == NULL)
		return;
	if (!is_skinny(j))
		gemm(o, width, j->s, KEY_TILE, j->vt, width, n, width, t->rows, 1);
	else if (j->at != NULL)
		skinny_outputs_as(j, t, o, n, 1);
	else
		skinny_outputs_as(j, t, o, n, 0);
}

void
FN(attend)(const struct attend_job *j)
{
	size_t s, rows, m, n, i, first, seen;
	struct tile t;

	for (s = j->first; s < j->last; s += rows) {
		t = tile_of(j, s);
		rows = t.rows;
		if (!is_seen(j, 0, j->M, s, rows))
			continue;
		if (!is_skinny(j))
			load_tile(j, &t);
		for (m = 0; m < j->M; m += n) {
			n = j->M - m < SCORE_ROWS ? j->M - m : SCORE_ROWS;
			if (!is_seen(j, m, n, s, rows))
				continue;
			scores(j, &t, m, n);
			for (i = 0; i < n; i++) {
				seen = seen_in_tile(j, m + i, s, rows, &first);
				if (seen > first)
					softmax_step(j, m + i, j->s + i * KEY_TILE, first, seen);
				else
					memset(j->s + i * KEY_TILE, 0, KEY_TILE * sizeof *j->s);
			}
			outputs(j, &t, m, n);
		}
	}
}

/* a[n] <- the greater of a and b. A NaN on either side stays. */
INLINE void
max_into(float *a, const float *b, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
}

void
FN(mass)(const struct attend_job *j, float *mass, size_t stride, size_t R)
{
	size_t s, rows, m, n, i, k, first, seen;
	float *score, *sum;
	struct tile t;
	vf lse;

	for (s = j->first; s < j->last; s += rows) {
		t = tile_of(j, s);
		rows = t.rows;
		if (!is_seen(j, 0, j->M, s, rows))
			continue;
		load_tile(j, &t);
		for (m = 0; m < j->M; m += n) {
			n = j->M - m < SCORE_ROWS ? j->M - m : SCORE_ROWS;
			if (!is_seen(j, m, n, s, rows))
				continue;
			gemm(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n,
			    KEY_TILE, j->E, 0);
			for (i = 0; i < n; i++) {
				seen = seen_in_tile(j, m + i, s, rows, &first);
				if (seen <= first)
					continue;
				score = j->s + i * KEY_TILE;
				sum = mass + (m + i) % R * stride + s - j->first;
				lse = vset(j->m[m + i]);
				if (j->softcap > 0)
					cap_scores(score, j->softcap);
				for (k = first / VL * VL; k < seen; k += VL)
					vstore(score + k, vexp(vload(score + k) - lse));
				if (j->over == QUERIES_MAX)
					max_into(sum + first, score + first, seen - first);
				else
					for (k = first; k < seen; k++)
						sum[k] += score[k];
			}
		}
	}
}
