/* gpu_decode_mma.h - the main loop of a warp of gpu_decode.cu on tensor cores, for keys and values
 * of 16 bits and 5 to 8 query rows
 *
 * With 8 query rows FMAs on CUDA cores cannot keep up with memory: some 0.26 instructions for each
 * byte, where an H100 can issue 0.27 in the time that it reads one. Here they are 0.04.
 *
 * The rows of both products (m) are the query rows, 8 of 16. An f32 number is split into 16-bit
 * parts, each the remainder of those before; rows 0 .. 7 of the a operand have the first part and
 * rows 8 .. 15 the second one, so that nothing is multiplied in vain, and f32 accuracy costs no
 * second product:
 *
 * - logits: a is the queries, b the keys, 8 rows of the cache for each mma. Two parts of a query
 *   are 22 bits in f16, of the greatest channel of its head; bf16 takes four parts, two mma, for
 *   all 24. The logit is the sum of rows g and g + 8 of the result, which one lane has.
 * - output: a is the weights of 16 rows of the cache, as the lanes have them: the result of an mma
 *   and the a operand of the next have the same layout. b is the values. Rounding changes a weight
 *   by at most 2^-17 of it in bf16; in f16 by 2^-23 of it or 2^-40 of the greatest weight, what is
 *   more. Weights are added up after rounding, as the product with a channel of ones: what it adds
 *   to all of them, or takes from all, cancels out in the output.
 *
 * A warp copies by cp.async rows as a whole: an instruction asks for two rows of 256 bytes. If each
 * lane copied what it reads, it would ask for halves of 8 lines, and L2 would be the limit. The
 * order of channels in a product is free: it is chosen such that a 16-byte piece of a key is two b
 * fragments, and pieces of four rows of values are b fragments for the 8 channels of a piece, once
 * neighbouring rows are interleaved.
 *
 * A warp waits for its own results more than for memory: an SM has registers for 8 warps only. So
 * the logits of a tile are computed while the weights of the tile before are, which does not depend
 * on them, and are sums of four that are added up side by side.
 *
 * An infinite key or value may give a NaN where f32 has a number: parts that are zero are
 * multiplied, too. */
#ifndef GPU_DECODE_MMA_H
#define GPU_DECODE_MMA_H

#include "gpu/gpu_decode_warp.h"
#include "gpu/gpu_index.h"

/* Pairs of parts of a query; the power of two that weights are multiplied with: f16 has few
 * exponents. */
template <class T> struct precision;
template <> struct precision<f16> { static constexpr int LAYERS = 1, POWER = 15; };
template <> struct precision<bf16> { static constexpr int LAYERS = 2, POWER = 0; };

template <class T, int E> struct mma_state;

/* Tiles of 16 rows of up to WIDTH channels, a multiple of 64. With g = lane / 4 and c = lane % 4 a
 * lane has of rows g and g + 8 of the tile pieces c, c + 4, ... of the keys, of rows 2c, 2c + 1,
 * 2c + 8 and 2c + 9 pieces g, g + 8 of the values, and the logits of these four rows with query
 * row g. */
template <class T, int WIDTH>
struct mma_tile {
	using state = mma_state<T, WIDTH>;
	using sums = warp_sums<8, WIDTH>;
	static constexpr int M = 8;
	static constexpr size_t ELEMENT = sizeof(T);
	static constexpr int ROWS = 16;
	static constexpr uint32_t PIECES = WIDTH / 8;    /* of a row */
	static constexpr uint32_t SLOT = ROWS * PIECES;  /* keys or values of a tile */
	static constexpr size_t RING = 4 * SLOT;         /* two pairs: see load_pair() */

	/* The query row whose logits a lane has; the piece of a row that it copies */
	DEVICE uint32_t query_of(uint32_t lane) { return lane / 4; }
	DEVICE uint32_t key_piece(uint32_t lane) { return lane % PIECES; }
	DEVICE uint32_t value_piece(uint32_t lane) { return lane % PIECES; }

