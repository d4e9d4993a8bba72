/* gpu_topk.cu - exact top-k by radix select
 *
 * Scores are mapped to integers of the same order, keys. The k-th greatest key, the threshold,
 * is found digit by digit from the highest (MSD): a histogram of the digit, over the keys that
 * agree with the threshold in the digits so far, gives the threshold's digit and how many of
 * those keys belong to the k. Selected are the keys above the threshold and the first `ties` of
 * those equal to it. The index of an entry in the list is the number of selected entries before
 * it, a prefix sum.
 *
 * Lists of up to 16384 scores: one block each, one launch, keys in registers. The time is some
 * microseconds of latency; more blocks would only add launches.
 *
 * Longer lists are cut into tiles of 4096 scores, a block each, so that a few lists of 65536
 * fill the GPU. Four launches, whatever the scores are; each score is read three times, the
 * second and third time from L2:
 *   count_bins       histogram of the highest digit, 11 bits, of the whole list
 *   split_tile       counts the keys of a tile above the threshold's digit; packs the keys with
 *                    that digit, some percent of all
 *   find_threshold   one block for each list: the other digits, from the packed keys; then for each
 *                    tile prefix sums over the tiles of the keys above and equal to the threshold
 *   write_tile       writes the selected entries of a tile
 * Where all scores are equal all keys are packed, and one block for each list reads them:
 * slower, but still linear.
 *
 * These kernels are short, as are those before them, which compute the scores: launch gaps would
 * be a good part of the time. So they use programmatic dependent launch (port.h).
 *
 * Atomics are integer additions only: their order does not matter. */
#include "gpu/gpu_block.h"
#include "gpu/gpu_internal.h"

enum {
	DIGIT = 11,                  /* bits of a digit; the last of three has 10 */
	BINS = 1 << DIGIT,
	SMALL = 256, LARGE = 1024,   /* threads of a block with a whole list */
	TILE_THREADS = 512,
	EACH = 8,                    /* keys of a thread of a tile */
	TILE = TILE_THREADS * EACH,
	SHORT_KEYS = 4, LONG_KEYS = 16,          /* keys of a thread of a block with a whole list */
};

/* The key of a score, an integer of the same order: +0 and -0 are equal; a NaN is 0, less
 * than all numbers. */
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

/* The threshold, as far as it is known: its known bits, the mask of these, and how many of
 * the keys that agree in the known bits are wanted */
struct threshold {
	uint32_t key, known, ties;
};

/* Finds the next digit of the threshold, at bit `shift`, from the histogram of the keys that
 * agree with it so far: the greatest digit such that enough keys have it or a greater one.
 * bin: [BINS], aligned to 8 bytes; part: [T / 32]. All threads of the block call this, with
 * the same result. */
template <int T>
DEVICE void
next_digit(struct threshold *threshold, struct threshold *found, const uint32_t *bin,
    uint32_t shift, uint32_t *part)
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
	/* in this warp's bins */
	if (above < threshold->ties && threshold->ties - above <= all) {
		above += warp_scan(sum) - sum;
UNROLL		for (uint32_t i = PER; i-- > 0; above += count[i])
			if (above < threshold->ties && threshold->ties - above <= count[i])
				*found = { threshold->key | (first + i) << shift,
					threshold->known | (BINS - 1) << shift,
					    threshold->ties - above };
	}
	__syncthreads();
	*threshold = *found;
}

/* Loads N keys of each thread from the n at `score`: lane l of a warp has number 32 i + l of
 * the warp's 32 N. Behind the end keys are 0, the least: they are never selected, and change
 * no digit. */
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

/* Writes the indices, counted from `from` on, of the selected ones of the block's keys.
 * before: how many keys above the threshold, and equal to it, come before this block; part:
 * [2][T / 32] */
template <int T, int N>
DEVICE void
write_selected(uint32_t *at, const uint32_t key[N], uint32_t from,
    const struct threshold &threshold, uint2 before, uint32_t *part)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t above = 0, equal = 0;

