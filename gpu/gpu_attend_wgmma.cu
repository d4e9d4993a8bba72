/* gpu_attend_wgmma.cu - prefill attention for Hopper (sm_90a), by products of warpgroups
 *
 * Computes the same as gpu_attend.cu, for widths 64 and 128, as FlashAttention-3 does (Shah et al.
 * 2024): the tensor cores read keys and values from shared memory, and a block is divided. Two
 * warps copy tiles, two make the next queries, and each of two or three warpgroups multiplies 64
 * query rows.
 * A warpgroup issues the scores of a tile together with the outputs of the tile before and makes
 * weights of the former while the latter are under way; the warpgroups take turns in issuing, so
 * that one has products under way while another makes weights.
 *
 * A block stays on its SM and takes one item after another (persistent): ROWS query rows of a KV
 * head and a split of its keys. Tiles come by cp.async and not by TMA: behind the last row of a KV
 * head are rows of another one or NaNs, which cp.async replaces by zeros. */
#include "gpu/gpu_attend_plan.h"

/* SM90A: this file is compiled for sm_90a (Makefile). */
#if defined SM90A || defined CUDA_EMULATED
#define WITH_WGMMA
#include "gpu/gpu_attend_wgmma.h"

/* Packed query rows m .. m + rows - 1 of KV head g with the tiles first .. last - 1 of it. As in
 * struct plan, heads of a set are neighbours, and in a set the last query rows come first. */
struct item {
	uint32_t split, g, m, rows, first, last;
};

template <int E>
DEVICE struct item
item_of(uint32_t number, const struct plan &plan, uint32_t G)
{
	const uint32_t x = number / plan.splits, set = x / (plan.heads * plan.blocks);
	const uint32_t first = set * plan.heads, heads = min(plan.heads, G - first);
	const uint32_t y = x - first * plan.blocks;
	const uint32_t m = (plan.blocks - 1 - y / heads) * shape<E>::ROWS;

	return { .split = number % plan.splits, .g = first + y % heads, .m = m,
		.rows = min(plan.N * (plan.H / G) - m, shape<E>::ROWS), .first = 0, .last = 0 };
}

/* Item number x.item[at], with its range of tiles first .. last - 1 */
template <int E, bool LIMITED>
DEVICE struct item
taken_item(const struct shared<E> &x, unsigned at, const struct plan &plan, uint32_t G)
{
	constexpr uint32_t KEYS = shape<E>::KEYS;
	struct item i = item_of<E>(x.item[at], plan, G);
	const uint32_t end = (x.seen[at][i.rows - 1] + KEYS - 1) / KEYS;
	uint32_t begin = 0, tiles = plan.tiles;

	if (LIMITED) {
		begin = x.from[at][0] / KEYS;
		tiles = max(tiles, (end - begin + plan.splits - 1) / plan.splits);
	}
	i.first = begin + i.split * tiles;
	i.last = max(i.first, min(end, i.first + tiles));
	return i;
}

/* ---- two warps: tiles ---- */

/* Starts the asynchronous copy of a tile with so many valid rows; zeros behind them. In shared
 * memory a row of 128 channels is two lines, KEYS lines apart. */
template <int E>
DEVICE void
copy_lines(char *to, const char *from, uint32_t rows)
{
	constexpr unsigned units = E / 8, together = COPIERS / units;
	const unsigned t = threadIdx.x % COPIERS, row = t / units, unit = t % units;
	const int left = (int)min(rows, shape<E>::KEYS) - (int)row;    /* from this line on */

	to += unit / 8 * shape<E>::KEYS * LINE + row * LINE;
	from += t * 16;
UNROLL	for (unsigned i = 0; i < 8; i += together) {
		char *const line = to + (unit % 8 ^ (row + i)) * 16;

UNROLL		for (unsigned r = i; r < shape<E>::KEYS; r += 8)
			cp_async16(line + r * LINE, from + r * E * 2, (int)r < left);
	}
}

