/* cpu_gate.c - the ops of gates: networks that say from a hidden state how much a row matters */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

struct gates {
	const struct simd *simd;
	const struct gate_sinks *w;
	const float *q, *k;
	float *score, *scratch;
};

/* Floats of scratch of a thread: a query, a key, logits of the sinks */
static size_t
scratch_of(const struct gate_sinks *w)
{
	return 2 * (size_t)w->width + w->sinks;
}

/* Returns the share of the row in the softmax over it and the sinks, for one query, already
 * normalised. sink[S] is scratch. */
static float
share(const float *q, const float *k, const float *base, float bias, float *sink,
    const struct gate_sinks *w)
{
	const float scale = 1 / sqrtf((float)w->width);
	float own = 0, sum = 0;
	uint32_t i, s;

	memset(sink, 0, w->sinks * sizeof *sink);
	for (i = 0; i < w->width; i++, base += w->sinks) {
		own += k[i] * q[i];
		for (s = 0; s < w->sinks; s++)
			sink[s] += base[s] * q[i];
	}
	own = own * scale + bias;
	for (s = 0; s < w->sinks; s++)
		sum += expf(sink[s] * scale - own);
	return 1 / (1 + sum);
}

/* The KV head item % G of row item / G */
static void
gate_part(void *arg, size_t item, int thread)
{
	const struct gates *a = arg;
	const struct gate_sinks *w = a->w;
	const size_t g = item % w->heads, m = w->width;
	float *q = a->scratch + (size_t)thread * scratch_of(w), *k = q + m, sum = 0;
	uint32_t r;

	a->simd->rmsnorm(k, a->k + item * m, w->k_norm.w, m, w->k_norm.eps);
	for (r = 0; r < w->group; r++) {
		a->simd->rmsnorm(q, a->q + (item * w->group + r) * m, w->q_norm.w, m,
		    w->q_norm.eps);
		sum += share(q, k, w->base + g * m * w->sinks, w->bias[g * w->group + r], k + m, w);
	}
	a->score[item] = sum / (float)w->group;
}

void
cpu_gate_scores(struct dev *d, float *score, const float *q, const float *k,
    const struct gate_sinks *w, uint32_t N)
{
	struct gates a = { .simd = d->simd, .w = w, .q = q, .k = k, .score = score };
	const size_t all = (size_t)N * w->heads;

	if (d->error[0] != '\0' || N == 0)
		return;
	a.scratch = cpu_scratch(d, d->threads * scratch_of(w) * sizeof *a.scratch);
	if (a.scratch != NULL)
		cpu_run(d, gate_part, &a, all, all * w->group * (w->width + 8) * (w->sinks + 1));
}
