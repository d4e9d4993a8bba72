/* opt_evict.c - the budget options */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "cli/name_hints.h"
#include "cli/opt_evict.h"
#include "cli/options.h"
#include "cli/snapshot_io.h"
#include "cli/text_input.h"
#define POLICY(...)
#include "methods/policies.h"           /* for POLICY_NAMES */
#undef POLICY


/* DuoAttention's sinks, PruLong's recent positions, with which the published masks were made */
enum { STREAM_SINK = 128, STREAM_RECENT = 1024 };

/* largest ratio of the rows that a policy gives to their budgets, without a warning */
#define BUDGET_SLACK 1.01

static uint32_t budget = NOT_GIVEN, sink = NOT_GIVEN, recent = NOT_GIVEN, since;
static double rate;                     /* 0 = not given */
static double alpha = REAL_NOT_GIVEN, sparsity = REAL_NOT_GIVEN, threshold = REAL_NOT_GIVEN;
static double first_stage = REAL_NOT_GIVEN, epsilon = REAL_NOT_GIVEN;
static double tau1 = REAL_NOT_GIVEN, tau2 = REAL_NOT_GIVEN;
static const char *policy_name = "uniform", *select_name = "head", *of_name = "rows";
static const char *small_name = "keep";
static const char *heads_path, *budgets_path, *skip_text;
static int normalize;

const struct opt evict_opts[] = {
	{ 0, "budget", OPT_COUNT, &budget, 0, "N",
	    "keep N rows in each KV head of each layer", OPT_HOW },
	{ 0, "rate", OPT_SHARE, &rate, 0, "R", "keep this share of them: 0.1 or 10%", OPT_HOW },
	{ 0, "budgets", OPT_STRING, &budgets_path, 0, "FILE",
	    "budgets: a line for each layer, rows or a share for each KV head", OPT_READS },
	{ 0, "threshold", OPT_REAL, &threshold, 0, "X",
	    "keep the rows that score at least X, however many", OPT_HOW },
	{ 0, "of", OPT_STRING, &of_name, 0, "WHAT",
	    "base of --rate: the rows of the head, or all tokens seen", OPT_HOW },
	{ 0, "policy", OPT_STRING, &policy_name, 0, "NAME", POLICY_NAMES, OPT_HOW },
	{ 0, "alpha", OPT_REAL, &alpha, 0, "A",
	    "ada: smallest budget of a KV head, as a share of the even one (0.2)", OPT_HOW },
	{ 0, "normalize", OPT_FLAG, &normalize, 1, NULL,
	    "ada: weigh heads by the share of their scores within the budget", OPT_HOW },
	{ 0, "tau1", OPT_REAL, &tau1, 0, "X",
	    "cake: temperature of a layer's entropy, above 0 (1)", OPT_HOW },
	{ 0, "tau2", OPT_REAL, &tau2, 0, "X",
	    "cake: temperature of a layer's variance, above 0 (1)", OPT_HOW },
	{ 0, "select", OPT_STRING, &select_name, 0, "BY",
	    "head: each KV head its own rows; layer: all the same; chunk=N [spiky=M]", OPT_HOW },
	{ 0, "first-stage", OPT_SHARE, &first_stage, 0, "F",
	    "choose this share of the rows by score, the others also by value norm", OPT_HOW },
	{ 0, "epsilon", OPT_REAL, &epsilon, 0, "X",
	    "with --first-stage: add X to scores before they are weighed (1e-4)", OPT_HOW },
	{ 0, "head-mask", OPT_STRING, &heads_path, 0, "FILE",
	    "streaming heads: a line for each layer, a number for each KV head", OPT_READS },
	{ 0, "sparsity", OPT_REAL, &sparsity, 0, "S",
	    "share of streaming heads (those with a number below 0.5)", OPT_HOW },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "always keep the first N positions", OPT_HOW },
	{ 0, "recent", OPT_COUNT, &recent, 0, "N", "always keep the last N positions", OPT_HOW },
	{ 0, "small", OPT_STRING, &small_name, 0, "WHAT",
	    "if always-kept rows exceed the budget: keep them, or refuse (keep)", OPT_HOW },
	{ 0, "since", OPT_COUNT, &since, 0, "POSITION",
	    "keep all rows before it, in addition to the budget", OPT_HOW },
	{ 0, "skip-layers", OPT_STRING, &skip_text, 0, "LIST",
	    "layers that keep all rows: 0,1,30-31", OPT_HOW },
	{ .name = NULL }
};

