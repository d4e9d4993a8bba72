/* gpu_attend_wgmma.h - prefill attention on Hopper, as one warpgroup of gpu_attend_wgmma.cu sees
 * it: the shape of a block and its shared memory, scores, the online softmax, outputs */
#ifndef GPU_ATTEND_WGMMA_H
#define GPU_ATTEND_WGMMA_H

#include "gpu/gpu_attend_plan.h"
#include "gpu/gpu_warpgroups.h"

/* GROUPS: warpgroups that multiply. RING: tiles in shared memory. The registers of a thread that
 * multiplies, and of one that copies: together what an SM has. */
template <int E> struct shape {
	static constexpr unsigned GROUPS = E == 128 ? 2 : 3, ROWS = GROUPS * 64, KEYS = 128;
	static constexpr unsigned RING = E == 128 ? 4 : 6, THREADS = (GROUPS + 1) * 128;
	static constexpr int MANY = GROUPS == 2 ? 216 : 160, FEW = GROUPS == 2 ? 72 : 32;
	static constexpr unsigned tile = KEYS * E * 2, queries = ROWS * E * 2;
};
enum { COPIERS = 64, MAKERS = 64 };            /* threads */

/* Besides tiles and queries. Two items: one is attended to while the next is made. */
template <int E> struct shared {
	uint64_t full[shape<E>::RING], empty[shape<E>::RING];  /* tiles */
	uint64_t found[2], made[2], taken[2];                  /* items; with queries */
	uint32_t item[2];                                      /* NO_ROW: there is none */
	uint32_t row[2][shape<E>::ROWS];                       /* of q; NO_ROW: padding */
	uint32_t seen[2][shape<E>::ROWS], from[2][shape<E>::ROWS];
};

/* What a thread has of its two rows, lane / 4 and lane / 4 + 8 of the warp's 16: as struct
 * softmax_state */
template <int E> struct softmax {
	float m[2], l[2], o[E / 2];
	float scores[shape<E>::KEYS / 2];
	uint32_t weights[shape<E>::KEYS / 16][4];
};

/* A warpgroup's place in the ring, and its matrices: of the item's queries, and of tile 0 */
template <int E> struct group {
	unsigned number;
	struct cursor<shape<E>::RING> at;
	uint64_t queries, keys, values;
};

/* The rows that the thread's two rows see, from[] .. seen[] - 1, and those that all rows of the
 * warp see, part .. whole - 1 */
struct view {
	uint32_t from[2], seen[2], part, whole;
};

template <int E>
DEVICE void
clear(struct softmax<E> &t)
{
UNROLL	for (unsigned e = 0; e < E / 2; e++)
		t.o[e] = 0;
	t.m[0] = t.m[1] = -INFINITY;
	t.l[0] = t.l[1] = 0;
}

/* warp: the first row of the warp; row: of the thread */
template <int E, bool LIMITED>
DEVICE struct view
view_of(const struct shared<E> &x, unsigned at, unsigned warp, unsigned row)
{
	const uint32_t *const from = x.from[at], *const seen = x.seen[at];

	return { .from = { LIMITED ? from[row] : 0, LIMITED ? from[row + 8] : 0 },
		.seen = { seen[row], seen[row + 8] }, .part = LIMITED ? from[warp + 15] : 0,
		.whole = seen[warp] };
}

/* scores <- queries . keys^T, begun */
template <class T, int E>
DEVICE void
begin_scores(struct softmax<E> &t, uint64_t queries, uint64_t keys)
{
UNROLL	for (unsigned i = 0; i < E / 16; i++)
		wgmma_ss<T, shape<E>::KEYS, false>(t.scores,
		    queries + (i / 4 * shape<E>::ROWS * LINE + i % 4 * 32) / 16,
		    keys + (i / 4 * shape<E>::KEYS * LINE + i % 4 * 32) / 16, i > 0);
	wgmma_commit();
}

/* o += weights . values, begun */
template <class T, int E>
DEVICE void
begin_outputs(struct softmax<E> &t, uint64_t values)
{
UNROLL	for (unsigned j = 0; j < shape<E>::KEYS / 16; j++)
		wgmma_rs<T, E, true>(t.o, t.weights[j], values + j * 2 * ATOM / 16, true);
	wgmma_commit();
}

/* Sets scores with rows that a query does not see to -inf; the tile begins with row `first`. */
template <int E>
DEVICE void
hide(struct softmax<E> &t, uint32_t first, const struct view &v)
{
	first += threadIdx.x % 4 * 2;
UNROLL	for (unsigned r = 0; r < 2; r++)
UNROLL		for (unsigned j = 0; j < shape<E>::KEYS / 8; j++)
UNROLL			for (unsigned e = 0; e < 2; e++)
				if (first + j * 8 + e - v.from[r] >= v.seen[r] - v.from[r])
					t.scores[j * 4 + r * 2 + e] = -INFINITY;
}

/* scores <- weights 2^(score - m), and l with them. True: o must be multiplied by scale. */
template <int E>
DEVICE bool
make_weights(struct softmax<E> &t, float scale[2])
{
	float top[2];

UNROLL	for (unsigned r = 0; r < 2; r++) {
		top[r] = -INFINITY;
UNROLL		for (unsigned j = 0; j < shape<E>::KEYS / 8; j++)
			top[r] = fmaxf(top[r],
			    fmaxf(t.scores[j * 4 + r * 2], t.scores[j * 4 + r * 2 + 1]));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 1));
		top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], 2));
	}
	const bool rises = __any_sync(ALL_LANES,
	    top[0] > t.m[0] + RESCALE_SLACK || top[1] > t.m[1] + RESCALE_SLACK);

