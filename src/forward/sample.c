/* sample.c - chooses the next token from logits */
#include <math.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "forward/sample.h"

/* Spreads a seed over the state (Steele et al. 2014). */
static uint64_t
splitmix64(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void
sampler_seed(struct sampler *s, uint64_t seed)
{
	s->state[0] = splitmix64(&seed);
	s->state[1] = splitmix64(&seed);
}

/* xoroshiro128+ (Blackman and Vigna 2018); 0 <= result < 1 from the upper 53 bits. */
static double
draw(struct sampler *s)
{
	uint64_t a = s->state[0], b = s->state[1], sum = a + b;

	b ^= a;
	s->state[0] = (a << 24 | a >> 40) ^ b ^ b << 16;
	s->state[1] = b << 37 | b >> 27;
	return (double)(sum >> 11) * 0x1p-53;
}

static uint32_t
greatest(const float *logits, uint32_t V)
{
	uint32_t i, best = UINT32_MAX;

	for (i = 0; i < V; i++)
		if (isfinite(logits[i]) && (best == UINT32_MAX || logits[i] > logits[best]))
			best = i;
	return best;
}

struct candidate {
	double p;                      /* not normalised: the greatest of all is 1 */
	uint32_t id;
};

/* Orders by greater probability, then by lower id: a total order, so that the draw is
 * deterministic. */
static int
before(const struct candidate *a, const struct candidate *b)
{
	return a->p > b->p || (a->p == b->p && a->id < b->id);
}

static void
sift(struct candidate *heap, uint32_t n, uint32_t i)
{
	for (;;) {
		uint32_t top = i, child = 2 * i + 1;
		struct candidate t;

		if (child < n && before(&heap[child], &heap[top]))
			top = child;
		if (child + 1 < n && before(&heap[child + 1], &heap[top]))
			top = child + 1;
		if (top == i)
			return;
		t = heap[i];
		heap[i] = heap[top];
		heap[top] = t;
		i = top;
	}
}

/* Moves the smallest set of likeliest candidates with at least `share` of the sum to the end of the
 * array, likeliest last. Returns how many. Uses a heap, because the set is usually a few dozen of
 * 100,000. */
static uint32_t
likeliest(struct candidate *c, uint32_t n, double share)
{
	double sum = 0, have = 0;
	uint32_t i, left = n;

	for (i = 0; i < n; i++)
		sum += c[i].p;
	for (i = n / 2; i-- > 0; )
		sift(c, n, i);
	while (left > 0 && have < share * sum) {
		struct candidate t = c[0];

		have += t.p;
		c[0] = c[--left];
		c[left] = t;
		sift(c, left, 0);
	}
	return n - left;
}

uint32_t
sample(struct sampler *s, const float *logits, uint32_t V)
{
	uint32_t best = greatest(logits, V), n = 0, i, first = 0;
	struct candidate *c;
	double sum = 0, at;

	if (best == UINT32_MAX || s->temperature == 0)
		return best;
	c = malloc(V * sizeof *c);
	if (c == NULL)
		return UINT32_MAX;
	for (i = 0; i < V; i++) {
		double p = isfinite(logits[i]) ?
		    exp(((double)logits[i] - logits[best]) / s->temperature) : 0;

		if (p > 0 && p >= s->min_p)
			c[n++] = (struct candidate){ p, i };
	}
	if (s->top_p < 1)
		first = n - likeliest(c, n, s->top_p);
	for (i = first; i < n; i++)
		sum += c[i].p;
	at = draw(s) * sum;
	for (i = first; i < n - 1 && at >= c[i].p; i++)
		at -= c[i].p;
	best = c[i].id;
	free(c);
	return best;
}
