/* likelihood.c - the probability of a token by logits, and their distance from other logits */
#include <math.h>
#include <string.h>

#include "engine/likelihood.h"

/* *best <- the first index of the greatest x. Returns log sum exp(x), NaN when one is not
 * finite. */
static double
log_sum_exp(const float *x, uint32_t V, uint32_t *best)
{
	double sum = 0;
	uint32_t i;

	*best = 0;
	for (i = 0; i < V; i++) {
		if (!isfinite(x[i]))
			return NAN;
		if (x[i] > x[*best])
			*best = i;
	}
	for (i = 0; i < V; i++)
		sum += exp((double)x[i] - x[*best]);
	return x[*best] + log(sum);
}

int
token_likelihood(struct token_likelihood *out, const float *logits, const float *reference,
    uint32_t V, uint32_t id)
{
	uint32_t best, other, i;
	const double norm = log_sum_exp(logits, V, &best);
	double theirs, log_p;

	memset(out, 0, sizeof *out);
	if (isnan(norm))
		return -1;
	out->logprob = logits[id] - norm;
	out->top = logits[id] == logits[best];
	if (reference == NULL)
		return 0;
	theirs = log_sum_exp(reference, V, &other);
	if (isnan(theirs))
		return -1;
	out->agrees = best == other;
	for (i = 0; i < V; i++) {
		log_p = reference[i] - theirs;
		out->kl += exp(log_p) * (log_p - (logits[i] - norm));
	}
	out->kl = fmax(out->kl, 0);             /* only rounding makes it negative */
	return 0;
}

void
likelihood_add(struct likelihood_sum *s, const struct token_likelihood *t)
{
	s->n++;
	s->top += (uint64_t)t->top;
	s->agrees += (uint64_t)t->agrees;
	s->logprob += t->logprob;
	s->kl += t->kl;
	s->kl_most = fmax(s->kl_most, t->kl);
}

double
likelihood_perplexity(const struct likelihood_sum *s)
{
	return s->n > 0 ? exp(-s->logprob / (double)s->n) : 1;
}
