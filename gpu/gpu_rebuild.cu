/* gpu_rebuild.cu - keys of selected rows from low-rank factors (ShadowKV): gathered GEMM with a
 * fused RoPE epilogue
 *
 * A block computes ROWS rows of a KV head and PAIRS pairs of channels (p, p + E/2), which rotary
 * embedding rotates together: so both are in one thread's registers. The rows of the left factor
 * are gathered; pieces of the rank come to shared memory together with the rows of the right
 * factor for the block's channels (cp.async, AHEAD stages).
 *
 * rebuild_16   16-bit factors, on tensor cores: exact products, f32 sums
 * rebuild_any  all dtypes, ranks and even widths: each thread has 4 rows of 4 pairs */
#include "gpu/gpu_internal.h"

enum {
	ROWS = 64,
	AHEAD = 3,                   /* stages of the pipeline, a piece of the rank each */
	PIECE = 32,                  /* elements of the rank in a piece */
	PITCH = PIECE + 8,           /* of a row in shared memory: no bank conflicts in 8 rows */
	WARPS = ROWS / 16,
	ANY_THREADS = 256, ANY_PAIRS = 64, ANY_PIECE = 16,
	NAIVE = 128,                 /* threads */
};

/* struct low_rank as a kernel's argument. Rows of a list that are below n and in no exact
 * chunk are rebuilt. */
struct factors {
	const void *left, *right;
	const uint8_t *exact;
	const double *freq;
	uint32_t n, rank, chunk;
};

/* Row i of KV head g's list, or NO_ROW where its key is not rebuilt */
DEVICE uint32_t
row_of(const struct factors &f, const struct row_list &list, const struct rows &to, uint32_t g,
    uint32_t i)
{
	uint64_t row;

	if (i >= to.len[g])
		return NO_ROW;
	row = (uint64_t)list.at[g * list.stride + i / list.rows] * list.rows + i % list.rows;
	if (row >= f.n || f.exact[(size_t)g * (f.n / f.chunk) + row / f.chunk])
		return NO_ROW;
	return (uint32_t)row;
}

/* Rotates the pair (x, y) by the angle. */
DEVICE void
rotate(float *x, float *y, double angle)
{
	const float a = *x, b = *y;
	float c, s;

	cos_sin(&c, &s, angle);
	*x = a * c - b * s;
	*y = b * c + a * s;
}

/* row[ROWS] <- the rows of this block. Returns false when none of them is rebuilt. Ends with
 * a barrier. */
DEVICE bool
rows_of_block(uint32_t *row, const struct rows &to, const struct row_list &list,
    const struct factors &f)
{
	uint32_t r = NO_ROW;

	if (threadIdx.x < ROWS) {
		r = row_of(f, list, to, blockIdx.y, blockIdx.x * ROWS + threadIdx.x);
		row[threadIdx.x] = r;
	}
	return __syncthreads_or(r != NO_ROW) != 0;
}

/* ---- 16-bit factors ---- */

/* A stage: rows of the left factor, and rows of the right one, the first channels of all
 * pairs before the second */
template <class T, int PAIRS>
struct stage {
	T left[ROWS][PITCH], right[2 * PAIRS][PITCH];
};

/* Starts the copy of one piece of the rank, from element k on; zeros behind the end */
template <class T, int PAIRS>
DEVICE void
load_piece(struct stage<T, PAIRS> *p, const uint32_t *row, const struct factors &f, uint32_t k,
    uint32_t E, uint32_t first)
{
	constexpr uint32_t PARTS = PIECE / 8;        /* 16 bytes each */
	const T *left = (const T *)f.left;
	const T *right = (const T *)f.right + blockIdx.y * (size_t)E * f.rank;

UNROLL	for (uint32_t i = threadIdx.x; i < ROWS * PARTS; i += WARPS * 32) {
		const uint32_t r = i / PARTS, e = i % PARTS * 8;
		const bool there = row[r] != NO_ROW && k + e < f.rank;
		const T *from = left + (there ? (size_t)row[r] * f.rank + k + e : 0);

		cp_async16(&p->left[r][e], from, there);
	}
UNROLL	for (uint32_t i = threadIdx.x; i < 2 * PAIRS * PARTS; i += WARPS * 32) {
		const uint32_t r = i / PARTS, e = i % PARTS * 8, pair = first + r % PAIRS;
		const uint32_t channel = r < PAIRS ? pair : E / 2 + pair;
		const bool there = pair < E / 2 && k + e < f.rank;
		const T *from = right + (there ? (size_t)channel * f.rank + k + e : 0);

		cp_async16(&p->right[r][e], from, there);
	}
}

/* sum[i] += 16 rows of this warp times channels 8i .. 8i + 7, over one piece */
template <class T, int PAIRS>
DEVICE void
multiply(float sum[PAIRS / 4][4], const struct stage<T, PAIRS> *p)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t a[4], b[4];

