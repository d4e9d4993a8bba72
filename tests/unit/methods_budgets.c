/* methods_budgets.c - budgets that differ by layer and KV head; figures worked out by hand */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

#define MOST 8192

static uint32_t positions[MOST];
static const uint32_t six[] = { 6, 6 };
static const uint32_t *const same[] = { positions, positions };
static const struct kv_rows two = { 2, six, same };

/* How many rows layer l of L keeps of n, the last `window` of which are scored +inf. */
static uint32_t
layer_keeps(uint32_t l, uint32_t L, uint32_t n, uint32_t window, struct evict_options opt)
{
	static float score[MOST];
	struct kv_rows rows = { 1, &n, same };
	struct evict_input in = { .layer = l, .layers = L, .rows = &rows, .score = score,
	    .next_position = n };
	struct kept kept;
	char why[200] = "";
	uint32_t i, got;

	for (i = 0; i < n; i++)
		score[i] = i + window < n ? (float)i : INFINITY;
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_OK, "layer %u: %s", l, why);
	if (kept.count == NULL)
		return 0;
	got = kept.count[0];
	kept_free(&kept);
	return got;
}

static void
expect_layer(uint32_t l, uint32_t L, uint32_t n, uint32_t window, struct evict_options opt,
    uint32_t want)
{
	uint32_t got = layer_keeps(l, L, n, window, opt);

	check(got == want, "layer %u of %u: %u of %u rows, must be %u", l, L, got, n, want);
}

static void
test_pyramid(void)
{
	struct evict_options opt = { .budget = 128, .policy = policy_named("pyramid") };
	uint32_t l, sum = 0;

	/* B = 120: from 240 - 6 down to 6, in steps of floor(228 / 31) = 7 */
	expect_layer(0, 32, 4096, 8, opt, 234 + 8);
	expect_layer(1, 32, 4096, 8, opt, 227 + 8);
	expect_layer(31, 32, 4096, 8, opt, 17 + 8);
	for (l = 0; l < 32; l++)
		sum += layer_keeps(l, 32, 4096, 8, opt);
	check(sum == 4272, "%u rows in all layers, must be 133.5 * 32", sum);
	opt.budget = 2048;                      /* 3000 < 2 * 2040: uniform */
	expect_layer(0, 32, 3000, 8, opt, 2048);
	expect_layer(31, 32, 3000, 8, opt, 2048);
	expect_layer(31, 32, 2047, 8, opt, 2047);
	opt.budget = 40;                        /* B = 32 */
	expect_layer(0, 4, 100, 8, opt, 63 + 8);
	expect_layer(3, 4, 100, 8, opt, 3 + 8);
	expect_layer(0, 4, 70, 8, opt, 62 + 8); /* 63 would be more than there is: 62 .. 2 */
	expect_layer(3, 4, 70, 8, opt, 2 + 8);
	expect_layer(0, 4, 66, 8, opt, 58 + 8); /* 58, 41, 24, 7 */
	expect_layer(3, 4, 66, 8, opt, 7 + 8);
	expect_layer(0, 1, 100, 8, opt, 40);    /* one layer is no pyramid */
	opt.budget = 0;
	opt.rate = 0.4;                         /* 40 of 100 */
	expect_layer(1, 4, 100, 8, opt, 43 + 8);
}

/* The budgets of all layers fall, hold the window, and their mean is the budget. */
static void
check_exact(uint32_t L, uint32_t n, uint32_t window, uint32_t budget)
{
	struct evict_options opt = { .budget = budget, .policy = policy_named("pyramid-exact") };
	uint32_t l, got, last = n, sum = 0;

	for (l = 0; l < L; l++) {
		got = layer_keeps(l, L, n, window, opt);
		check(got <= last && got >= window, "layer %u of %u: %u of %u rows, window %u, "
		    "budget %u, %u in the layer before", l, L, got, n, window, budget, last);
		last = got;
		sum += got;
	}
	check(sum == L * (budget < n ? budget : n), "%u layers of %u rows, window %u, budget %u: "
	    "%u rows in all", L, n, window, budget, sum);
}

