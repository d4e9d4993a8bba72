/* model_rope - rotary frequencies against tests/oracle/rope.py */

#include <math.h>

#include "tests/unit/model_folder.h"
#include "tests/unit/rope_expected.h"

static void
check(const char *name, struct kv_model id, const double *want, size_t n)
{
	double *freq;
	size_t i;

	id.head_width = (uint32_t)(2 * n);
	freq = malloc(n * sizeof *freq);
	model_rope_frequencies(&id, freq);
	for (i = 0; i < n; i++)
		CHECK(fabs(freq[i] - want[i]) <= 4e-15 * want[i], "%s[%zu]: %.17g, want %.17g",
		    name, i, freq[i],
		    want[i]);
	free(freq);
}

#define CASE(name, ...) \
	check(#name, (struct kv_model){ __VA_ARGS__ }, name, sizeof name / sizeof name[0])
#define LLAMA3(theta, factor, low, high, original) \
	.rope_type = KV_ROPE_LLAMA3, .rope_theta = theta, .rope_factor = factor, \
	.rope_low_freq_factor = low, .rope_high_freq_factor = high, \
	.rope_original_max_position = original

int
main(void)
{
	CASE(plain_64_10000, .rope_theta = 10000);
	CASE(plain_32_500000, .rope_theta = 500000);
	CASE(llama31_128, LLAMA3(500000, 8, 1, 4, 8192));
	CASE(llama32_64, LLAMA3(500000, 32, 1, 4, 8192));
	CASE(odd_scaling_16, LLAMA3(1234.5, 2.5, 0.75, 3.5, 300));
	return failures != 0;
}