UNROLL	for (int i = 0; i < N; i++) {
		above += key[i] > threshold.key;
		equal += key[i] == threshold.key;
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
		const uint32_t more = __ballot_sync(ALL_LANES, key[i] > threshold.key);
		const uint32_t same = __ballot_sync(ALL_LANES, key[i] == threshold.key);
		const uint32_t tied = equal + (uint32_t)__popc(same & lanes_before(lane));

		if (key[i] > threshold.key || (key[i] == threshold.key && tied < threshold.ties))
			at[above + (uint32_t)__popc(more & lanes_before(lane)) +
			    min(tied, threshold.ties)] = from + warp * (32 * N) + 32 * i + lane;
		above += (uint32_t)__popc(more);
		equal += (uint32_t)__popc(same);
	}
}

/* ---- one block for each list ---- */

template <int T, int N>
static __global__ void __launch_bounds__(T)
topk_list(uint32_t *at, size_t capacity, const float *joint, size_t stride, const struct lists l)
{
	SHARED(uint4[BINS / 4], bins);
	SHARED(uint32_t[2 * T / 32], part);
	SHARED(struct threshold, found);
	uint32_t *const bin = &bins[0].x;
	const uint32_t g = blockIdx.x;
	struct threshold threshold = { 0, 0, l.k[g] };
	uint32_t key[N];

	pdl_trigger();
	pdl_wait();
	if (l.k[g] == 0)
		return;
	load_keys<N>(key, joint + g * stride, l.n[g] + grown(l));
	for (int shift = 32 - DIGIT; shift > -DIGIT; shift -= DIGIT) {
		const uint32_t low = shift > 0 ? (uint32_t)shift : 0;

		for (uint32_t b = threadIdx.x; b < BINS; b += T)
			bin[b] = 0;
		__syncthreads();
UNROLL		for (int i = 0; i < N; i++)
			if ((key[i] & threshold.known) == threshold.key)
				atomicAdd(&bin[(key[i] & ~threshold.known) >> low], 1u);
		__syncthreads();
		next_digit<T>(&threshold, &found, bin, low, part);
	}
	write_selected<T, N>(at + g * capacity, key, 0, threshold, make_uint2(0, 0), part);
}

/* ---- several blocks for each list ---- */

/* A tile: how many of its keys are above the threshold and equal to it, in the end prefix
 * sums over the tiles before; how many are packed */
struct tile {
	uint32_t above, equal, packed;
};

struct topk_call {
	const float *joint;
	size_t stride;
	uint32_t tiles;              /* of the longest list that there may be */
	uint32_t *bins;              /* [G][BINS] of the highest digit */
	struct threshold *threshold;         /* [G] */
	struct tile *tile;           /* [G][tiles] */
	uint32_t *packed;            /* [G][tiles][TILE] */
};

/* Loads the keys of this block's tile. Returns false where the list is shorter, or none is
 * wanted. */
DEVICE bool
tile_keys(uint32_t key[EACH], const struct topk_call &s, const struct lists &l)
{
	const uint32_t g = blockIdx.y, from = blockIdx.x * TILE, n = l.n[g] + grown(l);

	if (l.k[g] == 0 || from >= n)
		return false;
	load_keys<EACH>(key, s.joint + g * s.stride + from, n - from);
	return true;
}

static __global__ void __launch_bounds__(TILE_THREADS)
count_bins(const struct topk_call s, const struct lists l)
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
split_tile(const struct topk_call s, const struct lists l)
{
	SHARED(uint32_t[TILE_THREADS / 32], part);
	SHARED(uint32_t[TILE_THREADS / 32], above_part);
	SHARED(struct threshold, found);
	const uint32_t g = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	struct threshold threshold = { 0, 0, l.k[g] };
	uint32_t key[EACH], above = 0, packed = 0, all;

	pdl_trigger();
	pdl_wait();
	if (!tile_keys(key, s, l))
		return;
	next_digit<TILE_THREADS>(&threshold, &found, s.bins + g * BINS, 32 - DIGIT, part);
UNROLL	for (int i = 0; i < EACH; i++) {
		above += (key[i] & threshold.known) > threshold.key;
		packed += (key[i] & threshold.known) == threshold.key;
	}
	above = warp_sum_u32(above);
	if (lane == 0)
		above_part[warp] = above;
	uint32_t place = prefix_sum<TILE_THREADS>(packed, part, &all);
	uint32_t *to = s.packed + ((size_t)g * s.tiles + blockIdx.x) * TILE;
UNROLL	for (int i = 0; i < EACH; i++)
		if ((key[i] & threshold.known) == threshold.key)
			to[place++] = key[i];
	above = warp_sum_u32(lane < TILE_THREADS / 32 ? above_part[lane] : 0);
	if (threadIdx.x == 0)
		s.tile[g * s.tiles + blockIdx.x] = { above, 0, all };
	if (threadIdx.x == 0 && blockIdx.x == 0)
		s.threshold[g] = threshold;
}

