/* gpu_quantised_scores.cu - scores of rows from keys of quantised types: all rows (key_scores), or
 * those that have no one-bit key (bits_scores) */
#include "gpu/gpu_index.h"
#include "gpu/gpu_quantised_warp.h"

constexpr uint32_t THREADS = 32 * WARPS;
constexpr int HEADS = 4;                 /* query heads that a warp scores together */

struct key_call {
	float *score;
	size_t stride;
	const float *q;              /* [H][E], transformed as the keys are */
	uint32_t R, groups;          /* query heads of a KV head, split over so many blockIdx.y */
	float scale;                 /* 1 / sqrt(E) */
	struct row_format k;
};

/* The rows of KV head g that are scored: those from *first on that have no entry. x.rows is 0 where
 * there are no entries. */
DEVICE uint32_t
rows_to_score(uint32_t *first, const struct index &x, const struct rows &r, uint32_t g)
{
	const uint32_t appended = appended_rows(r);

	*first = x.rows == 0 ? 0 : existing_entries(x, r, g, appended) * x.rows;
	return r.len[g] + appended;
}

/* Warps take tiles of rows of one KV head round-robin; the next tile is loaded while one is
 * scored. */
template <int L>
static __global__ void __launch_bounds__(THREADS)
score_quantised(const __grid_constant__ struct key_call call,
    const __grid_constant__ struct index x, const __grid_constant__ struct rows r)
{
	using W = tile<bf16, L, HEADS>;
	const uint32_t g = blockIdx.y / call.groups, h0 = blockIdx.y % call.groups * HEADS;
	const uint32_t lane = threadIdx.x % 32, side = lane / L, c = lane % L;
	struct softmax_state<bf16, L, HEADS> s;
	struct raw_piece keys[W::STEPS];
	uint32_t first;

	pdl_trigger();
	pdl_wait();
	const uint32_t len = rows_to_score(&first, x, r, g);
	const struct tensor_piece k = piece_of<W>(r.k, call.k, r, g, c);
	const auto load = [&](uint32_t at) {
UNROLL		for (int u = 0; u < W::STEPS; u++)
			s.row[u] = at + u * W::SIDES + side < len ? at + u * W::SIDES + side :
			    NO_ROW;
		load_pieces<W>(keys, k, s.row);
	};
	uint32_t at = first + (blockIdx.x * WARPS + threadIdx.x / 32) * W::ROWS;

	if (at >= len)
		return;
UNROLL	for (int m = 0; m < HEADS; m++)
		load_piece_of_query(s.query[m], h0 + m < call.R ? call.q +
		    (size_t)(g * call.R + h0 + m) * r.E : NULL, k, call.scale);
	load(at);
	for (; at < len; at += gridDim.x * WARPS * W::ROWS) {
		const uint32_t row = at + c / HEADS * W::SIDES + side, h = h0 + c % HEADS;
		const float score = raw_logit(s, keys, call.k.type);

		load(at + gridDim.x * WARPS * W::ROWS);
		if (row < len && h < call.R)
			call.score[(g * call.R + h) * call.stride + row] = score;
	}
}

/* One warp for each row, for all shapes and types */
static __global__ void __launch_bounds__(THREADS)
reference_scores_any(const __grid_constant__ struct key_call call,
    const __grid_constant__ struct index x, const __grid_constant__ struct rows r)
{
	const uint32_t g = blockIdx.y, lane = threadIdx.x % 32;
	uint32_t first;
	const uint32_t len = rows_to_score(&first, x, r, g);
	const uint32_t s = first + blockIdx.x * WARPS + threadIdx.x / 32;

	if (s >= len)
		return;
	const unsigned char *key = (const unsigned char *)r.k + (r.start[g] + s) * call.k.bytes;
	for (uint32_t h = g * call.R; h < (g + 1) * call.R; h++) {
		float sum = 0;

		for_channels(key, call.k, r.E, lane, 32, [&](uint32_t e, float k) {
			sum += call.q[(size_t)h * r.E + e] * k;
		});
		sum = warp_sum(sum);
		if (lane == 0)
			call.score[h * call.stride + s] = sum * call.scale;
	}
}

template <int L>
static void
launch(struct dev *d, struct key_call &c, const struct index &x, const struct rows &r,
    uint32_t most)
{
	c.groups = parts_of(c.R, HEADS);
	LAUNCH_PDL(d, score_quantised<L>, dim3(blocks_per_list(d,
	    parts_of(most, WARPS * tile<bf16, L, HEADS>::ROWS), r.G * c.groups, 4),
	    r.G * c.groups), THREADS, 0, c, x, r);
}

/* Of rows without an entry there may be none in any step before one is captured, which wants the
 * kernel for those to come: it runs once for nothing, since it must not be loaded in a capture.
 * kernel: its bit. */
static bool
has_rows(struct dev *d, uint32_t *most, bool of_index, unsigned kernel)
{
	if (*most == 0 && (!of_index || d->capturing || (d->scored & kernel) != 0))
		return false;
	d->scored |= kernel;
	*most = max(*most, 1u);
	return true;
}

void
gpu_scores_quantised(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct rows *r, const struct layer_rows *l, const struct index *x, uint32_t most)
{
	const uint32_t E = l->width;
	struct key_call c = { .score = score, .stride = stride, .q = NULL, .R = query->H / r->G,
		.groups = 1, .scale = (float)(1 / sqrt((double)E)), .k = {} };
	struct row_formats f;
	struct index none = {};

	if (!gpu_formats_of(d, &f, l, "scores"))
		return;
	const bool naive = d->reference || E > 256 || !in_pieces(r->k, f.k, E) ||
	    (!is_transformed(rows_k_type(l)) && (uintptr_t)query->q % 16 != 0);
	if (!has_rows(d, &most, x != NULL, 1u << (naive ? 0 : E <= 64 ? 1 : E <= 128 ? 2 : 3)) ||
	    (c.q = gpu_queries_for(d, query, rows_k_type(l), E)) == NULL)
		return;
	c.k = f.k;
	if (x == NULL)
		x = &none;
	if (naive)
		LAUNCH(d, reference_scores_any, dim3(parts_of(most, WARPS), r->G), THREADS, 0, c,
		    *x, *r);
	else if (E <= 64)
		launch<8>(d, c, *x, *r, most);
	else if (E <= 128)
		launch<16>(d, c, *x, *r, most);
	else
		launch<32>(d, c, *x, *r, most);
}
