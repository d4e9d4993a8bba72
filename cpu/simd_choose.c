/* simd_choose.c - scores of many entries: their log-sum-exp, the reduction over the query heads
 * that share a KV head (GQA), and top-k */
#include <float.h>

#include "cpu/simd.h"

/* The sums are of e^64 times the softmax. That is at most e^64, and small weights, which would
 * underflow otherwise, keep their order. */
#define LIFT 64.0f

/* n scores, n <= VL; the other lanes are -inf */
INLINE vf
vscores(const float *p, size_t n)
{
	float buf[VL];
	size_t i;

	if (n == VL)
		return vload(p);
	for (i = 0; i < VL; i++)
		buf[i] = i < n ? p[i] : -INFINITY;
	return vload(buf);
}

/* exp(x), at most exp(most); 0 for a NaN */
INLINE vf
vexp_to(vf x, float most)
{
	return vexp_between(vmin(vmax(x, vset(EXP_LEAST)), vset(most)));
}

/* vmax() with a NaN on the left returns the right side, so a NaN is ignored. Infinity counts as the
 * greatest number, so that differences are numbers. */
float
FN(lse)(const float *score, size_t n)
{
	const size_t whole = n / VL * VL;
	vf a = vset(-INFINITY), b = a, top = vmax(vscores(score + whole, n - whole), a);
	float most;
	size_t i;

	for (i = 0; i + 2 * VL <= n; i += 2 * VL) {
		a = vmax(vload(score + i), a);
		b = vmax(vload(score + i + VL), b);
	}
	if (i < whole)
		a = vmax(vload(score + i), a);
	most = fminf(vlargest(vmax(top, vmax(a, b))), FLT_MAX);
	if (most == -INFINITY)
		return 0;
	top = vset(most);
	a = b = vset(0);
	for (i = 0; i + 2 * VL <= n; i += 2 * VL) {
		a += vexp_to(vload(score + i) - top, 0);
		b += vexp_to(vload(score + i + VL) - top, 0);
	}
	if (i < whole)
		a += vexp_to(vload(score + i) - top, 0);
	b += vexp_to(vscores(score + whole, n - whole) - top, 0);
	return most + logf(vsum(a + b));
}

/* n entries, n <= VL */
INLINE vf
reduced(const float *score, size_t stride, const float *lse, size_t n, size_t R, const int max)
{
	vf all = vset(max ? -INFINITY : 0), x;
	size_t r;

	for (r = 0; r < R; r++, score += stride) {
		x = vscores(score, n) - vset(lse[r]);
		all = max ? vmax(x, all) : all + vexp_to(x + LIFT, LIFT);
	}
	return all;
}

INLINE void
group_reduce(float *joint, const float *score, size_t stride, const float *lse, size_t n, size_t R,
    const int max)
{
	size_t i;
	vf v;

	for (i = 0; i + VL <= n; i += VL)
		vstore(joint + i, reduced(score + i, stride, lse, VL, R, max));
	if (i < n) {
		v = reduced(score + i, stride, lse, n - i, R, max);
		memcpy(joint + i, &v, (n - i) * sizeof *joint);
	}
}

void
FN(group_reduce)(float *joint, const float *score, size_t stride, const float *lse, size_t n,
    size_t R, enum reduce how)
{
	if (how == REDUCE_MAX)
		group_reduce(joint, score, stride, lse, n, R, 1);
	else
		group_reduce(joint, score, stride, lse, n, R, 0);
}

/* ---- top-k: radix select behind a sampled threshold ----
 *
 * Two steps. The first estimates from a sample a threshold a little below the k-th greatest
 * score; one pass over the scores keeps those that reach it, as integers of the same order, with
 * their numbers. The second finds the k-th greatest of these candidates exactly, by radix select.
 * The sample affects only how many candidates there are: if they are fewer than k, all scores
 * become candidates. */

#define SAMPLE 1024                      /* scores of a sample */
#define SAMPLE_MIN 8192                  /* shorter lists are not sampled */
#define BINS 1024                        /* of a round of radix select */

/* Integers of the same order: +0 and -0 are the same, a NaN is 0, less than all numbers. */
INLINE vu
vordered(vf x)
{
	vu u = (vu)(x + 0.0f), negative = 0 - (u >> 31);

	return (u ^ (negative | 0x80000000)) & (vu)(x == x);
}

/* Compress-store: to[..] <- the lanes of v where by is from low to low + range, packed; returns how
 * many. A whole vector is written. */
INLINE size_t
compress(uint32_t *to, vu v, vu by, uint32_t low, uint32_t range)
{
#if VL == 16
	const __mmask16 m = _mm512_cmple_epu32_mask((__m512i)(by - low),
	    _mm512_set1_epi32((int)range));

	_mm512_storeu_si512(to, _mm512_maskz_compress_epi32(m, (__m512i)v));
	return (size_t)__builtin_popcount(m);
#else
	size_t lane, n = 0;

UNROLL	for (lane = 0; lane < VL; lane++) {
		to[n] = v[lane];
		n += by[lane] - low <= range;
	}
	return n;
#endif
}

INLINE vu
vload_u32(const uint32_t *p)
{
	return (vu)vload((const float *)(const void *)p);
}

