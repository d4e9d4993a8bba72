/* gpu_mass.h - attention mass: what gpu_mass.cu (ops), gpu_mass_tiles.cu (tensor cores) and
 * gpu_mass_wgmma.cu (Hopper's) share
 *
 * Logits are in base 2: q.k log2(e) / sqrt(E). */
#ifndef GPU_MASS_H
#define GPU_MASS_H

#include <math.h>

#include "gpu/gpu_quantised.h"

#define LOG2_E 1.4426950408889634f

/* A sum of exponentials as in the online softmax, l * 2^m, where m is the greatest logit,
 * -inf without any */
struct partial_sum { float m, l; };

DEVICE struct partial_sum
add_sums(struct partial_sum a, struct partial_sum b)
{
	const float m = fmaxf(a.m, b.m);

	if (m == -INFINITY)
		return { m, a.l + b.l };               /* empty; or a NaN, which stays */
	return { m, a.l * exp2f(a.m - m) + b.l * exp2f(b.m - m) };
}

/* The sum over the lanes of the warp, in all of them */
DEVICE struct partial_sum
warp_add_sums(struct partial_sum p)
{
	for (int bit = 16; bit > 0; bit /= 2)
		p = add_sums(p, { __shfl_xor_sync(ALL_LANES, p.m, bit),
		    __shfl_xor_sync(ALL_LANES, p.l, bit) });
	return p;
}

/* The mass of a row: `had`, reduced with `gets` */
DEVICE float
accumulate(float had, float gets, enum over_queries over)
{
	return over == QUERIES_SUM ? had + gets : gets > had || gets != gets ? gets : had;
}

/* The position of a row that does not exist; query positions are clamped below it */
#define NO_POSITION 0xffffffffu

/* Is a position so far before p that a query row there does not see it? */
DEVICE bool
is_past(uint32_t pos, uint32_t p, uint32_t reach)
{
	return p > pos && p - pos > reach;
}

/* The first of the four contiguous channels that lanes with lane % 4 == c have in a step: two
 * of each half of a fragment */
template <uint32_t E>
DEVICE uint32_t
first_channel(uint32_t step, uint32_t c)
{
	if (E % 32 != 0 && step == E / 16 - 1)
		return step * 16 + c * 4;
	return step / 2 * 32 + c * 8 + step % 2 * 4;
}

/* Query rows of one head that an mma takes: a unit */
constexpr uint32_t MMA_QUERIES = 16;

/* The log-sum-exp of a query in base 2, inf where it gives no mass; its position */
struct query_info { float lse; uint32_t pos; };

/* The queries of a call, as gpu_tiles_pack() packs them. Unit u of query head h is number
 * h*units + u. */
struct packed_queries {
	const uint4 *q;              /* [H * units][E / 16][32]: two b fragments of a lane */
	const struct query_info *info;   /* [H * units][UNIT] */
	uint32_t units;              /* of a head; padding queries give no mass */
};

/* One call of either op, for one set of rows */
struct call {
	struct query query;
	enum over_queries over;
	struct rows rows;
	enum kv_dtype dtype;
	float scale;                 /* of logits */
	struct limits limits;
	bool fast;                   /* by the tensor core kernels */
	struct row_format format;    /* of the keys */
	bool quantised, transformed; /* how keys are stored; query.q is transformed with them */
};

static inline uint32_t
longest_head(const struct rows *r)
{
	uint32_t most = 0;

	for (uint32_t g = 0; g < r->G; g++)
		most = r->len[g] > most ? r->len[g] : most;
	return most;
}

/* ---- gpu_mass_tiles.cu: the tensor core kernels ---- */

/* Do they take this call? All fields but `fast` are set. */
bool gpu_tiles_take(const struct call *);
/* Packs the queries into SCRATCH_X. lse NULL: not known yet. */
struct packed_queries gpu_tiles_pack(struct dev *, const struct call *, const float *lse);
/* The number of partial sums that gpu_tiles_sums() writes for each query: those of query row
 * n and head h from parts[(n * H + h) * stride] on */
uint32_t gpu_tiles_parts(const struct call *);
void gpu_tiles_sums(
    struct dev *, const struct call *, const struct packed_queries *, struct partial_sum *parts,
    size_t stride);
/* mass[h * stride + row] += (or, !add, <-) the mass of the row */
void gpu_tiles_mass(
    struct dev *, const struct call *, const struct packed_queries *, float *mass, size_t stride,
    bool add);

/* ---- gpu_mass_wgmma.cu: products of warpgroups, on Hopper ---- */

/* As gpu_tiles_pack() and gpu_tiles_mass(), which adds, for 16-bit keys. false: it has done
 * nothing, since it does not take the call, or those are faster. */
bool gpu_mass_wgmma(
    struct dev *, const struct call *, const float *lse, float *mass, size_t stride);

/* ---- gpu_quantised_mass.cu: those for keys of quantised types ---- */

void gpu_quantised_sums(struct dev *, const struct call *, const struct packed_queries *,
    struct partial_sum *parts, size_t stride);
void gpu_quantised_mass(struct dev *, const struct call *, const struct packed_queries *,
    float *mass, size_t stride, bool add);

/* ---- gpu_naive.cu: keys of any type, by naive kernels ---- */

void gpu_sums_naive(struct dev *, const struct call *, struct partial_sum *parts, size_t stride);
void gpu_mass_naive(struct dev *, const struct call *, const float *lse, float *mass, size_t stride,
    bool add);

#endif