/* Calls work(key) for each packed key of list g, and done(t) after this thread's keys of tile
 * t. Several warps share a tile, or a warp has several tiles. */
template <class F, class D>
DEVICE void
for_packed(const struct topk_call &s, uint32_t g, uint32_t tiles, F &&work, D &&done)
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

/* Adds to the counts of each tile of list g those of its packed keys that are above the
 * threshold, or equal to it; then replaces the counts by prefix sums over the tiles. */
DEVICE void
sum_tiles(const struct topk_call &s, uint32_t g, uint32_t tiles, uint32_t threshold, uint32_t *part)
{
	struct tile *tile = s.tile + g * s.tiles;
	uint32_t above = 0, equal = 0, all_above, all_equal;

	for_packed(s, g, tiles, [&](uint32_t key) {
		above += key > threshold;
		equal += key == threshold;
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
		above = before.x + prefix_sum<LARGE>(above, part, &all_above);
		equal = before.y + prefix_sum<LARGE>(equal, part + LARGE / 32, &all_equal);
		if (t < tiles) {
			tile[t].above = above;
			tile[t].equal = equal;
		}
		before.x += all_above;
		before.y += all_equal;
	}
}

static __global__ void __launch_bounds__(LARGE)
find_threshold(const struct topk_call s, const struct lists l)
{
	SHARED(uint4[BINS / 4], bins);
	SHARED(uint32_t[2 * LARGE / 32], part);
	SHARED(struct threshold, found);
	uint32_t *const bin = &bins[0].x;
	const uint32_t g = blockIdx.x, tiles = (l.n[g] + grown(l) + TILE - 1) / TILE;

	pdl_trigger();
	pdl_wait();
	if (l.k[g] == 0)
		return;
	struct threshold threshold = s.threshold[g];
	for (int shift = 32 - 2 * DIGIT; shift > -DIGIT; shift -= DIGIT) {
		const uint32_t low = shift > 0 ? (uint32_t)shift : 0;

		for (uint32_t b = threadIdx.x; b < BINS; b += LARGE)
			bin[b] = 0;
		__syncthreads();
		for_packed(s, g, tiles, [&](uint32_t key) {
			if ((key & threshold.known) == threshold.key)
				atomicAdd(&bin[(key & ~threshold.known) >> low], 1u);
		}, [](uint32_t) {});
		__syncthreads();
		next_digit<LARGE>(&threshold, &found, bin, low, part);
	}
	sum_tiles(s, g, tiles, threshold.key, part);
	for (uint32_t b = threadIdx.x; b < BINS; b += LARGE)
		s.bins[g * BINS + b] = 0;            /* for the next call */
	if (threadIdx.x == 0)
		s.threshold[g] = threshold;
}

static __global__ void __launch_bounds__(TILE_THREADS)
write_tile(uint32_t *at, size_t capacity, const struct topk_call s, const struct lists l)
{
	SHARED(uint32_t[2 * TILE_THREADS / 32], part);
	const uint32_t g = blockIdx.y;
	uint32_t key[EACH];

	pdl_trigger();
	pdl_wait();
	if (!tile_keys(key, s, l))
		return;
	const struct tile before = s.tile[g * s.tiles + blockIdx.x];
	write_selected<TILE_THREADS, EACH>(at + g * capacity, key, blockIdx.x * TILE,
	    s.threshold[g], make_uint2(before.above, before.equal), part);
}

static void
topk_tiles(struct dev *d, const struct chosen *to, const float *joint, size_t stride,
    const struct lists *l, uint32_t G)
{
	const uint32_t tiles = parts_of(l->most, TILE);
	const size_t packed = (size_t)G * tiles * TILE * sizeof(uint32_t);
	const size_t tile = (size_t)G * tiles * sizeof(struct tile);
	struct topk_call s = { .joint = joint, .stride = stride, .tiles = tiles, .bins = NULL,
		.threshold = NULL, .tile = NULL, .packed = NULL };

	s.bins = (uint32_t *)gpu_scratch(d, SCRATCH_BINS, MAX_HEADS * BINS * sizeof *s.bins);
	s.packed = (uint32_t *)gpu_scratch(d, SCRATCH_PARTS,
	    packed + tile + G * sizeof *s.threshold);
	if (s.packed == NULL)
		return;
	s.tile = (struct tile *)(s.packed + packed / sizeof *s.packed);
	s.threshold = (struct threshold *)(s.tile + tile / sizeof *s.tile);
	LAUNCH_PDL(d, count_bins, dim3(tiles, G), TILE_THREADS, 0, s, *l);
	LAUNCH_PDL(d, split_tile, dim3(tiles, G), TILE_THREADS, 0, s, *l);
	LAUNCH_PDL(d, find_threshold, G, LARGE, 0, s, *l);
	LAUNCH_PDL(d, write_tile, dim3(tiles, G), TILE_THREADS, 0, to->at, to->stride, s, *l);
}

/* ---- the naive kernel ---- */

enum { NAIVE = 64 };             /* threads */

/* The sum of x over the block, in all threads. part[NAIVE / 32] is free again after the next
 * barrier. */
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

/* The number of threads before this one for which x is set; *all <- in the whole block */
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

/* One block for each list. Finds the threshold bit by bit: the greatest number that at least
 * k keys reach. Then writes the entries in order, NAIVE at a time. */
static __global__ void __launch_bounds__(NAIVE)
reference_topk(uint32_t *at, size_t capacity, const float *joint, size_t stride,
    const struct lists l)
{
	SHARED(uint32_t[NAIVE / 32], part);
	const uint32_t g = blockIdx.x, n = l.n[g] + grown(l), k = l.k[g];
	const float *score = joint + g * stride;
	uint32_t threshold = 0, count = 0, out = 0, all;

	for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
		count = 0;
		for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
			count += ordered(score[i]) >= (threshold | bit);
		if (sum_over_block(count, part) >= k)
			threshold |= bit;
	}
	count = 0;
	for (uint32_t i = threadIdx.x; i < n; i += NAIVE)
		count += ordered(score[i]) > threshold;
	uint32_t ties = k - sum_over_block(count, part);     /* so many of those that equal it */
	for (uint32_t from = 0; from < n; from += NAIVE) {
		const uint32_t i = from + threadIdx.x;
		const uint32_t key = i < n ? ordered(score[i]) : 0;
		const bool equal = i < n && key == threshold;
		const uint32_t before = set_before(equal, part, &all);
		const bool chosen = i < n && (key > threshold || (equal && before < ties));

		ties -= min(all, ties);
		const uint32_t place = out + set_before(chosen, part, &all);
		if (chosen)
			at[g * capacity + place] = i;
		out += all;
	}
}

