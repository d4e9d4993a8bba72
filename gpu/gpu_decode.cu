/* gpu_decode.cu - decode attention: split-KV (flash decoding) of up to 8 query rows, over all
 * rows of the cache or over selected rows
 *
 * Each key and value takes part in few products, so the limit is memory bandwidth: every SM must
 * have loads in flight all the time, whatever the lengths of the KV heads are.
 *
 * Split-KV over ragged heads: the rows of all KV heads, concatenated, are cut into equal splits,
 * one for each block. A split may end within a KV head and may have rows of several. For each KV
 * head in its split a block writes a partial result (maximum, sum and unnormalised output of
 * each query row); a second kernel combines the partial results of a KV head in the order of its
 * rows. The block that finishes last could do that, found by an atomic counter; but the emulator
 * runs blocks one after another and cannot test the fences for that, and a second kernel needs
 * none.
 *
 * Each block computes the splits from the lengths; the grid does not depend on these, so that
 * the kernels can be captured (gpu_graph.cu). Through a sliding window the queries see a range of
 * the rows of each KV head: each block of a limited call finds these ranges first, a thread for
 * each KV head, and they are what is split.
 *
 * Within a block each warp takes every fourth tile of rows. With a latency of 0.8 us, HBM needs 26
 * KB in flight on each of 132 SMs; two blocks of four warps with three pieces of 2 KB each have 48
 * KB.
 *
 * GQA packing: up to 8 query rows that read the same KV head share one read of its keys, and fit
 * into registers. More are done in groups of 8 by neighbouring blocks, all but the first of which
 * find the rows in L2. Two kinds of tiles:
 *
 * - gpu_decode_warp.h: f32, products are FMAs on CUDA cores. For up to 4 query rows, for f32, and
 *   for rows of more than 256 bytes.
 * - gpu_decode_mma.h: tensor cores, queries and weights as sums of 16-bit numbers. For more query
 *   rows, where FMAs would be the limit. */
#include "gpu/gpu_decode_split.h"
#include "gpu/gpu_latent_attend.h"
#include "gpu/gpu_quantised.h"

/* ---- the kernels ---- */

template <class W, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
attend_split(const __grid_constant__ struct decode_call w)
{
	attend_block<W, LIMITED>(w, blockIdx.x);
}

/* ---- several calls in one launch ----
 *
 * Call blockIdx.y is computed as it is alone, split for split, so that its result is the same to
 * the byte. The calls are a table in memory, as parameters have not room for so many; each block
 * copies the one that it works on. The copy of the table to the device comes right before on the
 * stream: nothing is gained by starting early. */

template <class W, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
attend_split_each(const struct decode_call *calls)
{
	SHARED(struct decode_call, w);

	load_call(w, calls[blockIdx.y]);
	attend_block<W, LIMITED>(w, blockIdx.x);
}

/* ---- launches ---- */

/* Calls that are launched together: of one type and shape of tiles, and all limited or none. The
 * table is NULL where there is one call, a parameter. */
struct launch {
	const struct decode_call *call, *table;
	uint32_t n, blocks, combined;        /* calls; most blocks of a call in each kernel */
	size_t combine_shared;
};

template <class W>
static void
launch_splits(struct dev *d, const struct launch &l)
{
	const size_t ring = WARPS * W::RING * sizeof(uint4);
	const size_t shared = max(ring, sizeof(typename W::sums));

	with_limited(l.call->limits, [&](auto limited) {
		constexpr bool LIMITED = limited.value;

		if (l.table != NULL)
			LAUNCH(d, (attend_split_each<W, LIMITED>), dim3(l.blocks, l.n),
			    THREADS, shared, l.table);
		else
			LAUNCH_PDL(d, (attend_split<W, LIMITED>), l.blocks, THREADS, shared,
			    *l.call);
	});
}

/* The lanes of a row */
static uint32_t
row_lanes(const struct decode_call *w, enum kv_dtype dtype)
{
	const size_t pieces = w->c.E * kv_dtype_size(dtype) / 16;

	return pieces <= 8 ? 8 : pieces <= 16 ? 16 : 32;
}

/* 8 query rows: on tensor cores where these take the type and the width of rows */
template <class T>
static void
launch_eight(struct dev *d, const struct launch &l, uint32_t L)
{
	if (L == 32)
		launch_splits<tile<T, 32, 8>>(d, l);
	else if constexpr (sizeof(T) == 2) {
		if (L == 8)
			launch_splits<mma_tile<T, 64>>(d, l);
		else
			launch_splits<mma_tile<T, 128>>(d, l);
	} else if (L == 8)
		launch_splits<tile<T, 8, 8>>(d, l);
	else
		launch_splits<tile<T, 16, 8>>(d, l);
}

