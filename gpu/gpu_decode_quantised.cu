/* gpu_decode_quantised.cu - decode attention over rows of quantised types
 *
 * The splits of gpu_decode.cu, and two kinds of tiles:
 *
 * - gpu_quantised_mma.h: tensor cores, for widths of 64 and 128, keys and values both quantised.
 * - for other widths, and where keys or values are elements: the mapping of a warp to a tile of
 *   rows and the online softmax of gpu_decode_warp.h. A lane has a piece of 8 channels of a row,
 *   for up to 8 query rows that share the KV head, so that codes are read once and widened once for
 *   all of them. Products are FMAs. Rows do not go through shared memory: lanes load pieces to
 *   registers, the values of a tile before its logits are computed, and the keys of the next tile
 *   before the values are used.
 *
 * The types of keys and of values are arguments: a switch for each tile, not a kernel for each
 * pair. The kernels always go by ranges of visible rows (LIMITED); there are no second ones. */
#include "gpu/gpu_decode_split.h"
#include "gpu/gpu_quantised_mma.h"
#include "gpu/gpu_quantised_warp.h"

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

/* Does a group of M query rows see all rows [first, end) at these positions? Positions ascend:
 * where the first query sees the last row and, through a window, the last query the first row, all
 * queries see all rows. */
template <uint32_t M>
DEVICE bool
sees_all(const struct decode_call &w, const uint32_t *pos, uint32_t first, uint32_t end,
    uint32_t group)
{
	const uint32_t R = w.H / w.c.G;

	return w.qpos == NULL || (pos[end - 1] <= w.qpos[group * M / R] &&
	    w.qpos[min(group * M + M - 1, w.N * R - 1) / R] - pos[first] <= w.limits.reach);
}

/* The rows [first, end) of the list of KV head g, for a group of query rows; pos NULL: all are
 * seen */
template <int L, int M>
DEVICE void
attend_raw_rows(const struct decode_call &w, const struct row_formats &f,
    typename tile<bf16, L, M>::sums &sums, uint32_t g, uint32_t first, uint32_t end, uint32_t part,
    uint32_t group, const uint32_t *pos)
{
	using W = tile<bf16, L, M>;
	const uint32_t R = w.H / w.c.G, lane = threadIdx.x % 32;
	const struct tensor_piece k = piece_of<W>(w.c.k, f.k, w.c, g, lane % L);
	const struct tensor_piece v = piece_of<W>(w.c.v, f.v, w.c, g, lane % L);
	struct cursor cursor = { g, first, end, 0, 0, 0, NULL, NULL, 0 };
	struct softmax_state<bf16, L, M> r;
	uint32_t here = NO_ROW;

	if (pos != NULL)
		here = w.qpos[min(group * M + W::query_of(lane), w.N * R - 1) / R];
	load_raw_queries(r, w, k, g, group);
	for_raw_tiles(r, cursor, w, k, v, pos, here);
	__syncthreads();
	store_warp_sums_at<bf16, L, M>(sums, r, [&](uint32_t lane, int e) {
		return half_piece(f.v.type, lane, e / 4) + e % 4;
	});
	__syncthreads();
	write_part(w, sums, part, group);
	__syncthreads();
}

/* As attend_block() of gpu_decode_split.h: calls work(g, first, end, part, group) for the rows
 * [first, end) of each KV head in the split of a block. */
template <class F>
DEVICE void
for_rows_of_split(const struct decode_call &w, uint32_t block, F &&work)
{
	SHARED(struct visible[MAX_HEADS], visible);
	const uint32_t split = block / w.groups, group = block % w.groups;
	const uint32_t appended = appended_rows(w.c);
	uint64_t at = 0, next;

	pdl_wait();
	find_visible(visible, w, appended, block);
	pdl_trigger();
	const uint64_t rows = rows_of_split<true>(w, visible, appended);
	const uint64_t first = split * rows, end = first + rows;
	for (uint32_t g = 0; g < w.c.G && at < end; g++, at = next) {
		next = at + visible[g].n;
		if (next <= first || next == at)
			continue;
		work(g, visible[g].first + (uint32_t)(at < first ? first - at : 0),
		    visible[g].first + (uint32_t)((next < end ? next : end) - at), split + g,
		    group);
	}
}

/* ---- the kernels ---- */

/* The two kinds of tiles: query rows of a group, blocks of an SM, dynamic shared memory, and the
 * work */
template <int L, int QUERIES>
struct raw_rows {
	using sums = typename tile<bf16, L, QUERIES>::sums;
	static constexpr uint32_t M = QUERIES, BLOCKS = M == 4 && L <= 16 ? 3 : 2;

	static size_t shared(const struct row_formats &, bool) { return sizeof(sums); }
	template <class... A>
	DEVICE void
	attend(const struct decode_call &w, const struct row_formats &f, unsigned char *shared,
	    A... args)
	{
		attend_raw_rows<L, QUERIES>(w, f, *(sums *)shared, args...);
	}
};

