/* cpu_experts.h - a call of experts(), for cpu_router.c and cpu_experts.c */
#ifndef CPU_EXPERTS_H
#define CPU_EXPERTS_H

#include "cpu/cpu_internal.h"

struct mixing {
	struct dev *d;
	const struct experts *e;
	const float *x;              /* [N][D] */
	float *y;                    /* [N][D] */
	size_t N;
	struct expert_rows r;
};

/* Fills all lists of j->r: weights, experts and places. */
void cpu_route(struct mixing *j);

#endif
