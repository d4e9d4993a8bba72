/* gpu_quantised_mass.cu - attention mass on tensor cores, for keys of quantised types
 *
 * The blocks of gpu_mass_tiles.h. The keys of a warp are widened and rounded to the layer's dtype
 * of 16 bits in shared memory, where the units come later, and become fragments from there. The
 * type is an argument; the kernels are always LIMITED. */
#include "gpu/gpu_mass_tiles.h"
#include "gpu/gpu_quantised.h"

/* Elements of a row in shared memory: no bank conflicts in 8 rows */
template <uint32_t E> constexpr uint32_t PITCH = E + 8;

template <uint32_t E>
static constexpr size_t
shared_bytes(void)
{
	constexpr size_t units = 2 * sizeof(struct unit_tile<E>);
	constexpr size_t keys = BLOCK_KEYS * PITCH<E> * sizeof(uint16_t);

	return units > keys ? units : keys;
}

/* rows[WARP_KEYS][PITCH] <- n keys, by a warp; zeros behind them */
template <class T, uint32_t E>
DEVICE void
widen_keys(T *rows, const unsigned char *keys, uint32_t n, const struct row_format &f)
{
	constexpr uint32_t PIECES = E / 8;

	with_piece_type(f.type, [&](auto type) {
UNROLL_BY(4)	for (uint32_t i = threadIdx.x % 32; i < WARP_KEYS * PIECES; i += 32) {
			const uint32_t row = i / PIECES, piece = i % PIECES;
			T *const to = rows + row * PITCH<E>;
			float x[8] = {};

			if (row < n)
				widen_raw<type.value>(x, load_raw<type.value>(keys +
				    (size_t)row * f.bytes, piece));
UNROLL			for (uint32_t upper = 0; upper < 2; upper++)
				*(uint2 *)(to + half_piece(type.value, piece, upper)) =
				    make_uint2(pair<T>(x[4 * upper], x[4 * upper + 1]),
				    pair<T>(x[4 * upper + 2], x[4 * upper + 3]));
		}
	});
	__syncwarp();
}

/* As load_keys(), through shared memory; ends with a barrier of the block */
template <class T, uint32_t E>
DEVICE void
load_quantised_keys(struct keys<E> *to, uint32_t *to_pos, void *shared, const struct rows &r,
    const struct row_format &f, uint32_t g, uint32_t begin)
{
	const uint32_t lane = threadIdx.x % 32, len = r.len[g];
	T *const rows = (T *)shared + threadIdx.x / 32 * WARP_KEYS * PITCH<E>;

	to->n = begin >= len ? 0 : min(len - begin, (uint32_t)WARP_KEYS);
	widen_keys<T, E>(rows, (const unsigned char *)r.k + (r.start[g] + begin) * f.bytes, to->n,
	    f);
UNROLL	for (uint32_t i = 0; i < 4; i++) {
		const T *const row = rows + (i * 8 + lane / 4) * PITCH<E>;

UNROLL		for (uint32_t step = 0; step < E / 16; step++) {
			const uint2 w = *(const uint2 *)(row + first_channel<E>(step, lane % 4));

			to->key[i / 2][step][i % 2] = w.x;
			to->key[i / 2][step][i % 2 + 2] = w.y;
		}
	}
	place_keys(to, to_pos, r.pos + r.start[g] + begin);
	__syncthreads();
}

template <class T, uint32_t E>
static __global__ void __launch_bounds__(WARPS * 32, 2)
quantised_sums(struct partial_sum *parts, size_t stride, const struct packed_queries q,
    const __grid_constant__ struct rows r, uint32_t N, uint32_t H, uint32_t heads,
    const struct limits limits, const struct row_format f)
{
	DYN_SHARED(unsigned char, shared);

	sums_of_block<T, E, true>(parts, stride, q, r, N, H, heads, limits,
	    [&](struct keys<E> *to, uint32_t *to_pos, uint32_t g, uint32_t begin) {
		load_quantised_keys<T, E>(to, to_pos, shared, r, f, g, begin);
	});
}

template <class T, uint32_t E>
static __global__ void __launch_bounds__(WARPS * 32, 2)
add_quantised_mass(float *mass, size_t stride, const struct packed_queries q,
    const __grid_constant__ struct rows r, uint32_t H, uint32_t heads, enum over_queries over,
    bool add, const struct limits limits, const struct row_format f)
{
	DYN_SHARED(unsigned char, shared);

	mass_of_block<T, E, true>(mass, stride, q, r, H, heads, over, add, limits,
	    [&](struct keys<E> *to, uint32_t *to_pos, uint32_t g, uint32_t begin) {
		load_quantised_keys<T, E>(to, to_pos, shared, r, f, g, begin);
	});
}

void
gpu_quantised_sums(struct dev *d, const struct call *c, const struct packed_queries *q,
    struct partial_sum *parts, size_t stride)
{
	const uint32_t heads = heads_of_block(c);

	with_shape(c, [&](auto t, auto w) {
		LAUNCH(d, (quantised_sums<decltype(t), w.E>),
		    dim3(gpu_tiles_parts(c), c->query.H / heads), WARPS * 32,
		    shared_bytes<w.E>(), parts, stride, *q, c->rows, c->query.N, c->query.H, heads,
		    c->limits, c->format);
	});
}

void
gpu_quantised_mass(struct dev *d, const struct call *c, const struct packed_queries *q,
    float *mass, size_t stride, bool add)
{
	const uint32_t heads = heads_of_block(c);

	with_shape(c, [&](auto t, auto w) {
		LAUNCH(d, (add_quantised_mass<decltype(t), w.E>),
		    dim3(gpu_tiles_parts(c), c->query.H / heads), WARPS * 32,
		    shared_bytes<w.E>(), mass, stride, *q, c->rows, c->query.H, heads, c->over, add,
		    c->limits, c->format);
	});
}
