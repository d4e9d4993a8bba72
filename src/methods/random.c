/* random.c - the baseline: random scores
 *
 * A row's score is a hash of seed, layer, KV head and position, in [0, 1). It does not depend on
 * the other rows, nor on their order: scoring, evicting half and scoring again keeps the same rows
 * as evicting to a quarter at once.
 *
 * The hash is that of mix_word.h, of the four. */
#include "methods/mix_word.h"
#include "methods/scorers.h"

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