static void
test_pyramid_exact(void)
{
	static const uint32_t L[] = { 1, 2, 3, 4, 7, 16, 30, 32 };
	static const uint32_t window[] = { 0, 1, 8, 64 };
	struct evict_options opt = { .budget = 40, .policy = policy_named("pyramid-exact") };
	uint32_t i, w, n, budget;

	/* B = 32: from 62.4 to 1.6 in steps of 20.2666; the third has the largest remainder, .8666,
	 * the last .6, the first .4, the second .1333: 63 would be one too many */
	expect_layer(0, 4, 100, 8, opt, 62 + 8);
	expect_layer(1, 4, 100, 8, opt, 42 + 8);
	expect_layer(2, 4, 100, 8, opt, 22 + 8);
	expect_layer(3, 4, 100, 8, opt, 2 + 8);
	expect_layer(0, 4, 66, 8, opt, 58 + 8); /* all that there are: 58, 40.6666, 23.3333, 6 */
	expect_layer(1, 4, 66, 8, opt, 41 + 8);
	expect_layer(3, 4, 66, 8, opt, 6 + 8);
	opt.budget = 10;                        /* B = 5: 9.75, 7.25 ... -> 10 7 5 3 0 */
	expect_layer(0, 5, 100, 5, opt, 10 + 5);
	expect_layer(1, 5, 100, 5, opt, 7 + 5);
	expect_layer(2, 5, 100, 5, opt, 5 + 5);
	expect_layer(3, 5, 100, 5, opt, 3 + 5);
	expect_layer(4, 5, 100, 5, opt, 0 + 5);
	expect_layer(0, 3, 100, 0, opt, 20);    /* 19.5, 10, .5: the first of equal remainders */
	expect_layer(2, 3, 100, 0, opt, 0);
	for (i = 0; i < sizeof L / sizeof *L; i++)
		for (w = 0; w < sizeof window / sizeof *window; w++)
			for (n = 65; n < 400; n += 83)
				for (budget = window[w] + 1; budget < n + 9;
				    budget += 1 + budget / 9)
					check_exact(L[i], n, window[w], budget);
}

static void
test_pyramid_kvpress(void)
{
	struct evict_options opt = { .rate = 0.5, .policy = policy_named("pyramid-kvpress") };
	uint32_t l, sum = 0;

	expect_layer(0, 32, 1024, 64, opt, 960);
	expect_layer(1, 32, 1024, 64, opt, 931);
	expect_layer(31, 32, 1024, 64, opt, 64);
	for (l = 0; l < 32; l++)
		sum += layer_keeps(l, 32, 1024, 64, opt);
	check(sum == 512 * 32, "%u rows in all layers, must be 512 * 32", sum);
	opt.rate = 0.2;
	expect_layer(0, 32, 8192, 64, opt, 3195);
	expect_layer(1, 32, 8192, 64, opt, 3094);
	expect_layer(31, 32, 8192, 64, opt, 82);
	opt.rate = 0.9;                         /* no more than 1024 - 64: 960 .. 883.2 */
	expect_layer(0, 32, 1024, 64, opt, 960);
	expect_layer(31, 32, 1024, 64, opt, 883);
	expect_layer(0, 32, 1024, 512, opt, 922);       /* 512 .. 1331.2 is no pyramid: uniform */
	expect_layer(31, 32, 1024, 512, opt, 922);
	opt.rate = 0;
	opt.budget = 512;
	expect_layer(0, 32, 1024, 64, opt, 960);
}

static void
to_text(char *got, const struct kept *kept)
{
	uint32_t g, i;

	for (*got = '\0', g = 0; g < kept->heads; g++) {
		strcat(got, g > 0 ? "|" : "");
		for (i = 0; i < kept->count[g]; i++)
			sprintf(got + strlen(got), "%s%u", i > 0 ? " " : "", kept->keep[g][i]);
	}
}

/* want: "0 1|2 3" of two heads of 6 rows */
static void
expect_kept(const float *score, struct evict_options opt, const char *want)
{
	struct evict_input in = { .layers = 1, .rows = &two, .score = score, .next_position = 6 };
	struct kept kept;
	char got[100], why[200] = "";

	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_OK, "%s: %s", want, why);
	to_text(got, &kept);
	check(strcmp(got, want) == 0, "kept %s, must be %s", got, want);
	kept_free(&kept);
}