/* Copies the tiles of all items; one is under way when the next is begun. */
template <int E, bool LIMITED>
DEVICE void
copy_tiles(struct shared<E> &x, char *ring, const struct rows &c, const struct plan &plan)
{
	using s = shape<E>;
	struct cursor<2> work = {};
	struct cursor<s::RING> to = {};
	unsigned before = s::RING;                     /* the tile under way; RING: none */

	for (;; work.next()) {
		mbarrier_wait(&x.found[work.at], work.parity);
		if (x.item[work.at] == NO_ROW)
			break;
		const struct item i = taken_item<E, LIMITED>(x, work.at, plan, c.G);

		__syncwarp();
		give_back(&x.taken[work.at]);
		/* In the order of their use: keys 0, 1, values 0, keys 2, values 1, ..., the last
		 * values */
		for (uint32_t n = 0, end = 2 * (i.last - i.first); n < end; n++) {
			const bool values = n + 1 == end || (n > 0 && n % 2 == 0);
			const uint32_t number = i.first + (n + 1) / 2 - values;

			mbarrier_wait(&x.empty[to.at], to.parity ^ 1);
			copy_lines<E>(ring + to.at * s::tile, (const char *)(values ? c.v : c.k) +
			    (c.start[i.g] + (size_t)number * s::KEYS) * E * 2,
			    c.len[i.g] - number * s::KEYS);
			cp_async_commit();
			hand_over<1>(x.full, before);
			before = to.at;
			to.next();
		}
		if (i.first >= i.last) {       /* no load that lets others have the one before */
			hand_over<0>(x.full, before);
			before = s::RING;
		}
	}
	hand_over<0>(x.full, before);
}

/* ---- two warps: items and their queries ---- */

/* The rows that the query rows of an item are of q, and those that they see. Begins to fetch the
 * former from memory. */
template <int E, bool LIMITED>
DEVICE void
find_rows(struct shared<E> &x, unsigned at, const float *q, const struct rows &c,
    const uint32_t *qpos, const struct item &i, const struct plan &plan, uint32_t R)
{
	const uint32_t *const pos = c.pos + c.start[i.g];

	for (uint32_t r = threadIdx.x % MAKERS; r < shape<E>::ROWS; r += MAKERS) {
		/* Padding rows see what the last row sees. */
		const uint32_t m = min(i.m + r, plan.N * R - 1), n = m / R;
		const uint32_t row = n * plan.H + i.g * R + m % R;

UNROLL		for (unsigned e = 0; e < E; e += LINE / sizeof(float))
			prefetch_l2(q + (size_t)row * E + e);
		const uint32_t seen = seen_rows(pos, c.len[i.g], qpos[n]);

		x.row[at][r] = m == i.m + r ? row : NO_ROW;
		x.seen[at][r] = seen;
		if (LIMITED) {                 /* first_seen() takes too many registers */
			const uint32_t out = qpos[n] - min(qpos[n], plan.limits.reach);

			x.from[at][r] = out > 0 ? seen_rows(pos, seen, out - 1) : 0;
		}
	}
}

/* Scaled queries, rounded: [2 or 1][ROWS] lines; row 0 in place of rows that do not exist */
template <class T, int E>
DEVICE void
make_queries(char *to, const float *q, const uint32_t *row, float scale)
{
	constexpr unsigned units = E / 8, together = MAKERS / units;
	const unsigned t = threadIdx.x % MAKERS, unit = t % units;

	to += unit / 8 * shape<E>::ROWS * LINE;
	q += unit * 8;
UNROLL_BY(E == 128 ? 4 : 1)
	for (unsigned r = t / units; r < shape<E>::ROWS; r += together) {
		const float4 *const from =
		    (const float4 *)(q + (size_t)(row[r] != NO_ROW ? row[r] : 0) * E);
		const float4 a = from[0], b = from[1];

		*(uint4 *)(to + r * LINE + (unit % 8 ^ r % 8) * 16) =
		    make_uint4(pair<T>(a.x * scale, a.y * scale), pair<T>(a.z * scale, a.w * scale),
		    pair<T>(b.x * scale, b.y * scale), pair<T>(b.z * scale, b.w * scale));
	}
}