template <int E, int QUERIES>
struct code_rows_of_width {
	using W = code_tile<E, QUERIES>;
	static constexpr uint32_t M = QUERIES, BLOCKS = W::BLOCKS;

	static size_t
	shared(const struct row_formats &f, bool values)
	{
		return W::shared(f, values);
	}
	template <class... A>
	DEVICE void
	attend(const struct decode_call &w, const struct row_formats &f, unsigned char *shared,
	    A... args)
	{
		attend_code_rows<W>(w, f, shared, args...);
	}
};

template <class K>
DEVICE void
attend_block_of(const struct decode_call &w, const struct row_formats &f)
{
	DYN_SHARED(unsigned char, shared);

	for_rows_of_split(w, blockIdx.x, [&](uint32_t g, uint32_t first, uint32_t end,
	    uint32_t part, uint32_t group) {
		const uint32_t *const pos = w.c.pos + w.c.start[g];

		K::attend(w, f, shared, g, first, end, part, group,
		    sees_all<K::M>(w, pos, first, end, group) ? NULL : pos);
	});
}

template <class K>
static __global__ void __launch_bounds__(THREADS, K::BLOCKS)
attend_quantised_split(const __grid_constant__ struct decode_call w, const struct row_formats f)
{
	attend_block_of<K>(w, f);
}

/* Several calls in one launch, as in gpu_decode.cu */
template <class K>
static __global__ void __launch_bounds__(THREADS, K::BLOCKS)
attend_quantised_each(const struct decode_call *calls, const struct row_formats f)
{
	SHARED(struct decode_call, w);

	load_call(w, calls[blockIdx.y]);
	attend_block_of<K>(w, f);
}

/* ---- launches ---- */

/* Do tensor cores take rows of these types? */
static bool
takes_codes(const struct dev *d, const struct decode_call *w, const struct row_formats &f,
    bool values)
{
	return !d->reference && (w->c.E == 64 || w->c.E == 128) && f.k.type >= KV_ROW_Q8_0 &&
	    (uintptr_t)w->c.k % 4 == 0 && (!values || (f.v.type >= KV_ROW_Q8_0 &&
	    (uintptr_t)w->c.v % 4 == 0));
}

/* Does a kernel take the call? */
static bool
takes(const struct dev *d, const struct decode_call *w, const struct row_formats &f,
    const float *o, const float *q)
{
	return takes_codes(d, w, f, o != NULL) ||
	    (!d->reference && w->c.E <= 256 && in_pieces(w->c.k, f.k, w->c.E) &&
	    (o == NULL || in_pieces(w->c.v, f.v, w->c.E)) && (uintptr_t)q % 16 == 0);
}

/* work(K{}) with the tiles for groups of M query rows */
template <int M, class F>
static void
with_tiles_for(const struct dev *d, const struct decode_call *w, const struct row_formats &f,
    F &&work)
{
	if (takes_codes(d, w, f, w->c.v != NULL)) {
		if (w->c.E == 64)
			work(code_rows_of_width<64, M>{});
		else
			work(code_rows_of_width<128, M>{});
	} else if (w->c.E <= 64)
		work(raw_rows<8, M>{});
	else if (w->c.E <= 128)
		work(raw_rows<16, M>{});
	else
		work(raw_rows<32, M>{});
}

template <class F>
static void
with_tiles(const struct dev *d, const struct decode_call *w, const struct row_formats &f,
    F &&work)
{
	if (group_rows(w) == 4)
		with_tiles_for<4>(d, w, f, work);
	else
		with_tiles_for<8>(d, w, f, work);
}

static void
complete(const struct dev *d, struct decode_call *w, const struct row_formats &f, float *o,
    float *lse, const struct query *query)
{
	w->N = query->N;
	w->H = query->H;
	if (o == NULL)
		w->c.v = NULL;
	with_tiles(d, w, f, [&](auto K) {
		complete_call(d, w, o, lse, query, decltype(K)::BLOCKS);
	});
}

static void
launch_alone(struct dev *d, struct decode_call *w, const struct row_formats &f)
{
	char *parts = (char *)gpu_scratch(d, SCRATCH_PARTS, parts_size(w, w->splits));

	if (parts == NULL)
		return;
	place_parts(w, w->splits, parts);
	with_tiles(d, w, f, [&](auto k) {
		using K = decltype(k);

		LAUNCH_PDL(d, attend_quantised_split<K>, w->splits * w->groups, THREADS,
		    K::shared(f, w->c.v != NULL), *w, f);
	});
	LAUNCH_PDL(d, combine_splits<true>, w->N * w->H, THREADS, combine_shared(w), *w);
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
	if (takes(d, w, f, o, q.q)) {
		complete(d, w, f, o, lse, &q);
		launch_alone(d, w, f);
	} else
		gpu_attend_naive(d, o, lse, &q, &w->c, &w->list, &f);
	gpu_transform_back(d, o, rows_v_type(l), E, (size_t)q.N * q.H);
}

