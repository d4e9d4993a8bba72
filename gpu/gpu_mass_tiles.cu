/* gpu_mass_tiles.cu - attention mass on tensor cores, for keys of 16 bits: the kernels, whose
 * blocks are in gpu_mass_tiles.h */
#include "gpu/gpu_mass_tiles.h"

/* Packs queries as b fragments: one block for each unit and query head, one warp for each
 * step. lse NULL: not known yet. */
template <class T, uint32_t E>
static __global__ void __launch_bounds__(E * 2)
pack_queries(uint4 *to, struct query_info *info, const float *q, const float *lse,
    const uint32_t *qpos, uint32_t N, float scale)
{
	const uint32_t lane = threadIdx.x % 32, step = threadIdx.x / 32, h = blockIdx.y,
	    H = gridDim.y;
	const size_t unit = (size_t)h * gridDim.x + blockIdx.x;
	uint32_t w[4] = { 0, 0, 0, 0 };

	for (uint32_t p = 0; p < 2; p++) {
		const uint32_t n = blockIdx.x * MMA_QUERIES + p * 8 + lane / 4;

		if (n < N) {
			const float4 x = *(const float4 *)(q + ((size_t)n * H + h) * E +
			    first_channel<E>(step, lane % 4));

			w[2 * p] = pair<T>(x.x * scale, x.y * scale);
			w[2 * p + 1] = pair<T>(x.z * scale, x.w * scale);
		}
	}
	to[(unit * (E / 16) + step) * 32 + lane] = make_uint4(w[0], w[1], w[2], w[3]);
	if (threadIdx.x < MMA_QUERIES) {
		const uint32_t n = blockIdx.x * MMA_QUERIES + threadIdx.x;
		const uint32_t pos = qpos[n < N ? n : N - 1];
		const float sum = n < N && lse != NULL ? lse[(size_t)n * H + h] * LOG2_E : INFINITY;

		info[unit * MMA_QUERIES + threadIdx.x] = { sum == -INFINITY ? INFINITY : sum,
			pos < NO_POSITION ? pos : NO_POSITION - 1 };
	}
}

template <class T, uint32_t E, bool LIMITED>
static __global__ void __launch_bounds__(WARPS * 32, 2)
partial_sums(struct partial_sum *parts, size_t stride, const struct packed_queries q,
    const struct rows r, uint32_t N, uint32_t H, uint32_t heads, const struct limits limits)
{
	sums_of_block<T, E, LIMITED>(parts, stride, q, r, N, H, heads, limits,
	    [&](struct keys<E> *to, uint32_t *to_pos, uint32_t g, uint32_t begin) {
		load_keys<T, E>(to, to_pos, &r, g, begin);
	});
}

template <class T, uint32_t E, bool LIMITED>
static __global__ void __launch_bounds__(WARPS * 32, 2)
add_mass(float *mass, size_t stride, const struct packed_queries q, const struct rows r, uint32_t H,
    uint32_t heads, enum over_queries over, bool add, const struct limits limits)
{
	mass_of_block<T, E, LIMITED>(mass, stride, q, r, H, heads, over, add, limits,
	    [&](struct keys<E> *to, uint32_t *to_pos, uint32_t g, uint32_t begin) {
		load_keys<T, E>(to, to_pos, &r, g, begin);
	});
}

/* ---- calls ---- */

bool
gpu_tiles_take(const struct call *c)
{
	const uint32_t E = c->rows.E;

	return c->dtype != KV_F32 && (E == 64 || E == 80 || E == 96 || E == 128) &&
	    (uintptr_t)c->query.q % 16 == 0 && (c->quantised ?
	    in_pieces(c->rows.k, c->format, E) : (uintptr_t)c->rows.k % 16 == 0);
}

struct packed_queries
gpu_tiles_pack(struct dev *d, const struct call *c, const float *lse)
{
	const uint32_t units = parts_of(c->query.N, MMA_QUERIES), E = c->rows.E;
	const size_t n = (size_t)c->query.H * units;
	uint4 *q = (uint4 *)gpu_scratch(d, SCRATCH_X, n * (E * 2 * sizeof *q +
	    MMA_QUERIES * sizeof(struct query_info)));
	struct query_info *info = (struct query_info *)(q + n * E * 2);

	with_shape(c, [&](auto t, auto w) {
		LAUNCH(d, (pack_queries<decltype(t), w.E>), dim3(units, c->query.H), E * 2, 0, q,
		    info, c->query.q, lse, c->query.pos, c->query.N, c->scale);
	});
	return { q, info, units };
}

uint32_t
gpu_tiles_parts(const struct call *c)
{
	return parts_of(longest_head(&c->rows), BLOCK_KEYS);
}

void
gpu_tiles_sums(struct dev *d, const struct call *c, const struct packed_queries *q,
    struct partial_sum *parts, size_t stride)
{
	const uint32_t heads = heads_of_block(c);

	with_shape(c, [&](auto t, auto w) {
		with_limited(c->limits, [&](auto limited) {
			LAUNCH(d, (partial_sums<decltype(t), w.E, limited.value>),
			    dim3(gpu_tiles_parts(c), c->query.H / heads), WARPS * 32,
			    2 * sizeof(struct unit_tile<w.E>), parts, stride, *q, c->rows,
			    c->query.N, c->query.H, heads, c->limits);
		});
	});
}

void
gpu_tiles_mass(struct dev *d, const struct call *c, const struct packed_queries *q, float *mass,
    size_t stride, bool add)
{
	const uint32_t heads = heads_of_block(c);

	with_shape(c, [&](auto t, auto w) {
		with_limited(c->limits, [&](auto limited) {
			LAUNCH(d, (add_mass<decltype(t), w.E, limited.value>),
			    dim3(gpu_tiles_parts(c), c->query.H / heads), WARPS * 32,
			    2 * sizeof(struct unit_tile<w.E>), mass, stride, *q, c->rows,
			    c->query.H, heads, c->over, add, c->limits);
		});
	});
}