	/* Where a piece of a row of a tile is in its slot. The 8 lanes that read at a time read
	 * pieces 4i .. 4i + 3 of two rows of keys, 2i and 2i + 1 of four rows of values: in
	 * different banks. */
	DEVICE uint32_t
	place(uint32_t row, uint32_t piece)
	{
		return row * PIECES + (piece ^ row % 2 * 4 ^ row / 2 % 4 * 2);
	}
};

/* Online softmax, this lane's part: queries as a fragments, output channels and, as one of them,
 * the sum of the weights */
template <class T, int WIDTH>
struct mma_state {
	uint32_t row;                /* row lane % 16 of the tile whose values are loaded next */
	uint32_t query[precision<T>::LAYERS][WIDTH / 16][4];
	float out[WIDTH / 8][4], sum[4];
	float unit, top;             /* of query row g: logits are in this unit; the greatest */
};

/* Two numbers, of which it leaves the remainder, as a part of 16 bits of each */
template <class T>
DEVICE uint32_t
take_part(float &x, float &y)
{
	const uint32_t part = pair<T>(x, y);

	x -= widen(T{ (uint16_t)part });
	y -= widen(T{ (uint16_t)(part >> 16) });
	return part;
}

/* ---- loads ---- */

/* The next row of the list for this lane: shuffles of the loads below distribute them. */
template <class T, int WIDTH>
DEVICE void
next_rows(struct mma_state<T, WIDTH> &r, struct cursor &cursor, const struct row_list &list)
{
	r.row = next_row<mma_tile<T, WIDTH>>(cursor, list);
}

/* Starts the copy of the rows of a tile, of which lane i knows row i; from: this lane's piece of
 * row 0, NULL if it has none. Addresses are computed as integers: from may be NULL and a row
 * NO_ROW. */
template <class W>
DEVICE void
load_rows(uint4 *slot, const char *from, uint32_t rows, size_t bytes)
{
	constexpr uint32_t TOGETHER_ROWS = 32 / W::PIECES;
	const uint32_t lane = threadIdx.x % 32, piece = lane % W::PIECES;

UNROLL	for (uint32_t i = 0; i < W::ROWS; i += TOGETHER_ROWS) {
		const uint32_t to = i + lane / W::PIECES, row = __shfl_sync(ALL_LANES, rows, to);

		cp_async16(slot + W::place(to, piece),
		    (const void *)((uintptr_t)from + row * bytes), from != NULL && row != NO_ROW);
	}
}

/* Starts the copies of pair i, the values of tile i and the keys of the tile after it, to where
 * pair i - 2 was, which all lanes have read. */
template <class T, int WIDTH>
DEVICE void
load_pair(struct mma_state<T, WIDTH> &r, uint4 *ring, uint32_t i, struct cursor &cursor,
    const struct row_list &list)
{
	using W = mma_tile<T, WIDTH>;
	uint4 *const slot = ring + i % 2 * 2 * W::SLOT;

	load_rows<W>(slot, cursor.v, r.row, cursor.bytes);
	next_rows(r, cursor, list);
	load_rows<W>(slot + W::SLOT, cursor.k, r.row, cursor.bytes);
	cp_async_commit();
}

/* As the other prologue(): the keys of tile 0, where those of pair -1 would be, and pair 0 */
template <class T, int WIDTH>
DEVICE void
prologue(struct mma_state<T, WIDTH> &r, uint4 *ring, struct cursor &cursor,
    const struct row_list &list)
{
	using W = mma_tile<T, WIDTH>;

	begin_rows<W>(cursor, list);
	next_rows(r, cursor, list);
	load_rows<W>(ring + 3 * W::SLOT, cursor.k, r.row, cursor.bytes);
	cp_async_commit();
	load_pair(r, ring, 0, cursor, list);
}