static void
test_ada(void)
{
	static const float near[] = { 9, 8, 7, 6, 1, 1, 5, 4, 3, 2, 1, 1 };
	static const float far[] = { 9, 8, 7, 6, 5.5f, 5.2f, 1, 1, 1, 1, 1, 1 };
	static const float flat[] = { 8, 3, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4 };
	struct evict_options opt = { .budget = 3, .policy = policy_named("ada") };

	/* wins 4 and 2 of 6 */
	expect_kept(near, opt, "0 1 2 3|0 1");
	opt.alpha = 0.2;                        /* 3.8 and 2.2 */
	expect_kept(near, opt, "0 1 2 3|0 1");
	opt.alpha = 0.5;                        /* 3.5 and 2.5: the lower head */
	expect_kept(near, opt, "0 1 2 3|0 1");
	opt.alpha = 0.8;                        /* 3.2 and 2.8 */
	expect_kept(near, opt, "0 1 2|0 1 2");
	opt.alpha = 1;
	expect_kept(far, opt, "0 1 2|0 1 2");
	opt.alpha = 0;                          /* wins all, and the other head nothing */
	expect_kept(far, opt, "0 1 2 3 4 5|");
	/* 5.4 and 0.6; the authors' rounding gives 5 and 0 */
	opt.alpha = 0.2;
	expect_kept(far, opt, "0 1 2 3 4|0");
	opt.sink = 1;                           /* B = 2 each: wins 4 and 0; 3.6 and 0.4 */
	expect_kept(far, opt, "0 1 2 3 4|0");
	opt = (struct evict_options){ .budget = 2, .policy = policy_named("ada") };
	expect_kept(flat, opt, "0|0 1 2");
	opt.normalize = 1;                      /* times 11 / 11, times 8 / 24 */
	expect_kept(flat, opt, "0 1|0 1");

	opt = (struct evict_options){ .budget = 3, .policy = policy_named("ada-kvpress") };
	expect_kept(far, opt, "0 1 2 3 4 5|");
	opt.alpha = 0.5;                        /* 1 row of each is safe */
	expect_kept(far, opt, "0 1 2 3 4|0");
	opt.alpha = 0.7;                        /* 2 are */
	expect_kept(far, opt, "0 1 2 3|0 1");
	opt.recent = 2;
	expect_kept(far, opt, "0 1 4 5|4 5");
}

static void
test_others(void)
{
	static const float score[] = { 1, 9, 2, 8, 3, 7, 5, 0, 6, 1, 4, 9 };
	static const float infinite[] = { 1, 9, 2, 8, INFINITY, 7, 5, 0, 6, 1, -INFINITY, 9 };
	static const uint8_t streaming[] = { 0, 1 };
	struct evict_input in = { .layers = 1, .rows = &two, .score = score, .next_position = 6 };
	struct evict_options opt = { .budget = 2, .same_rows = 1 };
	struct kept kept;
	char got[100], why[200];

	/* means 3, 4.5, 4, 4.5, 3.5, 8 */
	expect_kept(score, opt, "1 5|1 5");
	expect_kept(infinite, opt, "4 5|4 5");
	/* rows 0 and 1 stay, on top of 2 of the other four */
	expect_kept(score, (struct evict_options){ .budget = 2, .since = 2 }, "0 1 3 5|0 1 2 5");
	expect_kept(score, (struct evict_options){ .rate = 0.5, .since = 2, .recent = 1,
	    .sink = 3 }, "0 1 2 5|0 1 2 5");
	expect_kept(score, (struct evict_options){ .budget = 1, .since = 9 },
	    "0 1 2 3 4 5|0 1 2 3 4 5");

	in.streaming = streaming;
	opt = (struct evict_options){ .rate = 1, .stream_sink = 2, .stream_recent = 1 };
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_OK, "%s", why);
	to_text(got, &kept);
	check(strcmp(got, "0 1 2 3 4 5|0 1 5") == 0, "streaming: %s", got);
	kept_free(&kept);
	in.score = NULL;
	opt.since = 3;                          /* streaming heads do not care */
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_OK, "%s", why);
	to_text(got, &kept);
	check(strcmp(got, "0 1 2 3 4 5|0 1 5") == 0, "streaming without scores: %s", got);
	kept_free(&kept);

	in = (struct evict_input){ .layers = 1, .rows = &two, .score = score, .next_position = 6,
	    .tokens = 20 };
	opt = (struct evict_options){ .rate = 0.1 };
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_OK, "%s", why);
	to_text(got, &kept);
	check(strcmp(got, "1 3|2 5") == 0, "a tenth of 20 tokens: %s", got);
	kept_free(&kept);
}

static void
test_refusals(void)
{
	static const uint32_t count[] = { 6, 5 };
	static const float below[] = { 1, 2, 3, 4, 5, 6, 1, 2, 3, -4, 5, 6 };
	struct kv_rows rows = { 2, count, same };
	struct evict_input in = { .layers = 1, .rows = &rows, .score = below, .next_position = 6 };
	struct evict_options opt = { .budget = 2, .same_rows = 1 };
	struct kept kept;
	char why[200];

	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_EINPUT &&
	    strstr(why, "KV heads 0 and 1 have different rows") != NULL, "'%s'", why);
	in.rows = &two;
	opt = (struct evict_options){ .budget = 2, .policy = policy_named("ada"), .normalize = 1 };
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_EINPUT &&
	    strstr(why, "KV head 1: scores below 0") != NULL, "'%s'", why);
	opt = (struct evict_options){ .budget = 2, .policy = policy_named("pyramid"), .sink = 3,
	    .refuse_small = 1 };
	check(evict_choose(&in, &opt, &kept, why, sizeof why) == EVICT_EBUDGET &&
	    strstr(why, "3 are always kept") != NULL, "'%s'", why);
	check(kept.count == NULL && kept.keep == NULL, "something is left behind");
}