/* The items of this block */
template <class T, int E, bool LIMITED>
DEVICE void
make_items(struct shared<E> &x, char *queries, const float *q, const struct rows &c,
    const uint32_t *qpos, const struct plan &plan, uint32_t items)
{
	struct cursor<2> to = {};

	for (uint32_t round = 0;; round++) {
		const uint32_t number = item_of_round(round);
		const bool last = number >= items;

		mbarrier_wait(&x.taken[to.at], to.parity ^ 1);
		if (threadIdx.x % MAKERS == 0)
			x.item[to.at] = last ? NO_ROW : number;
		if (!last)
			find_rows<E, LIMITED>(x, to.at, q, c, qpos, item_of<E>(number, plan, c.G),
			    plan, plan.H / c.G);
		mbarrier_arrive(&x.found[to.at]);
		if (!last) {
			mbarrier_wait(&x.found[to.at], to.parity);
			make_queries<T, E>(queries + to.at * shape<E>::queries, q, x.row[to.at],
			    plan.scale);
			fence_proxy_async();
		}
		mbarrier_arrive(&x.made[to.at]);
		if (last)
			break;
		to.next();
	}
}

/* ---- the other warpgroups ---- */

/* Writes o and lse of this thread's two rows. */
template <class T, int E>
DEVICE void
write_item(float *o, T *narrow, float *lse, const struct softmax<E> &t, const uint32_t row[2],
    uint32_t before)
{
UNROLL	for (unsigned r = 0; r < 2; r++) {
		const size_t at = (size_t)before + row[r];
		float l = t.l[r];

		l += __shfl_xor_sync(ALL_LANES, l, 1);
		l += __shfl_xor_sync(ALL_LANES, l, 2);
		if (row[r] == NO_ROW)
			continue;
		const float scale = l > 0 ? 1 / l : 0;

		if (lse != NULL && threadIdx.x % 4 == 0)
			lse[at] = l > 0 ? (t.m[r] + log2f(l)) * LN2 : -INFINITY;
UNROLL		for (unsigned j = 0; j < E / 8; j++) {
			const size_t e = at * E + j * 8 + threadIdx.x % 4 * 2;
			const float a = t.o[j * 4 + r * 2] * scale;
			const float b = t.o[j * 4 + r * 2 + 1] * scale;

			*(float2 *)(o + e) = make_float2(a, b);
			if (narrow != NULL)
				*(uint32_t *)(narrow + e) = pair<T>(a, b);
		}
	}
}

/* All items of this block, by one warpgroup */
template <class T, int E, bool LIMITED>
DEVICE void
attend_items(float *o, float *lse, struct shared<E> &x, const char *ring, const char *queries,
    const struct rows &c, const struct plan &plan)
{
	using s = shape<E>;
	const unsigned warp = threadIdx.x / 32 * 16 - 64, row = warp + threadIdx.x % 32 / 4;
	struct group<E> w = { threadIdx.x / 128 - 1, {}, 0, matrix_descriptor(ring, 0, ATOM),
		matrix_descriptor(ring, s::KEYS * LINE, ATOM) };
	struct cursor<2> work = {};
	struct softmax<E> t;

	first_turn(w.number);
	for (;; work.next()) {
		mbarrier_wait(&x.made[work.at], work.parity);
		if (x.item[work.at] == NO_ROW)
			break;
		const struct item i = taken_item<E, LIMITED>(x, work.at, plan, c.G);
		const struct view v = view_of<E, LIMITED>(x, work.at, warp, row);
		const uint32_t index[2] = { x.row[work.at][row], x.row[work.at][row + 8] };

		w.queries = matrix_descriptor(queries + work.at * s::queries +
		    w.number * 64 * LINE, 0, ATOM);
		clear(t);
		for (uint32_t number = i.first; number < i.last; number++)
			if (number == i.first)
				attend_first<T, E, LIMITED>(t, x, w, number, v, plan.limits);
			else
				attend_next<T, E, LIMITED>(t, x, w, number, v, plan.limits);
		if (i.first < i.last)
			attend_last<T, E>(t, x, w);
		__syncwarp();
		give_back(&x.taken[work.at]);
		write_item<T, E>(o, (T *)plan.narrow, lse, t, index, i.split * plan.N * plan.H);
	}
}