/* ---- several calls ---- */

/* Fills w with one of several calls, whose queries are not transformed yet. Returns 0 where it
 * cannot be one. */
static int
plan_one(struct dev *d, struct decode_call *w, struct row_formats *f, const struct attention *a)
{
	struct query query;

	if (!has_quantised(a->rows) || !gpu_rows_of_call(d, w, &query, a) ||
	    !gpu_formats_of(d, f, a->rows, "attend") || !takes(d, w, *f, a->o, query.q))
		return 0;
	complete(d, w, *f, a->o, a->lse, &query);
	return 1;
}

static bool
same_rows(const struct layer_rows *a, const struct layer_rows *b)
{
	return a->width == b->width && rows_k_type(a) == rows_k_type(b) &&
	    rows_v_type(a) == rows_v_type(b);
}

/* Do calls with the same rows have the same kernel? */
static bool
same_tiles(const struct dev *d, const struct decode_call *a, const struct decode_call *b,
    const struct row_formats &f)
{
	return group_rows(a) == group_rows(b) && (a->c.v == NULL) == (b->c.v == NULL) &&
	    takes_codes(d, a, f, a->c.v != NULL) == takes_codes(d, b, f, b->c.v != NULL);
}

/* Transforms the rows of n calls, at x[i], to where they are or, to not NULL, one after the other;
 * rows that are contiguous in one launch */
static void
transform_all(struct dev *d, float *to, float *const *x, const struct decode_call *w, uint32_t n)
{
	const uint32_t E = w->c.E;
	size_t rows;

	for (uint32_t i = 0, end; i < n; i = end) {
		rows = w[i].N * w[i].H;
		for (end = i + 1; x[i] != NULL && end < n && x[end] == x[i] + rows * E; end++)
			rows += w[end].N * w[end].H;
		if (x[i] != NULL)              /* o that is not wanted */
			gpu_transform(d, to != NULL ? to : x[i], x[i], E, rows);
		to = to != NULL ? to + rows * E : NULL;
	}
}

/* The queries of n calls become their transforms, in scratch. */
static void
transform_queries(struct dev *d, struct decode_call *w, uint32_t n)
{
	float *q[TOGETHER], *to;
	size_t rows = 0;

	for (uint32_t i = 0; i < n; i++) {
		q[i] = (float *)w[i].q;
		rows += w[i].N * w[i].H;
	}
	if ((to = (float *)gpu_scratch(d, SCRATCH_QUERIES, rows * w->c.E * sizeof *to)) == NULL)
		return;
	transform_all(d, to, q, w, n);
	for (uint32_t i = 0; i < n; i++) {
		w[i].q = to;
		to += (size_t)w[i].N * w[i].H * w->c.E;
	}
}

static void
launch_together(struct dev *d, struct decode_call *w, const struct attention *a, uint32_t n,
    const struct row_formats &f)
{
	uint32_t blocks = 0, combined = 0;
	size_t bytes = 0, shared = 0;
	char *parts;

	for (uint32_t i = 0; i < n; i++)
		bytes += parts_size(&w[i], used_splits(&w[i], a[i].rows));
	if ((parts = (char *)gpu_scratch(d, SCRATCH_PARTS, bytes)) == NULL)
		return;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t splits = used_splits(&w[i], a[i].rows);

		place_parts(&w[i], splits, parts);
		parts += parts_size(&w[i], splits);
		blocks = max(blocks, splits * w[i].groups);
		combined = max(combined, w[i].N * w[i].H);
		shared = max(shared, combine_shared(&w[i]));
	}
	const struct decode_call *calls = (const struct decode_call *)gpu_list(d, w, n * sizeof *w);
	if (calls == NULL)
		return;
	with_tiles(d, w, f, [&](auto k) {
		using K = decltype(k);

		LAUNCH(d, attend_quantised_each<K>, dim3(blocks, n), THREADS,
		    K::shared(f, w->c.v != NULL), calls, f);
	});
	LAUNCH(d, combine_splits_each<true>, dim3(combined, n), THREADS, shared, calls);
}

uint32_t
gpu_decode_quantised_each(struct dev *d, const struct attention *a, uint32_t n)
{
	struct decode_call w[TOGETHER];
	struct row_formats f, of_next;
	float *o[TOGETHER];
	uint32_t some;

	for (some = 0; some < n && some < TOGETHER; some++) {
		if (!plan_one(d, &w[some], &of_next, &a[some]) ||
		    !same_rows(a->rows, a[some].rows) || !same_tiles(d, w, &w[some], of_next))
			break;
		f = of_next;
		o[some] = a[some].o;
	}
	if (some < 2)
		return 0;
	if (is_transformed(rows_k_type(a->rows)))
		transform_queries(d, w, some);
	launch_together(d, w, a, some, f);
	if (is_transformed(rows_v_type(a->rows)))
		transform_all(d, NULL, o, w, some);
	return some;
}
