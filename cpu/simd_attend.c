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
#include "cpu/simd_kivi.h"

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

/* ---- many query rows: tiles in f32 ---- */

/* kt[E][KEY_TILE] <- keys of the tile, transposed; rows that are not there are 0 */
INLINE void
transpose_keys(float *kt, const struct tile *t, const enum kv_row_type type, size_t E)
{
	size_t row, e, i, n;
	vf r[VL];

#define KEY(row) (t->k + t->at[row] * t->k_bytes)
	for (row = 0; row < KEY_TILE; row += VL)
		for (e = 0; e < E; e += VL) {
			n = E - e < VL ? E - e : VL;
			for (i = 0; i < VL && row + i < t->ahead; i++)
				__builtin_prefetch(KEY(KEY_TILE + row + i) + e * t->k_bytes / E);
			if (row + VL <= t->rows && n == VL) {
UNROLL				for (i = 0; i < VL; i++)
					r[i] = load_channels(KEY(row + i), e, type);
			} else
				for (i = 0; i < VL; i++)
					r[i] = row + i < t->rows
					    ? load_channels_part(KEY(row + i), e, n, type)
					    : vset(0);
			vtranspose(r);
			for (i = 0; i < n; i++)
				vstore(kt + (e + i) * KEY_TILE + row, r[i]);
		}
#undef KEY
}

/* vt[rows][PADDED(E)] <- values of the tile; the padding is 0 */
INLINE void
widen_values(float *vt, const struct tile *t, const enum kv_row_type type, size_t E)
{
	size_t row;

	for (row = 0; row < t->rows; row++, vt += PADDED(E)) {
		if (row < t->ahead)
			prefetch(t->v + t->at[KEY_TILE + row] * t->v_bytes, t->v_bytes);
		widen_row(vt, PADDED(E), t->v + t->at[row] * t->v_bytes, type, E);
	}
}

static void
load_tile(const struct attend_job *j, const struct tile *t)
{
#define TRANSPOSE(type) (IS_KIVI(type) ? kivi_tile(j->kt, t, type, j->E) : \
	    transpose_keys(j->kt, t, type, j->E))
#define WIDEN(type) widen_values(j->vt, t, type, j->E)
	FOR_ROW_TYPE(j->k_type, TRANSPOSE);
	if (t->v != NULL)
		FOR_ROW_TYPE(j->v_type, WIDEN);
#undef TRANSPOSE
#undef WIDEN
}

/* ---- both ---- */

/* The tile that begins with row s of the job */
static struct tile
tile_of(const struct attend_job *j, size_t s)
{
	const size_t k_row = j->at != NULL ? 0 : s - j->k_before;
	const size_t v_row = j->at != NULL ? 0 : s - j->v_before;
	const size_t in_group = IS_KIVI(j->k_type) ? k_row % KV_GROUP_ROWS : 0;
	const size_t left = j->last - s, rows = left < KEY_TILE ? left : KEY_TILE;
	struct tile t = { .k = (const char *)j->k + (k_row - in_group) * j->k_bytes,
		.skip = in_group, .rows = rows, .k_bytes = j->k_bytes, .v_bytes = j->v_bytes };

	t.v = j->v == NULL ? NULL : (const char *)j->v + v_row * j->v_bytes;
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

/* Returns how many query rows are computed at once, of `left`. */
INLINE size_t
at_once(const struct attend_job *j, size_t left)
{
	const size_t most = j->few ? SKINNY_ROWS : SCORE_ROWS;

	return left < most ? left : most;
}

INLINE void
skinny_scores_as(const struct attend_job *j, const struct tile *t, size_t m, size_t n,
    const int listed)
{
#define SCORES(type) (IS_KIVI(type) ? kivi_scores(j->s, j->q + m * j->E, n, t, type, j->E) : \
	    skinny_scores(j->s, j->q + m * j->E, n, t, type, j->E, listed))
	FOR_ROW_TYPE(j->k_type, SCORES);
#undef SCORES
}

/* s[n][KEY_TILE] <- scores of query rows m .. m+n-1 with the tile */
static void
scores(const struct attend_job *j, const struct tile *t, size_t m, size_t n)
{
	if (!j->few)
		gemm(j->s, KEY_TILE, j->q + m * j->E, j->E, j->kt, KEY_TILE, n, KEY_TILE,
		    j->E, 0);
	else if (j->k_vnni != NULL)
		j->k_vnni->scores(j, t, m, n);
	else if (j->at != NULL)
		skinny_scores_as(j, t, m, n, 1);
	else
		skinny_scores_as(j, t, m, n, 0);
}

INLINE void
skinny_outputs_as(const struct attend_job *j, const struct tile *t, float *o, size_t n,
    const int listed)
{
#define OUTPUTS(type) skinny_outputs(o, j->s, n, t, type, j->E, listed)
	FOR_ROW_TYPE(j->v_type, OUTPUTS);
#undef OUTPUTS
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
	if (!j->few)
		gemm(o, width, j->s, KEY_TILE, j->vt, width, n, width, t->rows, 1);
	else if (j->v_vnni != NULL)
		j->v_vnni->outputs(j, t, o, n);
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

	if (j->few && j->k_vnni != NULL)
		j->k_vnni->prepare(j);
	for (s = j->first; s < j->last; s += rows) {
		t = tile_of(j, s);
		rows = t.rows;
		if (!is_seen(j, 0, j->M, s, rows))
			continue;
		if (!j->few)
			load_tile(j, &t);
		for (m = 0; m < j->M; m += n) {
			n = at_once(j, j->M - m);
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
			n = at_once(j, j->M - m);
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

void
FN(key_scores)(const struct attend_job *j, float *score, size_t stride)
{
	size_t s, m, n, i;
	struct tile t;

	if (j->few && j->k_vnni != NULL)
		j->k_vnni->prepare(j);
	for (s = j->first; s < j->last; s += t.rows, score += t.rows) {
		t = tile_of(j, s);
		if (!j->few)
			load_tile(j, &t);
		for (m = 0; m < j->M; m += n) {
			n = at_once(j, j->M - m);
			scores(j, &t, m, n);
			for (i = 0; i < n; i++)
				memcpy(score + (m + i) * stride, j->s + i * KEY_TILE,
				    t.rows * sizeof *score);
		}
	}
}

void
FN(dequantise)(float *dst, const void *rows, enum kv_row_type type, size_t E, size_t n)
{
	const size_t bytes = kv_row_bytes(type, E);
	const char *row = rows;

#define WIDEN(type) widen_row(dst, E, row, type, E)
	for (; n > 0; n--, dst += E, row += bytes)
		FOR_ROW_TYPE(type, WIDEN);
#undef WIDEN
}
