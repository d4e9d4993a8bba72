/* rope.c - rotary frequencies
 *
 * In double precision. Hugging Face computes them in single: theirs differ from ours by about 1e-7
 * of their value. */

#include <math.h>
#include <string.h>

#include "model/model.h"

/* Llama 3.1: wavelengths above original / low are stretched by factor, those below original / high
 * stay, and between the two the frequency is interpolated. */
static double
llama3(const struct kv_model *id, double freq)
{
	double original = id->rope_original_max_position;
	double low = id->rope_low_freq_factor, high = id->rope_high_freq_factor;
	double wavelength = 2 * M_PI / freq, smooth;

	if (wavelength < original / high)
		return freq;
	if (wavelength > original / low)
		return freq / id->rope_factor;
	smooth = (original / wavelength - low) / (high - low);
	return (1 - smooth) * freq / id->rope_factor + smooth * freq;
}

/* YaRN, equation 17 solved for the pair: the one of W/2 that makes so many turns within the
 * original context. */
static double
pair_of_turns(const struct kv_model *id, double turns, uint32_t W)
{
	return W * log(id->rope_original_max_position / (turns * 2 * M_PI)) /
	    (2 * log(id->rope_theta));
}

/* Pairs below the one of beta_fast turns stay, those above the one of beta_slow turns are stretched
 * by factor, and between the two the share is linear in the number of the pair. */
static double
yarn(const struct kv_model *id, double freq, uint32_t i, uint32_t W)
{
	double low = pair_of_turns(id, id->rope_beta_fast, W);
	double high = pair_of_turns(id, id->rope_beta_slow, W), share;

	if (id->rope_truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, W - 1);
	if (low == high)
		high += 0.001;
	share = fmin(fmax((i - low) / (high - low), 0), 1);
	return freq / id->rope_factor * share + freq * (1 - share);
}

static double
mscale(double factor, double by)
{
	return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

double
model_yarn_attention_factor(double factor, double by, double by_all)
{
	return by != 0 && by_all != 0 ? mscale(factor, by) / mscale(factor, by_all) :
	    mscale(factor, 1);
}

void
model_rope_frequencies(const struct kv_model *id, double *freq)
{
	uint32_t i, W = id->rope_width != 0 ? id->rope_width : id->head_width;

	for (i = 0; i < W / 2; i++) {
		freq[i] = pow(id->rope_theta, -2.0 * i / W);
		if (id->rope_type == KV_ROPE_LLAMA3)
			freq[i] = llama3(id, freq[i]);
		else if (id->rope_type == KV_ROPE_LINEAR)
			freq[i] /= id->rope_factor;
		else if (id->rope_type == KV_ROPE_YARN)
			freq[i] = yarn(id, freq[i], i, W);
		else if (id->rope_type == KV_ROPE_LONGROPE)
			freq[i] /= id->rope_factors[i];
	}
}

void
model_window_frequencies(const struct kv_model *id, double *freq)
{
	const struct kv_model plain = { .head_width = id->head_width, .rope_width = id->rope_width,
		.rope_theta = id->rope_window_theta != 0 ? id->rope_window_theta : id->rope_theta };

	model_rope_frequencies(&plain, freq);
}

int
model_layer_frequencies(const struct kv_model *id, uint32_t l, double *freq)
{
	const int windowed = id->rope_window_theta != 0 && kv_layer_window(id, l) != 0;

	(windowed ? model_window_frequencies : model_rope_frequencies)(id, freq);
	return windowed;
}

/* All keys of a text must be rotated by the same factors, or distances are lost. So a text that
 * begins short ends where the factors change. */
void
model_expect_text(struct model *m, uint64_t tokens)
{
	if (m->rope_switch == 0 || tokens <= m->rope_switch)
		return;
	memcpy(m->id.rope_factors, m->long_factors, sizeof m->long_factors);
	m->rope_switch = 0;
}

int
model_turns_alike(const struct model *m, uint64_t tokens)
{
	return m->id.rope_type != KV_ROPE_LONGROPE ||
	    (m->rope_switch == 0) == (tokens > m->id.rope_original_max_position);
}

void
model_expect_snapshot(struct model *m, const struct kv_model *snapshot)
{
	if (snapshot->rope_type == KV_ROPE_LONGROPE && memcmp(snapshot->rope_factors,
	    m->long_factors, sizeof m->long_factors) == 0)
		model_expect_text(m, UINT64_MAX);
	if (snapshot->kv_heads == m->id.query_heads && m->id.kv_heads < m->id.query_heads) {
		m->kv_copies = m->id.query_heads / m->id.kv_heads;
		m->id.kv_heads = m->id.query_heads;
	}
}
