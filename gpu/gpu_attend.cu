/* gpu_attend.cu - prefill attention: FlashAttention-2 on tensor cores, with GQA packing and
 * split-KV
 *
 * Causality is by position: a query sees a row of the cache when the row's position is not
 * greater than its own. Both ascend, so a query sees a prefix of the rows of its KV head; once
 * the length of that prefix is known, positions are not read again. The same code serves whole
 * prompts, chunks of one behind a past, queries of selected tokens, and caches with evicted
 * rows.
 *
 * A sliding window hides the first rows of that prefix, too: what a query sees is a range of rows,
 * and a block loops over the tiles that one of its queries sees.
 *
 * Keys and values of 16 bits: FlashAttention-2 (Dao 2023, algorithm 1), online softmax with
 * queries and weights rounded to the dtype of the cache and f32 sums. Widths 64 and 128 on Hopper:
 * gpu_attend_wgmma.cu. Other dtypes and widths: gpu_attend_plain.cu. */
#include "gpu/gpu_attend_plan.h"
#include "gpu/gpu_latent_attend.h"
#include "gpu/gpu_quantised.h"

/* The main loop, over the tiles first .. last-1 of KV head g. Each query row of this warp sees the
 * rows from[] .. seen[] - 1 of it, both [32] and ascending; from is read where LIMITED. meanwhile()
 * runs while the first tiles are loaded. */
template <class T, int E, bool VALUES, bool LIMITED, class F>
DEVICE void
for_key_tiles(struct softmax_state<E> &t, const uint4 *queries, char *ring, const struct rows &c,
    uint32_t g, uint32_t first, uint32_t last, const uint32_t *from, const uint32_t *seen,
    const struct limits &limits, F &&meanwhile)
{
	constexpr unsigned bytes = tile<E>::bytes;
	float s[STRIPS][KEYS<E> / 8][4];
	uint32_t p[STRIPS][KEYS<E> / 16][4];
	unsigned now = 0;                              /* offset of the current stage in the ring */
	const auto load = [&](unsigned to, const void *from, uint32_t number) {
		if (number < last)
			copy_tile<E>(ring + to, (const char *)from + c.start[g] * tile<E>::row +
			    (size_t)number * bytes, c.len[g] - number * KEYS<E>);
		cp_async_commit();
	};
	/* Waits for the current tile; then the stage of the tile before is free for the next
	 * load. */
	const auto step = [&](const void *from, uint32_t number) {
		cp_async_wait<1>();
		__syncthreads();
		load(now == 0 ? (RING - 1) * bytes : now - bytes, from, number);
	};

	load(0, c.k, first);
	load(bytes, VALUES ? c.v : c.k, VALUES ? first : first + 1);
	meanwhile();
	for (uint32_t number = first; number < last; number++) {
		/* Warps differ little in the first tile of a window; a second test spills. */
		const bool sees = number * KEYS<E> < seen[31];

		step(c.k, VALUES ? number + 1 : number + 2);
		if (sees) {
			scores<T, E>(s, queries, ring + now);
			if (LIMITED && limits.cap > 0)
				cap_scores<E>(s, limits);
			if ((number + 1) * KEYS<E> > seen[0] ||
			    (LIMITED && number * KEYS<E> < from[31]))
				mask_unseen<E, LIMITED>(s, number * KEYS<E>, from, seen);
			softmax_step<T, E, VALUES>(p, s, t);
		}
		now = now == (RING - 1) * bytes ? 0 : now + bytes;
		if constexpr (VALUES) {
			step(c.v, number + 1);
			if (sees)
				outputs<T, E>(t, p, ring + now);
			now = now == (RING - 1) * bytes ? 0 : now + bytes;
		}
	}
}

/* FlashAttention-2 forward: ROWS packed query rows of one KV head and one split of its keys.
 * VALUES false: lse only. */
