/* gpu_selfcheck.h - which kernels the ops of attention use, where fast ones must prove themselves
 * first: what gpu_selfcheck.cu (ops, results) and gpu_selfcheck_small.cu (the checks) share */
#ifndef GPU_SELFCHECK_H
#define GPU_SELFCHECK_H

#include "gpu/gpu_internal.h"

enum checked_op {
	CHECKED_ATTEND, CHECKED_CHOSEN, CHECKED_MASS, CHECKED_WINDOW, CHECKED_BITS
};

/* The kind of a call: what decides which kernels it takes, besides how many rows there are. All
 * members are of one type, so that there is no padding: memcmp(). */
struct kernel_case {
	uint32_t op;                 /* enum checked_op */
	uint32_t dtype, k_type, v_type;      /* of the rows */
	uint32_t latent;             /* 1: values are the keys */
	uint32_t values;             /* 1: outputs are wanted, not the log-sum-exp alone */
	uint32_t width, heads;       /* E; query heads of a KV head */
	uint32_t queries;            /* query rows; all above DECODE_QUERIES are one kind */
	uint32_t window, softcap;    /* 1: there is one */
	uint32_t over;               /* CHECKED_MASS, CHECKED_WINDOW: enum over_queries */
	uint32_t entry;              /* rows of an entry; CHECKED_WINDOW: 1 with own rows */
};

/* How far the results of the kernels were from those of the naive ones, relative to the greatest
 * of these; infinity where one is a number and the other is not. Negative: not known, since
 * something failed */
struct differences {
	double fast;                 /* of the kernels that take such calls on every GPU */
	double hopper;               /* and of those for sm_90a, where this is such a GPU */
};

/* Computes a small problem of that kind by the kernels and by naive ones, on a device of its own
 * (gpu_open_small()). */
struct differences gpu_check_case(struct dev *small, const struct kernel_case *);

/* The greatest difference that rounding may make */
double gpu_check_tolerance(const struct kernel_case *);

/* gpu_device.cu: another device on the same GPU, with little memory; NULL on failure */
struct dev *gpu_open_small(const struct dev *);

#endif
