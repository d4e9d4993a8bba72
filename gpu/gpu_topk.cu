/* gpu_topk.cu - the greatest of many scores, exactly: radix selection
 *
 * A score is an integer of the same order, its key. The k-th greatest key, the limit, is found
 * digit by digit from the highest: a histogram of the digit over the keys that agree with what
 * is known says which value it has in the limit, and how many of those keys belong to the k.
 * Chosen are the keys above the limit, and of those equal to it the first `ties`. An entry's
 * place in the list is the number of chosen ones before it.
 *
 * Lists of up to 16384 scores: one block each, one launch, the keys stay in registers. It takes
 * some microseconds of latency, not of work, and more blocks would only add launches.
 *
 * Longer lists are cut into tiles of 4096 scores, a block each, so that a few lists of 65536
 * fill the GPU; four launches whatever the scores are, and each score is read three times, the
 * second and third time from the second-level cache:
 *   count_bins   histogram of the highest digit, 11 bits, of the whole list
 *   split_tile   what a tile has above the limit's digit is counted; the keys with that digit, some
 *                percent of all, are packed
 *   find_limit   one block per list: the other digits, from the packed keys; then what each tile
 *                has above and equal to the limit, summed over the tiles before
 *   write_tile   the chosen entries of a tile
 * Scores that are all equal are all packed, and one block per list goes through them: slower,
 * but still linear.
 *
 * These kernels are short, and so are those before them, which make the scores: the time between
 * kernels would be a good part of it all. So they start early (port.h).
 *
 * Atomics are additions of integers, whose order does not show. */
#include "gpu/gpu_internal.h"

enum {
	DIGIT = 11,                  /* bits of a digit; the last of three has 10 */
	BINS = 1 << DIGIT,
	SMALL = 256, LARGE = 1024,   /* threads of a block that has a list for itself */
	TILE_THREADS = 512,
	EACH = 8,                    /* keys of a thread of a tile */
	TILE = TILE_THREADS * EACH,
	FEW = 4, MANY = 16,          /* keys of a thread of a block with a whole list */
};

/* An integer of the same order: +0 and -0 are the same, a NaN is 0, less than all numbers. */
DEVICE uint32_t
ordered(float x)
{
	const uint32_t u = __float_as_uint(x) == 0x80000000 ? 0 : __float_as_uint(x);

	if ((u & 0x7fffffff) > 0x7f800000)
		return 0;
	return u >> 31 ? ~u : u | 0x80000000;
}

DEVICE uint32_t
lanes_before(uint32_t lane)
{
	return (1u << lane) - 1;
}

/* A key that has been found digit by digit so far, and how many of those that agree with it
 * in the known bits are wanted */
struct limit {
	uint32_t key, known, ties;
};

/* The sum of x over the threads before this one, of a block of T; *all <- over all of them.
 * part: [T / 32], free again after the next barrier */
template <int T>
DEVICE uint32_t
sum_before(uint32_t x, uint32_t *part, uint32_t *all)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t sum = warp_scan(x);

	if (lane == 31)
		part[warp] = sum;
	__syncthreads();
	const uint32_t others = lane < T / 32 ? part[lane] : 0;
	*all = warp_sum_u32(others);
	return warp_sum_u32(lane < warp ? others : 0) + sum - x;
}

/* The next digit of the limit, at bit `shift`, from the histogram of the keys that agree with
 * it so far: the greatest digit such that enough keys have it or a greater one. bin: [BINS],
 * aligned to 8 bytes; part: [T / 32]. All threads of the block call this, and get the same. */
template <int T>
DEVICE void
next_digit(struct limit *limit, struct limit *found, const uint32_t *bin, uint32_t shift,
    uint32_t *part)
{
	constexpr uint32_t PER = BINS / T;           /* bins of a thread, from the greatest on */
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t first = BINS - (threadIdx.x + 1) * PER;
	uint32_t count[PER], sum = 0;

UNROLL	for (uint32_t i = 0; i < PER; i += 2) {
		const uint2 two = *(const uint2 *)(bin + first + i);

		count[i] = two.x;
		count[i + 1] = two.y;
		sum += two.x + two.y;
	}
	const uint32_t all = warp_sum_u32(sum);
	if (lane == 0)
		part[warp] = all;
	__syncthreads();
	uint32_t above = warp_sum_u32(lane < warp ? part[lane] : 0);
	if (above < limit->ties && limit->ties - above <= all) {     /* it is in this warp's bins */
		above += warp_scan(sum) - sum;
UNROLL		for (uint32_t i = PER; i-- > 0; above += count[i])
			if (above < limit->ties && limit->ties - above <= count[i])
				*found = { limit->key | (first + i) << shift,
					limit->known | (BINS - 1) << shift, limit->ties - above };
	}
	__syncthreads();
	*limit = *found;
}