template <class T, int E, bool VALUES, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, 2)
attend_tiles(float *o, float *lse, const float *q, const struct rows c, const uint32_t *qpos,
    const struct plan plan)
{
	DYN_SHARED(char, ring);                        /* [RING] tiles, queries */
	SHARED(uint32_t[ROWS], seen);                  /* rows that each query row sees */
	SHARED(uint32_t[ROWS], row);                   /* its index in o and lse */
	SHARED(uint32_t[ROWS], first_row);
	constexpr bool PACKED = LIMITED && E == 128;   /* no array of these: packed_rows */
	uint32_t *const from = PACKED ? row : first_row;       /* LIMITED: the first row seen */
	const uint32_t split = blockIdx.x % plan.splits, x = blockIdx.x / plan.splits;
	const uint32_t g = x / plan.heads / plan.blocks * plan.heads + x % plan.heads;
	const uint32_t m = (plan.blocks - 1 - x / plan.heads % plan.blocks) * ROWS + threadIdx.x;
	const uint32_t R = plan.H / c.G, rows = min(plan.N * R - m + threadIdx.x, (uint32_t)ROWS);
	const uint32_t warp = threadIdx.x / 32 * 32;
	uint32_t first = split * plan.tiles, tiles = plan.tiles;
	uint4 *const queries = (uint4 *)(ring + RING * tile<E>::bytes);
	struct softmax_state<E> t;

	if (g >= c.G)
		return;
	/* Padding rows see what the last row sees; a warp of only padding has nothing to do. */
	const uint32_t i = min(m, plan.N * R - 1);
	if constexpr (!PACKED)
		row[threadIdx.x] =
		    i == m ? (split * plan.N + i / R) * plan.H + g * R + i % R : NO_ROW;
	seen[threadIdx.x] = warp >= rows ? 0 :
	    seen_rows(c.pos + c.start[g], c.len[g], qpos[i / R]);
	if constexpr (LIMITED)
		from[threadIdx.x] = first_seen(c.pos + c.start[g], seen[threadIdx.x], qpos[i / R],
		    plan.limits.reach);
	__syncthreads();
	const uint32_t end = (seen[rows - 1] + KEYS<E> - 1) / KEYS<E>;
	if constexpr (LIMITED) {
		const uint32_t begin = from[0] / KEYS<E>;

		tiles = max(tiles, (end - begin + plan.splits - 1) / plan.splits);
		first = begin + split * tiles;
	}
	const uint32_t last = min(end, first + tiles);
	clear(t);
	const auto index = [&] {
		if constexpr (PACKED)
			return packed_rows{ m - threadIdx.x + warp, plan.N * R, R, plan.H,
				split * plan.N * plan.H + g * R };
		else
			return row + warp;
	}();
	for_key_tiles<T, E, VALUES, LIMITED>(t, queries, ring, c, g, first, last, from + warp,
	    seen + warp, plan.limits, [&] {
		load_queries<T, E>(queries, q, index, split * plan.N * plan.H, plan.scale);
	});
	write_output<T, E, VALUES>(o, (T *)plan.narrow, lse, t, index);
}

/* Split-KV: o and lse of each query row and head from those of its splits, weighted by
 * exp(lse). One block for each query row and head. */
static __global__ void __launch_bounds__(THREADS)
combine_splits(float *o, float *lse, const float *split_o, const float *split_lse, uint32_t splits,
    size_t rows, uint32_t E)
{
	const size_t row = blockIdx.x;
	float m = -INFINITY, l = 0;

	for (uint32_t p = 0; p < splits; p++)
		m = fmaxf(m, split_lse[p * rows + row]);
	for (uint32_t p = 0; p < splits && m > -INFINITY; p++)
		l += expf(split_lse[p * rows + row] - m);
	for (uint32_t e = threadIdx.x; e < E && o != NULL; e += THREADS) {
		float sum = 0;

		for (uint32_t p = 0; p < splits && l > 0; p++)
			sum += expf(split_lse[p * rows + row] - m) *
			    split_o[(p * rows + row) * E + e];
		o[row * E + e] = l > 0 ? sum / l : 0;
	}
	if (threadIdx.x == 0 && lse != NULL)
		lse[row] = l > 0 ? m + logf(l) : -INFINITY;
}

