/* gpu_mass_wgmma.cu - attention mass for Hopper (sm_90a), by products of warpgroups
 *
 * Computes the same as add_mass() of gpu_mass_tiles.cu, for widths 64 and 128 and the log-sum-exps
 * of attend(). As there, keys are the rows of the product (m) and stay in registers, queries are
 * its columns (n) and stream through shared memory, so that the mass of a row accumulates in one
 * register of each of four lanes. Here queries are the operand that tensor cores read from shared
 * memory by themselves: each of three warpgroups multiplies 64 keys by the same tile of 128
 * queries. They take turns in issuing products, so that one has them under way while others make
 * weights: without turns nothing keeps all three from doing the same thing at the same time. For
 * width 128 products and exponentials take 512 cycles each for 64 keys and 128 queries, for width
 * 64 the former half of that. How long all takes has not been measured (SPEED.md, On a GPU).
 *
 * A block stays on its SM and takes one item after another (persistent): ROWS rows, those of one
 * query head. Two warps of a fourth warpgroup copy tiles, another finds items. No two items have
 * the same mass, and each sum has one order.
 *
 * window_mass() reads all keys for few queries: memory is the limit there, with any products. */
#include "gpu/gpu_mass.h"

/* SM90A: this file is compiled for sm_90a (Makefile). */
#if defined SM90A || defined CUDA_EMULATED
#define WITH_WGMMA
#include "gpu/gpu_warpgroups.h"

/* GROUPS: warpgroups that multiply. MANY, FEW: the registers of a thread of these, and of the
 * others: together what an SM has. */
constexpr unsigned GROUPS = 3, ROWS = GROUPS * 64, QUERIES = 128;
constexpr unsigned THREADS = (GROUPS + 1) * 128, COPIERS = 64, PACKERS = 128;
constexpr int MANY = 152, FEW = 56;

/* Queries of a head, scaled and rounded, as they are in shared memory: E / 64 times QUERIES lines,
 * swizzled. Where a query gives no mass, and behind the last one, lse is inf; positions ascend. */
template <int E> struct tile {
	char q[QUERIES * E * 2];
	float lse[QUERIES];          /* in base 2 */
	uint32_t pos[QUERIES];
};

/* Rows begin .. begin + ROWS - 1, which the tiles first .. end - 1 of this head see */
struct item {
	uint32_t head, begin, first, end;      /* head NO_ROW: there is none */
};

template <int E> constexpr unsigned RING = E == 128 ? 4 : 6;

/* Besides tiles. Two items: one is multiplied while the next is found. */
template <int E> struct shared {
	uint64_t full[RING<E>], empty[RING<E>];        /* tiles */
	uint64_t found[2], taken[2];                   /* items */
	struct item item[2];
};

/* Items as numbers: heads of a set, whose queries fit into L2 together, are neighbours, and in a
 * set the first rows, which most queries see, come first. */
struct plan {
	uint32_t N, H;
	uint32_t tiles;              /* of a head */
	uint32_t blocks;             /* of rows */
	uint32_t heads;              /* of a set */
	struct limits limits;
};

/* ---- queries ---- */

