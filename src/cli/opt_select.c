/* opt_select.c - kv-prefill --select: which tokens run through later layers */
#include <string.h>

#include "cli/name_hints.h"
#include "cli/nearest_name.h"
#include "cli/opt_select.h"
#include "cli/options.h"
#include "cli/snapshot_io.h"

/* ---- TSP (FastKV) ---- */

static struct tsp tsp = { .rate = 0.2, .window = 8, .kernel = 7 };
static const char *tsp_pool = "max";
static uint32_t layer = NOT_GIVEN;

/* Words of --select 'tsp ...' and options of kv-tsp-layer */
#define TSP_OPTS \
	{ 0, "rate", OPT_SHARE, &tsp.rate, 0, "R", \
	    "share of the tokens that continue (0.2)", OPT_HOW }, \
	{ 0, "window", OPT_COUNT, &tsp.window, 1, "W", \
	    "the last W tokens decide, and always continue (8)", OPT_HOW }, \
	{ 0, "kernel", OPT_COUNT, &tsp.kernel, 1, "K", \
	    "pool over K tokens, odd (7)", OPT_HOW }, \
	{ 0, "pool", OPT_STRING, &tsp_pool, 0, "HOW", "avg or max (max)", OPT_HOW }
#define LAYER { 0, "layer", OPT_COUNT, &layer, 0, "LAYER", "", OPT_HOW }

const struct opt tsp_opts[] = { TSP_OPTS, { .name = NULL } };
static const struct opt tsp_words[] = { LAYER, TSP_OPTS, { .name = NULL } };

struct tsp
opt_tsp(void)
{
	if (tsp.kernel % 2 == 0)
		die(EXIT_USAGE, "kernel %u: want an odd number", tsp.kernel);
	if (strcmp(tsp_pool, "avg") != 0 && strcmp(tsp_pool, "max") != 0)
		die(EXIT_USAGE, "pool %s: want avg or max", tsp_pool);
	tsp.pool = strcmp(tsp_pool, "avg") == 0 ? POOL_AVG : POOL_MAX;
	return tsp;
}

/* ---- GemFilter ---- */

static uint32_t gem_budget = NOT_GIVEN;
static double gem_rate;                         /* 0 = not given */

static const struct opt gem_words[] = {
	LAYER,
	{ 0, "budget", OPT_COUNT, &gem_budget, 1, "N", "", OPT_HOW },
	{ 0, "rate", OPT_SHARE, &gem_rate, 0, "R", "", OPT_HOW },
	{ .name = NULL }
};

/* ---- PyramidInfer ---- */

static struct pyramidinfer pyramid = {
	.interval = 1, .decay = 0.9, .recent = 0.2, .weight = 1.2, .least = 64
};

static const struct opt pyramid_words[] = {
	{ 0, "decay", OPT_SHARE, &pyramid.decay, 0, "P", "", OPT_HOW },
	{ 0, "interval", OPT_COUNT, &pyramid.interval, 1, "N", "", OPT_HOW },
	{ 0, "recent", OPT_SHARE, &pyramid.recent, 0, "R", "", OPT_HOW },
	{ 0, "weight", OPT_REAL, &pyramid.weight, 0, "X", "", OPT_HOW },
	{ 0, "min", OPT_COUNT, &pyramid.least, 0, "N", "", OPT_HOW },
	{ .name = NULL }
};

/* ---- --select ---- */

static const struct {
	const char *name;
	enum token_rule rule;
	const struct opt *words;
} rules[] = {
	{ "tsp", TOKENS_TSP, tsp_words },
	{ "gemfilter", TOKENS_GEMFILTER, gem_words },
	{ "pyramidinfer", TOKENS_PYRAMIDINFER, pyramid_words }
};
enum { RULES = sizeof rules / sizeof *rules };

static void
say_selected(void *with, uint32_t l, uint32_t rows)
{
	const struct token_select *t = with;

	note("layer %u: %u %s", l, rows, t->rule == TOKENS_GEMFILTER ? "tokens are run again" :
	    "rows go on");
}

static unsigned
rule_named(const char *name)
{
	struct nearest_name g;
	unsigned i;

	for (i = 0; i < RULES && strcmp(rules[i].name, name) != 0; i++)
		;
	if (i < RULES)
		return i;
	nearest_name_start(&g, name);
	for (i = 0; i < RULES; i++)
		nearest_name_try(&g, rules[i].name, "");
	die(EXIT_USAGE, "--select: there is no rule '%s', only tsp, gemfilter, pyramidinfer%s",
	    name, strcmp(name, "fastkv") == 0 ? name_hint(NAME_METHOD, name) :
	    nearest_name_text(&g, ""));
}

static void
check_words(const struct token_select *t)
{
	const int budget = gem_budget != NOT_GIVEN, rate = gem_rate != 0;

	if (t->rule == TOKENS_PYRAMIDINFER && !(pyramid.weight > 0))
		die(EXIT_USAGE, "--select pyramidinfer: weight=%g: want more than 0",
		    pyramid.weight);
	if (t->rule != TOKENS_PYRAMIDINFER && layer == NOT_GIVEN)
		die(EXIT_USAGE, "--select %s: which layer selects? Give layer=LAYER",
		    t->rule == TOKENS_TSP ? "tsp" : "gemfilter");
	if (t->rule == TOKENS_GEMFILTER && budget == rate)
		die(EXIT_USAGE, "--select gemfilter: give budget=N or rate=R, and not both");
}

void
opt_select(struct token_select *t, const char *words)
{
	const char *rest, *name = words != NULL ? option_word("select", words, &rest) : NULL;
	unsigned i;

	*t = (struct token_select){ .rule = TOKENS_ALL, .selected = { say_selected, t } };
	if (name == NULL)
		return;
	i = rule_named(name);
	options_words("select", rest, rules[i].words);
	t->rule = rules[i].rule;
	check_words(t);
	t->layer = t->rule != TOKENS_PYRAMIDINFER ? layer : 0;
	t->tsp = opt_tsp();
	t->pyramid = pyramid;
	t->rate = gem_rate;
	t->budget = gem_budget != NOT_GIVEN ? gem_budget : 0;
}

void
opt_select_sign(const struct token_select *t)
{
	if (t->rule == TOKENS_TSP) {
		sign_count("tsp-kernel", t->tsp.kernel);
		sign_count("tsp-layer", t->layer);
		sign_text("tsp-pool", t->tsp.pool == POOL_AVG ? "avg" : "max");
		sign_real("tsp-rate", t->tsp.rate);
		sign_count("tsp-window", t->tsp.window);
	}
	if (t->rule == TOKENS_GEMFILTER) {
		sign_count("gemfilter-layer", t->layer);
		if (t->budget != 0)
			sign_count("gemfilter-budget", t->budget);
		else
			sign_real("gemfilter-rate", t->rate);
	}
	if (t->rule == TOKENS_PYRAMIDINFER) {
		sign_real("pyramid-infer-decay", t->pyramid.decay);
		sign_count("pyramid-infer-interval", t->pyramid.interval);
		sign_count("pyramid-infer-min", t->pyramid.least);
		sign_real("pyramid-infer-recent", t->pyramid.recent);
		sign_real("pyramid-infer-weight", t->pyramid.weight);
	}
}
