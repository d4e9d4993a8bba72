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

#define YARN(theta, factor, fast, slow, original, round) \
	.rope_type = KV_ROPE_YARN, .rope_theta = theta, .rope_factor = factor, \
	.rope_beta_fast = fast, .rope_beta_slow = slow, .rope_truncate = round, \
	.rope_original_max_position = original

/* Only the first channels are rotated, as those of a head that is no wider. */
static void
test_width(void)
{
	struct kv_model part = { .head_width = 128, .rope_width = 64, .rope_theta = 10000,
		.rope_skip = 4 };
	double freq[64];

	model_rope_frequencies(&part, freq);
	CHECK(fabs(freq[31] - plain_64_10000[31]) <=
	    4e-15 * freq[31], "width 64 of 128: %g", freq[31]);
	CHECK(kv_rope_dims(&part, 2) == 64 && kv_rope_dims(&part, 3) == 0 &&
	    kv_rope_dims(&part, 7) == 0, "the fourth layer is skipped");
	part.rope_width = part.rope_skip = 0;
	CHECK(kv_rope_dims(&part, 3) == 128, "all channels of all layers");
}

/* A text that is longer than the original context has the other factors from its beginning. */
static void
test_long(void)
{
	static struct model m;
	const struct kv_model start = { .head_width = 4, .rope_theta = 100, .rope_n_factors = 2,
		.rope_original_max_position = 16, .rope_type = KV_ROPE_LONGROPE,
		.rope_factors = { 1, 2 } };
	struct kv_model snapshot = start;
	double freq[2];

	m = (struct model){ .id = start, .rope_switch = 16, .long_factors = { 4, 8 } };
	model_expect_text(&m, 16);
	model_expect_snapshot(&m, &snapshot);
	model_rope_frequencies(&m.id, freq);
	CHECK(freq[0] == 1 && fabs(freq[1] - 0.05) < 1e-16 && m.rope_switch == 16, "short");
	CHECK(model_turns_alike(&m, 16) && !model_turns_alike(&m, 17), "rows of a short text");
	snapshot.rope_factors[0] = 4;
	snapshot.rope_factors[1] = 8;
	model_expect_snapshot(&m, &snapshot);
	model_rope_frequencies(&m.id, freq);
	CHECK(freq[0] == 0.25 && fabs(freq[1] - 0.0125) < 1e-16 && m.rope_switch == 0, "long");
	CHECK(!model_turns_alike(&m, 16) && model_turns_alike(&m, 17), "rows of a long text");
	m = (struct model){ .id = start, .rope_switch = 16, .long_factors = { 4, 8 } };
	model_expect_text(&m, 17);
	CHECK(m.id.rope_factors[1] == 8, "a text of 17 tokens");
}

int
main(void)
{
	test_long();
	test_width();
	CASE(linear_16, .rope_type = KV_ROPE_LINEAR, .rope_theta = 10000, .rope_factor = 4);
	CASE(yarn_128, YARN(1000000, 4, 32, 1, 32768, 1));
	CASE(yarn_unrounded_24, YARN(10000, 2.5, 8, 0.5, 64, 0));
	CASE(yarn_short_8, YARN(10000, 16, 32, 1, 16, 1));
	CASE(plain_64_10000, .rope_theta = 10000);
	CASE(plain_32_500000, .rope_theta = 500000);
	CASE(llama31_128, LLAMA3(500000, 8, 1, 4, 8192));
	CASE(llama32_64, LLAMA3(500000, 32, 1, 4, 8192));
	CASE(odd_scaling_16, LLAMA3(1234.5, 2.5, 0.75, 3.5, 300));
	return failures != 0;
}
