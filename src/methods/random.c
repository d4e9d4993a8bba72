/* random.c - the baseline: random scores
 *
 * A row's score is a hash of seed, layer, KV head and position, in [0, 1). It does not depend on
 * the other rows, nor on their order: scoring, evicting half and scoring again keeps the same rows
 * as evicting to a quarter at once.
 *
 * The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable
 * Pseudorandom Number Generators"), applied once for each of the four. */
#include "methods/scorers.h"

static uint64_t
mix_word(uint64_t state, uint64_t word)
{
	uint64_t z = (state ^ word) + 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

int
score_random(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	uint64_t layer = mix_word(mix_word(0, opt->seed), in->layer), head;
	uint32_t g, s;

	for (g = 0; g < rows->heads; g++) {
		head = mix_word(layer, in->head + g);
		for (s = 0; s < rows->count[g]; s++)
			*score++ = (float)(mix_word(head, rows->pos[g][s]) >> 40) * 0x1p-24f;
	}
	return 0;
}
