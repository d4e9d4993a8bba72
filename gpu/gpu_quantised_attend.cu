/* gpu_quantised_attend.cu - prefill attention over rows of quantised types, on tensor cores
 *
 * As gpu_attend.cu, with tiles that are widened on their way to shared memory and rounded to the
 * layer's dtype of 16 bits there: a block loads a tile of keys and one of values, and then
 * multiplies; while it loads, the other block of the SM multiplies. The types are arguments, a
 * switch for each tile. The kernel always goes by the first row that a query sees (LIMITED). */
#include "gpu/gpu_attend_plan.h"
#include "gpu/gpu_quantised.h"

/* Stores 4 channels from `e` on of a row of a tile. */
template <class T, int E>
DEVICE void
store_four(char *tile, uint32_t row, uint32_t e, const float x[4])
{
	*(uint2 *)(tile + swizzled<E>(row, e / 8) + e % 8 * 2) =
	    make_uint2(pair<T>(x[0], x[1]), pair<T>(x[2], x[3]));
}

/* tile <- KEYS rows from row `first` of KV head g on, by the block; zeros behind the last */
template <class T, int E>
DEVICE void
widen_tile(char *tile, const void *from, const struct row_format &f, const struct rows &c,
    uint32_t g, uint32_t first)
{
	constexpr uint32_t PIECES = E / 8;
	const unsigned char *const rows = (const unsigned char *)from +
	    (c.start[g] + first) * f.bytes;
	const uint32_t n = c.len[g] - first;

	with_piece_type(f.type, [&](auto type) {
UNROLL_BY(4)	for (uint32_t i = threadIdx.x; i < KEYS<E> * PIECES; i += THREADS) {
			const uint32_t row = i / PIECES, piece = i % PIECES;
			float x[8] = {};

			if (row < n)
				widen_raw<type.value>(x, load_raw<type.value>(rows +
				    (size_t)row * f.bytes, piece));
			store_four<T, E>(tile, row, half_piece(type.value, piece, 0), x);
			store_four<T, E>(tile, row, half_piece(type.value, piece, 1), x + 4);
		}
	});
}

/* The main loop, over the tiles first .. last-1 of KV head g. Each query row of this warp sees the
 * rows from[] .. seen[] - 1 of it, both [32] and ascending. tiles: of keys, of values */
template <class T, int E>
DEVICE void
for_widened_tiles(struct softmax_state<E> &t, const uint4 *queries, char *tiles,
    const struct rows &c, const struct row_formats &f, uint32_t g, uint32_t first, uint32_t last,
    const uint32_t *from, const uint32_t *seen, const struct limits &limits)
{
	char *const values = tiles + tile<E>::bytes;
	float s[STRIPS][KEYS<E> / 8][4];
	uint32_t p[STRIPS][KEYS<E> / 16][4];

	for (uint32_t number = first; number < last; number++) {
		const uint32_t row = number * KEYS<E>;

		__syncthreads();               /* the tiles before have been read */
		widen_tile<T, E>(tiles, c.k, f.k, c, g, row);
		if (c.v != NULL)
			widen_tile<T, E>(values, c.v, f.v, c, g, row);
		__syncthreads();
		if (row >= seen[31])
			continue;
		scores<T, E>(s, queries, tiles);
		if (limits.cap > 0)
			cap_scores<E>(s, limits);
		if (row + KEYS<E> > seen[0] || row < from[31])
			mask_unseen<E, true>(s, row, from, seen);
		softmax_step<T, E, true>(p, s, t);
		if (c.v != NULL)
			outputs<T, E>(t, p, values);
	}
}