void
gpu_combine_attention(struct dev *d, float *o, float *lse, const float *split_o,
    const float *split_lse, uint32_t splits, size_t rows, uint32_t E)
{
	LAUNCH(d, combine_splits, (unsigned)rows, THREADS, 0, o, lse, split_o, split_lse, splits,
	    rows, E);
}

template <class T, int E>
static void
attend_width(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	struct plan plan = plan_attend(d, c, query, KEYS<E>);
	const unsigned grid = parts_of(c->G, plan.heads) * plan.heads * plan.blocks * plan.splits;
	const size_t shared = RING * tile<E>::bytes + ROWS * E * 2;
	const struct target to = begin_attend<T>(d, o, lse, query, E, &plan);

	with_limited(plan.limits, [&](auto limited) {
		constexpr bool LIMITED = limited.value;

		if (o != NULL)
			LAUNCH(d, (attend_tiles<T, E, true, LIMITED>), grid, THREADS, shared, to.o,
			    to.lse, query->q, *c, query->pos, plan);
		else
			LAUNCH(d, (attend_tiles<T, E, false, LIMITED>), grid, THREADS, shared, NULL,
			    to.lse, query->q, *c, query->pos, plan);
	});
	end_attend(d, o, lse, query, E, plan, to);
}

template <class T>
static void
attend_dtype(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	switch (c->E) {
	case 32:
		attend_width<T, 32>(d, o, lse, query, c);
		break;
	case 64:
		attend_width<T, 64>(d, o, lse, query, c);
		break;
	case 80:
		attend_width<T, 80>(d, o, lse, query, c);
		break;
	case 96:
		attend_width<T, 96>(d, o, lse, query, c);
		break;
	case 128:
		attend_width<T, 128>(d, o, lse, query, c);
		break;
	}
}

/* Do the tensor core kernels take this shape, dtype and alignment? */
static int
fits_tensor_cores(const struct rows *c, enum kv_dtype dtype, const float *o, const float *q)
{
	return dtype != KV_F32 && (c->E == 32 || c->E == 64 || c->E == 80 || c->E == 96 ||
	    c->E == 128) && ((uintptr_t)c->k | (o != NULL ? (uintptr_t)c->v : 0)) % 16 == 0 &&
	    ((uintptr_t)o | (uintptr_t)q) % 8 == 0;
}

static void
attend(struct dev *d, float *o, float *lse, const struct query *query, const struct layer_rows *l)
{
	struct row_list list;
	struct rows c;

	if (l->v_in_k && !has_quantised(l) && query->N > 0 && query->H > 0 &&
	    gpu_capturable_rows_of(d, &c, l, query->H, "attend") &&
	    gpu_row_list_of(d, &list, l, NULL) &&
	    gpu_attend_latent(d, o, lse, query, l->dtype, &c, &list))
		return;
	if (query->N <= DECODE_QUERIES) {
		gpu_attend_decode(d, o, lse, query, l);
		return;
	}
	if (!gpu_rows_of(d, &c, l, query->H, "attend") || query->H == 0)
		return;
	if (has_quantised(l))
		gpu_attend_quantised(d, o, lse, query, l, &c);
	else if (d->reference || !fits_tensor_cores(&c, l->dtype, o, query->q))
		gpu_attend_plain(d, o, lse, query, l, &c);
	else if (gpu_attend_wgmma(d, o, lse, query, &c, l->dtype))
		return;
	else if (l->dtype == KV_BF16)
		attend_dtype<bf16>(d, o, lse, query, &c);
	else
		attend_dtype<f16>(d, o, lse, query, &c);
}

void
gpu_attend(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	struct attention a = { .o = o, .lse = lse, .query = *query, .rows = l, .chosen = NULL };
	struct sinks_call sinks;

	if (query->sinks == NULL)
		attend(d, o, lse, query, l);
	else if (gpu_sinks_of(d, &sinks, &a, 1)) {
		attend(d, o, a.lse, &a.query, l);
		gpu_add_sinks(d, &sinks, 1);
	}
}
