/* recent.c - the first few tokens and the latest ones
 *
 * Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" (StreamingLLM),
 * section 3.2.
 *
 * Softmax weights must add up to 1; trained models put unneeded weight on the first tokens.
 * Dropping those breaks the model at once, keeping four repairs it. score = position, so the
 * latest rows win; positions below sink are always kept.
 *
 * Limits: the middle of the text is dropped, whatever it says. Positions are exact in f32 up to
 * 2^24; beyond that neighbours tie.
 *
 * Ours differs from the authors' code in this: they cache keys before rotary embedding and
 * number positions by place in the cache; here, as in the comparisons of later papers, rows
 * keep their original positions. */
#include <math.h>

#include "methods/scorers.h"

int
score_recent(const struct score_input *in, const struct score_options *opt, float *score)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t sink = opt->sink, *pos;
	uint32_t g, n, s;

	for (g = 0; g < rows->heads; score += n, g++) {
		pos = rows->pos[g];
		n = rows->count[g];
		for (s = 0; s < n; s++)
			score[s] = pos[s] < sink ? INFINITY : (float)pos[s];
	}
	return 0;
}
