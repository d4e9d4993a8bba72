/* methods_leverage.c - leverage of keys that are long beside the ridge, or not finite */
#include <math.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

#define ROWS 3
#define WIDTH 6

static const uint32_t count[1] = { ROWS };
static const uint32_t at[ROWS] = { 0, 70, 4000000000 };
static const uint32_t *pos[1] = { at };
static const struct kv_rows rows = { 1, count, pos };
static const double freq[WIDTH / 2] = { 1, 0.1, 0.01 };

static void
score_keys(float *score, const float *keys, uint32_t rope_dims)
{
	const struct method *m = method_named("leverage");
	struct score_input in = { .layers = 1, .query_heads = 1, .width = WIDTH, .rows = &rows,
	    .keys = keys, .key_type = KV_ROW_F32, .next_position = UINT32_MAX, .freq = freq,
	    .rope_dims = rope_dims, .rope_factor = 1.5 };

	memset(score, 0xff, ROWS * sizeof *score);
	check(method_score(m, &in, &m->defaults, 1, score) == 0, "out of memory");
}

/* Three keys less their mean span two directions: their leverages are 2/3 each, whatever their
 * length, and with the ridge that a decomposition needs. */
static void
check_length(float length)
{
	float keys[ROWS * WIDTH] = { 0 }, score[ROWS];
	int i;

	for (i = 0; i < ROWS; i++)
		keys[i * WIDTH + i] = length;
	score_keys(score, keys, 0);
	for (i = 0; i < ROWS; i++)
		check(fabs(score[i] - 2.0 / 3) < 1e-3, "length %g: %g", length, score[i]);
	score_keys(score, keys, WIDTH);
	for (i = 0; i < ROWS; i++)
		check(score[i] > 0 && score[i] < 1, "length %g, rotated: %g", length, score[i]);
}

static void
check_not_finite(float number)
{
	float keys[ROWS * WIDTH] = { 0 }, score[ROWS];
	int i;

	keys[WIDTH + 4] = number;
	score_keys(score, keys, WIDTH);
	for (i = 0; i < ROWS; i++)
		check(isnan(score[i]), "%g: %g", number, score[i]);
}

int
main(void)
{
	float length;

	for (length = 1e2F; length < 1e30F; length *= 1e3F)
		check_length(length);
	check_not_finite(NAN);
	check_not_finite(INFINITY);
	return failures > 0;
}