/* One block for each tile and head; a thread packs 16 channels of a query, those of a step. */
template <class T, int E>
static __global__ void __launch_bounds__(PACKERS)
pack_tiles(struct tile<E> *to, const float *q, const float *lse, const uint32_t *qpos, uint32_t N,
    float scale)
{
	const uint32_t h = blockIdx.y, H = gridDim.y, first = blockIdx.x * QUERIES;
	struct tile<E> &tile = to[(size_t)h * gridDim.x + blockIdx.x];

	for (uint32_t i = threadIdx.x; i < QUERIES * (E / 16); i += PACKERS) {
		const uint32_t row = i / (E / 16), step = i % (E / 16);
		const size_t from = ((size_t)(first + row) * H + h) * E;
		char *const line = tile.q + step / 4 * (QUERIES * LINE) + row * LINE;
		uint32_t w[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

		if (first + row < N)
UNROLL			for (uint32_t c = 0; c < 4; c++) {
				const float4 x = *(const float4 *)(q + from +
				    first_channel<E>(step, c));

				w[c] = pair<T>(x.x * scale, x.y * scale);
				w[4 + c] = pair<T>(x.z * scale, x.w * scale);
			}
UNROLL		for (uint32_t half = 0; half < 2; half++)
			*(uint4 *)(line + ((step % 4 * 2 + half) ^ row % 8) * 16) = make_uint4(
			    w[half * 4], w[half * 4 + 1], w[half * 4 + 2], w[half * 4 + 3]);
	}
	if (threadIdx.x < QUERIES) {
		const uint32_t n = first + threadIdx.x, pos = qpos[min(n, N - 1)];
		const float sum = n < N ? lse[(size_t)n * H + h] * LOG2_E : INFINITY;

		tile.lse[threadIdx.x] = sum == -INFINITY ? INFINITY : sum;
		tile.pos[threadIdx.x] = min(pos, NO_POSITION - 1);
	}
}

/* ---- a warp: items ---- */

/* Item of that number, in all lanes; first = end where no query sees its rows. */
template <bool LIMITED>
DEVICE struct item
item_of(uint32_t number, const struct rows &r, const uint32_t *qpos, const struct plan &plan)
{
	const uint32_t set = number / (plan.heads * plan.blocks), first = set * plan.heads;
	const uint32_t heads = min(plan.heads, plan.H - first);
	const uint32_t y = number - first * plan.blocks;
	struct item i = { first + y % heads, y / heads * ROWS, 0, 0 };
	const uint32_t g = i.head / (plan.H / r.G);

	if (i.begin >= r.len[g])
		return i;
	const uint32_t *const pos = r.pos + r.start[g];
	const uint32_t least = pos[i.begin];
	const uint32_t before = least > 0 ? seen_rows(qpos, plan.N, least - 1) : 0;

	i.first = before < plan.N ? before / QUERIES : plan.tiles;
	i.end = plan.tiles;
	if (LIMITED) {
		const uint32_t most = pos[min(i.begin + ROWS, r.len[g]) - 1];
		const uint32_t reach = min(plan.limits.reach, UINT32_MAX - most);

		i.end = max(i.first,
		    (seen_rows(qpos, plan.N, most + reach) + QUERIES - 1) / QUERIES);
	}
	return i;
}

/* Begins to fetch the keys of an item from memory. */
template <int E>
DEVICE void
prefetch_keys(const struct item &i, const struct rows &r, const struct plan &plan)
{
	const uint32_t g = i.head / (plan.H / r.G), n = min(r.len[g] - i.begin, ROWS);
	const char *const k = (const char *)r.k + (r.start[g] + i.begin) * E * 2;

	for (uint32_t at = threadIdx.x % 32 * LINE; at < n * E * 2; at += 32 * LINE)
		prefetch_l2(k + at);
}

/* The items of this block that have any work */
template <int E, bool LIMITED>
DEVICE void
find_items(struct shared<E> &x, const struct rows &r, const uint32_t *qpos,
    const struct plan &plan, uint32_t items)
{
	struct cursor<2> to = {};

	for (uint32_t round = 0;; round++) {
		const uint32_t number = item_of_round(round);
		struct item i = { NO_ROW, 0, 0, 0 };

		if (number < items) {
			i = item_of<LIMITED>(number, r, qpos, plan);
			if (i.first >= i.end)
				continue;
			prefetch_keys<E>(i, r, plan);
		}
		mbarrier_wait(&x.taken[to.at], to.parity ^ 1);
		if (threadIdx.x % 32 == 0) {
			x.item[to.at] = i;
			mbarrier_arrive(&x.found[to.at]);
		}
		if (number >= items)
			break;
		to.next();
	}
}

/* The next item, which is the caller's then: of all threads of a warp */
template <int E>
DEVICE struct item
take_item(struct shared<E> &x, struct cursor<2> *at)
{
	mbarrier_wait(&x.found[at->at], at->parity);
	const struct item i = x.item[at->at];

	__syncwarp();
	give_back(&x.taken[at->at]);
	at->next();
	return i;
}

/* ---- two warps: tiles ---- */

/* Copies the tiles of all items; one is under way when the next is begun. */
template <int E>
DEVICE void
copy_tiles(struct shared<E> &x, struct tile<E> *ring, const struct tile<E> *tiles, uint32_t of_head)
{
	struct cursor<2> work = {};
	struct cursor<RING<E>> to = {};
	unsigned before = RING<E>;                     /* the tile under way; RING: none */

	for (;;) {
		const struct item i = take_item<E>(x, &work);

		if (i.head == NO_ROW)
			break;
		for (uint32_t n = i.first; n < i.end; n++) {
			const unsigned t = threadIdx.x % COPIERS * 16;
			const char *const from =
			    (const char *)&tiles[(size_t)i.head * of_head + n] + t;
			char *const at = (char *)&ring[to.at] + t;

			mbarrier_wait(&x.empty[to.at], to.parity ^ 1);
UNROLL			for (unsigned b = 0; b < sizeof *ring; b += COPIERS * 16)
				cp_async16(at + b, from + b, true);
			cp_async_commit();
			hand_over<1>(x.full, before);
			before = to.at;
			to.next();
		}
	}
	hand_over<0>(x.full, before);
}

/* ---- the other warpgroups ---- */

/* 16 keys of a warp as the a operand. A lane has a part of rows lane / 4 and lane / 4 + 8. */
template <int E> struct keys {
	uint32_t a[E / 16][4];
	uint32_t pos[2];             /* NO_POSITION: no such row */
	uint32_t first, last;        /* of the warp */
	uint32_t group, group_end;   /* of the warpgroup: the first; the last that there is */
};

/* row: the first of the warp; of_group: of its warpgroup */
template <class T, int E>
DEVICE void
load_keys(struct keys<E> &to, const struct rows &r, uint32_t g, uint32_t row, uint32_t of_group)
{
	const uint32_t c = threadIdx.x % 4, len = r.len[g];
	const uint32_t *const pos = r.pos + r.start[g];

	row += threadIdx.x % 32 / 4;
UNROLL	for (uint32_t i = 0; i < 2; i++, row += 8) {
		const T *const k = (const T *)r.k + (r.start[g] + row) * E;

		to.pos[i] = row < len ? pos[row] : NO_POSITION;
UNROLL		for (uint32_t step = 0; step < E / 16; step += 2) {
			const uint4 w = row < len ? load_once(k + first_channel<E>(step, c)) :
			    make_uint4(0, 0, 0, 0);

			to.a[step][i] = w.x;
			to.a[step][i + 2] = w.y;
			to.a[step + 1][i] = w.z;
			to.a[step + 1][i + 2] = w.w;
		}
	}
	to.first = __shfl_sync(ALL_LANES, to.pos[0], 0);
	to.last = __shfl_sync(ALL_LANES, to.pos[1], 31);
	to.group = of_group < len ? pos[of_group] : NO_POSITION;
	to.group_end = of_group < len ? pos[min(of_group + 64, len) - 1] : NO_POSITION;
}

/* logits <- keys . queries^T in this group's turn; q: the matrix of the tile */
template <class T, int E>
DEVICE void
multiply(float (&logit)[QUERIES / 2], const struct keys<E> &k, uint64_t q, unsigned group)
{
	wait_turn(group);
	settled(logit);
	wgmma_fence();
UNROLL	for (unsigned i = 0; i < E / 16; i++)
		wgmma_rs<T, QUERIES, false>(logit, k.a[i],
		    q + (i / 4 * QUERIES * LINE + i % 4 * 32) / 16, i > 0);
	wgmma_commit();
	pass_turn<GROUPS>(group);
	wgmma_wait<0>();
	settled(logit);
}

/* sum[i] += the mass that the queries of a tile give to row lane / 4 + 8i of the warp. SOME: not
 * every query sees every row. */
template <bool SOME, bool LIMITED, int E>
DEVICE void
add_tile(float (&sum)[2], float (&logit)[QUERIES / 2], const struct tile<E> &t,
    const uint32_t (&pos)[2], uint32_t reach, enum over_queries over)
{
	float of_tile[2] = { 0, 0 };

UNROLL	for (unsigned j = 0; j < QUERIES / 8; j++) {
		const unsigned n = j * 8 + threadIdx.x % 4 * 2;
		const float2 two = *(const float2 *)&t.lse[n];
		const uint2 p = SOME ? *(const uint2 *)&t.pos[n] : make_uint2(0, 0);

UNROLL		for (unsigned i = 0; i < 4; i++) {
			float &x = logit[j * 4 + i];
			const uint32_t of = i % 2 == 0 ? p.x : p.y;
			const bool masked = SOME &&
			    (LIMITED ? !in_reach(of, pos[i / 2], reach) : of < pos[i / 2]);

			x = masked ? 0 : exp2_fast(x - (i % 2 == 0 ? two.x : two.y));
		}
	}
	if (over == QUERIES_SUM) {
UNROLL		for (unsigned i = 0; i < QUERIES / 2; i++)
			of_tile[i / 2 % 2] += logit[i];
		sum[0] += of_tile[0];
		sum[1] += of_tile[1];
	} else {
UNROLL		for (unsigned i = 0; i < QUERIES / 2; i++)
			sum[i / 2 % 2] = accumulate(sum[i / 2 % 2], logit[i], QUERIES_MAX);
	}
}

/* The mass that the queries of a tile give to the rows of this warp; for the warpgroup together */
template <class T, int E, bool LIMITED>
DEVICE void
multiply_tile(float (&sum)[2], const struct keys<E> &k, const struct tile<E> &t, uint64_t q,
    unsigned group, const struct limits &limits, enum over_queries over)
{
	const uint32_t first = t.pos[0], last = t.pos[QUERIES - 1];
	float logit[QUERIES / 2];

	if (last < k.group || (LIMITED && is_past(k.group_end, first, limits.reach))) {
		wait_turn(group);
		pass_turn<GROUPS>(group);
		return;
	}
	multiply<T, E>(logit, k, q, group);
	if (LIMITED && limits.cap > 0)
UNROLL		for (unsigned i = 0; i < QUERIES / 2; i++)
			logit[i] = softcapped(logit[i], limits);
	if (first < k.last || (LIMITED && is_past(k.first, last, limits.reach)))
		add_tile<true, LIMITED>(sum, logit, t, k.pos, limits.reach, over);
	else
		add_tile<false, LIMITED>(sum, logit, t, k.pos, limits.reach, over);
}

/* All items of this block, by one warpgroup */
template <class T, int E, bool LIMITED>
DEVICE void
add_items(float *mass, size_t stride, struct shared<E> &x, const struct tile<E> *ring,
    const struct rows &r, const struct plan &plan, enum over_queries over)
{
	const uint32_t group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 * 16 - 64;
	const uint32_t c = threadIdx.x % 4, mine = warp + threadIdx.x % 32 / 4 + c * 8;
	const uint64_t matrix = matrix_descriptor(ring, 0, ATOM);
	struct cursor<RING<E>> at = {};
	struct cursor<2> work = {};
	struct keys<E> k;

	first_turn(group);
	for (;;) {
		const struct item i = take_item<E>(x, &work);

		if (i.head == NO_ROW)
			break;
		const uint32_t g = i.head / (plan.H / r.G);
		/* of four lanes with the same two rows, two write one each */
		const bool writes = c < 2 && i.begin + mine < r.len[g];
		float *const to = mass + i.head * stride + i.begin + mine;
		const float had = writes ? *to : 0;
		float sum[2] = { 0, 0 };

		load_keys<T, E>(k, r, g, i.begin + warp, i.begin + group * 64);
		for (uint32_t n = i.first; n < i.end; n++) {
			mbarrier_wait(&x.full[at.at], at.parity);
			multiply_tile<T, E, LIMITED>(sum, k, ring[at.at],
			    matrix + at.at * (sizeof *ring / 16), group, plan.limits, over);
			__syncwarp();
			give_back(&x.empty[at.at]);
			at.next();
		}
UNROLL		for (unsigned row = 0; row < 2; row++)
			for (int bit = 1; bit < 4; bit *= 2)
				sum[row] = accumulate(sum[row],
				    __shfl_xor_sync(ALL_LANES, sum[row], bit), over);
		if (writes)
			*to = accumulate(had, c == 0 ? sum[0] : sum[1], over);
	}
}

/* The first warpgroup finds items and copies tiles, the others multiply. */
template <class T, int E, bool LIMITED>
static __global__ void __launch_bounds__(THREADS, 1)
mass_warpgroups(float *mass, size_t stride, const struct tile<E> *tiles,
    const __grid_constant__ struct rows r, const uint32_t *qpos,
    const __grid_constant__ struct plan plan, enum over_queries over, uint32_t items)
{
	DYN_SHARED(struct tile<E>, ring);
	struct shared<E> &x = *(struct shared<E> *)(ring + RING<E>);

	if (threadIdx.x == 0) {
		for (unsigned i = 0; i < RING<E>; i++) {
			mbarrier_init(&x.full[i], COPIERS / 32);
			mbarrier_init(&x.empty[i], GROUPS * 4);
		}
		for (unsigned i = 0; i < 2; i++) {
			mbarrier_init(&x.found[i], 1);
			mbarrier_init(&x.taken[i], GROUPS * 4 + COPIERS / 32);
		}
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<FEW>();
		if (threadIdx.x < COPIERS)
			copy_tiles<E>(x, ring, tiles, plan.tiles);
		else if (threadIdx.x < COPIERS + 32)
			find_items<E, LIMITED>(x, r, qpos, plan, items);
	} else {
		more_registers<MANY>();
		add_items<T, E, LIMITED>(mass, stride, x, ring, r, plan, over);
	}
}

/* ---- calls ---- */

template <class T, int E>
static void
mass_width(struct dev *d, const struct call *c, const float *lse, float *mass, size_t stride)
{
	const uint32_t H = c->query.H, N = c->query.N, tiles = parts_of(N, QUERIES);
	const size_t head = tiles * sizeof(struct tile<E>), fit = d->l2 / 2 / head;
	struct tile<E> *const to = (struct tile<E> *)gpu_scratch(d, SCRATCH_X, H * head);
	const struct plan plan = { .N = N, .H = H, .tiles = tiles,
		.blocks = parts_of(longest_head(&c->rows), ROWS),
		.heads = fit < 1 ? 1 : fit > H ? H : (uint32_t)fit, .limits = c->limits };
	const uint32_t items = H * plan.blocks;

	LAUNCH(d, (pack_tiles<T, E>), dim3(tiles, H), PACKERS, 0, to, c->query.q, lse,
	    c->query.pos, N, c->scale);
	with_limited(c->limits, [&](auto limited) {
		LAUNCH(d, (mass_warpgroups<T, E, limited.value>), min(items, d->sms), THREADS,
		    RING<E> * sizeof(struct tile<E>) + sizeof(struct shared<E>), mass, stride, to,
		    c->rows, c->query.pos, plan, c->over, items);
	});
}

template <class T>
static void
mass_dtype(struct dev *d, const struct call *c, const float *lse, float *mass, size_t stride)
{
	if (c->rows.E == 64)
		mass_width<T, 64>(d, c, lse, mass, stride);
	else
		mass_width<T, 128>(d, c, lse, mass, stride);
}

/* Where there are fewer queries than two tiles, or as few rows as where attend() does not gain
 * (gpu_attend_wgmma.cu), those of gpu_mass_tiles.cu do it. Neither bound was measured. */
#define LEAST_QUERIES (2 * QUERIES)
#define LEAST_KEYS 65536

static bool
fits_wgmma(const struct dev *d, const struct call *c)
{
	const uint32_t E = c->rows.E;

	return d->hopper && !d->no_wgmma && c->fast && !c->quantised && (E == 64 || E == 128) &&
	    (d->any_wgmma || (c->query.N >= LEAST_QUERIES &&
	    (size_t)longest_head(&c->rows) * E >= LEAST_KEYS));
}
#endif

bool
gpu_mass_wgmma(struct dev *d, const struct call *c, const float *lse, float *mass, size_t stride)
{
#ifdef WITH_WGMMA
	if (!fits_wgmma(d, c))
		return false;
	(c->dtype == KV_BF16 ? mass_dtype<bf16> : mass_dtype<f16>)(d, c, lse, mass, stride);
	return true;
#else
	return false;
#endif
}
