/* simd_pages.c - how large a query's logits with the keys of a page can be (Quest; Tang et al.
 * 2024, algorithm 1)
 *
 * Bounds are widened in registers, once for HEADS query heads; the elements of the head stand along
 * the lanes, and the lanes of VL pages are added up together, as in the attention of few query
 * rows. */
#include "cpu/simd.h"

#define HEADS (VL == 16 ? 4 : 2)     /* 4 pages for each fit the registers */

/* n channels of four pages from e on; n is VL, or less at the end */
INLINE void
add_channels(vf sum[HEADS][4], const char *const page[4], const float *q, const int nh,
    const enum kv_dtype type, size_t E, size_t e, const size_t n)
{
	vf least[4], most[4], qv;
	int i, h;

UNROLL	for (i = 0; i < 4; i++) {
		least[i] = n == VL ? vload_as(page[i], e, type) : vload_part(page[i], e, n, type);
		most[i] = n == VL ? vload_as(page[i], E + e, type)
		    : vload_part(page[i], E + e, n, type);
	}
UNROLL	for (h = 0; h < nh; h++) {
		qv = n == VL ? vload(q + h * E + e) : vload_part(q, h * E + e, n, KV_F32);
UNROLL		for (i = 0; i < 4; i++)
			sum[h][i] += vmax(qv * least[i], qv * most[i]);
	}
}

/* score[nh][VL] (stride apart) <- those of VL pages, or of n_pages if that is less */
INLINE void
score_pages(float *score, size_t stride, const char *data, size_t bytes, size_t n_pages,
    const float *q, const int nh, const enum kv_dtype type, size_t E)
{
	vf part[HEADS][VL / 4], sum[HEADS][4], all;
	const char *page[4];
	size_t e, at;
	int g, i, h;

	/* Pages g, g + VL/4, g + VL/2, g + 3 VL/4: the folds then leave page i in lane i. */
	for (g = 0; g < VL / 4; g++) {
UNROLL		for (i = 0; i < 4; i++) {
			at = g + i * (VL / 4);
			page[i] = data + (at < n_pages ? at : n_pages - 1) * bytes;
UNROLL			for (h = 0; h < nh; h++)
				sum[h][i] = vset(0);
		}
		for (e = 0; e + VL <= E; e += VL)
			add_channels(sum, page, q, nh, type, E, e, VL);
		if (e < E)
			add_channels(sum, page, q, nh, type, E, e, E - e);
UNROLL		for (h = 0; h < nh; h++)
			part[h][g] = fold4(sum[h][0], sum[h][1], sum[h][2], sum[h][3]);
	}
UNROLL	for (h = 0; h < nh; h++) {
#if VL == 16
		all = fold4(part[h][0], part[h][1], part[h][2], part[h][3]);
#elif VL == 8
		all = fold2(part[h][0], part[h][1]);
#else
		all = part[h][0];
#endif
		memcpy(score + h * stride, &all, (n_pages < VL ? n_pages : VL) * sizeof *score);
	}
}

INLINE void
page_scores(const struct entries_job *j, const enum kv_dtype type)
{
	const size_t tile = VL * j->bytes;
	const char *data = j->data;
	float *score = j->score;
	size_t i, m, at;

	for (i = 0; i < j->n; i += VL, data += tile, score += VL) {
		for (at = 0; at < tile; at += 64)
			__builtin_prefetch(data + tile + at);
		for (m = 0; m + HEADS <= j->M; m += HEADS)
			score_pages(score + m * j->stride, j->stride, data, j->bytes, j->n - i,
			    j->q + m * j->E, HEADS, type, j->E);
		for (; m < j->M; m++)
			score_pages(score + m * j->stride, j->stride, data, j->bytes, j->n - i,
			    j->q + m * j->E, 1, type, j->E);
	}
}

void
FN(page_scores)(const struct entries_job *j)
{
	switch (j->dtype) {
	case KV_BF16:
		page_scores(j, KV_BF16);
		break;
	case KV_F16:
		page_scores(j, KV_F16);
		break;
	case KV_F32:
		page_scores(j, KV_F32);
		break;
	}
}
