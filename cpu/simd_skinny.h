/* simd_skinny.h - attention of few query rows, for simd_attend.c: keys and values are widened in
 * registers, each time they are needed
 *
 * One row's dot products have the elements of the head along the lanes, and the lanes of VL of them
 * are added up together. */
#ifndef SIMD_SKINNY_H
#define SIMD_SKINNY_H

#include "cpu/simd_quantised.h"

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

/* Query rows that share the loads of keys and values: their sums with 4 keys fit the registers. */
#define QROWS (VL == 16 ? 4 : 2)

/* Up to KEY_TILE rows of one KV head: row i of the tile is row at[i] of k and v. */
struct tile {
	const char *k, *v;           /* v NULL: not wanted */
	size_t k_bytes, v_bytes;     /* of a row */
	const uint32_t *at;
	size_t skip;                 /* KIVI's keys: rows of the group at k in front of the tile */
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
prefetch_part(const struct tile *t, size_t i)
{
	const size_t at = KEY_TILE + 2 * i, half = KEY_TILE / 2;

	prefetch(t->k + at * t->k_bytes, 2 * t->k_bytes);
	prefetch(t->k + (at + half) * t->k_bytes, 2 * t->k_bytes);
	if (t->v != NULL) {
		prefetch(t->v + at * t->v_bytes, 2 * t->v_bytes);
		prefetch(t->v + (at + half) * t->v_bytes, 2 * t->v_bytes);
	}
}

/* sum[nq][4] += the products of a column of four keys, q[nq][E] from its first channel on */
INLINE void
add_columns(vf sum[QROWS][4], const float *q, const int nq, const char *const key[4], size_t e,
    const enum kv_row_type type, size_t E)
{
	vf kv[4][2], qv;
	int i, j, m;

UNROLL	for (i = 0; i < 4; i++)
		load_columns(kv[i], key[i], e, type);
UNROLL	for (m = 0; m < nq; m++)
		for (j = 0; j < COLUMNS(type); j++) {
			qv = vload(q + m * E + j * COLUMN_STEP);
UNROLL			for (i = 0; i < 4; i++)
				sum[m][i] = vmadd(kv[i][j], qv, sum[m][i]);
		}
}

/* s[nq][VL] (rows KEY_TILE apart) <- q[nq][E] . rows row0 .. of the tile; rows that are not
 * there repeat the last one */
INLINE void
dots_of_keys(float *s, const float *q, const int nq, const struct tile *t, size_t row0,
    const enum kv_row_type type, size_t E, const int listed, int fetch)
{
	vf part[QROWS][VL / 4], sum[QROWS][4];
	const char *key[4];
	size_t row, b, e;
	int g, i, m;

	/* Keys g, g + VL/4, g + VL/2, g + 3 VL/4: the folds then leave key i in lane i. */
	for (g = 0; g < VL / 4; g++) {
		if (fetch && !listed)
			prefetch_part(t, row0 / 4 + g);
UNROLL		for (i = 0; i < 4; i++) {
			row = row0 + g + i * (VL / 4);
			row = row < t->rows ? row : t->rows - 1;
			row = listed ? t->at[row] : row;
			key[i] = t->k + row * t->k_bytes;
			if (listed && fetch)
				prefetch(t->v + row * t->v_bytes, t->v_bytes);
UNROLL			for (m = 0; m < nq; m++)
				sum[m][i] = vset(0);
		}
		for (b = 0; b < E; b += BLOCK(type))
			for (e = b; e < b + COLUMN(type); e += VL)
				add_columns(sum, q + e, nq, key, e, type, E);
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
skinny_scores(float *s, const float *q, size_t M, const struct tile *t,
    const enum kv_row_type type, size_t E, const int listed)
{
	size_t row, m;

#define DOTS(n) dots_of_keys(s + m * KEY_TILE + row, q + m * E, n, t, row, type, E, listed, m == 0)
	for (row = 0; row < t->rows; row += VL)
		for (m = 0; m < M; m += QROWS)
			FOR_SOME_ROWS(M - m, DOTS);
#undef DOTS
}

/* o[mr][nr columns] += p[mr][rows] . channels e .. of the values of the tile; columns are
 * BLOCK(type) channels apart */
INLINE void
skinny_outputs_part(float *o, const float *p, const int mr, const struct tile *t,
    const enum kv_row_type type, size_t E, size_t e, const int nr, const int listed, int fetch)
{
	const int nv = nr * COLUMNS(type);
	const size_t piece = nv * VL * t->k_bytes / E;
	vf sum[QROWS][NR], v[NR], weight;
	const char *value;
	size_t row;
	int i, j;

#define CHANNEL(j) (e + (j) / COLUMNS(type) * BLOCK(type) + (j) % COLUMNS(type) * COLUMN_STEP)
UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nv; j++)
			sum[i][j] = vload(o + i * E + CHANNEL(j));
	for (row = 0; row < t->rows; row++) {
		if (listed && fetch && row < t->ahead)
			prefetch(t->k + t->at[KEY_TILE + row] * t->k_bytes + e * t->k_bytes / E,
			    piece);
		value = t->v + (listed ? t->at[row] : row) * t->v_bytes;
UNROLL		for (j = 0; j < nr; j++)
			load_columns(v + j * COLUMNS(type), value, e + j * BLOCK(type), type);
UNROLL		for (i = 0; i < mr; i++) {
			weight = vset(p[i * KEY_TILE + row]);
UNROLL			for (j = 0; j < nv; j++)
				sum[i][j] = vmadd(weight, v[j], sum[i][j]);
		}
	}
UNROLL	for (i = 0; i < mr; i++)
UNROLL		for (j = 0; j < nv; j++)
			vstore(o + i * E + CHANNEL(j), sum[i][j]);
#undef CHANNEL
}

INLINE void
skinny_outputs_of(float *o, const float *p, const int mr, const struct tile *t,
    const enum kv_row_type type, size_t E, const int listed, int fetch)
{
	const int nr = NR / COLUMNS(type);
	size_t b = 0, e;

	for (; b + nr * BLOCK(type) <= E; b += nr * BLOCK(type))
		for (e = b; e < b + COLUMN(type); e += VL)
			skinny_outputs_part(o, p, mr, t, type, E, e, nr, listed, fetch);
	for (; b < E; b += BLOCK(type))
		for (e = b; e < b + COLUMN(type); e += VL)
			skinny_outputs_part(o, p, mr, t, type, E, e, 1, listed, fetch);
}

/* o[M][E] += p[M][KEY_TILE] . values of the tile */
INLINE void
skinny_outputs(float *o, const float *p, size_t M, const struct tile *t,
    const enum kv_row_type type, size_t E, const int listed)
{
	size_t m;

#define OUTPUTS(n) skinny_outputs_of(o + m * E, p + m * KEY_TILE, n, t, type, E, listed, m == 0)
	for (m = 0; m < M; m += QROWS)
		FOR_SOME_ROWS(M - m, OUTPUTS);
#undef OUTPUTS
}

#endif
