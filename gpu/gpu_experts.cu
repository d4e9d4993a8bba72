/* gpu_experts.cu - mixtures of experts: router, order of the places, products of experts
 *
 * Plain kernels in f32, whose grids depend on shapes only: nothing waits for the host, and a step
 * can be captured. A step (up to GEMV_ROWS rows) has a warp for each sum and reads the weights of
 * the experts that its rows chose. More rows are put in the order of experts on the device, and
 * meet them in tiles; blocks behind the last tile do nothing. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 256, WARPS = THREADS / 32;

/* ---- sums by warps ---- */

/* The share of this lane in w[n] . x[n]. ALIGNED: rows of w are whole 16 bytes */
template <class T, bool ALIGNED>
DEVICE float
lane_dot(const T *w, const float *x, uint32_t n)
{
	constexpr uint32_t step = ALIGNED ? 16 / sizeof(T) : 1;
	const uint32_t lane = threadIdx.x % 32;
	float sum = 0;

	for (uint32_t k = lane * step; k < n; k += 32 * step) {
		const pack<T, step> v = *(const pack<T, step> *)(w + k);

UNROLL		for (uint32_t e = 0; e < step; e++)
			sum += widen(v.at[e]) * x[k + e];
	}
	return sum;
}

/* ---- the router ---- */

/* A warp for each logit: blockIdx.y is the row. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
router_logits(float *logits, const float *x, const T *w, const float *bias, uint32_t M, uint32_t D)
{
	const uint32_t e = blockIdx.x * WARPS + threadIdx.x / 32, n = blockIdx.y;

	if (e >= M)
		return;
	const float sum = warp_sum(lane_dot<T, false>(w + (size_t)e * D, x + (size_t)n * D, D));

	if (threadIdx.x % 32 == 0)
		logits[(size_t)n * M + e] = sum + (bias != NULL ? bias[e] : 0);
}

/* Does a, with number i, rank before b, with number j? A NaN ranks behind all numbers. */
DEVICE bool
is_better(float a, uint32_t i, float b, uint32_t j)
{
	const bool more = a > b || (isnan(b) && !isnan(a));
	const bool less = b > a || (isnan(a) && !isnan(b));

	return more || (!less && i < j);
}

/* The best of those that are not taken, for all lanes; UINT32_MAX: none */
DEVICE uint32_t
warp_best(const float *by, const uint32_t *taken, uint32_t n)
{
	float value = 0;
	uint32_t best = UINT32_MAX;

	for (uint32_t i = threadIdx.x % 32; i < n; i += 32)
		if (!taken[i] && (best == UINT32_MAX || is_better(by[i], i, value, best))) {
			best = i;
			value = by[i];
		}
	for (uint32_t bit = 16; bit > 0; bit /= 2) {
		const float other = __shfl_xor_sync(ALL_LANES, value, bit);
		const uint32_t number = __shfl_xor_sync(ALL_LANES, best, bit);

		if (number != UINT32_MAX &&
		    (best == UINT32_MAX || is_better(other, number, value, best))) {
			best = number;
			value = other;
		}
	}
	return best;
}

/* s[M] <- scores of logits; returns whether all are numbers. */
DEVICE bool
make_scores(float *s, const struct router &r)
{
	float most = -INFINITY, sum = 0;
	int bad = 0;

	for (uint32_t e = threadIdx.x; e < r.experts; e += 32) {
		bad |= isnan(s[e]);
		most = fmaxf(most, s[e]);
	}
	most = warp_max(most);
	for (uint32_t e = threadIdx.x; e < r.experts && r.scores != ROUTER_NEAR; e += 32) {
		s[e] = r.scores == ROUTER_SIGMOID ? 1 / (1 + expf(-s[e])) : expf(s[e] - most);
		sum += s[e];
	}
	sum = warp_sum(sum);
	for (uint32_t e = threadIdx.x; e < r.experts && r.scores == ROUTER_SOFTMAX; e += 32)
		s[e] /= sum;
	return !__any_sync(ALL_LANES, bad);
}

/* The weight of expert e among those near it that are not taken */
DEVICE float
share_of(const struct router &r, const float *s, const uint32_t *taken, uint32_t e)
{
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < r.experts; i += 32)
		if (!taken[i] && !((s[e] - s[i]) / fmaxf(fabsf(s[i]), s[e]) > r.margin))
			sum += expf(s[i] - s[e]);
	return 1 / warp_sum(sum);
}