static char mask_hash[33], budgets_hash[33];

void
opt_evict_list(void)
{
	const struct policy *p;

	for (p = policies; p->name != NULL; p++)
		print_listed(17, p->name, p->about, p->uses, p->aliases);
}

static int
second_of(const char *option, const char *name, const char *first, const char *second)
{
	int is_second = strcmp(name, second) == 0;

	if (!is_second && strcmp(name, first) != 0)
		die(EXIT_USAGE, "--%s: '%s' is neither %s nor %s", option, name, first, second);
	return is_second;
}

static void
skip(void *evictor, uint32_t first, uint32_t last)
{
	evictor_skip(evictor, first, last);
}

/* hex[33] <- the hash of a file's text, which represents the file in the provenance. */
static void
hash_text(char *hex, const char *text, size_t len)
{
	XXH128_canonical_t hash;
	size_t i;

	XXH128_canonicalFromHash(&hash, XXH3_128bits(text, len));
	for (i = 0; i < sizeof hash.digest; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash.digest[i]);
}

static void
read_mask(struct evictor *v)
{
	struct engine_error e;
	char *text;
	size_t len;

	must_read_list(heads_path, &text, &len);
	must(evictor_mask(v, heads_path, text, len, sparsity != REAL_NOT_GIVEN ? sparsity : -1, &e),
	    &e);
	hash_text(mask_hash, text, len);
	free(text);
}

static void
read_budgets(struct evictor *v)
{
	struct engine_error e;
	char *text;
	size_t len;

	must_read_list(budgets_path, &text, &len);
	must(evictor_budgets(v, budgets_path, text, len, &e), &e);
	hash_text(budgets_hash, text, len);
	free(text);
}

/* --select */
static void
set_selection(struct evict_options *o)
{
	static uint32_t chunk, spiky;           /* 0 = not given */
	static const struct opt words[] = {
		{ 0, "chunk", OPT_COUNT, &chunk, 1, "N", "", OPT_HOW },
		{ 0, "spiky", OPT_COUNT, &spiky, 1, "M", "", OPT_HOW },
		{ .name = NULL }
	};

	if (strchr(select_name, '=') == NULL) {
		o->same_rows = second_of("select", select_name, "head", "layer");
		return;
	}
	chunk = spiky = 0;
	options_words("select", select_name, words);
	if (chunk == 0)
		die(EXIT_USAGE, "--select %s: of which chunks? Give chunk=N, too", select_name);
	if (spiky >= chunk)
		die(EXIT_USAGE, "--select %s: spiky is not below chunk", select_name);
	o->same_rows = 1;
	o->chunk = chunk;
	o->spiky = spiky;
}

/* Returns a temperature of the policy, or 1. */
static double
temperature(const struct policy *policy, const char *name, double given)
{
	if (given == REAL_NOT_GIVEN)
		return 1;
	if (!names_word(policy->uses, name))
		die(EXIT_USAGE, "--%s: policy %s does not use it", name, policy->name);
	if (!(given > 0))
		die(EXIT_USAGE, "--%s: %g is not above 0", name, given);
	return given;
}