/* key[..], at[..] <- scores whose key is at least limit, and their numbers; returns how many. */
static size_t
candidates(uint32_t *key, uint32_t *at, const float *score, size_t n, uint32_t limit)
{
	uint32_t lanes[VL];
	size_t i, lane, count = 0;
	vu u, number;

	for (i = 0; i < VL; i++)
		lanes[i] = (uint32_t)i;
	number = vload_u32(lanes);
	for (i = 0; i + VL <= n; i += VL, number += VL) {
		u = vordered(vload(score + i));
		compress(at + count, number, u, limit, UINT32_MAX - limit);
		count += compress(key + count, u, u, limit, UINT32_MAX - limit);
	}
	u = vordered(vload_part(score, i, n - i, KV_F32));
	memcpy(lanes, &u, sizeof lanes);
	for (lane = 0; lane < n - i; lane++)
		if (lanes[lane] >= limit) {
			key[count] = lanes[lane];
			at[count++] = (uint32_t)(i + lane);
		}
	return count;
}

/* to[..] <- those of key[n] from low to low + range; to may be key. Returns how many. */
static size_t
in_range(uint32_t *to, const uint32_t *key, size_t n, uint32_t low, uint32_t range)
{
	size_t i, count = 0;
	vu u;

	for (i = 0; i + VL <= n; i += VL) {
		u = vload_u32(key + i);
		count += compress(to + count, u, u, low, range);
	}
	for (; i < n; i++)
		if (key[i] - low <= range)
			to[count++] = key[i];
	return count;
}

/* Radix select: the k-th greatest of key[n] (k >= 1), which are at least low. *equal <- how many of
 * that value belong to the k, *ties <- how many there are. Each round counts keys in BINS bins
 * and goes on in the bin of the k-th, so there are at most four. spare: scratch */
static uint32_t
kth_greatest(const uint32_t *key, size_t n, size_t k, uint32_t low, uint32_t *spare, size_t *equal,
    size_t *ties)
{
	uint32_t bin[BINS], most = low, range, b;
	unsigned shift;
	size_t i;

	for (i = 0; i < n; i++)
		most = key[i] > most ? key[i] : most;
	for (range = most - low;; key = spare) {
		for (shift = 0; range >> shift >= BINS; shift++)
			;
		memset(bin, 0, sizeof bin);
		for (i = 0; i < n; i++)
			bin[(key[i] - low) >> shift]++;
		for (b = range >> shift; bin[b] < k; b--)
			k -= bin[b];
		low += b << shift;
		if (shift == 0)
			break;
		range = ((uint32_t)1 << shift) - 1;
		n = in_range(spare, key, n, low, range);
	}
	*equal = k;
	*ties = bin[b];
	return low;
}

/* A threshold that most likely more than k of the n keys reach: in a sample, the key whose rank is
 * k's share and three standard deviations more. 0: all keys must be candidates. */
static uint32_t
sample_limit(const float *score, size_t n, size_t k, uint32_t *key, uint32_t *spare)
{
	const double share = (double)k / (double)n * SAMPLE;
	const size_t rank = (size_t)(share + 3 * sqrt(share) + 8);
	float sample[SAMPLE];
	size_t i, unused;

	if (n < SAMPLE_MIN || rank >= SAMPLE / 2)
		return 0;
	for (i = 0; i < SAMPLE; i++)
		sample[i] = score[i * n / SAMPLE];
	candidates(key, spare, sample, SAMPLE, 0);
	return kth_greatest(key, SAMPLE, rank, 0, spare, &unused, &unused);
}

/* out[..] <- at[i] of each key[i] that is at least limit; returns how many. Nothing behind them is
 * written. */
static size_t
select_from(uint32_t *out, const uint32_t *key, const uint32_t *at, size_t n, uint32_t limit)
{
	uint32_t some[VL];
	size_t i, count = 0, more;

	for (i = 0; i + VL <= n; i += VL, count += more) {
		more = compress(some, vload_u32(at + i), vload_u32(key + i), limit,
		    UINT32_MAX - limit);
#if VL == 16
		_mm512_mask_storeu_epi32(out + count, (__mmask16)((1u << more) - 1),
		    _mm512_loadu_si512(some));
#else
		memcpy(out + count, some, more * sizeof *out);
#endif
	}
	for (; i < n; i++)
		if (key[i] >= limit)
			out[count++] = at[i];
	return count;
}

void
FN(topk)(uint32_t *out, const float *score, size_t n, size_t k, uint32_t *scratch)
{
	uint32_t *key = scratch, *at = key + n + TOPK_SLACK, *spare = at + n + TOPK_SLACK, limit;
	size_t count, equal, ties, i, end_ties;

	limit = sample_limit(score, n, k, key, spare);
	if ((count = candidates(key, at, score, n, limit)) < k) {
		limit = 0;
		count = candidates(key, at, score, n, limit);
	}
	limit = kth_greatest(key, count, k, limit, spare, &equal, &ties);
	end_ties = count;
	if (equal < ties) {                    /* of equal scores the first ones are taken */
		for (i = 0, end_ties = 0; i < equal; end_ties++)
			i += key[end_ties] == limit;
	}
	i = select_from(out, key, at, end_ties, limit);
	select_from(out + i, key + end_ties, at + end_ties, count - end_ties, limit + 1);
}