/* taken[M] <- 1 in groups that are not among the best; group[groups], left[groups]: scratch */
DEVICE void
leave_groups(const struct router &r, const float *by, uint32_t *taken, float *group, uint32_t *left)
{
	const uint32_t size = r.experts / r.groups, lane = threadIdx.x;

	for (uint32_t g = lane; g < r.groups; g += 32) {
		uint32_t one = g * size, two = UINT32_MAX;

		for (uint32_t e = one + 1; e < (g + 1) * size; e++) {
			if (is_better(by[e], e, by[one], one)) {
				two = one;
				one = e;
			} else if (two == UINT32_MAX || is_better(by[e], e, by[two], two)) {
				two = e;
			}
		}
		group[g] = by[one] + (r.two_best && size > 1 ? by[two] : 0);
		left[g] = 0;
	}
	__syncwarp();
	for (uint32_t i = 0; i < r.groups_chosen; i++) {
		const uint32_t best = warp_best(group, left, r.groups);

		__syncwarp();
		if (lane == 0)
			left[best] = 1;
		__syncwarp();
	}
	for (uint32_t e = lane; e < r.experts; e += 32)
		taken[e] = !left[e / size];
	__syncwarp();
}

/* A warp, which is a block, for each row: its experts and their weights, in the order in which they
 * are chosen */
static __global__ void __launch_bounds__(32)
choose_experts(float *weights, uint32_t *experts, const float *logits, const struct router r)
{
	DYN_SHARED(float, s);                  /* [M] scores, [M] by what they rank, [M] groups */
	const uint32_t M = r.experts, lane = threadIdx.x;
	float *const by = s + M, *const group = by + M;
	uint32_t *const taken = (uint32_t *)(group + M), *const left = taken + M;
	float sum = 0;

	weights += (size_t)blockIdx.x * r.chosen;
	experts += (size_t)blockIdx.x * r.chosen;
	for (uint32_t e = lane; e < M; e += 32)
		s[e] = logits[(size_t)blockIdx.x * M + e];
	bool good = make_scores(s, r);

	for (uint32_t e = lane; e < M; e += 32) {
		by[e] = s[e] + (r.correction != NULL ? r.correction[e] : 0);
		taken[e] = 0;
		good &= !isnan(by[e]);
	}
	good = __all_sync(ALL_LANES, good);
	__syncwarp();
	if (r.groups > 1)
		leave_groups(r, by, taken, group, left);
	for (uint32_t k = 0; k < r.chosen; k++) {
		const uint32_t best = warp_best(by, taken, M);
		const float weight = r.scores == ROUTER_NEAR ? share_of(r, s, taken, best) :
		    s[best];

		__syncwarp();
		sum += weight;
		if (lane == 0) {
			taken[best] = 1;
			experts[k] = best;
			weights[k] = weight;
		}
		__syncwarp();
	}
	for (uint32_t k = lane; k < r.chosen; k += 32) {
		const float score = weights[k];

		weights[k] = !good ? NAN :
		    (r.renormalise ? score / (sum + 1e-20f) : score) * r.scale;
	}
}

/* ---- the order of places ---- */

/* blockIdx.x is the expert: its first place is the number of those with lower experts. */
static __global__ void __launch_bounds__(THREADS)
order_places(const struct expert_rows r, uint32_t K, uint32_t all)
{
	SHARED(uint32_t[WARPS], of_warp);
	const uint32_t e = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	uint32_t lower = 0, at = 0;

	for (uint32_t i = threadIdx.x; i < all; i += THREADS)
		lower += r.expert[i] < e;
	lower = warp_sum_u32(lower);
	if (lane == 0)
		of_warp[warp] = lower;
	__syncthreads();
	for (uint32_t w = 0; w < WARPS; w++)
		at += of_warp[w];
	if (threadIdx.x == 0)
		r.first[e] = at;
	if (threadIdx.x == 0 && e + 1 == gridDim.x)
		r.first[e + 1] = all;
	for (uint32_t from = 0; from < all; from += THREADS) {
		const uint32_t i = from + threadIdx.x;
		const bool mine = i < all && r.expert[i] == e;
		const unsigned both = __ballot_sync(ALL_LANES, mine);
		uint32_t place = at + __popc(both & ((1u << lane) - 1));

		__syncthreads();
		if (lane == 0)
			of_warp[warp] = __popc(both);
		__syncthreads();
		for (uint32_t w = 0; w < WARPS; w++) {
			place += w < warp ? of_warp[w] : 0;
			at += of_warp[w];
		}
		if (mine) {
			r.place[i] = place;
			r.row[place] = i / K;
		}
	}
}