/* N keys of each thread from `score` on, of which there are n: lane l of a warp has number 32
 * i + l of the warp's 32 N. Behind the end there are zeros, which come after all keys that
 * there are: they are never chosen, and change no digit. */
template <int N>
DEVICE void
load_keys(uint32_t key[N], const float *score, uint32_t n)
{
	const uint32_t first = threadIdx.x / 32 * (32 * N) + threadIdx.x % 32;
	float x[N];

UNROLL	for (int i = 0; i < N; i++)
		x[i] = first + 32 * i < n ? score[first + 32 * i] : NAN;
UNROLL	for (int i = 0; i < N; i++)
		key[i] = ordered(x[i]);
}

/* at[..] <- the numbers, from `from` on, of the chosen among the block's keys. before: how many
 * keys above the limit, and equal to it, come before those of this block; part: [2][T / 32] */
template <int T, int N>
DEVICE void
write_chosen(uint32_t *at, const uint32_t key[N], uint32_t from, const struct limit &limit,
    uint2 before, uint32_t *part)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t above = 0, equal = 0;

UNROLL	for (int i = 0; i < N; i++) {
		above += key[i] > limit.key;
		equal += key[i] == limit.key;
	}
	above = warp_sum_u32(above);
	equal = warp_sum_u32(equal);
	if (lane == 0) {
		part[warp] = above;
		part[T / 32 + warp] = equal;
	}
	__syncthreads();
	above = before.x + warp_sum_u32(lane < warp ? part[lane] : 0);
	equal = before.y + warp_sum_u32(lane < warp ? part[T / 32 + lane] : 0);
UNROLL	for (int i = 0; i < N; i++) {
		const uint32_t more = __ballot_sync(ALL_LANES, key[i] > limit.key);
		const uint32_t same = __ballot_sync(ALL_LANES, key[i] == limit.key);
		const uint32_t tied = equal + (uint32_t)__popc(same & lanes_before(lane));

		if (key[i] > limit.key || (key[i] == limit.key && tied < limit.ties))
			at[above + (uint32_t)__popc(more & lanes_before(lane)) +
			    min(tied, limit.ties)] = from + warp * (32 * N) + 32 * i + lane;
		above += (uint32_t)__popc(more);
		equal += (uint32_t)__popc(same);
	}
}

/* ---- a block for each list ---- */

template <int T, int N>
static __global__ void __launch_bounds__(T)
top_of_list(uint32_t *at, size_t room, const float *joint, size_t stride, const struct lists l)
{
	SHARED(uint4[BINS / 4], bins);
	SHARED(uint32_t[2 * T / 32], part);
	SHARED(struct limit, found);
	uint32_t *const bin = &bins[0].x;
	const uint32_t g = blockIdx.x;
	struct limit limit = { 0, 0, l.k[g] };
	uint32_t key[N];

	pdl_trigger();
	pdl_wait();
	if (l.k[g] == 0)
		return;
	load_keys<N>(key, joint + g * stride, l.n[g]);
	for (int shift = 32 - DIGIT; shift > -DIGIT; shift -= DIGIT) {
		const uint32_t low = shift > 0 ? (uint32_t)shift : 0;

		for (uint32_t b = threadIdx.x; b < BINS; b += T)
			bin[b] = 0;
		__syncthreads();
UNROLL		for (int i = 0; i < N; i++)
			if ((key[i] & limit.known) == limit.key)
				atomicAdd(&bin[(key[i] & ~limit.known) >> low], 1u);
		__syncthreads();
		next_digit<T>(&limit, &found, bin, low, part);
	}
	write_chosen<T, N>(at + g * room, key, 0, limit, make_uint2(0, 0), part);
}

/* ---- several blocks for each list ---- */

/* Of a tile: how many of its keys are above the limit and equal to it, in the end the sums
 * over the tiles before; and how many were packed. */
struct tile {
	uint32_t above, equal, packed;
};

