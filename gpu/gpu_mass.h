/* gpu_mass.h - what the ops and naive kernels in gpu_mass.cu and those on tensor cores in
 * gpu_mass_tiles.cu share
 *
 * Everything is in powers of two: a logit is q.k log2(e) / sqrt(E). */
#ifndef GPU_MASS_H
#define GPU_MASS_H

#include <math.h>

#include "gpu/gpu_internal.h"

#define LOG2_E 1.4426950408889634f

/* A sum of powers of two, l 2^m; m is their greatest exponent, -inf where there are none. */
struct part { float m, l; };

DEVICE struct part
join(struct part a, struct part b)
{
	const float m = fmaxf(a.m, b.m);

	if (m == -INFINITY)
		return { m, a.l + b.l };               /* no terms; or a NaN, which stays */
	return { m, a.l * exp2f(a.m - m) + b.l * exp2f(b.m - m) };
}

/* What a row gets from a call, and what it had */
DEVICE float
put_together(float had, float gets, enum over_queries over)
{
	return over == QUERIES_SUM ? had + gets : gets > had || gets != gets ? gets : had;
}

/* Queries of one head that are multiplied at once */
constexpr uint32_t UNIT = 16;

/* What there is to know of a query: log2 of its sum, inf where it gives no mass; its position */
struct sight { float lse; uint32_t pos; };

/* The queries of a call, as gpu_tiles_pack() leaves them. Unit u of query head h is number
 * h*units + u. */
struct packed {
	const uint4 *q;              /* [H * units][E / 16][32]: two right fragments of a lane */
	const struct sight *sight;   /* [H * units][UNIT] */
	uint32_t units;              /* of a head; queries behind the last give no mass */
};

/* One call of either op: queries, and the rows that they go to */
struct call {
	struct query query;
	enum over_queries over;
	struct rows rows;
	enum kv_dtype dtype;
	float scale;                 /* of logits */
	bool fast;                   /* kernels on tensor cores do it */
};

static inline uint32_t
longest_head(const struct rows *r)
{
	uint32_t most = 0;

	for (uint32_t g = 0; g < r->G; g++)
		most = r->len[g] > most ? r->len[g] : most;
	return most;
}

/* ---- gpu_mass_tiles.cu: for calls that are fast ---- */

/* Can it do that call, in which nothing is missing but `fast`? */
bool gpu_tiles_take(const struct call *);
/* The queries, in SCRATCH_X. lse NULL: not known yet. */
struct packed gpu_tiles_pack(struct dev *, const struct call *, const float *lse);
/* How many parts of each query gpu_tiles_sums() leaves, one beside the other: those of query
 * row n and head h from parts[(n * H + h) * stride] on */
uint32_t gpu_tiles_parts(const struct call *);
void gpu_tiles_sums(
    struct dev *, const struct call *, const struct packed *, struct part *parts, size_t stride);
/* mass[h * stride + row] += (or, !add, <-) what a row receives */
void gpu_tiles_mass(
    struct dev *, const struct call *, const struct packed *, float *mass, size_t stride, bool add);

#endif
