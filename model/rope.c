/* rope.c - rotary frequencies
 *
 * In double precision. Hugging Face computes them in single: theirs differ from ours by about 1e-7
 * of their value. */

#include <math.h>

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

void
model_rope_frequencies(const struct kv_model *id, double *freq)
{
	uint32_t i, E = id->head_width;

	for (i = 0; i < E / 2; i++) {
		freq[i] = pow(id->rope_theta, -2.0 * i / E);
		if (id->rope_type == KV_ROPE_LLAMA3)
			freq[i] = llama3(id, freq[i]);
	}
}