struct selecting {
	const float *joint;
	size_t stride;
	uint32_t tiles;              /* of the longest list */
	uint32_t *bins;              /* [G][BINS] of the highest digit */
	struct limit *limit;         /* [G] */
	struct tile *tile;           /* [G][tiles] */
	uint32_t *packed;            /* [G][tiles][TILE] */
};

/* The keys of this block's tile; false where its list has none there, or none is wanted */
DEVICE bool
tile_keys(uint32_t key[EACH], const struct selecting &s, const struct lists &l)
{
	const uint32_t g = blockIdx.y, from = blockIdx.x * TILE;

	if (l.k[g] == 0 || from >= l.n[g])
		return false;
	load_keys<EACH>(key, s.joint + g * s.stride + from, l.n[g] - from);
	return true;
}

static __global__ void __launch_bounds__(TILE_THREADS)
count_bins(const struct selecting s, const struct lists l)
{
	SHARED(uint32_t[BINS], bin);
	uint32_t key[EACH];

	pdl_trigger();
	pdl_wait();
	if (!tile_keys(key, s, l))
		return;
	for (uint32_t b = threadIdx.x; b < BINS; b += TILE_THREADS)
		bin[b] = 0;
	__syncthreads();
UNROLL	for (int i = 0; i < EACH; i++)
		atomicAdd(&bin[key[i] >> (32 - DIGIT)], 1u);
	__syncthreads();
	for (uint32_t b = threadIdx.x; b < BINS; b += TILE_THREADS)
		if (bin[b] > 0)
			atomicAdd(&s.bins[blockIdx.y * BINS + b], bin[b]);
}

static __global__ void __launch_bounds__(TILE_THREADS)
split_tile(const struct selecting s, const struct lists l)
{
	SHARED(uint32_t[TILE_THREADS / 32], part);
	SHARED(uint32_t[TILE_THREADS / 32], above_part);
	SHARED(struct limit, found);
	const uint32_t g = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	struct limit limit = { 0, 0, l.k[g] };
	uint32_t key[EACH], above = 0, packed = 0, all;

	pdl_trigger();
	pdl_wait();
	if (!tile_keys(key, s, l))
		return;
	next_digit<TILE_THREADS>(&limit, &found, s.bins + g * BINS, 32 - DIGIT, part);
UNROLL	for (int i = 0; i < EACH; i++) {
		above += (key[i] & limit.known) > limit.key;
		packed += (key[i] & limit.known) == limit.key;
	}
	above = warp_sum_u32(above);
	if (lane == 0)
		above_part[warp] = above;
	uint32_t place = sum_before<TILE_THREADS>(packed, part, &all);
	uint32_t *to = s.packed + ((size_t)g * s.tiles + blockIdx.x) * TILE;
UNROLL	for (int i = 0; i < EACH; i++)
		if ((key[i] & limit.known) == limit.key)
			to[place++] = key[i];
	above = warp_sum_u32(lane < TILE_THREADS / 32 ? above_part[lane] : 0);
	if (threadIdx.x == 0)
		s.tile[g * s.tiles + blockIdx.x] = { above, 0, all };
	if (threadIdx.x == 0 && blockIdx.x == 0)
		s.limit[g] = limit;
}

/* work(key) with each packed key of list g, done(t) after this thread's keys of tile t: several
 * warps for a tile, or several tiles for a warp. */
template <class F, class D>
DEVICE void
for_packed(const struct selecting &s, uint32_t g, uint32_t tiles, F &&work, D &&done)
{
	constexpr uint32_t WARPS = LARGE / 32, AHEAD = 4;
	const uint32_t sharing = tiles < WARPS ? WARPS / tiles : 1;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = sharing * 32;
	uint32_t x[AHEAD];

	for (uint32_t t = warp / sharing; t < tiles; t += WARPS / sharing) {
		const uint32_t n = s.tile[g * s.tiles + t].packed;
		const uint32_t *key = s.packed + ((size_t)g * s.tiles + t) * TILE;

		for (uint32_t i = warp % sharing * 32 + lane; i < n; i += AHEAD * step) {
UNROLL			for (uint32_t a = 0; a < AHEAD; a++)
				x[a] = i + a * step < n ? key[i + a * step] : 0;
UNROLL			for (uint32_t a = 0; a < AHEAD; a++)
				if (i + a * step < n)
					work(x[a]);
		}
		done(t);
	}
}

/* Adds to each tile of list g what it has packed that is above the limit, or equal to it, and
 * then makes it the sum over the tiles before. */
