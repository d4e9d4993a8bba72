/* sample.h - chooses the next token from logits */
#ifndef KVPIPE_SAMPLE_H
#define KVPIPE_SAMPLE_H

#include <stdint.h>

struct sampler {
	double temperature;            /* 0 = greedy */
	/* 1 = off: only the smallest set of tokens whose probabilities sum to top_p */
	double top_p;
	/* 0 = off: only tokens with at least min_p times the greatest probability */
	double min_p;
	uint64_t state[2];             /* random generator; sampler_seed() */
};

void sampler_seed(struct sampler *, uint64_t seed);
/* Returns the next token. Greedy: the lowest id of the greatest logits. Otherwise temperature, then
 * min_p, then top_p, then one draw. Returns UINT32_MAX when memory is short or no logit is
 * finite. */
uint32_t sample(struct sampler *, const float *logits, uint32_t V);

#endif