/* ---- tiles ---- */

constexpr uint32_t TILE_ROWS = 32, TILE_COLS = 64, DEPTH = 32, COLS_OF_THREAD = 8;

/* A block's places: those of expert e from `row` on; the expert has n in all */
struct expert_tile {
	uint32_t e, first, row, n;
};

/* Of all experts together, tile number t; n 0: there is none */
DEVICE struct expert_tile
find_tile(const uint32_t *first, uint32_t M, uint32_t t)
{
	for (uint32_t e = 0; e < M; e++) {
		const uint32_t n = first[e + 1] - first[e];
		const uint32_t tiles = (n + TILE_ROWS - 1) / TILE_ROWS;

		if (t < tiles)
			return { e, first[e], t * TILE_ROWS, n };
		t -= tiles;
	}
	return { 0, 0, 0, 0 };
}

/* tile[rows][DEPTH + 1] <- DEPTH channels from k on of each row of w; zeros behind the ends */
template <class T>
DEVICE void
load_tile(float *tile, uint32_t rows, const T *w, uint32_t o, uint32_t out, uint32_t in, uint32_t k)
{
	for (uint32_t i = threadIdx.x; i < rows * DEPTH; i += THREADS) {
		const uint32_t r = i / DEPTH, c = i % DEPTH;

		tile[r * (DEPTH + 1) + c] = o + r < out && k + c < in ?
		    widen(w[(size_t)(o + r) * in + k + c]) : 0;
	}
}

/* sum[] += the products of a thread: row threadIdx.x / 8 of x, each eighth row of w */
DEVICE void
multiply_tile(float sum[COLS_OF_THREAD], const float *x, const float *w)
{
	x += threadIdx.x / 8 * (DEPTH + 1);
	w += threadIdx.x % 8 * (DEPTH + 1);
	for (uint32_t k = 0; k < DEPTH; k++)
UNROLL		for (uint32_t c = 0; c < COLS_OF_THREAD; c++)
			sum[c] += x[k] * w[c * 8 * (DEPTH + 1) + k];
}

DEVICE float
activated(float gate, float up, const struct experts &e)
{
	if (e.limit > 0) {
		gate = gate > e.limit ? e.limit : gate;
		up = up > e.limit ? e.limit : up < -e.limit ? -e.limit : up;
		return gate / (1 + expf(-1.702f * gate)) * (up + 1);
	}
	if (e.act == ACT_GELU_TANH)
		return gate / (1 + expf(-1.5957691216057308f *
		    (gate + 0.044715f * gate * gate * gate))) * up;
	return gate / (1 + expf(-gate)) * up;
}

/* hidden <- act(gate . x) * (up . x); blockIdx.x is a tile of columns, blockIdx.y one of places. */
template <class T>
static __global__ void __launch_bounds__(THREADS, 2)
tiles_hidden(const struct expert_rows r, const float *x, const struct experts e)
{
	SHARED(float[TILE_ROWS * (DEPTH + 1)], xs);
	SHARED(float[TILE_COLS * (DEPTH + 1)], gates);
	SHARED(float[TILE_COLS * (DEPTH + 1)], ups);
	const struct expert_tile t = find_tile(r.first, e.router.experts, blockIdx.y);
	const uint32_t D = e.gate.in, F = e.gate.out, o = blockIdx.x * TILE_COLS;
	float gate[COLS_OF_THREAD] = {}, up[COLS_OF_THREAD] = {};

	if (t.n == 0)
		return;
	for (uint32_t k = 0; k < D; k += DEPTH) {
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < TILE_ROWS * DEPTH; i += THREADS) {
			const uint32_t row = i / DEPTH, c = i % DEPTH;

			xs[row * (DEPTH + 1) + c] = t.row + row < t.n && k + c < D ?
			    x[(size_t)r.row[t.first + t.row + row] * D + k + c] : 0;
		}
		load_tile(gates, TILE_COLS, (const T *)e.gate.at[t.e], o, F, D, k);
		load_tile(ups, TILE_COLS, (const T *)e.up.at[t.e], o, F, D, k);
		__syncthreads();
		multiply_tile(gate, xs, gates);
		multiply_tile(up, xs, ups);
	}
	const uint32_t row = t.row + threadIdx.x / 8;

	for (uint32_t c = 0; c < COLS_OF_THREAD; c++) {
		const uint32_t col = o + threadIdx.x % 8 + c * 8;
		const size_t bias = (size_t)t.e * F + col;

		if (row < t.n && col < F)
			r.hidden[(size_t)(t.first + row) * F + col] = activated(gate[c] +
			    (e.gate.bias != NULL ? e.gate.bias[bias] : 0),
			    up[c] + (e.up.bias != NULL ? e.up.bias[bias] : 0), e);
	}
}

