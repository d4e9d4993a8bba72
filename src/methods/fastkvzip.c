/* fastkvzip.c - rows that a gate rates highly from their hidden states are kept, and both ends
 *
 * Fast KVzip (2026); kvpress's FastKVzipPress. The gate, a softmax of each row against learned
 * sinks, was trained on KVzip's scores (model/gate.h), and has rated each row when its token ran.
 * Its authors choose rows over all layers and KV heads together (kv-evict --policy global).
 *
 * The first `sink` positions and the last `recent` come first: by default 4, and a fiftieth of the
 * text, at least 1, and of texts of 32000 tokens or more 4096. Here they have +inf; kvpress gives
 * them 1, which no other row has, either.
 *
 * Limits: knows no question; a gate is for one model. */
#include <math.h>

#include "methods/scorers.h"

enum { LONG_TEXT = 32000, LONG_RECENT = 4096 };

/* The authors' rule, in f64 as they have it */
static uint32_t
recent_of(uint32_t tokens)
{
	const uint32_t share = (uint32_t)(tokens * 0.02);

	return tokens >= LONG_TEXT ? LONG_RECENT : share > 0 ? share : 1;
}

int
score_fastkvzip(const struct score_input *in, const struct score_options *opt, float *score)
{
	const uint32_t T = in->next_position;
	const uint32_t recent = opt->recent != RECENT_BY_LENGTH ? opt->recent : recent_of(T);
	const uint32_t end = recent < T ? T - recent : 0;
	const float *gate = in->gate;
	uint32_t g, s;

	for (g = 0; g < in->rows->heads; gate += in->rows->count[g++])
		for (s = 0; s < in->rows->count[g]; s++) {
			const uint32_t pos = in->rows->pos[g][s];

			*score++ = pos < opt->sink || pos >= end ? INFINITY : gate[s];
		}
	return 0;
}
