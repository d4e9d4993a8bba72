/* simlayer.c - layers whose last queries look only at both ends of the text keep only these
 *
 * Zhang et al. 2024, "SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction".
 *
 * A layer is lazy if the attention of the last W queries (1), averaged over them and over all
 * query heads, that goes to the first positions (sink, 4) and to the last `recent` rows (1024) in
 * front of the window is more than `lazy` (0.9: Llama 3; the authors have 0.65 for Llama 2, 0.8
 * for Mistral, 0.85 for Qwen). Its rows score 1 if they are among the sinks or the last recent - W
 * ones, else 0; the rows of other layers all score 1. So kv-evict --threshold 1 keeps what the
 * method keeps; there is no budget. With no more than sink + recent + W rows no layer is lazy. */
#include <stdlib.h>

#include "methods/scorers.h"

/* Rows of KV head g that count as sinks, and the first of the recent ones; returns 0 if the head is
 * too short. */
static int
ends_of(const struct score_input *in, const struct score_options *opt, uint32_t g, uint32_t *sinks,
    uint32_t *recent, uint32_t *end)
{
	const uint32_t n = in->rows->count[g];

	*end = kv_rows_before(in->rows->pos[g], n, in->window_pos[0]);
	if ((uint64_t)n <= (uint64_t)opt->sink + opt->recent + in->window ||
	    *end < opt->recent)
		return 0;
	*sinks = kv_rows_before(in->rows->pos[g], n, opt->sink);
	*recent = *end - opt->recent;
	return 1;
}

static int
is_lazy(const struct score_input *in, const struct score_options *opt)
{
	const uint32_t R = in->query_heads / in->rows->heads;
	const float *mass = in->window_mass;
	uint32_t g, r, s, sinks, recent, end;
	double sum = 0;

	for (g = 0; g < in->rows->heads; g++) {
		if (!ends_of(in, opt, g, &sinks, &recent, &end))
			return 0;
		for (r = 0; r < R; r++, mass += in->stride) {
			for (s = 0; s < sinks; s++)
				sum += mass[s];
			for (s = recent; s < end; s++)
				sum += mass[s];
		}
	}
	return sum / in->query_heads / in->window > opt->lazy.value;
}

int
score_simlayer(const struct score_input *in, const struct score_options *opt, float *score)
{
	const int lazy = is_lazy(in, opt);
	const uint32_t last = opt->recent > in->window ? opt->recent - in->window : 0;
	uint32_t g, s, n, sinks;

	for (g = 0; g < in->rows->heads; g++) {
		n = in->rows->count[g];
		sinks = kv_rows_before(in->rows->pos[g], n, opt->sink);
		for (s = 0; s < n; s++)
			*score++ = !lazy || s < sinks || s >= n - last;
	}
	return 0;
}