/* r.x <- down . hidden */
template <class T>
static __global__ void __launch_bounds__(THREADS, 2)
tiles_down(const struct expert_rows r, const struct experts e)
{
	SHARED(float[TILE_ROWS * (DEPTH + 1)], xs);
	SHARED(float[TILE_COLS * (DEPTH + 1)], ws);
	const struct expert_tile t = find_tile(r.first, e.router.experts, blockIdx.y);
	const uint32_t F = e.down.in, D = e.down.out, o = blockIdx.x * TILE_COLS;
	float sum[COLS_OF_THREAD] = {};

	if (t.n == 0)
		return;
	for (uint32_t k = 0; k < F; k += DEPTH) {
		__syncthreads();
		load_tile(xs, TILE_ROWS, r.hidden + (size_t)t.first * F, t.row, t.n, F, k);
		load_tile(ws, TILE_COLS, (const T *)e.down.at[t.e], o, D, F, k);
		__syncthreads();
		multiply_tile(sum, xs, ws);
	}
	const uint32_t row = t.row + threadIdx.x / 8;

	for (uint32_t c = 0; c < COLS_OF_THREAD; c++) {
		const uint32_t col = o + threadIdx.x % 8 + c * 8;

		if (row < t.n && col < D)
			r.x[(size_t)(t.first + row) * D + col] = sum[c] + (e.down.bias != NULL ?
			    e.down.bias[(size_t)t.e * D + col] : 0);
	}
}

/* blockIdx.y is the row. */
static __global__ void __launch_bounds__(THREADS)
sum_experts(float *y, const struct expert_rows r, uint32_t K, uint32_t D)
{
	const uint32_t i = blockIdx.x * THREADS + threadIdx.x, n = blockIdx.y;
	float sum = 0;

	if (i >= D)
		return;
	for (uint32_t k = 0; k < K; k++)
		sum += r.weight[n * K + k] * r.x[(size_t)r.place[n * K + k] * D + i];
	y[(size_t)n * D + i] = sum;
}

/* ---- steps ---- */

/* A warp for each number of hidden; blockIdx.y is a row at one of its experts. */
template <class T, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
step_hidden(const struct expert_rows r, const float *x, const struct experts e)
{
	const uint32_t o = blockIdx.x * WARPS + threadIdx.x / 32, D = e.gate.in, F = e.gate.out;
	const uint32_t n = blockIdx.y / e.router.chosen, expert = r.expert[blockIdx.y];

	if (o >= F)
		return;
	const size_t at = (size_t)o * D, bias = (size_t)expert * F + o;

	x += (size_t)n * D;
	const float gate = warp_sum(lane_dot<T, ALIGNED>((const T *)e.gate.at[expert] + at, x, D));
	const float up = warp_sum(lane_dot<T, ALIGNED>((const T *)e.up.at[expert] + at, x, D));

	if (threadIdx.x % 32 == 0)
		r.hidden[(size_t)blockIdx.y * F + o] = activated(gate +
		    (e.gate.bias != NULL ? e.gate.bias[bias] : 0),
		    up + (e.up.bias != NULL ? e.up.bias[bias] : 0), e);
}

/* A warp for each number of y; blockIdx.y is the row. */
template <class T, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
step_down(float *y, const struct expert_rows r, const struct experts e)
{
	const uint32_t o = blockIdx.x * WARPS + threadIdx.x / 32, F = e.down.in, D = e.down.out;
	const uint32_t K = e.router.chosen, n = blockIdx.y;
	float sum = 0;

	if (o >= D)
		return;
	for (uint32_t k = 0; k < K; k++) {
		const uint32_t place = n * K + k, expert = r.expert[place];
		const float one = warp_sum(lane_dot<T, ALIGNED>((const T *)e.down.at[expert] +
		    (size_t)o * F, r.hidden + (size_t)place * F, F));

		sum += r.weight[place] * (one + (e.down.bias != NULL ?
		    e.down.bias[(size_t)expert * D + o] : 0));
	}
	if (threadIdx.x % 32 == 0)
		y[(size_t)n * D + o] = sum;
}

/* ---- on the host ---- */