UNROLL	for (unsigned r = 0; r < 2; r++) {
		const float to = top[r] > t.m[r] + RESCALE_SLACK ? top[r] : t.m[r];

		scale[r] = to == t.m[r] ? 1 : exp2_fast(t.m[r] - to);
		t.m[r] = to;
		/* A row that has seen nothing yet: 2^(-inf) is 0, but -inf - -inf is a NaN. */
		const float m = to == -INFINITY ? 0 : to;
		float sum = 0;

UNROLL		for (unsigned j = 0; j < shape<E>::KEYS / 8; j++)
UNROLL			for (unsigned e = 0; e < 2; e++) {
				float &x = t.scores[j * 4 + r * 2 + e];

				x = exp2_fast(x - m);
				sum += x;
			}
		t.l[r] = t.l[r] * scale[r] + sum;
	}
	return rises;
}

/* weights <- scores, rounded, as the a operand of a product */
template <class T, int E>
DEVICE void
round_weights(struct softmax<E> &t)
{
UNROLL	for (unsigned j = 0; j < shape<E>::KEYS / 16; j++)
UNROLL		for (unsigned i = 0; i < 4; i++)
			t.weights[j][i] = pair<T>(t.scores[j * 8 + i * 2],
			    t.scores[j * 8 + i * 2 + 1]);
}

template <int E>
DEVICE void
rescale_outputs(struct softmax<E> &t, const float scale[2])
{
UNROLL	for (unsigned i = 0; i < E / 2; i++)
		t.o[i] *= scale[i / 2 % 2];
}

/* Softcap, and what queries do not see, in the scores of a tile */
template <int E, bool LIMITED>
DEVICE void
limit_scores(struct softmax<E> &t, uint32_t number, const struct view &v,
    const struct limits &limits)
{
	constexpr uint32_t KEYS = shape<E>::KEYS;

	if (LIMITED && limits.cap > 0)
UNROLL		for (unsigned j = 0; j < KEYS / 2; j++)
			t.scores[j] = softcapped(t.scores[j], limits);
	if ((number + 1) * KEYS > v.whole || (LIMITED && number * KEYS < v.part))
		hide<E>(t, number * KEYS, v);
}

/* Weights of the first tile */
template <class T, int E, bool LIMITED>
DEVICE void
attend_first(struct softmax<E> &t, struct shared<E> &x, struct group<E> &w, uint32_t number,
    const struct view &v, const struct limits &limits)
{
	const unsigned at = w.at.at;
	float scale[2];

	mbarrier_wait(&x.full[at], w.at.parity);
	wait_turn(w.number);
	settled(t.scores);
	wgmma_fence();
	begin_scores<T, E>(t, w.queries, w.keys + at * (shape<E>::tile / 16));
	pass_turn<shape<E>::GROUPS>(w.number);
	wgmma_wait<0>();
	settled(t.scores);
	give_back(&x.empty[at]);
	w.at.next();
	limit_scores<E, LIMITED>(t, number, v, limits);
	make_weights<E>(t, scale);
	round_weights<T, E>(t);
}

/* Weights of the next tile, while the weights of the tile before are multiplied by values */
template <class T, int E, bool LIMITED>
DEVICE void
attend_next(struct softmax<E> &t, struct shared<E> &x, struct group<E> &w, uint32_t number,
    const struct view &v, const struct limits &limits)
{
	constexpr uint64_t TILE = shape<E>::tile / 16;
	const struct cursor<shape<E>::RING> keys = w.at;
	float scale[2];

	w.at.next();
	mbarrier_wait(&x.full[keys.at], keys.parity);
	wait_turn(w.number);
	settled(t.scores);
	settled(t.o);
	wgmma_fence();
	begin_scores<T, E>(t, w.queries, w.keys + keys.at * TILE);
	mbarrier_wait(&x.full[w.at.at], w.at.parity);
	wgmma_fence();
	begin_outputs<T, E>(t, w.values + w.at.at * TILE);
	pass_turn<shape<E>::GROUPS>(w.number);
	wgmma_wait<1>();
	settled(t.scores);
	give_back(&x.empty[keys.at]);
	limit_scores<E, LIMITED>(t, number, v, limits);
	const bool rises = make_weights<E>(t, scale);

	/* The exponentials belong in front of the next wait. The assembler would move them behind
	 * it, but not across a branch, such as that of this mbarrier_wait(), which is over. */
	settled(t.scores);
	settled(t.l);
	mbarrier_wait(&x.full[w.at.at], w.at.parity);
	wgmma_wait<0>();
	settled(t.o);
	give_back(&x.empty[w.at.at]);
	w.at.next();
	if (rises)
		rescale_outputs<E>(t, scale);
	round_weights<T, E>(t);
}

/* The weights of the last tile multiplied by values */
template <class T, int E>
DEVICE void
attend_last(struct softmax<E> &t, struct shared<E> &x, struct group<E> &w)
{
	const unsigned at = w.at.at;

	mbarrier_wait(&x.full[at], w.at.parity);
	settled(t.o);
	wgmma_fence();
	begin_outputs<T, E>(t, w.values + at * (shape<E>::tile / 16));
	wgmma_wait<0>();
	settled(t.o);
	give_back(&x.empty[at]);
	w.at.next();
}

#endif