/* ROWS packed query rows of one KV head and one split of its keys */
template <class T, int E>
static __global__ void __launch_bounds__(THREADS, 2)
attend_quantised_tiles(float *o, float *lse, const float *q, const __grid_constant__ struct rows c,
    const uint32_t *qpos, const struct plan plan, const struct row_formats f)
{
	DYN_SHARED(char, tiles);                       /* keys, values; queries */
	SHARED(uint32_t[ROWS], seen);                  /* rows that each query row sees */
	SHARED(uint32_t[ROWS], row);                   /* its index in o and lse */
	SHARED(uint32_t[ROWS], from);                  /* the first row that it sees */
	const uint32_t split = blockIdx.x % plan.splits, x = blockIdx.x / plan.splits;
	const uint32_t g = x / plan.heads / plan.blocks * plan.heads + x % plan.heads;
	const uint32_t m = (plan.blocks - 1 - x / plan.heads % plan.blocks) * ROWS + threadIdx.x;
	const uint32_t R = plan.H / c.G, rows = min(plan.N * R - m + threadIdx.x, (uint32_t)ROWS);
	const uint32_t warp = threadIdx.x / 32 * 32;
	uint4 *const queries = (uint4 *)(tiles + 2 * tile<E>::bytes);
	struct softmax_state<E> t;

	if (g >= c.G)
		return;
	/* Padding rows see what the last row sees; a warp of only padding has nothing to do. */
	const uint32_t i = min(m, plan.N * R - 1);
	row[threadIdx.x] = i == m ? (split * plan.N + i / R) * plan.H + g * R + i % R : NO_ROW;
	seen[threadIdx.x] = warp >= rows ? 0 :
	    seen_rows(c.pos + c.start[g], c.len[g], qpos[i / R]);
	from[threadIdx.x] = first_seen(c.pos + c.start[g], seen[threadIdx.x], qpos[i / R],
	    plan.limits.reach);
	__syncthreads();
	const uint32_t begin = from[0] / KEYS<E>, end = (seen[rows - 1] + KEYS<E> - 1) / KEYS<E>;
	const uint32_t each = max(plan.tiles, (end - begin + plan.splits - 1) / plan.splits);
	const uint32_t first = begin + split * each;

	clear(t);
	load_queries<T, E>(queries, q, row + warp, split * plan.N * plan.H, plan.scale);
	for_widened_tiles<T, E>(t, queries, tiles, c, f, g, first, min(end, first + each),
	    from + warp, seen + warp, plan.limits);
	if (o != NULL)
		write_output<T, E, true>(o, (T *)NULL, lse, t, row + warp);
	else
		write_output<T, E, false>(o, (T *)NULL, lse, t, row + warp);
}

template <class T, int E>
static void
attend_width(struct dev *d, float *o, float *lse, const struct query *query, struct rows c,
    const struct row_formats &f)
{
	const struct plan plan = plan_attend(d, &c, query, KEYS<E>);
	const unsigned grid = parts_of(c.G, plan.heads) * plan.heads * plan.blocks * plan.splits;
	const size_t shared = 2 * tile<E>::bytes + ROWS * E * 2;
	const size_t rows = (size_t)query->N * query->H;
	const size_t values = o != NULL ? plan.splits * rows * E : 0;
	float *to_o = o, *to_lse = lse;

	if (o == NULL)
		c.v = NULL;
	if (plan.splits > 1) {
		to_o = (float *)gpu_scratch(d, SCRATCH_PARTS,
		    (values + plan.splits * rows) * sizeof(float));
		to_lse = to_o + values;
	}
	LAUNCH(d, (attend_quantised_tiles<T, E>), grid, THREADS, shared, o != NULL ? to_o : NULL,
	    to_lse, query->q, c, query->pos, plan, f);
	if (plan.splits > 1)
		gpu_combine_attention(d, o, lse, to_o, to_lse, plan.splits, rows, E);
}

template <class T>
static void
attend_dtype(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c,
    const struct row_formats &f)
{
	switch (c->E) {
	case 32:
		attend_width<T, 32>(d, o, lse, query, *c, f);
		break;
	case 64:
		attend_width<T, 64>(d, o, lse, query, *c, f);
		break;
	case 80:
		attend_width<T, 80>(d, o, lse, query, *c, f);
		break;
	case 96:
		attend_width<T, 96>(d, o, lse, query, *c, f);
		break;
	case 128:
		attend_width<T, 128>(d, o, lse, query, *c, f);
		break;
	}
}

/* Do the tensor core kernels take the call? */
static bool
fits_tiles(const struct dev *d, const struct rows *c, const struct row_formats &f,
    enum kv_dtype dtype, const float *o, const float *q)
{
	return !d->reference && dtype != KV_F32 && (c->E == 32 || c->E == 64 || c->E == 80 ||
	    c->E == 96 || c->E == 128) && in_pieces(c->k, f.k, c->E) &&
	    (o == NULL || in_pieces(c->v, f.v, c->E)) &&
	    ((uintptr_t)o | (uintptr_t)q) % 8 == 0;
}

void
gpu_attend_quantised(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l, const struct rows *c)
{
	struct query q = *query;
	struct row_formats f;
	struct row_list list;

	if (!gpu_formats_of(d, &f, l, "attend") ||
	    (q.q = gpu_queries_for(d, query, rows_k_type(l), l->width)) == NULL ||
	    !gpu_row_list_of(d, &list, l, NULL))
		return;
	if (fits_tiles(d, c, f, l->dtype, o, q.q))
		(l->dtype == KV_BF16 ? attend_dtype<bf16> : attend_dtype<f16>)(d, o, lse, &q, c, f);
	else if (!gpu_attend_plain_quantised(d, o, lse, &q, c, &f))
		gpu_attend_naive(d, o, lse, &q, c, &list, &f);
	gpu_transform_back(d, o, rows_v_type(l), l->width, (size_t)q.N * q.H);
}
