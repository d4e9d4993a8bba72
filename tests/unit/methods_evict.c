/* methods_evict.c - evict_choose(): budgets, what is always kept, ties, refusals; worked by hand */
#include <math.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

static const uint32_t pos0[] = { 0, 1, 2, 5, 7, 9 }, pos1[] = { 4, 8 };
static const uint32_t count[] = { 6, 2 };
static const uint32_t *const pos[] = { pos0, pos1 };
static const struct kv_rows rows = { 2, count, pos };
static const float score[] = { 1, 5, 3, 3, 3, 0, /* head 1 */ 2, 1 };

/* want: the rows of both heads as text, "0 1 4|1"; beyond: as of struct kept */
static void
expect_beyond(const float *s, struct evict_options opt, uint32_t beyond, const char *want)
{
	struct evict_input in = { .rows = &rows, .score = s, .next_position = 10 };
	struct kept kept;
	char got[64] = "", why[200] = "";
	uint32_t g, i;
	int code = evict_choose(&in, &opt, &kept, why, sizeof why);

	check(code == EVICT_OK, "%s: %s", want, why);
	if (code != EVICT_OK)
		return;
	for (g = 0; g < kept.heads; g++) {
		strcat(got, g > 0 ? "|" : "");
		for (i = 0; i < kept.count[g]; i++)
			sprintf(got + strlen(got), "%s%u", i > 0 ? " " : "", kept.keep[g][i]);
	}
	check(strcmp(got, want) == 0, "kept %s, must be %s", got, want);
	check(kept.beyond == beyond, "%s: %u beyond the budget, must be %u", want, kept.beyond,
	    beyond);
	kept_free(&kept);
}

static void
expect_kept(const float *s, struct evict_options opt, const char *want)
{
	expect_beyond(s, opt, 0, want);
}

static void
refuse(const float *s, struct evict_options opt, const char *want)
{
	struct evict_input in = { .rows = &rows, .score = s, .next_position = 10 };
	struct kept kept;
	char why[200] = "";
	int code;

	opt.refuse_small = 1;
	code = evict_choose(&in, &opt, &kept, why, sizeof why);
	check(code == EVICT_EBUDGET && strstr(why, want) != NULL, "%d '%s', must be '%s'", code,
	    why, want);
	check(kept.count == NULL && kept.keep == NULL, "something is left behind");
}

/* The plan without scores, of all rows but the last ones of each head: as many rows as
 * evict_choose() keeps, and those that always stay are among these. */
static void
expect_planned(struct evict_options opt, const uint32_t *scored, const uint8_t *streaming)
{
	struct evict_input in = { .rows = &rows, .layers = 3, .layer = 1, .next_position = 10,
		.streaming = streaming };
	struct evict_plan plan;
	struct kept kept;
	float s[8];
	char why[200] = "", same[200] = "";
	uint32_t g, i, n, at;
	int code, chosen;

	memcpy(s, score, sizeof s);
	for (g = 0, at = 0; g < 2; at += count[g++])
		for (i = scored[g]; i < count[g]; i++)
			s[at + i] = INFINITY;
	check(evict_plans(&in, &opt), "no plan");
	code = evict_plan(&in, &opt, scored, &plan, why, sizeof why);
	in.score = s;
	chosen = evict_choose(&in, &opt, &kept, same, sizeof same);
	check(code == chosen && strcmp(why, same) == 0, "%d '%s', must be %d '%s'", code, why,
	    chosen, same);
	for (g = 0; code == EVICT_OK && chosen == EVICT_OK && g < 2; g++) {
		check(plan.kept.count[g] == kept.count[g], "head %u: %u rows, must be %u", g,
		    plan.kept.count[g], kept.count[g]);
		for (n = 0, i = 0; i < kept.count[g]; i++)
			n += kept.keep[g][i] < plan.first[g] || kept.keep[g][i] >= plan.last[g];
		check(plan.first[g] <= plan.last[g] && plan.last[g] <= count[g] &&
		    n == plan.first[g] + count[g] - plan.last[g],
		    "head %u: %u of the rows before %u and from %u on stay", g, n, plan.first[g],
		    plan.last[g]);
		check((streaming != NULL && streaming[g]) || plan.last[g] <= scored[g] ||
		    plan.last[g] == plan.first[g], "head %u: rows from %u on may go", g, scored[g]);
		check(streaming == NULL || !streaming[g] || n == plan.kept.count[g],
		    "head %u streams: %u of %u rows", g, n, plan.kept.count[g]);
	}
	check(code != EVICT_OK || (plan.kept.beyond == kept.beyond &&
	    plan.kept.given == kept.given && plan.kept.budgets == kept.budgets &&
	    plan.kept.budget == kept.budget),
	    "other sums of budgets");
	if (code == EVICT_OK)
		evict_plan_free(&plan);
	kept_free(&kept);
}

/* All numbers of scored rows, with sinks, recent rows, pyramids and streaming heads; what cannot be
 * planned */