DEVICE void
sum_tiles(const struct selecting &s, uint32_t g, uint32_t tiles, uint32_t limit, uint32_t *part)
{
	struct tile *tile = s.tile + g * s.tiles;
	uint32_t above = 0, equal = 0, all_above, all_equal;

	for_packed(s, g, tiles, [&](uint32_t key) {
		above += key > limit;
		equal += key == limit;
	}, [&](uint32_t t) {
		above = warp_sum_u32(above);
		equal = warp_sum_u32(equal);
		if (threadIdx.x % 32 == 0) {
			atomicAdd(&tile[t].above, above);
			atomicAdd(&tile[t].equal, equal);
		}
		above = equal = 0;
	});
	uint2 before = make_uint2(0, 0);
	for (uint32_t from = 0; from < tiles; from += LARGE) {
		const uint32_t t = from + threadIdx.x;

		__syncthreads();
		above = t < tiles ? tile[t].above : 0;
		equal = t < tiles ? tile[t].equal : 0;
		above = before.x + sum_before<LARGE>(above, part, &all_above);
		equal = before.y + sum_before<LARGE>(equal, part + LARGE / 32, &all_equal);
		if (t < tiles) {
			tile[t].above = above;
			tile[t].equal = equal;
		}
		before.x += all_above;
		before.y += all_equal;
	}
}

static __global__ void __launch_bounds__(LARGE)
find_limit(const struct selecting s, const struct lists l)
{
	SHARED(uint4[BINS / 4], bins);
	SHARED(uint32_t[2 * LARGE / 32], part);
	SHARED(struct limit, found);
	uint32_t *const bin = &bins[0].x;
	const uint32_t g = blockIdx.x, tiles = (l.n[g] + TILE - 1) / TILE;

	pdl_trigger();
	pdl_wait();
	if (l.k[g] == 0)
		return;
	struct limit limit = s.limit[g];
	for (int shift = 32 - 2 * DIGIT; shift > -DIGIT; shift -= DIGIT) {
		const uint32_t low = shift > 0 ? (uint32_t)shift : 0;

		for (uint32_t b = threadIdx.x; b < BINS; b += LARGE)
			bin[b] = 0;
		__syncthreads();
		for_packed(s, g, tiles, [&](uint32_t key) {
			if ((key & limit.known) == limit.key)
				atomicAdd(&bin[(key & ~limit.known) >> low], 1u);
		}, [](uint32_t) {});
		__syncthreads();
		next_digit<LARGE>(&limit, &found, bin, low, part);
	}
	sum_tiles(s, g, tiles, limit.key, part);
	for (uint32_t b = threadIdx.x; b < BINS; b += LARGE)
		s.bins[g * BINS + b] = 0;            /* for the next call */
	if (threadIdx.x == 0)
		s.limit[g] = limit;
}

static __global__ void __launch_bounds__(TILE_THREADS)
write_tile(uint32_t *at, size_t room, const struct selecting s, const struct lists l)
{
	SHARED(uint32_t[2 * TILE_THREADS / 32], part);
	const uint32_t g = blockIdx.y;
	uint32_t key[EACH];

	pdl_trigger();
	pdl_wait();
	if (!tile_keys(key, s, l))
		return;
	const struct tile before = s.tile[g * s.tiles + blockIdx.x];
	write_chosen<TILE_THREADS, EACH>(at + g * room, key, blockIdx.x * TILE, s.limit[g],
	    make_uint2(before.above, before.equal), part);
}

static void
top_of_tiles(struct dev *d, const struct chosen *to, const float *joint, size_t stride,
    const struct lists *l, uint32_t G)
{
	const uint32_t tiles = parts_of(l->longest, TILE);
	const size_t packed = (size_t)G * tiles * TILE * sizeof(uint32_t);
	const size_t tile = (size_t)G * tiles * sizeof(struct tile);
	struct selecting s = { .joint = joint, .stride = stride, .tiles = tiles, .bins = NULL,
		.limit = NULL, .tile = NULL, .packed = NULL };

	s.bins = (uint32_t *)gpu_scratch(d, SCRATCH_BINS, MAX_HEADS * BINS * sizeof *s.bins);
	s.packed = (uint32_t *)gpu_scratch(d, SCRATCH_PARTS, packed + tile + G * sizeof *s.limit);
	if (s.packed == NULL)
		return;
	s.tile = (struct tile *)(s.packed + packed / sizeof *s.packed);
	s.limit = (struct limit *)(s.tile + tile / sizeof *s.tile);
	LAUNCH_PDL(d, count_bins, dim3(tiles, G), TILE_THREADS, 0, s, *l);
	LAUNCH_PDL(d, split_tile, dim3(tiles, G), TILE_THREADS, 0, s, *l);
	LAUNCH_PDL(d, find_limit, G, LARGE, 0, s, *l);
	LAUNCH_PDL(d, write_tile, dim3(tiles, G), TILE_THREADS, 0, to->at, to->stride, s, *l);
}