template <class T>
static void
launch_tiles(struct dev *d, const struct launch &l, uint32_t M, uint32_t L)
{
	if (M == 8)
		launch_eight<T>(d, l, L);
	else if (L == 8)
		launch_splits<tile<T, 8, 4>>(d, l);
	else if (L == 16)
		launch_splits<tile<T, 16, 4>>(d, l);
	else
		launch_splits<tile<T, 32, 4>>(d, l);
}

static void
launch(struct dev *d, const struct launch &l, enum kv_dtype dtype)
{
	with_type(dtype, [&](auto t) {
		launch_tiles<decltype(t)>(d, l, group_rows(l.call), row_lanes(l.call, dtype));
	});
	with_limited(l.call->limits, [&](auto limited) {
		if (l.table != NULL)
			LAUNCH(d, (combine_splits_each<limited.value>), dim3(l.combined, l.n),
			    THREADS, l.combine_shared, l.table);
		else
			LAUNCH_PDL(d, (combine_splits<limited.value>), l.combined, THREADS,
			    l.combine_shared, *l.call);
	});
}

/* Adds a call to those that are launched together. */
static void
add_call(struct launch *l, const struct decode_call *w, uint32_t splits)
{
	l->n++;
	l->blocks = max(l->blocks, splits * w->groups);
	l->combined = max(l->combined, w->N * w->H);
	l->combine_shared = max(l->combine_shared, combine_shared(w));
}

/* ---- the ops ---- */

/* Does the fast kernel take the shape? Rows are read in pieces of 16 bytes, at most 32 of
 * them. */
static int
takes_pieces(const struct decode_call *w, size_t bytes)
{
	const uintptr_t at = (uintptr_t)w->c.k | (uintptr_t)w->c.v | (uintptr_t)w->q;

	return bytes > 0 && bytes <= 32 * 16 && (bytes | at) % 16 == 0;
}

/* complete_call(). Returns 0 when the fast kernel does not take the call. */
static int
plan_call(const struct dev *d, struct decode_call *w, float *o, float *lse,
    const struct query *query, enum kv_dtype dtype)
{
	w->q = query->q;
	if (d->reference || !takes_pieces(w, w->c.E * kv_dtype_size(dtype)))
		return 0;
	complete_call(d, w, o, lse, query, BLOCKS);
	return 1;
}

static void
attend_decode(struct dev *d, float *o, float *lse, struct decode_call *w,
    const struct query *query, const struct layer_rows *rows)
{
	const enum kv_dtype dtype = rows->dtype;
	struct row_formats f;
	struct launch l = {};
	char *parts;

	if (has_quantised(rows)) {
		gpu_decode_quantised(d, o, lse, w, query, rows);
		return;
	}
	if (!plan_call(d, w, o, lse, query, dtype)) {
		if (gpu_formats_of(d, &f, rows, "attend"))
			gpu_attend_naive(d, o, lse, query, &w->c, &w->list, &f);
		return;
	}
	/* All splits, whatever the lengths are: they grow while a graph is launched. */
	parts = (char *)gpu_scratch(d, SCRATCH_PARTS, parts_size(w, w->splits));
	if (parts == NULL)
		return;
	place_parts(w, w->splits, parts);
	l.call = w;
	add_call(&l, w, w->splits);
	launch(d, l, dtype);
}

void
gpu_attend_decode(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	struct decode_call w = {};

	if (query->N > 0 && query->H > 0 &&
	    gpu_capturable_rows_of(d, &w.c, l, query->H, "attend") &&
	    gpu_row_list_of(d, &w.list, l, NULL))
		attend_decode(d, o, lse, &w, query, l);
}

/* c, list <- the selected rows. Lists of rows stay as long when rows are appended; how many
 * rows the last one of longer entries has depends on how many there are. */
static int
chosen_rows_of(struct dev *d, struct rows *c, struct row_list *list, const struct layer_rows *l,
    uint32_t H, const struct chosen *chosen)
{
	if (!gpu_capturable_rows_of(d, c, l, H, "attend_chosen") ||
	    !gpu_row_list_of(d, list, l, chosen))
		return 0;
	c->appended = NULL;
	if (chosen->rows > 1)
		gpu_fixes_lengths(d);
	return 1;
}

static void
attend_chosen(struct dev *d, const struct attention *a)
{
	struct query all = a->query;
	struct decode_call w = {};

	all.pos = NULL;
	if (all.H == 0 || !gpu_one_query_row(d, &all) ||
	    !chosen_rows_of(d, &w.c, &w.list, a->rows, all.H, a->chosen))
		return;
	if (!a->rows->v_in_k || has_quantised(a->rows) ||
	    !gpu_attend_latent(d, a->o, a->lse, &all, a->rows->dtype, &w.c, &w.list))
		attend_decode(d, a->o, a->lse, &w, &all, a->rows);
}