/* Loads the query of this lane, of E channels (NULL: zeros), and initialises the softmax state. */
template <class T, int WIDTH>
DEVICE void
load_query(struct mma_state<T, WIDTH> &r, const float *query, uint32_t E, float scale)
{
	float4 x[WIDTH / 16];
	float most = 0;

	/* All loads before the first use: one after the other they took as long as a tile. */
UNROLL	for (int k = 0; k < WIDTH / 16; k++) {
		const uint32_t e = k / 2 * 32 + threadIdx.x % 4 * 8 + k % 2 * 4;

		x[k] = query != NULL && e < E ? *(const float4 *)(query + e) : float4{ 0, 0, 0, 0 };
	}
UNROLL	for (int k = 0; k < WIDTH / 16; k++) {
		x[k] = { x[k].x * scale, x[k].y * scale, x[k].z * scale, x[k].w * scale };
		most = fmaxf(fmaxf(most, fmaxf(fabsf(x[k].x), fabsf(x[k].y))),
		    fmaxf(fabsf(x[k].z), fabsf(x[k].w)));
	}
	most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
	most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
	const int power = power_for(most);
UNROLL	for (int k = 0; k < WIDTH / 16; k++) {
		float y[4] = { scalbnf(x[k].x, power), scalbnf(x[k].y, power),
			scalbnf(x[k].z, power), scalbnf(x[k].w, power) };

UNROLL		for (int part = 0; part < 2 * precision<T>::LAYERS; part++) {
			uint32_t *const a = r.query[part / 2][k] + part % 2;

			a[0] = take_part<T>(y[0], y[1]);
			a[2] = take_part<T>(y[2], y[3]);
		}
	}
UNROLL	for (int i = 0; i < WIDTH / 2; i++)
		r.out[i / 4][i % 4] = 0;
	r.sum[0] = r.sum[1] = r.sum[2] = r.sum[3] = 0;
	r.unit = scalbnf(1, -power);
	r.top = -INFINITY;
}

/* ---- the arithmetic of a tile ---- */

/* s[2i + j] <- the logit of row 8i + 2c + j of the tile */
template <class T, int WIDTH>
DEVICE void
logits(float s[4], const struct mma_state<T, WIDTH> &r, const uint4 *slot)
{
	using W = mma_tile<T, WIDTH>;
	constexpr int LAYERS = precision<T>::LAYERS;
	const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;

UNROLL	for (int i = 0; i < 2; i++) {
		float d[2][LAYERS][4] = {}, sum[2] = { 0, 0 };

UNROLL		for (int k = 0; k < WIDTH / 16; k++) {
			const uint4 key = slot[W::place(8 * i + g, c + k / 2 * 4)];
			const uint32_t b[2] = { k % 2 == 0 ? key.x : key.z,
				k % 2 == 0 ? key.y : key.w };

UNROLL			for (int layer = 0; layer < LAYERS; layer++)
				mma(T{}, d[k % 2][layer], r.query[layer][k], b);
		}
UNROLL		for (int layer = LAYERS; layer-- > 0;)         /* the small parts first */
UNROLL			for (int j = 0; j < 2; j++)
				sum[j] += (d[0][layer][j] + d[1][layer][j]) +
				    (d[0][layer][j + 2] + d[1][layer][j + 2]);
		s[2 * i] = sum[0] * r.unit;
		s[2 * i + 1] = sum[1] * r.unit;
	}
}

/* One step of the online softmax: p <- the weights of this lane's logits as an a fragment, 2^(s -
 * maximum + POWER). Where the maximum grows, sums and outputs are rescaled. */
template <class T, int WIDTH>
DEVICE void
softmax_step(uint32_t p[4], struct mma_state<T, WIDTH> &r, const float s[4])
{
	float top = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])), e[4];

	top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
	top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
	top = fmaxf(top, r.top);
	if (__any_sync(ALL_LANES, top > r.top)) {
		const float less = top == -INFINITY ? 1 : exp2_fast(r.top - top);

UNROLL		for (int i = 0; i < 4; i++) {
			r.sum[i] *= less;
UNROLL			for (int n = 0; n < WIDTH / 8; n++)
				r.out[n][i] *= less;
		}
		r.top = top;
	}
UNROLL	for (int i = 0; i < 4; i++)
		e[i] = s[i] == -INFINITY ? 0 : exp2_fast(s[i] - r.top + precision<T>::POWER);
UNROLL	for (int i = 0; i < 4; i++)
		p[i] = take_part<T>(e[i / 2 * 2], e[i / 2 * 2 + 1]);
}