static void
test_plans(void)
{
	static const uint8_t second[] = { 0, 1 };
	const struct policy *pyramid = policy_named("pyramid");
	const struct evict_input in = { .rows = &rows, .next_position = 10 };
	uint32_t scored[2], i, budget;

	for (i = 0; i < 7 * 3; i++) {
		scored[0] = i % 7;
		scored[1] = i / 7;
		for (budget = 1; budget < 8; budget++) {
			struct evict_options opt = { .budget = budget, .stream_sink = 5 };

			expect_planned(opt, scored, NULL);
			opt.sink = 2;
			expect_planned(opt, scored, second);
			opt.recent = 3;
			expect_planned(opt, scored, NULL);
			opt.policy = pyramid;
			expect_planned(opt, scored, NULL);
			opt.refuse_small = 1;
			expect_planned(opt, scored, NULL);
			opt = (struct evict_options){ .rate = budget / 8.0, .recent = i % 4 };
			expect_planned(opt, scored, NULL);
		}
	}
	check(!evict_plans(&in, &(struct evict_options){ .budget = 1, .since = 1 }), "since");
	check(!evict_plans(&in, &(struct evict_options){ .budget = 1, .same_rows = 1 }),
	    "same rows");
	check(!evict_plans(&in, &(struct evict_options){ .budget = 1,
	    .policy = policy_named("ada") }), "ada");
	check(!evict_plans(&in, &(struct evict_options){ .budget = 1,
	    .policy = policy_named("global") }), "global");
}

int
main(void)
{
	float infinite[8];

	/* ties among rows 2, 3, 4: the lower ones stay */
	expect_kept(score, (struct evict_options){ .budget = 1 }, "1|0");
	expect_kept(score, (struct evict_options){ .budget = 3 }, "1 2 3|0 1");
	expect_kept(score, (struct evict_options){ .budget = 5 }, "0 1 2 3 4|0 1");
	expect_kept(score, (struct evict_options){ .budget = 6 }, "0 1 2 3 4 5|0 1");
	expect_kept(score, (struct evict_options){ .budget = UINT32_MAX }, "0 1 2 3 4 5|0 1");
	expect_kept(score, (struct evict_options){ .rate = 0.5 }, "1 2 3|0");
	expect_kept(score, (struct evict_options){ .rate = 1 }, "0 1 2 3 4 5|0 1");

	/* sinks and recent ones are positions: 8 and 9 are recent, head 0 has only 9, in row 5 */
	expect_kept(score, (struct evict_options){ .budget = 3, .sink = 1 }, "0 1 2|0 1");
	expect_kept(score, (struct evict_options){ .budget = 3, .sink = 1, .recent = 2 },
	    "0 1 5|0 1");
	expect_kept(score, (struct evict_options){ .budget = 3, .sink = 2, .recent = 1 },
	    "0 1 5|0 1");
	refuse(score, (struct evict_options){ .budget = 2, .recent = UINT32_MAX },
	    "6 are always kept");
	refuse(score, (struct evict_options){ .budget = 2, .sink = 2, .recent = 1 },
	    "KV head 0: a budget of 2 of 6 rows is too small: 3 are always kept "
	    "(2 sink, 1 recent, 0 scored +inf)");
	refuse(score, (struct evict_options){ .rate = 0.01 }, "a budget of 0 of 6 rows");

	memcpy(infinite, score, sizeof score);
	infinite[5] = infinite[0] = INFINITY;
	expect_kept(infinite, (struct evict_options){ .budget = 2 }, "0 5|0 1");
	expect_kept(infinite, (struct evict_options){ .budget = 2, .sink = 1 }, "0 5|0 1");
	refuse(infinite, (struct evict_options){ .budget = 2, .sink = 2 },
	    "3 are always kept (2 sink, 0 recent, 1 scored +inf)");

	/* not refused: what is always kept stays, and of a budget of none one row */
	expect_beyond(infinite, (struct evict_options){ .budget = 2, .sink = 2 }, 1, "0 1 5|0 1");
	expect_beyond(score, (struct evict_options){ .budget = 2, .recent = UINT32_MAX }, 4,
	    "0 1 2 3 4 5|0 1");
	expect_beyond(score, (struct evict_options){ .rate = 0.01 }, 1, "1|0");
	expect_beyond(infinite, (struct evict_options){ .rate = 0.01 }, 2, "0 5|0");
	/* rows before `since` stay, so that the head is not empty without one of the others */
	expect_beyond(score, (struct evict_options){ .rate = 0.3, .since = 5 }, 0, "0 1 2|0");
	expect_beyond(score, (struct evict_options){ .rate = 0.3, .since = 5, .recent = 1 }, 1,
	    "0 1 2 5|0");

	/* without scores: sinks and the latest rows */
	expect_kept(NULL, (struct evict_options){ .budget = 3, .sink = 1 }, "0 4 5|0 1");
	expect_kept(NULL, (struct evict_options){ .budget = 1 }, "5|1");
	test_plans();
	return failures != 0;
}
