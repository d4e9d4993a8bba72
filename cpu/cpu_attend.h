/* cpu_attend.h - how attention is cut into items of work, for cpu_attend.c and cpu_mass.c */
#ifndef CPU_ATTEND_H
#define CPU_ATTEND_H

#include "cpu/cpu_internal.h"

/* How one call is cut. */
struct plan {
	const struct simd *simd;
	const struct vnni_products *vnni;
	const struct query *query;
	const struct layer_rows *rows;
	const struct chosen *chosen; /* only these rows, seen by all; NULL: all */
	size_t N, H, R, E;
	size_t block, blocks;        /* query rows of one item; items along N */
	size_t split_rows, splits;   /* cache rows of one item; items along the longest head */
	int apart;                   /* 1: each query row as in a call of its own */
	size_t floats;               /* scratch of one thread */
};

/* One call of attend(), or of mass */
struct call {
	struct dev *d;
	const struct plan *plan;
	float *scratch;              /* [threads][plan->floats] */
	float *o, *lse;              /* the result; each NULL: not wanted */
	float *part_o, *part_lse;    /* [splits][N][H][E], [splits][N][H]; unused with one split */
	const float *norm;           /* [N][H] log-sum-exp, for mass */
	float *mass;
	size_t stride;
	enum over_queries over;
};

static inline size_t
round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* Fills the plan. chosen: NULL, or the rows that are read. Returns 0 after remembering the failure
 * when the shapes cannot be. */
int cpu_attend_plan(struct dev *, struct plan *, const struct query *, const struct layer_rows *,
    const struct chosen *);
/* The rows of KV head g that query rows n .. n+count-1 see lie in *from .. *end-1. */
void cpu_visible_range(const struct plan *p, size_t g, size_t n, size_t count, uint32_t *from,
    uint32_t *end);
/* The job of query rows n0 .. of KV head g on one thread's scratch, with its queries scaled and no
 * rows read yet. Its rows are those that some query row of it sees. */
void cpu_start_job(const struct plan *p, struct attend_job *j, float *scratch, size_t g,
    size_t n0);
/* Returns the scratch, in floats, of cpu_attend_call(). */
size_t cpu_attend_floats(struct dev *, const struct plan *, int want_o);
/* o and lse of a call, on that scratch */
void cpu_attend_call(struct call *);

#endif