/* out += weights . values of a tile; sum += weights */
template <class T, int WIDTH>
DEVICE void
add_values(struct mma_state<T, WIDTH> &r, const uint4 *slot, const uint32_t p[4])
{
	using W = mma_tile<T, WIDTH>;
	const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const uint32_t one = pair<T>(1, 1), ones[2] = { one, one };

	mma(T{}, r.sum, p, ones);
UNROLL	for (int h = 0; h < WIDTH / 64; h++) {
		uint32_t v[4][4];

UNROLL		for (int u = 0; u < 4; u++) {
			const uint4 x = slot[W::place(2 * c + u / 2 * 8 + u % 2, g + 8 * h)];

			v[u][0] = x.x;
			v[u][1] = x.y;
			v[u][2] = x.z;
			v[u][3] = x.w;
		}
UNROLL		for (int n = 0; n < 8; n++) {
			const uint32_t half = n % 2 == 0 ? 0x5410 : 0x7632;
			const uint32_t b[2] = { __byte_perm(v[0][n / 2], v[1][n / 2], half),
				__byte_perm(v[2][n / 2], v[3][n / 2], half) };

			mma(T{}, r.out[8 * h + n], p, b);
		}
	}
}

/* ---- the pipeline ---- */

/* The logits of the tile that begins at row `at` of the list become -inf where a row is not
 * seen. */
template <bool LIMITED>
DEVICE void
hide_rows(float s[4], uint32_t at, uint32_t end, const uint32_t *pos, uint32_t here,
    const struct limits &limits)
{
UNROLL	for (int i = 0; i < 4; i++) {
		const uint32_t mine = at + threadIdx.x % 4 * 2 + i / 2 * 8 + i % 2;
		const bool seen = mine < end && (pos == NULL || (LIMITED ?
		    in_reach(here, pos[mine], limits.reach) : pos[mine] <= here));

		if (LIMITED && limits.cap > 0)
			s[i] = softcapped(s[i], limits);
		s[i] = seen ? s[i] : -INFINITY;
	}
}

/* As the other for_row_tiles() */
template <bool LIMITED, class T, int WIDTH>
DEVICE void
for_row_tiles(struct mma_state<T, WIDTH> &r, uint4 *ring, struct cursor &cursor,
    const struct row_list &list, const uint32_t *pos, uint32_t here, const struct limits &limits)
{
	using W = mma_tile<T, WIDTH>;
	uint32_t at = cursor.first + threadIdx.x / 32 * W::ROWS;
	float s[4];

	cp_async_wait<1>();
	__syncwarp();
	logits(s, r, ring + 3 * W::SLOT);
	__syncwarp();
	load_pair(r, ring, 1, cursor, list);
	for (uint32_t i = 0; at < cursor.end; i++, at += WARPS * W::ROWS) {
		const uint4 *const slot = ring + i % 2 * 2 * W::SLOT;
		uint32_t p[4];
		float next[4];

		cp_async_wait<1>();
		__syncwarp();
		logits(next, r, slot + W::SLOT);       /* of zeros behind the last tile */
		hide_rows<LIMITED>(s, at, cursor.end, pos, here, limits);
		softmax_step(p, r, s);
		add_values(r, slot, p);
		__syncwarp();
		load_pair(r, ring, i + 2, cursor, list);
UNROLL		for (int j = 0; j < 4; j++)
			s[j] = next[j];
	}
	cp_async_wait<0>();
}

/* Stores the softmax state of this warp. */
template <class T, int WIDTH>
DEVICE void
store_warp_sums(struct warp_sums<8, WIDTH> &to, const struct mma_state<T, WIDTH> &r)
{
	const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;

	if (c == 0) {
		to.top[warp][g] = r.top - precision<T>::POWER;
		to.sum[warp][g] = r.sum[0] + r.sum[2];
	}
UNROLL	for (int n = 0; n < WIDTH / 8; n++)
UNROLL		for (int i = 0; i < 2; i++)
			to.out[warp][g][n / 8 * 64 + (2 * c + i) * 8 + n % 8] =
			    r.out[n][i] + r.out[n][i + 2];
}

#endif
