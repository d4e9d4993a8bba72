/* gpu_decode_quantised.cu - decode attention over rows of quantised types
 *
 * The splits of gpu_decode.cu, and its mapping of a warp to a tile of rows and online softmax
 * (gpu_decode_warp.h): a lane has a piece of 8 channels of a row, for up to 8 query rows that share
 * the KV head, so that codes are read once and widened once for all of them. Products are FMAs.
 *
 * Rows are not multiples of 16 bytes, so they do not go through shared memory: lanes load pieces to
 * registers, the values of a tile before its logits are computed, and the keys of the next tile
 * before the values are used. The types of keys and of values are arguments: a switch for each
 * tile, not a kernel for each pair.
 *
 * The kernel always goes by ranges of visible rows (LIMITED), so that there is no second one. */
#include "gpu/gpu_decode_split.h"
#include "gpu/gpu_quantised_warp.h"

/* Blocks of an SM, as registers allow */
template <int L, int M> constexpr uint32_t RESIDENT = M == 4 && L <= 16 ? 3 : 2;

/* As add_values() of gpu_decode_warp.h */
template <int L, int M>
DEVICE void
add_raw(struct softmax_state<bf16, L, M> &r, const struct raw_piece *raw, uint32_t type, float p)
{
	using W = tile<bf16, L, M>;

	with_piece_type(type, [&](auto t) {
UNROLL		for (int u = 0; u < W::STEPS; u++) {
			float value[8];

			widen_raw<t.value>(value, raw[u]);
UNROLL			for (int m = 0; m < M; m++) {
				const float of_m = __shfl_sync(ALL_LANES, p, u * M + m, L);

UNROLL				for (int e = 0; e < 8; e++)
					r.out[m][e] = fmaf(of_m, value[e], r.out[m][e]);
			}
		}
	});
}

/* Loads the queries of a group, scaled, in the order of the channels of pieces of keys, zeros
 * behind the last one, and initialises the softmax state. */
template <int L, int M>
DEVICE void
load_raw_queries(struct softmax_state<bf16, L, M> &r, const struct decode_call &w,
    const struct tensor_piece &k, uint32_t g, uint32_t group)
{
	const uint32_t R = w.H / w.c.G;

	r.top = -INFINITY;
	r.sum = 0;
UNROLL	for (int m = 0; m < M; m++) {
		const uint32_t i = group * M + m;
		const float *from = w.q + ((size_t)(i / R) * w.H + g * R + i % R) * w.c.E;

		load_piece_of_query(r.query[m], i < w.N * R ? from : NULL, k, w.scale);
UNROLL		for (int e = 0; e < 8; e++)
			r.out[m][e] = 0;
	}
}

/* As store_warp_sums(), with the channels of pieces of values where they belong */
template <int L, int M>
DEVICE void
store_raw_sums(typename tile<bf16, L, M>::sums &to, struct softmax_state<bf16, L, M> &r,
    uint32_t type)
{
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

UNROLL	for (int bit = M; bit < 32; bit *= 2)
		r.sum += __shfl_xor_sync(ALL_LANES, r.sum, bit);
	if (lane < M) {
		to.top[warp][lane] = r.top;
		to.sum[warp][lane] = r.sum;
	}
UNROLL	for (int m = 0; m < M; m++)
UNROLL		for (int e = 0; e < 8; e++) {
UNROLL			for (int bit = L; bit < 32; bit *= 2)
				r.out[m][e] += __shfl_xor_sync(ALL_LANES, r.out[m][e], bit);
			if (lane < L)
				to.out[warp][m][half_piece(type, lane, e / 4) + e % 4] =
				    r.out[m][e];
		}
}

/* The main loop over this warp's tiles; pos, here: as for_row_tiles() */
template <int L, int M>
DEVICE void
for_raw_tiles(struct softmax_state<bf16, L, M> &r, struct cursor &cursor,
    const struct decode_call &w, const struct tensor_piece &k, const struct tensor_piece &v,
    const uint32_t *pos, uint32_t here)
{
	using W = tile<bf16, L, M>;
	const uint32_t c = threadIdx.x % L, side = threadIdx.x % 32 / L;
	struct raw_piece keys[W::STEPS], values[W::STEPS];

	cursor.next = cursor.first + threadIdx.x / 32 * W::ROWS + threadIdx.x % W::ROWS;
	cursor.entry = entry_of(cursor, w.list, cursor.next);
	cursor.later = entry_of(cursor, w.list, cursor.next + WARPS * W::ROWS);
	next_rows(r, cursor, w.list);
	load_pieces<W>(keys, k, r.row);
	for (uint32_t at = cursor.first + threadIdx.x / 32 * W::ROWS; at < cursor.end;
	    at += WARPS * W::ROWS) {
		const uint32_t mine = at + c / M * W::SIDES + side;
		const bool seen = mine < cursor.end && (pos == NULL ||
		    in_reach(here, pos[mine], w.limits.reach));
		float s, p;

		load_pieces<W>(values, v, r.row);
		s = raw_logit(r, keys, k.format.type);
		next_rows(r, cursor, w.list);
		load_pieces<W>(keys, k, r.row);
		if (w.limits.cap > 0)
			s = softcapped(s, w.limits);
		p = softmax_step(r, seen ? s : -INFINITY);
		if (w.c.v != NULL)
			add_raw(r, values, v.format.type, p);
	}
}

