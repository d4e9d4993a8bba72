/* cpu_choose.c - which entries of an index a step reads: join, top, spread */
#include <float.h>
#include <math.h>

#include "cpu/cpu_internal.h"

/* ---- join ---- */

/* Sums are those of e^64 times the softmax: entries that would underflow keep their order. */
#define LIFT 64

/* A NaN counts as -inf. */
static float
clamped(float score)
{
	return score > -INFINITY ? fminf(score, FLT_MAX) : -INFINITY;
}

/* The logarithm of the sum of exp(score[n]); 0 where that is nothing */
static float
lse_of(const float *score, size_t n)
{
	float most = -INFINITY, sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		most = fmaxf(most, clamped(score[i]));
	if (most == -INFINITY)
		return 0;
	for (i = 0; i < n; i++)
		sum += expf(clamped(score[i]) - most);
	return most + logf(sum);
}

/* joint[i] <- of the R scores of entry i. The maximum stays a logarithm: no underflow. */
static void
join_head(float *joint, const float *score, size_t stride, const float *lse, size_t n, size_t R,
    enum join join)
{
	float sum, most, x;
	size_t i, r;

	for (i = 0; i < n; i++) {
		for (r = 0, sum = 0, most = -INFINITY; r < R; r++) {
			x = clamped(score[r * stride + i]) - lse[r];
			most = fmaxf(most, x);
			sum += expf(x + LIFT);
		}
		joint[i] = join == JOIN_MAX ? most : sum;
	}
}

void
cpu_join(struct dev *d, float *joint, const float *score, size_t stride, const uint32_t *n,
    uint32_t H, uint32_t G, enum join join)
{
	const size_t R = G == 0 ? 0 : H / G;
	float *lse;
	size_t g, h;

	if (d->error[0] != '\0')
		return;
	if (G == 0 || H % G != 0) {
		cpu_fail(d, "join: %u query heads over %u KV heads", H, G);
		return;
	}
	if ((lse = cpu_scratch(d, H * sizeof *lse)) == NULL)
		return;
	for (h = 0; h < H && R > 1; h++)
		lse[h] = lse_of(score + h * stride, n[h / R]);
	/* In this order: joint[g] may lie on scores of KV head g / R, which is done. */
	for (g = 0; g < G; g++)
		if (R > 1)
			join_head(joint + g * stride, score + g * R * stride, stride, lse + g * R,
			    n[g], R, join);
		else if (joint != score)
			memcpy(joint + g * stride, score + g * stride, n[g] * sizeof *joint);
}

/* ---- top ---- */

/* An integer of the same order; NaN is 0, less than all numbers. */
static uint32_t
ordered(float score)
{
	uint32_t u;

	if (score != score)
		return 0;
	score += 0.0f;                  /* -0 becomes +0: they are equal, so they tie */
	memcpy(&u, &score, sizeof u);
	return u & 0x80000000 ? ~u : u | 0x80000000;
}

/* The k-th greatest of n (k >= 1); *equal <- how many of that value belong to the k. */
static uint32_t
threshold(const float *score, size_t n, size_t k, size_t *equal)
{
	static const struct {
		unsigned shift, bits;
	} digit[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
	size_t bin[2048], i;
	uint32_t found = 0, known = 0, u, b;
	unsigned d;

	for (d = 0; d < 3; d++) {
		memset(bin, 0, sizeof bin);
		for (i = 0; i < n; i++) {
			u = ordered(score[i]);
			if ((u & known) == found)
				bin[u >> digit[d].shift & ((1u << digit[d].bits) - 1)]++;
		}
		for (b = (1u << digit[d].bits) - 1; bin[b] < k; b--)
			k -= bin[b];
		found |= b << digit[d].shift;
		known |= ((1u << digit[d].bits) - 1) << digit[d].shift;
	}
	*equal = k;
	return found;
}

static void
top_of(uint32_t *at, const float *score, uint32_t n, uint32_t k)
{
	uint32_t limit, u, i;
	size_t equal;

	if (k == 0)
		return;
	limit = threshold(score, n, k, &equal);
	for (i = 0; i < n; i++) {
		u = ordered(score[i]);
		if (u > limit)
			*at++ = i;
		else if (u == limit && equal > 0) {
			*at++ = i;
			equal--;
		}
	}
}

void
cpu_top(struct dev *d, struct chosen *to, const float *joint, size_t stride, const uint32_t *n,
    uint32_t G)
{
	uint32_t g;

	for (g = 0; g < G && d->error[0] == '\0'; g++)
		if (to->n[g] > n[g] || to->n[g] > to->stride)
			cpu_fail(d, "top: %u of %u entries of KV head %u, room for %zu", to->n[g],
			    n[g], g, to->stride);
		else
			top_of(to->at + g * to->stride, joint + g * stride, n[g], to->n[g]);
}

/* ---- spread ---- */

void
cpu_spread(struct dev *d, float *row, size_t stride, const float *joint, size_t joint_stride,
    const uint32_t *label, size_t label_stride, const uint32_t *n, uint32_t G)
{
	size_t g, s;

	for (g = 0; g < G && d->error[0] == '\0'; g++)
		for (s = 0; s < n[g]; s++)
			row[g * stride + s] = joint[g * joint_stride + label[g * label_stride + s]];
}