static void
check_policy(struct evict_options *o, int looks)
{
	const struct policy *policy;

	if ((policy = policy_named(policy_name)) == NULL)
		die(EXIT_USAGE, "--policy: there is no '%s' in kv-evict --list%s", policy_name,
		    name_hint(NAME_POLICY, policy_name));
	if (policy->global && !looks)
		die(EXIT_USAGE, "--policy %s compares all layers, so it works after prefill "
		    "only: use kv-evict", policy->name);
	if (alpha != REAL_NOT_GIVEN && !names_word(policy->uses, "alpha"))
		die(EXIT_USAGE, "--alpha: policy %s does not use it", policy->name);
	if (normalize && !names_word(policy->uses, "normalize"))
		die(EXIT_USAGE, "--normalize: policy %s does not use it", policy->name);
	if (alpha != REAL_NOT_GIVEN && !(alpha >= 0 && alpha <= 1))
		die(EXIT_USAGE, "--alpha: %g is not from 0 to 1", alpha);
	o->policy = policy;
	o->alpha = alpha != REAL_NOT_GIVEN ? alpha : 0.2;
	o->normalize = normalize;
	o->tau1 = temperature(policy, "tau1", tau1);
	o->tau2 = temperature(policy, "tau2", tau2);
}

/* --budgets and --threshold stand in place of one budget for all */
static void
check_alone(const char *option, const struct evict_options *o)
{
	if (budget != NOT_GIVEN || rate != 0)
		die(EXIT_USAGE, "--%s: not with --%s, which is one budget for all", option,
		    rate != 0 ? "rate" : "budget");
	if (heads_path != NULL)
		die(EXIT_USAGE, "--%s: not with --head-mask, whose heads have no budget", option);
	if (o->policy != policies)
		die(EXIT_USAGE, "--%s: not with policy %s, which makes budgets of its own", option,
		    o->policy->name);
}

static void
check_budgets(const struct evict_options *o)
{
	check_alone("budgets", o);
	if (threshold != REAL_NOT_GIVEN)
		die(EXIT_USAGE, "--budgets: not with --threshold, which leaves as many rows as "
		    "there are");
	if (o->same_rows)
		die(EXIT_USAGE, "--budgets: not with --select %s, where KV heads keep the same "
		    "rows", select_name);
}

/* --first-stage and --epsilon */
static void
set_stages(struct evict_options *o)
{
	if (first_stage == REAL_NOT_GIVEN && epsilon != REAL_NOT_GIVEN)
		die(EXIT_USAGE, "--epsilon: what for? Give --first-stage");
	if (first_stage == REAL_NOT_GIVEN)
		return;
	if (epsilon != REAL_NOT_GIVEN && epsilon < 0)
		die(EXIT_USAGE, "--epsilon %g: want 0 or more", epsilon);
	if (o->same_rows)
		die(EXIT_USAGE, "--first-stage: not with --select %s: the norms of KV heads differ",
		    select_name);
	if (threshold != REAL_NOT_GIVEN)
		die(EXIT_USAGE, "--first-stage: not with --threshold, which leaves no budget to "
		    "share");
	o->first_stage = first_stage;
	o->epsilon = epsilon != REAL_NOT_GIVEN ? epsilon : 1e-4;
}