/* The rows [first, end) of the list of KV head g, for a group of query rows */
template <int L, int M>
DEVICE void
attend_raw_rows(const struct decode_call &w, const struct row_formats &f,
    typename tile<bf16, L, M>::sums &sums, uint32_t g, uint32_t first, uint32_t end, uint32_t part,
    uint32_t group)
{
	using W = tile<bf16, L, M>;
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32;
	const uint32_t *pos = w.c.pos + w.c.start[g];
	const struct tensor_piece k = piece_of<W>(w.c.k, f.k, w.c, g, lane % L);
	const struct tensor_piece v = piece_of<W>(w.c.v, f.v, w.c, g, lane % L);
	struct cursor cursor = { g, first, end, 0, 0, 0, NULL, NULL, 0 };
	struct softmax_state<bf16, L, M> r;
	uint32_t here = NO_ROW;

	if (sees_all<M, true>(w, pos, first, end, group))
		pos = NULL;
	else
		here = w.qpos[min(group * M + W::query_of(lane), w.N * R - 1) / R];
	load_raw_queries(r, w, k, g, group);
	for_raw_tiles(r, cursor, w, k, v, pos, here);
	__syncthreads();
	store_raw_sums<L, M>(sums, r, f.v.type);
	__syncthreads();
	write_part(w, sums, part, group);
	__syncthreads();
}

template <int L, int M>
static __global__ void __launch_bounds__(THREADS, (RESIDENT<L, M>))
attend_quantised_split(const __grid_constant__ struct decode_call w, const struct row_formats f)
{
	using sums = typename tile<bf16, L, M>::sums;
	DYN_SHARED(sums, shared);

	for_rows_of_split<true>(w, blockIdx.x, [&](uint32_t g, uint32_t first, uint32_t end,
	    uint32_t part, uint32_t group) {
		attend_raw_rows<L, M>(w, f, *shared, g, first, end, part, group);
	});
}

static __global__ void __launch_bounds__(THREADS)
combine_quantised_splits(const __grid_constant__ struct decode_call w)
{
	combine_block<true>(w, blockIdx.x);
}

/* ---- launches ---- */

template <int L, int M>
static void
launch_raw(struct dev *d, float *o, float *lse, struct decode_call *w, const struct query *query,
    const struct row_formats &f)
{
	char *parts;

	complete_call(d, w, o, lse, query, RESIDENT<L, M>);
	if ((parts = (char *)gpu_scratch(d, SCRATCH_PARTS, parts_size(w, w->splits))) == NULL)
		return;
	place_parts(w, w->splits, parts);
	LAUNCH_PDL(d, (attend_quantised_split<L, M>), w->splits * w->groups, THREADS,
	    sizeof(typename tile<bf16, L, M>::sums), *w, f);
	LAUNCH_PDL(d, combine_quantised_splits, w->N * w->H, THREADS, combine_shared(w), *w);
}

template <int L>
static void
launch_lanes(struct dev *d, float *o, float *lse, struct decode_call *w, const struct query *query,
    const struct row_formats &f)
{
	if (query->N * (query->H / w->c.G) <= 4)
		launch_raw<L, 4>(d, o, lse, w, query, f);
	else
		launch_raw<L, 8>(d, o, lse, w, query, f);
}

void
gpu_decode_quantised(struct dev *d, float *o, float *lse, struct decode_call *w,
    const struct query *query, const struct layer_rows *l)
{
	const uint32_t E = l->width;
	struct query q = *query;
	struct row_formats f;

	if (!gpu_formats_of(d, &f, l, "attend") ||
	    (q.q = gpu_queries_for(d, query, rows_k_type(l), E)) == NULL)
		return;
	if (d->reference || E > 256 || !in_pieces(w->c.k, f.k, E) ||
	    (o != NULL && !in_pieces(w->c.v, f.v, E)) || (uintptr_t)q.q % 16 != 0)
		gpu_attend_any(d, o, lse, &q, &w->c, &w->list, &f);
	else if (E <= 64)
		launch_lanes<8>(d, o, lse, w, &q, f);
	else if (E <= 128)
		launch_lanes<16>(d, o, lse, w, &q, f);
	else
		launch_lanes<32>(d, o, lse, w, &q, f);
	gpu_transform_back(d, o, rows_v_type(l), E, (size_t)q.N * q.H);
}