/* Are the rows of each matrix whole 16 bytes? They begin at such addresses then. */
static bool
is_aligned(const struct expert_mats *w)
{
	return weight_row_bytes(w->type, w->in) % 16 == 0;
}

static void
run_step(struct dev *d, float *y, const float *x, const struct experts *e,
    const struct expert_rows *r, uint32_t N)
{
	const dim3 hidden(parts_of(e->gate.out, WARPS), N * e->router.chosen);
	const dim3 down(parts_of(e->down.out, WARPS), N);

	with_type((enum kv_dtype)e->gate.type, [&](auto t) {
		using T = decltype(t);

		if (is_aligned(&e->gate))
			LAUNCH(d, (step_hidden<T, true>), hidden, THREADS, 0, *r, x, *e);
		else
			LAUNCH(d, (step_hidden<T, false>), hidden, THREADS, 0, *r, x, *e);
	});
	with_type((enum kv_dtype)e->down.type, [&](auto t) {
		using T = decltype(t);

		if (is_aligned(&e->down))
			LAUNCH(d, (step_down<T, true>), down, THREADS, 0, y, *r, *e);
		else
			LAUNCH(d, (step_down<T, false>), down, THREADS, 0, y, *r, *e);
	});
}

static void
run_tiles(struct dev *d, float *y, const float *x, const struct experts *e,
    const struct expert_rows *r, uint32_t N)
{
	const uint32_t M = e->router.experts, K = e->router.chosen, places = N * K;
	const unsigned tiles = parts_of(places, TILE_ROWS) + (M < places ? M : places);

	LAUNCH(d, order_places, M, THREADS, 0, *r, K, places);
	with_type((enum kv_dtype)e->gate.type, [&](auto t) {
		LAUNCH(d, tiles_hidden<decltype(t)>, dim3(parts_of(e->gate.out, TILE_COLS), tiles),
		    THREADS, 0, *r, x, *e);
	});
	with_type((enum kv_dtype)e->down.type, [&](auto t) {
		LAUNCH(d, tiles_down<decltype(t)>, dim3(parts_of(e->down.out, TILE_COLS), tiles),
		    THREADS, 0, *r, *e);
	});
	LAUNCH(d, sum_experts, dim3(parts_of(e->down.out, THREADS), N), THREADS, 0, y, *r, K,
	    e->down.out);
}

/* Grids have at most 65535 blocks along y. */
constexpr uint32_t MOST_ROWS = 8192;

static void
run_rows(struct dev *d, float *y, const float *x, const struct experts *e, void *scratch,
    uint32_t N)
{
	const struct router *w = &e->router;
	struct expert_rows r;

	expert_rows_at(&r, scratch, e, N);
	with_type(mat_elements(&w->w), [&](auto t) {
		using T = decltype(t);

		LAUNCH(d, router_logits<T>, dim3(parts_of(w->experts, WARPS), N), THREADS, 0,
		    r.logits, x, (const T *)w->w.data, w->bias, w->experts, w->w.in);
	});
	LAUNCH(d, choose_experts, N, 32, 5 * w->experts * sizeof(float), r.weight, r.expert,
	    r.logits, *w);
	if (N <= GEMV_ROWS && !d->reference)
		run_step(d, y, x, e, &r, N);
	else
		run_tiles(d, y, x, e, &r, N);
}

void
gpu_experts(struct dev *d, float *y, const float *x, const struct experts *e, void *scratch,
    uint32_t N)
{
	if (e->gate.type != e->up.type)
		gpu_fail(d, "experts: gate and up are of different types");
	for (uint32_t n = 0; n < N && gpu_ok(d); n += MOST_ROWS)
		run_rows(d, y + (size_t)n * e->down.out, x + (size_t)n * e->gate.in, e, scratch,
		    N - n < MOST_ROWS ? N - n : MOST_ROWS);
}

/* ---- the score of a network that all rows take ---- */

/* blockIdx.y is the row. */
static __global__ void __launch_bounds__(THREADS)
scale_rows(float *x, const float *s, uint32_t D)
{
	const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

	if (i < D)
		x[(size_t)blockIdx.y * D + i] *= 1 / (1 + expf(-s[blockIdx.y]));
}

void
gpu_scale_rows(struct dev *d, float *x, const float *s, uint32_t N, uint32_t D)
{
	for (uint32_t n = 0; n < N; n += MOST_ROWS)
		LAUNCH(d, scale_rows, dim3(parts_of(D, THREADS), N - n < MOST_ROWS ? N - n :
		    MOST_ROWS), THREADS, 0, x + (size_t)n * D, s + n, D);
}
