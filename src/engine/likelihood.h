/* likelihood.h - how likely logits make a given token, and how far they are from others
 *
 * What exact match hides: how much of the model's distribution an eviction or a retrieval changes.
 * In double precision; natural logarithms. */
#ifndef KVPIPE_LIKELIHOOD_H
#define KVPIPE_LIKELIHOOD_H

#include <stdint.h>

struct token_likelihood {
	double logprob;                 /* log p(token) */
	int top;                        /* 1: no other token is likelier */
	/* of a reference run at the same place: KL(reference || ours) = sum p_r (log p_r - log p),
	 * and 1 where the likeliest token of both is the same (of equal ones the first) */
	double kl;
	int agrees;
};

/* logits[V], reference[V] or NULL: then kl and agrees stay 0. id < V. Returns 0, or -1 when a logit
 * is not finite. */
int token_likelihood(struct token_likelihood *out, const float *logits, const float *reference,
    uint32_t V, uint32_t id);

/* Over many tokens */
struct likelihood_sum {
	uint64_t n, top, agrees;
	double logprob, kl, kl_most;
};

void likelihood_add(struct likelihood_sum *, const struct token_likelihood *);
/* exp(-mean log p): perplexity; 1 for no token */
double likelihood_perplexity(const struct likelihood_sum *);

#endif