/* Refuses options that contradict each other. */
static void
check_conflicts(const struct evict_options *o, int of_tokens)
{
	const int shares = policy_shares(o->policy), global = o->policy->global != COMPETE_NOT;

	if (budgets_path != NULL)
		check_budgets(o);
	if (threshold != REAL_NOT_GIVEN)
		check_alone("threshold", o);
	if (o->by_threshold && o->spiky != 0)
		die(EXIT_USAGE, "--threshold: not with --select %s, where rows have a budget",
		    select_name);
	if (budget != NOT_GIVEN && rate != 0)
		die(EXIT_USAGE, "give --budget or --rate, and not both");
	if (budget == NOT_GIVEN && rate == 0 && heads_path == NULL && !o->by_threshold &&
	    budgets_path == NULL)
		die(EXIT_USAGE, "give --budget, --rate, --budgets, --threshold or --head-mask");
	if (budget == 0)
		die(EXIT_USAGE, "--budget 0 would keep nothing");
	if (of_tokens && rate == 0 && budgets_path == NULL)
		die(EXIT_USAGE, "--of says what --rate is a share of: give --rate");
	if (o->same_rows && shares)
		die(EXIT_USAGE, "--select %s: with policy %s heads keep different numbers of "
		    "rows", select_name, o->policy->name);
	if (o->chunk != 0 && global)
		die(EXIT_USAGE, "--select %s: not with policy %s, which counts rows: use --select "
		    "layer", select_name, o->policy->name);
	if (heads_path != NULL && (o->same_rows || shares || global))
		die(EXIT_USAGE, "--head-mask: not with %s%s, where heads depend on each other",
		    shares || global ? "" : "--select ",
		    shares || global ? o->policy->name : select_name);
	if (heads_path == NULL && sparsity != REAL_NOT_GIVEN)
		die(EXIT_USAGE, "--sparsity: a share of which heads? Give --head-mask");
	if (sparsity != REAL_NOT_GIVEN && !(sparsity >= 0 && sparsity <= 1))
		die(EXIT_USAGE, "--sparsity: %g is not from 0 to 1", sparsity);
	if (heads_path != NULL && o->stream_sink == 0 && o->stream_recent == 0)
		die(EXIT_USAGE, "--sink 0 --recent 0: streaming heads would keep nothing");
}

void
opt_evict(struct evictor *v, int looks)
{
	struct evict_options o = { 0 };
	int of_tokens, alone = budget == NOT_GIVEN && rate == 0 && budgets_path == NULL &&
	    threshold == REAL_NOT_GIVEN;

	check_policy(&o, looks);
	of_tokens = second_of("of", of_name, "rows", "tokens");
	set_selection(&o);
	o.budget = budget != NOT_GIVEN ? budget : 0;
	o.rate = alone ? 1 : rate;
	o.by_threshold = threshold != REAL_NOT_GIVEN;
	o.threshold = o.by_threshold ? threshold : 0;
	o.sink = sink != NOT_GIVEN ? sink : 0;
	o.recent = recent != NOT_GIVEN ? recent : 0;
	o.since = since;
	o.stream_sink = sink != NOT_GIVEN ? sink : STREAM_SINK;
	o.stream_recent = recent != NOT_GIVEN ? recent : STREAM_RECENT;
	o.refuse_small = second_of("small", small_name, "keep", "refuse");
	set_stages(&o);
	check_conflicts(&o, of_tokens);
	evictor_init(v, &o);
	v->of_tokens = of_tokens;
	v->mask_alone = alone;
	if (skip_text != NULL)
		option_layers("skip-layers", skip_text, EVICTOR_LAYERS - 1, skip, v);
	if (heads_path != NULL)
		read_mask(v);
	if (budgets_path != NULL)
		read_budgets(v);
}

/* Refuses an option that selects rows, together with a list of rows. */
static void
refuse_with_rows(const char *name, int given)
{
	if (given)
		die(EXIT_USAGE, "--%s: --rows says already which rows stay", name);
}

void
opt_evict_list_of_rows(struct evictor *v, const char *path)
{
	const struct evict_options none = { 0 };
	struct engine_error e;
	char *text, hash[33];
	size_t len;

	refuse_with_rows("budget", budget != NOT_GIVEN);
	refuse_with_rows("rate", rate != 0);
	refuse_with_rows("budgets", budgets_path != NULL);
	refuse_with_rows("threshold", threshold != REAL_NOT_GIVEN);
	refuse_with_rows("of", strcmp(of_name, "rows") != 0);
	refuse_with_rows("policy", strcmp(policy_name, "uniform") != 0);
	refuse_with_rows("alpha", alpha != REAL_NOT_GIVEN);
	refuse_with_rows("normalize", normalize);
	refuse_with_rows("tau1", tau1 != REAL_NOT_GIVEN);
	refuse_with_rows("tau2", tau2 != REAL_NOT_GIVEN);
	refuse_with_rows("select", strcmp(select_name, "head") != 0);
	refuse_with_rows("first-stage", first_stage != REAL_NOT_GIVEN);
	refuse_with_rows("epsilon", epsilon != REAL_NOT_GIVEN);
	refuse_with_rows("head-mask", heads_path != NULL);
	refuse_with_rows("sparsity", sparsity != REAL_NOT_GIVEN);
	refuse_with_rows("sink", sink != NOT_GIVEN);
	refuse_with_rows("recent", recent != NOT_GIVEN);
	refuse_with_rows("small", strcmp(small_name, "keep") != 0);
	refuse_with_rows("since", since != 0);
	refuse_with_rows("skip-layers", skip_text != NULL);
	must_read_list(path, &text, &len);
	evictor_init(v, &none);
	must(evictor_list(v, path_name(path), text, len, &e), &e);
	hash_text(hash, text, len);
	sign_text("rows", hash);
	free(text);
}

