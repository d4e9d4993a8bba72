/* simd_kivi.h - KIVI's keys for simd_attend.c: groups of 32 rows with a block for each channel
 *
 * A block is f16 scale, f16 minimum and 32 codes of 2 or 4 bits, of one channel of the 32 rows (kv-
 * snapshot(5), 4.21). So the rows are along the lanes, as in a transposed tile, and a score is a
 * sum over channels within each lane. */
#ifndef SIMD_KIVI_H
#define SIMD_KIVI_H

#include "cpu/simd_skinny.h"

/* Vectors of the 32 codes of a block */
#define CODE_VECTORS (KV_GROUP_ROWS / VL)
/* Groups that a tile of KEY_TILE rows may lie in */
#define TILE_GROUPS (KEY_TILE / KV_GROUP_ROWS + 1)

INLINE const unsigned char *
group_at(const struct tile *t, size_t group)
{
	return (const unsigned char *)t->k + group * KV_GROUP_ROWS * t->k_bytes;
}

/* Groups that hold rows of the tile */
INLINE size_t
groups_of(const struct tile *t)
{
	return (t->skip + t->rows + KV_GROUP_ROWS - 1) / KV_GROUP_ROWS;
}

/* to[nq][TILE_GROUPS * 32] <- scores of q[nq][E] with a group; at: where its rows are in to */
INLINE void
scores_of_group(float *to, size_t at, const float *q, const int nq, const unsigned char *block,
    const enum kv_row_type type, size_t E)
{
	vf sum[QROWS][CODE_VECTORS], key[CODE_VECTORS], scale, least;
	size_t e;
	int i, m;

UNROLL	for (m = 0; m < nq; m++)
UNROLL		for (i = 0; i < CODE_VECTORS; i++)
			sum[m][i] = vset(0);
	for (e = 0; e < E; e++, block += block_bytes(type)) {
		kivi_scale(&scale, &least, block);
UNROLL		for (i = 0; i < CODE_VECTORS; i++)
			key[i] = vmadd(kivi_codes(block, i * VL, type), scale, least);
UNROLL		for (m = 0; m < nq; m++)
UNROLL			for (i = 0; i < CODE_VECTORS; i++)
				sum[m][i] = vmadd(key[i], vset(q[m * E + e]), sum[m][i]);
	}
UNROLL	for (m = 0; m < nq; m++)
UNROLL		for (i = 0; i < CODE_VECTORS; i++)
			vstore(to + m * TILE_GROUPS * KV_GROUP_ROWS + at + i * VL, sum[m][i]);
}

/* s[n][KEY_TILE] <- q[n][E] . keys of the tile; of rows that are not there 0 */
INLINE void
kivi_scores(float *s, const float *q, size_t n, const struct tile *t, const enum kv_row_type type,
    size_t E)
{
	float all[QROWS][TILE_GROUPS * KV_GROUP_ROWS];
	const size_t groups = groups_of(t);
	size_t g, m, i, some;

#define GROUP(nq) scores_of_group(all[0], g * KV_GROUP_ROWS, q + m * E, nq, group_at(t, g), type, E)
	for (m = 0; m < n; m += QROWS) {
		for (g = 0; g < groups; g++)
			FOR_SOME_ROWS(n - m, GROUP);
		some = n - m < QROWS ? n - m : QROWS;
		for (i = 0; i < some; i++) {
			memcpy(s + (m + i) * KEY_TILE, all[i] + t->skip, t->rows * sizeof *s);
			memset(s + (m + i) * KEY_TILE + t->rows, 0,
			    (KEY_TILE - t->rows) * sizeof *s);
		}
	}
#undef GROUP
}

/* kt[E][KEY_TILE] <- keys of the tile as numbers, transposed as they are stored; rows that are not
 * there are 0 */
INLINE void
kivi_tile(float *kt, const struct tile *t, const enum kv_row_type type, size_t E)
{
	float all[TILE_GROUPS * KV_GROUP_ROWS];
	const unsigned char *block;
	const size_t groups = groups_of(t);
	size_t e, g;
	vf scale, least;
	int i;

	for (e = 0; e < E; e++, kt += KEY_TILE) {
		for (g = 0; g < groups; g++) {
			block = group_at(t, g) + e * block_bytes(type);
			kivi_scale(&scale, &least, block);
UNROLL			for (i = 0; i < CODE_VECTORS; i++)
				vstore(all + g * KV_GROUP_ROWS + i * VL,
				    kivi_codes(block, i * VL, type) * scale + least);
		}
		memcpy(kt, all + t->skip, t->rows * sizeof *kt);
		memset(kt + t->rows, 0, (KEY_TILE - t->rows) * sizeof *kt);
	}
}

#endif