/* ---- plainly ---- */

enum { NAIVE = 64 };             /* threads */

/* The sum over the block's threads of x, in all of them. part[NAIVE / 32] is free again after
 * the next barrier. */
DEVICE uint32_t
sum_over_block(uint32_t x, uint32_t *part)
{
	x = warp_sum_u32(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (int w = 0; w < NAIVE / 32; w++)
		x += part[w];
	return x;
}

/* Of how many threads before this one x is set; *all <- of how many in the block */
DEVICE uint32_t
set_before(bool x, uint32_t *part, uint32_t *all)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t lanes = __ballot_sync(ALL_LANES, x);
	uint32_t before = (uint32_t)__popc(lanes & lanes_before(lane));

	__syncthreads();
	if (lane == 0)
		part[warp] = (uint32_t)__popc(lanes);
	__syncthreads();
	*all = 0;
	for (uint32_t w = 0; w < NAIVE / 32; w++) {
		before += w < warp ? part[w] : 0;
		*all += part[w];
	}
	return before;
}

/* A block for each list: the k-th greatest key bit by bit, the greatest number that k keys are
 * not less than; then the entries in order, NAIVE at a time. */
static __global__ void __launch_bounds__(NAIVE)
reference_top(uint32_t *at, size_t room, const float *joint, size_t stride, const struct lists l)
{
	SHARED(uint32_t[NAIVE / 32], part);
	const uint32_t g = blockIdx.x, n = l.n[g], k = l.k[g];
	const float *score = joint + g * stride;
	uint32_t limit = 0, count = 0, out = 0, all;

	for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
		count = 0;
		for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
			count += ordered(score[i]) >= (limit | bit);
		if (sum_over_block(count, part) >= k)
			limit |= bit;
	}
	count = 0;
	for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
		count += ordered(score[i]) > limit;
	uint32_t ties = k - sum_over_block(count, part);     /* so many of those that equal it */
	for (uint32_t from = 0; from < n; from += NAIVE) {
		const uint32_t i = from + threadIdx.x;
		const uint32_t key = i < n ? ordered(score[i]) : 0;
		const bool equal = i < n && key == limit;
		const uint32_t before = set_before(equal, part, &all);
		const bool chosen = i < n && (key > limit || (equal && before < ties));

		ties -= min(all, ties);
		const uint32_t place = out + set_before(chosen, part, &all);
		if (chosen)
			at[g * room + place] = i;
		out += all;
	}
}

void
gpu_topk(struct dev *d, struct chosen *to, const float *joint, size_t stride, const uint32_t *n,
    uint32_t G)
{
	struct lists l;

	for (uint32_t g = 0; g < G; g++)
		if (to->n[g] > n[g] || to->n[g] > to->stride)
			gpu_fail(d, "top: %u of %u entries of KV head %u, room for %zu", to->n[g],
			    n[g], g, to->stride);
	if (!gpu_lists_of(d, &l, n, to->n, G, "top") || l.longest == 0)
		return;
	if (d->reference)
		LAUNCH(d, reference_top, G, NAIVE, 0, to->at, to->stride, joint, stride, l);
	else if (l.longest <= SMALL * FEW)
		LAUNCH_PDL(d, (top_of_list<SMALL, FEW>), G, SMALL, 0, to->at, to->stride, joint,
		    stride, l);
	else if (l.longest <= LARGE * FEW)
		LAUNCH_PDL(d, (top_of_list<LARGE, FEW>), G, LARGE, 0, to->at, to->stride, joint,
		    stride, l);
	else if (l.longest <= LARGE * MANY)
		LAUNCH_PDL(d, (top_of_list<LARGE, MANY>), G, LARGE, 0, to->at, to->stride, joint,
		    stride, l);
	else
		top_of_tiles(d, to, joint, stride, &l, G);
}