static void
expect_counts(enum competitors what, struct evict_options opt, uint64_t beyond,
    const uint32_t want[4])
{
	static const float first[] = { 9, 8, 1, 1, 1, 1, 4, 4, 4, 0, 0, 0 };
	static const float second[] = { 4, 4, 7, 2, 2, 2, 1, 1, 1, 1, 1, 1 };
	struct global *all = global_new(what);
	struct evict_input in = { .layers = 2, .rows = &two, .next_position = 6 };
	const uint32_t *count = NULL;
	char why[200] = "";
	uint64_t more = 0;
	uint32_t i;

	for (in.layer = 0; in.layer < 2; in.layer++) {
		in.score = in.layer == 0 ? first : second;
		check(global_add(all, &in, &opt, why, sizeof why) == EVICT_OK, "%s", why);
	}
	i = (uint32_t)global_counts(all, &opt, &count, &more, why, sizeof why);
	if (want == NULL)
		check(i == (uint32_t)EVICT_EBUDGET && strstr(why, "8 are always kept") != NULL,
		    "'%s'", why);
	else
		for (check(count != NULL, "%s", why), i = 0; i < 4 && count != NULL; i++)
			check(count[i] == want[i], "part %u keeps %u rows, must be %u", i,
			    count[i], want[i]);
	check(more == beyond, "%u rows beyond the budget, must be %u", (unsigned)more,
	    (unsigned)beyond);
	global_free(all);
}

static void
expect_global(struct evict_options opt, uint64_t beyond, const uint32_t want[4])
{
	expect_counts(COMPETE_ROWS, opt, beyond, want);
}

/* Composite tokens 6.5 6 2.5 0.5 0.5 0.5 and 4 2.5 2.5 1.5 1.5 1.5; those of the first layer become
 * 6.5 6 2.5 1.5 1.5 1.5 */
static void
test_composite(void)
{
	const enum competitors ranks = COMPETE_RANKS;

	expect_counts(ranks, (struct evict_options){ .budget = 2 }, 0, (uint32_t[]){ 3, 3, 1, 1 });
	expect_counts(ranks, (struct evict_options){ .rate = 0.25 }, 0,
	    (uint32_t[]){ 2, 2, 1, 1 });
	expect_counts(ranks, (struct evict_options){ .budget = 4 }, 0, (uint32_t[]){ 5, 5, 3, 3 });
	/* at least one row, beside the budget */
	expect_counts(ranks, (struct evict_options){ .rate = 0.17 }, 2,
	    (uint32_t[]){ 2, 2, 1, 1 });
	expect_counts(ranks, (struct evict_options){ .budget = 1, .recent = 2 }, 4,
	    (uint32_t[]){ 2, 2, 2, 2 });
	expect_counts(ranks, (struct evict_options){ .budget = 1, .recent = 2, .refuse_small = 1 },
	    0, NULL);
}

static void
test_global(void)
{
	/* 9 8 7 and, of five 4s, the three in the lower layer */
	expect_global((struct evict_options){ .rate = 0.25 }, 0, (uint32_t[]){ 2, 3, 1, 0 });
	expect_global((struct evict_options){ .rate = 0.3 }, 0, (uint32_t[]){ 2, 3, 2, 0 });
	expect_global((struct evict_options){ .budget = 2 }, 0, (uint32_t[]){ 2, 3, 3, 0 });
	expect_global((struct evict_options){ .budget = 2, .recent = 1 }, 0,
	    (uint32_t[]){ 3, 2, 2, 1 });
	expect_global((struct evict_options){ .budget = 1, .recent = 2, .refuse_small = 1 }, 0,
	    NULL);
	/* 4 of 24 rows, 2 recent ones in each of 4 heads */
	expect_global((struct evict_options){ .budget = 1, .recent = 2 }, 4,
	    (uint32_t[]){ 2, 2, 2, 2 });
	expect_global((struct evict_options){ .rate = 0.001 }, 1, (uint32_t[]){ 1, 0, 0, 0 });
	expect_global((struct evict_options){ .budget = 3, .since = 4 }, 0,
	    (uint32_t[]){ 2, 2, 2, 2 });
}

/* What --help says of --policy */
static void
test_names(void)
{
#define POLICY(...)
#include "methods/policies.h"
#undef POLICY
	const struct policy *p;

	for (p = policies; p->name != NULL; p++)
		check(strstr(POLICY_NAMES, p->name) != NULL, "--help does not name %s", p->name);
	check(policy_named("no such policy") == NULL, "a policy that is not there");
}

int
main(void)
{
	uint32_t i;

	for (i = 0; i < MOST; i++)
		positions[i] = i;
	test_pyramid();
	test_pyramid_exact();
	test_pyramid_kvpress();
	test_ada();
	test_others();
	test_refusals();
	test_global();
	test_composite();
	test_names();
	return failures != 0;
}
