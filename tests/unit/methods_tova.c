/* methods_tova.c - the mean over query heads by hand, where KV heads hold different rows */
#include <math.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

/* Two KV heads with two query heads each. The query stands at position 6; 7 came later. */
static const uint32_t count[2] = { 4, 3 };
static const uint32_t pos0[] = { 1, 3, 6, 7 }, pos1[] = { 0, 3, 6 };
static const uint32_t *const pos[2] = { pos0, pos1 };
static const struct kv_rows rows = { 2, count, pos };
static const uint32_t query[] = { 6 };
static const float mass[4][5] = {
	{ 0.5f, 0.25f, 0.25f, 0 },
	{ 0, 0.5f, 0.5f, 0 },
	{ 0.125f, 0.25f, 0.625f },
	{ 0.375f, 0, 0.625f },
};

static void
check_scores(int keep_last, const float *want)
{
	struct score_input in = { .query_heads = 4, .rows = &rows, .window_mass = mass[0],
	    .stride = 5, .window = 1, .window_pos = query, .next_position = 8 };
	struct score_options opt = { .keep_last = keep_last };
	float score[7];
	int i;

	check(method_named("tova")->score(&in, &opt, score) == 0, "tova failed");
	for (i = 0; i < 7; i++)
		check(score[i] == want[i], "keep_last %d row %d: %g, want %g", keep_last, i,
		    score[i], want[i]);
}

int
main(void)
{
	/* positions 1, 3, 6, 7 of head 0; 0, 3, 6 of head 1 */
	static const float want[] = { 0.25f, 0.25f, 0.5f, INFINITY, 0.25f, 0.25f, 0.5f };
	static const float with_last[] = { 0.25f, 0.25f, INFINITY, INFINITY, 0.25f, 0.25f,
	    INFINITY };

	check_scores(0, want);
	check_scores(1, with_last);
	return failures > 0;
}