/* The first warpgroup copies and makes queries, the others multiply. */
template <class T, int E, bool LIMITED>
static __global__ void __launch_bounds__(shape<E>::THREADS, 1)
attend_warpgroups(float *o, float *lse, const float *q, const __grid_constant__ struct rows c,
    const uint32_t *qpos, const __grid_constant__ struct plan plan, const uint32_t items)
{
	using s = shape<E>;
	DYN_SHARED(char, ring);                        /* [RING] tiles, two blocks of queries */
	char *const queries = ring + s::RING * s::tile;
	struct shared<E> &x = *(struct shared<E> *)(queries + 2 * s::queries);

	if (threadIdx.x == 0) {
		for (unsigned i = 0; i < s::RING; i++) {
			mbarrier_init(&x.full[i], COPIERS / 32);
			mbarrier_init(&x.empty[i], s::GROUPS * 4);
		}
		for (unsigned i = 0; i < 2; i++) {
			mbarrier_init(&x.found[i], MAKERS);
			mbarrier_init(&x.made[i], MAKERS);
			mbarrier_init(&x.taken[i], s::GROUPS * 4 + COPIERS / 32);
		}
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<s::FEW>();
		if (threadIdx.x < COPIERS)
			copy_tiles<E, LIMITED>(x, ring, c, plan);
		else
			make_items<T, E, LIMITED>(x, queries, q, c, qpos, plan, items);
	} else {
		more_registers<s::MANY>();
		attend_items<T, E, LIMITED>(o, lse, x, ring, queries, c, plan);
	}
}

template <class T, int E>
static void
attend_width(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	using s = shape<E>;
	struct plan plan = plan_blocks(d, c, query, s::ROWS, 1, s::KEYS);
	const uint32_t items = c->G * plan.blocks * plan.splits;
	const size_t bytes = s::RING * s::tile + 2 * s::queries + sizeof(struct shared<E>);
	const struct target to = begin_attend<T>(d, o, lse, query, E, &plan);

	with_limited(plan.limits, [&](auto limited) {
		LAUNCH(d, (attend_warpgroups<T, E, limited.value>), min(items, d->sms), s::THREADS,
		    bytes, to.o, to.lse, query->q, *c, query->pos, plan, items);
	});
	end_attend(d, o, lse, query, E, plan, to);
}

template <class T>
static void
attend_dtype(struct dev *d, float *o, float *lse, const struct query *query, const struct rows *c)
{
	if (c->E == 64)
		attend_width<T, 64>(d, o, lse, query, c);
	else
		attend_width<T, 128>(d, o, lse, query, c);
}

/* Where no query sees so many elements of keys, filling the pipeline takes longer than the products
 * of attend_tiles() (H200: 512 rows of width 128 1.1 times as fast, 256 rows 0.9 times). */
#define LEAST_KEYS 65536

static bool
fits_wgmma(const struct dev *d, const float *o, const struct query *query, const struct rows *c,
    enum kv_dtype dtype)
{
	uint32_t g, longest = 0;

	for (g = 0; g < c->G; g++)
		longest = max(longest, c->len[g]);
	return d->hopper && !d->no_wgmma && o != NULL && dtype != KV_F32 &&
	    (c->E == 64 || c->E == 128) && (d->any_wgmma || (size_t)longest * c->E >= LEAST_KEYS) &&
	    ((uintptr_t)c->k | (uintptr_t)c->v | (uintptr_t)query->q) % 16 == 0 &&
	    (uintptr_t)o % 8 == 0;
}
#endif

bool
gpu_attend_wgmma(struct dev *d, float *o, float *lse, const struct query *query,
    const struct rows *c, enum kv_dtype dtype)
{
#ifdef WITH_WGMMA
	if (!fits_wgmma(d, o, query, c, dtype))
		return false;
	(dtype == KV_BF16 ? attend_dtype<bf16> : attend_dtype<f16>)(d, o, lse, query, c);
	return true;
#else
	return false;
#endif
}