void
gpu_topk(struct dev *d, struct chosen *to, const float *joint, size_t stride, struct counts n,
    uint32_t G)
{
	struct lists l;

	for (uint32_t g = 0; g < G; g++)
		if (to->n[g] > n.n[g] || to->n[g] > to->stride)
			gpu_fail(d, "top: %u of %u entries of KV head %u, room for %zu", to->n[g],
			    n.n[g], g, to->stride);
	if (!gpu_lists_of(d, &l, n, to->n, G, "top") || l.most == 0)
		return;
	if (d->reference)
		LAUNCH(d, reference_topk, G, NAIVE, 0, to->at, to->stride, joint, stride, l);
	else if (l.most <= SMALL * SHORT_KEYS)
		LAUNCH_PDL(d, (topk_list<SMALL, SHORT_KEYS>), G, SMALL, 0, to->at, to->stride,
		    joint, stride, l);
	else if (l.most <= LARGE * SHORT_KEYS)
		LAUNCH_PDL(d, (topk_list<LARGE, SHORT_KEYS>), G, LARGE, 0, to->at, to->stride,
		    joint, stride, l);
	else if (l.most <= LARGE * LONG_KEYS)
		LAUNCH_PDL(d, (topk_list<LARGE, LONG_KEYS>), G, LARGE, 0, to->at, to->stride, joint,
		    stride, l);
	else
		topk_tiles(d, to, joint, stride, &l, G);
}