UNROLL	for (uint32_t k = 0; k < PIECE; k += 16) {
		ldmatrix_x4<false>(a, &p->left[warp * 16 + lane % 16][k + lane / 16 * 8]);
UNROLL		for (uint32_t i = 0; i < PAIRS / 4; i += 2) {
			ldmatrix_x4<false>(b, &p->right[i * 8 + lane / 16 * 8 + lane % 8]
			    [k + lane / 8 % 2 * 8]);
			mma(T{}, sum[i], a, b);
			mma(T{}, sum[i + 1], a, b + 2);
		}
	}
}

template <class T, int PAIRS>
static __global__ void __launch_bounds__(WARPS * 32)
rebuild_16(const struct rows to, const struct row_list list, const struct factors f)
{
	typedef struct stage<T, PAIRS> P;
	DYN_SHARED(P, piece);                        /* [AHEAD] */
	SHARED(uint32_t[ROWS], row);
	const uint32_t E = to.E, g = blockIdx.y, first = blockIdx.z * PAIRS;
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t steps = (f.rank + PIECE - 1) / PIECE;
	float sum[PAIRS / 4][4] = {};

	if (!rows_of_block(row, to, list, f))
		return;
	for (uint32_t s = 0; s < AHEAD - 1; s++) {
		if (s < steps)
			load_piece(&piece[s], row, f, s * PIECE, E, first);
		cp_async_commit();
	}
	for (uint32_t s = 0; s < steps; s++) {
		cp_async_wait<AHEAD - 2>();
		__syncthreads();             /* the piece has arrived, the oldest stage is free */
		if (s + AHEAD - 1 < steps)
			load_piece(&piece[(s + AHEAD - 1) % AHEAD], row, f, (s + AHEAD - 1) * PIECE,
			    E, first);
		cp_async_commit();
		multiply(sum, &piece[s % AHEAD]);
	}
	/* a thread has rows lane / 4 and lane / 4 + 8 of its warp, of each pair both channels */
UNROLL	for (uint32_t half = 0; half < 2; half++) {
		const uint32_t r = warp * 16 + half * 8 + lane / 4;
		const size_t at = to.start[g] + blockIdx.x * ROWS + r;
		T *out = (T *)to.k + at * E;

		if (row[r] == NO_ROW)
			continue;
		const uint32_t pos = to.pos[at];
UNROLL		for (uint32_t i = 0; i < PAIRS / 8; i++) {
			const uint32_t pair0 = first + i * 8 + lane % 4 * 2;
			float *x = &sum[i][2 * half], *y = &sum[i + PAIRS / 8][2 * half];

			if (pair0 >= E / 2)
				continue;
			rotate(&x[0], &y[0], pos * f.freq[pair0]);
			rotate(&x[1], &y[1], pos * f.freq[pair0 + 1]);
			*(uint32_t *)(out + pair0) = pair<T>(x[0], x[1]);
			*(uint32_t *)(out + E / 2 + pair0) = pair<T>(y[0], y[1]);
		}
	}
}

/* ---- all dtypes, even widths ---- */

template <class T>
static __global__ void __launch_bounds__(ANY_THREADS)
rebuild_any(const struct rows to, const struct row_list list, const struct factors f)
{
	enum { PAIRS = ANY_PAIRS, K = ANY_PIECE };
	SHARED(float[K][ROWS + 2], left);
	SHARED(float[K][2 * PAIRS + 2], right);
	SHARED(uint32_t[ROWS], row);
	const uint32_t E = to.E, g = blockIdx.y, first = blockIdx.z * PAIRS;
	const uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	float x[4][4] = {}, y[4][4] = {};            /* row ty + 16 r, pair tx + 16 p */

	if (!rows_of_block(row, to, list, f))
		return;
	for (uint32_t k = 0; k < f.rank; k += K) {
		const bool inside = k + tx < f.rank;

		__syncthreads();
		for (uint32_t r = ty; r < ROWS; r += 16)
			left[tx][r] = inside && row[r] != NO_ROW ?
			    widen(((const T *)f.left)[(size_t)row[r] * f.rank + k + tx]) : 0;
		for (uint32_t r = ty; r < 2 * PAIRS; r += 16) {
			const uint32_t pair = first + r % PAIRS;
			const size_t channel = (size_t)g * E + (r < PAIRS ? pair : E / 2 + pair);

			right[tx][r] = inside && pair < E / 2 ?
			    widen(((const T *)f.right)[channel * f.rank + k + tx]) : 0;
		}
		__syncthreads();
UNROLL		for (int e = 0; e < K; e++) {
UNROLL			for (int r = 0; r < 4; r++) {
UNROLL				for (int p = 0; p < 4; p++) {
					x[r][p] += left[e][ty + 16 * r] * right[e][tx + 16 * p];
					y[r][p] += left[e][ty + 16 * r] *
					    right[e][PAIRS + tx + 16 * p];
				}
			}
		}
	}
UNROLL	for (int r = 0; r < 4; r++) {
		const size_t at = to.start[g] + blockIdx.x * ROWS + ty + 16 * r;

		if (row[ty + 16 * r] == NO_ROW)
			continue;
UNROLL		for (int p = 0; p < 4; p++) {
			const uint32_t pair = first + tx + 16 * p;

			if (pair >= E / 2)
				continue;
			rotate(&x[r][p], &y[r][p], to.pos[at] * f.freq[pair]);
			((T *)to.k)[at * E + pair] = narrow<T>(x[r][p]);
			((T *)to.k)[at * E + E / 2 + pair] = narrow<T>(y[r][p]);
		}
	}
}