void
gpu_attend_chosen(struct dev *d, float *o, const struct query *query, const struct layer_rows *l,
    const struct chosen *chosen)
{
	struct attention a = { .o = o, .lse = NULL, .query = *query, .rows = l, .chosen = chosen };
	struct sinks_call sinks;

	if (query->sinks == NULL)
		attend_chosen(d, &a);
	else if (gpu_sinks_of(d, &sinks, &a, 1)) {
		attend_chosen(d, &a);
		gpu_add_sinks(d, &sinks, 1);
	}
}

/* One launch of all; splits: used_splits() of each */
static void
attend_together(struct dev *d, struct decode_call *w, const uint32_t *splits, uint32_t n,
    enum kv_dtype dtype)
{
	struct launch l = {};
	size_t bytes = 0;
	char *parts;

	for (uint32_t i = 0; i < n; i++)
		bytes += parts_size(&w[i], splits[i]);
	if ((parts = (char *)gpu_scratch(d, SCRATCH_PARTS, bytes)) == NULL)
		return;
	l.call = w;
	for (uint32_t i = 0; i < n; i++) {
		place_parts(&w[i], splits[i], parts);
		parts += parts_size(&w[i], splits[i]);
		add_call(&l, &w[i], splits[i]);
	}
	if ((l.table = (const struct decode_call *)gpu_list(d, w, n * sizeof *w)) != NULL)
		launch(d, l, dtype);
}

/* Do the kernels of one call take the other one, too? */
static bool
same_kernels(const struct decode_call *a, enum kv_dtype a_dtype, const struct decode_call *b,
    enum kv_dtype b_dtype)
{
	return a_dtype == b_dtype && group_rows(a) == group_rows(b) &&
	    row_lanes(a, a_dtype) == row_lanes(b, b_dtype) &&
	    is_limited(a->limits) == is_limited(b->limits);
}

int
gpu_rows_of_call(struct dev *d, struct decode_call *w, struct query *query,
    const struct attention *a)
{
	*w = {};
	*query = a->query;
	if (query->N == 0 || query->N > DECODE_QUERIES || query->H == 0)
		return 0;
	if (a->chosen == NULL)
		return gpu_capturable_rows_of(d, &w->c, a->rows, query->H, "attend") &&
		    gpu_row_list_of(d, &w->list, a->rows, NULL);
	query->pos = NULL;
	return gpu_one_query_row(d, query) &&
	    chosen_rows_of(d, &w->c, &w->list, a->rows, query->H, a->chosen);
}

/* Fills w with one of several calls. Returns 0 where it cannot be one. */
static int
plan_one(struct dev *d, struct decode_call *w, const struct attention *a)
{
	struct query query;

	return !has_quantised(a->rows) && gpu_rows_of_call(d, w, &query, a) &&
	    plan_call(d, w, a->o, a->lse, &query, a->rows->dtype);
}

static void
attend_each(struct dev *d, const struct attention *a, uint32_t n)
{
	struct decode_call w[TOGETHER];
	uint32_t splits[TOGETHER], together = 0;
	enum kv_dtype dtype = KV_F32;

	for (uint32_t i = 0; i < n && gpu_ok(d); i++) {
		const struct layer_rows *rows = a[i].rows;
		struct decode_call *to = &w[together];
		const uint32_t quantised = gpu_decode_quantised_each(d, a + i, n - i);

		if (quantised > 0) {
			i += quantised - 1;
			continue;
		}
		if (!plan_one(d, to, &a[i])) {
			if (a[i].chosen != NULL)
				attend_chosen(d, &a[i]);
			else
				gpu_attend(d, a[i].o, a[i].lse, &a[i].query, rows);
			continue;
		}
		if (together > 0 && !same_kernels(w, dtype, to, rows->dtype)) {
			attend_together(d, w, splits, together, dtype);
			w[0] = *to;
			together = 0;
		}
		dtype = rows->dtype;
		splits[together] = used_splits(&w[together], rows);
		if (++together == TOGETHER) {
			attend_together(d, w, splits, together, dtype);
			together = 0;
		}
	}
	if (together > 0)
		attend_together(d, w, splits, together, dtype);
}

int
gpu_attend_each(struct dev *d, const struct attention *a, uint32_t n)
{
	struct sinks_call sinks[TOGETHER];
	struct attention some[TOGETHER];
	uint32_t i, j, now, with_sinks = 0;

	for (i = 0; i < n; i++)
		with_sinks += a[i].query.sinks != NULL;
	for (i = 0; i < n && with_sinks > 0; i += now) {
		now = min(n - i, TOGETHER);
		for (j = 0; j < now; j++)
			some[j] = a[i + j];
		if (!gpu_sinks_of(d, sinks, some, now))
			return 1;
		attend_each(d, some, now);
		gpu_add_sinks(d, sinks, now);
	}
	if (with_sinks == 0)
		attend_each(d, a, n);
	return 1;
}