void
opt_evict_words(struct evictor *v, const char *text)
{
	options_words("evict", text, evict_opts);
	opt_evict(v, 0);
}

const char *
opt_evict_text(const struct evictor *v, const char *text)
{
	static char *own;               /* of the last call */
	const char *name = v->options.policy->name;

	if (strcmp(policy_name, name) == 0)
		return text;
	free(own);
	return own = option_reworded("evict", text, "policy", name);
}

void
opt_evict_sign(const struct evictor *v)
{
	const struct evict_options *o = &v->options;

	if (budget != NOT_GIVEN)
		sign_count("budget", budget);
	if (rate != 0)
		sign_real("rate", rate);
	if (o->by_threshold)
		sign_real("threshold", threshold);
	sign_count("sink", heads_path != NULL ? o->stream_sink : o->sink);
	sign_count("recent", heads_path != NULL ? o->stream_recent : o->recent);
	if (o->policy != policies)
		sign_text("policy", o->policy->name);
	if (names_word(o->policy->uses, "alpha"))
		sign_real("alpha", o->alpha);
	if (normalize)
		sign_count("normalize", 1);
	if (names_word(o->policy->uses, "tau1")) {
		sign_real("tau1", o->tau1);
		sign_real("tau2", o->tau2);
	}
	if (o->same_rows)
		sign_text("select", select_name);
	if (o->first_stage > 0) {
		sign_real("first-stage", o->first_stage);
		sign_real("epsilon", o->epsilon);
	}
	if (v->of_tokens)
		sign_text("of", of_name);
	if (heads_path != NULL)
		sign_text("heads", mask_hash);
	if (budgets_path != NULL)
		sign_text("budgets", budgets_hash);
	if (sparsity != REAL_NOT_GIVEN)
		sign_real("sparsity", sparsity);
	if (since != 0)
		sign_count("since", since);
	if (skip_text != NULL)
		sign_text("skip-layers", skip_text);
	if (o->refuse_small)
		sign_text("small", small_name);
}

static void
warn_generous_policy(const struct evictor *v)
{
	const double n = (double)v->budgets;
	char exact[64];

	if (v->options.policy == policies || !((double)v->given > BUDGET_SLACK * v->budget))
		return;
	snprintf(exact, sizeof exact, "%s-exact", v->options.policy->name);
	warning("policy %s gives KV heads %.1f rows on average where the budget is %.1f, %.1f %% "
	    "more%s%s%s", v->options.policy->name, (double)v->given / n, v->budget / n,
	    100 * ((double)v->given / v->budget - 1), policy_named(exact) != NULL ? ": " : "",
	    policy_named(exact) != NULL ? exact : "",
	    policy_named(exact) != NULL ? " keeps to it" : "");
}

void
opt_evict_tell(const struct evictor *v, int usual)
{
	const char *where = evictor_looks_ahead(v) ? "the cache keeps" : "KV heads keep up to";

	if (v->beyond > 0)
		(usual ? note : warning)("the budget is smaller than what is always kept: %s %"
		    PRIu64 " more", where, v->beyond);
	warn_generous_policy(v);
}