/* ---- the naive kernel ---- */

/* One block for each row: a thread computes some channels, then rotates some pairs. */
template <class T>
static __global__ void __launch_bounds__(NAIVE)
reference_rebuild(const struct rows to, const struct row_list list, const struct factors f)
{
	DYN_SHARED(float, key);                      /* [E] */
	const uint32_t g = blockIdx.y, i = blockIdx.x, E = to.E, half = E / 2;
	const uint32_t row = row_of(f, list, to, g, i);

	if (row == NO_ROW)
		return;
	const T *left = (const T *)f.left + (size_t)row * f.rank;
	for (uint32_t e = threadIdx.x; e < E; e += NAIVE) {
		const T *right = (const T *)f.right + ((size_t)g * E + e) * f.rank;
		float sum = 0;

		for (uint32_t j = 0; j < f.rank; j++)
			sum += widen(left[j]) * widen(right[j]);
		key[e] = sum;
	}
	__syncthreads();
	T *out = (T *)to.k + (to.start[g] + i) * E;
	for (uint32_t e = threadIdx.x; e < half; e += NAIVE) {
		const float x = key[e], y = key[e + half];
		double s, c;

		sincos(to.pos[to.start[g] + i] * f.freq[e], &s, &c);
		out[e] = narrow<T>(x * (float)c - y * (float)s);
		out[e + half] = narrow<T>(y * (float)c + x * (float)s);
	}
	if (threadIdx.x == 0 && E % 2 == 1)          /* the last channel has no pair */
		out[E - 1] = narrow<T>(key[E - 1]);
}

/* ---- the op ---- */

/* Does rebuild_16 take the shape and alignment? */
static bool
fits_16(const struct rows *to, const struct factors *f)
{
	const uintptr_t places = (uintptr_t)f->left | (uintptr_t)f->right | (uintptr_t)to->k;

	return places % 16 == 0 && to->E % 16 == 0 && f->rank % 8 == 0;
}

template <class T>
static void
launch_16(struct dev *d, unsigned parts, const struct rows *to, const struct row_list *list,
    const struct factors *f)
{
	const uint32_t half = to->E / 2;

	if (half <= 32)
		LAUNCH(d, (rebuild_16<T, 32>), dim3(parts, to->G), WARPS * 32,
		    AHEAD * sizeof(struct stage<T, 32>), *to, *list, *f);
	else
		LAUNCH(d, (rebuild_16<T, 64>), dim3(parts, to->G, parts_of(half, 64)), WARPS * 32,
		    AHEAD * sizeof(struct stage<T, 64>), *to, *list, *f);
}

void
gpu_rebuild(struct dev *d, struct layer_rows *l, const struct chosen *chosen,
    const struct low_rank *low, const double *freq)
{
	const struct factors f = { low->left, low->right, low->exact, freq, low->n, low->rank,
		low->chunk };
	uint32_t most = 0;
	struct row_list list;
	struct rows to;

	if (low->chunk == 0 || low->rank == 0 || (int)low->dtype != (int)rows_k_type(l))
		gpu_fail(d, "rebuild: rank %u, chunks of %u rows, %s factors of %s keys", low->rank,
		    low->chunk, kv_dtype_name(low->dtype), kv_row_type_name(rows_k_type(l)));
	if (!gpu_rows_of(d, &to, l, l->heads, "rebuild") || !gpu_row_list_of(d, &list, l, chosen))
		return;
	for (uint32_t g = 0; g < l->heads; g++)
		most = l->len[g] > most ? l->len[g] : most;
	if (most == 0 || low->n == 0)
		return;
	const unsigned parts = parts_of(most, ROWS);
	with_type(l->dtype, [&](auto t) {
		using T = decltype(t);

		if (d->reference || to.E % 2 == 1) {
			LAUNCH(d, reference_rebuild<T>, dim3(most, to.G), NAIVE,
			    to.E * sizeof(float), to, list, f);
			return;
		}
		if constexpr (sizeof(T) == 2)
			if (fits_16(&to, &f)) {
				launch_16<T>(d, parts, &to, &list, &f);
				return;
			}
		LAUNCH(d, rebuild_any<T>, dim3(parts, to.G, parts_of(to.E / 2, ANY_PAIRS)),
		    ANY_THREADS, 0, to, list, f);
	});
}
