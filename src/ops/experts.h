/* experts.h - a mixture of experts: its router, the matrices of the experts, and the scratch of a
 * call
 *
 * Letters as in ops.h; besides them M experts, of which each row takes K. */
#ifndef KVPIPE_EXPERTS_H
#define KVPIPE_EXPERTS_H

#include "ops/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	EXPERTS_MOST = 1024,         /* M */
	EXPERTS_CHOSEN_MOST = 64     /* K */
};

enum router_scores { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_NEAR };

/* Which experts a row takes, and with which weights. Its score of an expert is the softmax over all
 * experts, or the sigmoid, of w . x + bias. It takes the experts with the greatest score +
 * correction, of equals the one with the lowest number; where there are groups, of the best groups
 * only. The weight of an expert is its score, divided by the sum of the scores that were chosen
 * where they are renormalised, times scale. (Softmax over the K greatest logits is the softmax over
 * all, renormalised.)
 *
 * ROUTER_NEAR (SparseMixer; Liu et al. 2024, arXiv 2409.12136): scores are the logits s themselves,
 * and the weight of an expert e is exp(s_e) by the sum of exp(s_i) over the experts i that were not
 * chosen before it and are near: (s_e - s_i) / max(|s_i|, s_e) <= margin. */
struct router {
	struct mat w;                /* [M][D] */
	const float *bias;           /* device [M]; NULL: none */
	const float *correction;     /* device [M]; NULL: none */
	uint32_t experts, chosen;    /* M, K; experts 0: there is no mixture */
	/* experts stand in so many groups of M / groups, of which so many are looked at; 1: all */
	uint32_t groups, groups_chosen;
	int two_best;                /* of a group count 1: its two greatest scores, 0: one */
	enum router_scores scores;
	int renormalise;
	float scale;
	float margin;                /* of ROUTER_NEAR */
};

/* The same matrix of each expert, all of one type: [out][in] */
struct expert_mats {
	const void *const *at;       /* device [M] */
	enum weight_type type;
	uint32_t out, in;
	const float *bias;           /* device [M][out]; NULL: none */
};

/* Each is down . (act(gate . x) * up . x); with a limit, as gpt-oss has it, down . (g sigmoid(1.702
 * g) (u + 1)) with g = min(gate . x, limit) and u = up . x within +-limit. */
struct experts {
	struct router router;
	struct expert_mats gate, up, down;      /* [F][D], [F][D], [D][F] */
	enum activation act;         /* ACT_SILU or ACT_GELU_TANH */
	float limit;                 /* 0: none */
};

/* The scratch of a call with N rows. A place is a row at one of its experts: there are N K, in the
 * order of experts, and of rows within an expert. */
struct expert_rows {
	float *logits;               /* [N][M]; later scores */
	float *weight;               /* [N][K] in the order in which they were chosen, .. */
	uint32_t *expert;            /* [N][K] .. as are the experts, .. */
	uint32_t *place;             /* [N][K] .. and the places */
	uint32_t *row, *of;          /* [N K] of a place: its row, and its expert */
	uint32_t *first;             /* [M + 1] of an expert: its first place */
	uint32_t *busy;              /* [M + 1] experts that have rows */
	float *x;                    /* [N K][D] rows of x, and later what experts add */
	float *hidden;               /* [N K][2 F] of an expert with n places: [2][n][F] */
};

/* *r <- the parts of scratch at base (NULL: only to count). Returns the bytes of it. */
static inline size_t
expert_rows_at(struct expert_rows *r, void *base, const struct experts *e, size_t N)
{
	const size_t M = e->router.experts, places = N * e->router.chosen;
	const struct { void *part; size_t bytes; } parts[] = {
		{ &r->logits, N * M * sizeof(float) }, { &r->weight, places * sizeof(float) },
		{ &r->expert, places * sizeof(uint32_t) }, { &r->place, places * sizeof(uint32_t) },
		{ &r->row, places * sizeof(uint32_t) }, { &r->of, places * sizeof(uint32_t) },
		{ &r->first, (M + 1) * sizeof(uint32_t) }, { &r->busy, (M + 1) * sizeof(uint32_t) },
		{ &r->x, places * e->down.out * sizeof(float) },
		{ &r->hidden, places * 2 * e->down.in * sizeof(float) },
	};
	size_t used = 0, i;
	char *at;

	for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		at = base == NULL ? NULL : (char *)base + used;
		memcpy(parts[i].part, &at, sizeof at);
		used += (parts[i].bytes + 63) / 64 * 64;
	}
	return used;
}

#ifdef __cplusplus
}
#endif
#endif
