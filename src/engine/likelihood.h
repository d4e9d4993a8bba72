/* likelihood.h - the probability of a token by logits, and their distance from other logits
 *
 * It measures how much an eviction or a retrieval changes the model's distribution, which an exact
 * match of answers does not show. In double precision; natural logarithms. */
#ifndef KVPIPE_LIKELIHOOD_H
#define KVPIPE_LIKELIHOOD_H

#include <stdint.h>

struct token_likelihood {
	double logprob;                 /* log p(token) */
	int top;                        /* 1: no other token is likelier */
	/* with a reference run at the same token: KL(reference || ours) = sum p_r (log p_r - log
	 * p), and 1 if both have the same likeliest token (of equal ones the first) */
	double kl;
	int agrees;
};

/* *out <- the likelihood of token id < V by logits[V]. reference[V] NULL: kl and agrees are 0.
 * Returns 0, or -1 when a logit is not finite. */
int token_likelihood(struct token_likelihood *out, const float *logits, const float *reference,
    uint32_t V, uint32_t id);

/* Sums over many tokens */
struct likelihood_sum {
	uint64_t n, top, agrees;
	double logprob, kl, kl_most;
};

void likelihood_add(struct likelihood_sum *, const struct token_likelihood *);
/* Returns the perplexity exp(-mean log p); 1 for no token */
double likelihood_perplexity(const struct likelihood_sum *);

#endif
