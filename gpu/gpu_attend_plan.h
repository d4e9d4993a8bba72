/* gpu_attend_plan.h - prefill attention on tensor cores: the schedule of a call, and where its
 * output goes, for gpu_attend.cu, gpu_attend_wgmma.cu and gpu_quantised_attend.cu */
#ifndef GPU_ATTEND_PLAN_H
#define GPU_ATTEND_PLAN_H

#include "gpu/gpu_attend_mma.h"

/* The schedule of a call. Blocks of a set of KV heads, whose keys and values fit into L2
 * together, are neighbours in the grid; within a set the last query rows, which see most
 * keys, come first. Where there are few blocks the keys are split (split-KV), and
 * combine_splits() combines the results. Through a window, a block splits what it sees: tiles of a
 * split are enough for consecutive queries then, and others need more. */
struct plan {
	uint32_t N, H;
	uint32_t blocks;             /* of query rows of a KV head */
	uint32_t heads;              /* of a set */
	uint32_t splits, tiles;      /* of the keys; tiles of a split */
	float scale;                 /* of the queries: log2(e) / sqrt(E) */
	struct limits limits;
	void *narrow;                /* [N][H][E] o in 16 bits, for a product; NULL: not wanted */
};

/* Writes o and lse of the rows of this warp; four threads have a part of each. */
template <class T, int E, bool VALUES, class ROW>
DEVICE void
write_output(float *o, T *narrow, float *lse, const struct softmax_state<E> &t, const ROW &row)
{
	const unsigned lane = threadIdx.x % 32;

UNROLL	for (unsigned r = 0; r < 2 * STRIPS; r++) {
		const uint32_t at = row[r * 8 + lane / 4];
		float l = t.l[r];

		l += __shfl_xor_sync(ALL_LANES, l, 1);
		l += __shfl_xor_sync(ALL_LANES, l, 2);
		if (at != NO_ROW) {
			const float scale = l > 0 ? 1 / l : 0;

			if (lse != NULL && lane % 4 == 0)
				lse[at] = l > 0 ? (t.m[r] + log2f(l)) * LN2 : -INFINITY;
UNROLL			for (unsigned j = 0; j < E / 8 && VALUES; j++) {
				const size_t i = (size_t)at * E + j * 8 + lane % 4 * 2;
				const float a = t.o[r / 2][j][r % 2 * 2] * scale;
				const float b = t.o[r / 2][j][r % 2 * 2 + 1] * scale;

				*(float2 *)(o + i) = make_float2(a, b);
				if (narrow != NULL)
					*(uint32_t *)(narrow + i) = pair<T>(a, b);
			}
		}
	}
}

#define MIN_SPLIT_ROWS 512       /* of a split of the keys */

/* For blocks of so many query rows, of which an SM has `together`, and tiles of so many keys */
static inline struct plan
plan_blocks(const struct dev *d, const struct rows *c, const struct query *query, uint32_t block,
    uint32_t together, uint32_t keys)
{
	const uint32_t N = query->N, H = query->H;
	const uint32_t slots = together * d->sms, blocks = parts_of((size_t)N * (H / c->G), block);
	uint32_t g, longest = 1, splits;

	for (g = 0; g < c->G; g++)
		longest = c->len[g] > longest ? c->len[g] : longest;
	/* Through a window, consecutive queries see no more together. */
	if (query->window > 0 && (uint64_t)query->window + N < longest)
		longest = query->window + N;
	/* Keys and values of a set of heads may have half of L2. */
	const size_t fit = d->l2 / 2 / ((size_t)longest * c->E * 4);
	const uint32_t all = parts_of(longest, keys);

	splits = slots / (blocks * c->G);
	splits = min(splits, longest / MIN_SPLIT_ROWS);
	const uint32_t tiles = splits > 1 ? parts_of(all, splits) : all;
	return { .N = N, .H = H, .blocks = blocks, .heads = fit < 1 ? 1 : fit > c->G ? c->G :
		(uint32_t)fit, .splits = parts_of(all, tiles), .tiles = tiles,
		.scale = (float)(M_LOG2E / sqrt((double)c->E)),
		.limits = limits_of(query, M_LOG2E), .narrow = NULL };
}

static inline struct plan
plan_attend(const struct dev *d, const struct rows *c, const struct query *query, uint32_t keys)
{
	return plan_blocks(d, c, query, ROWS, 2, keys);
}

/* gpu_attend_wgmma.cu: attend() on Hopper; false: it has done nothing, since it does not take the
 * call, or the kernels of gpu_attend.cu are faster */
bool gpu_attend_wgmma(struct dev *, float *o, float *lse, const struct query *,
    const struct rows *, enum kv_dtype);

/* gpu_attend.cu: o and lse, each of which may be NULL, from those of the splits */
void gpu_combine_attention(struct dev *, float *o, float *lse, const float *split_o,
    const float *split_lse, uint32_t splits, size_t rows, uint32_t E);

/* Where the kernel writes: o and lse, or those of the splits */
struct target {
	float *o, *lse;
};

/* Before its launch: scratch for the splits, plan->narrow where the 16-bit copy may be wanted */
template <class T>
static inline struct target
begin_attend(struct dev *d, float *o, float *lse, const struct query *query, uint32_t E,
    struct plan *plan)
{
	const size_t rows = (size_t)query->N * query->H;
	const size_t values = o != NULL ? plan->splits * rows * E : 0;
	struct narrow copy;
	float *parts;

	/* Who wants lse adds up attention mass next: the product with o does not follow
	 * directly. */
	if (std::is_same_v<T, bf16> && o != NULL && lse == NULL && plan->splits == 1 &&
	    gpu_narrow_alloc(d, &copy, KV_BF16, query->N, query->H * E))
		plan->narrow = (void *)copy.at;
	if (plan->splits == 1)
		return { o, lse };
	parts = (float *)gpu_scratch(d, SCRATCH_PARTS,
	    (values + plan->splits * rows) * sizeof(float));
	return { parts, parts + values };
}

/* Behind its launch */
static inline void
end_attend(struct dev *d, float *o, float *lse, const struct query *query, uint32_t E,
    const struct plan &plan, const struct target &from)
{
	if (plan.splits > 1)
		gpu_combine_attention(d, o, lse, from.o, from.lse, plan.splits,
		    (size_t)query->N * query->H, E);
	if (plan.narrow != NULL)
		d->narrowed = { .x = o, .N = query->N, .in = query->H * E, .dtype = KV_BF16 };
}

#endif
