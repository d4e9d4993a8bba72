/* opt_score.c - the options of scoring methods */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/name_hints.h"
#include "cli/nearest_name.h"
#include "cli/opt_score.h"
#include "cli/options.h"
#include "cli/snapshot_io.h"

#define NO_SEED UINT64_MAX

static const char *over_name, *pool_name, *reduce_name, *order_name, *norms_name;
static const char *filters_path, *query_stats_path, *weight_name;
static uint32_t kernel = NOT_GIVEN, sink = NOT_GIVEN, window = NOT_GIVEN, since;
static uint32_t lag = NOT_GIVEN, local = NOT_GIVEN, sketch = NOT_GIVEN;
static uint32_t future = NOT_GIVEN, last_rows = NOT_GIVEN;
static uint64_t seed = NO_SEED;
static double epsilon = REAL_NOT_GIVEN, lazy = REAL_NOT_GIVEN, lambda = REAL_NOT_GIVEN;
static double blend = REAL_NOT_GIVEN, variance_weight = REAL_NOT_GIVEN;
static int keep_last, cross, no_covariance, no_value_norm, z_score;

const struct opt score_opts[] = {
	{ 0, "kernel", OPT_COUNT, &kernel, 0, "K",
	    "pool over K rows, odd; 1 = do not pool", OPT_HOW },
	{ 0, "pool", OPT_STRING, &pool_name, 0, "HOW",
	    "pooling along the rows: avg or max", OPT_HOW },
	{ 0, "reduce", OPT_STRING, &reduce_name, 0, "HOW",
	    "over the query heads of a KV head: mean, max or sum", OPT_HOW },
	{ 0, "order", OPT_STRING, &order_name, 0, "WHICH", "pool-first or reduce-first", OPT_HOW },
	{ 0, "over-queries", OPT_STRING, &over_name, 0, "HOW",
	    "over the observation queries: sum or max", OPT_HOW },
	{ 0, "weight", OPT_STRING, &weight_name, 0, "WHAT",
	    "of each observation query: none, or visible, the rows before it (none)", OPT_HOW },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "the first N positions come first", OPT_HOW },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "random seed (0)", OPT_HOW },
	{ 0, "keep-last", OPT_FLAG, &keep_last, 1, NULL, "always keep the last token", OPT_HOW },
	{ 0, "lag", OPT_COUNT, &lag, 0, "N", "rows of a partition of lagkv (128)", OPT_HOW },
	{ 0, "cross", OPT_FLAG, &cross, 1, NULL,
	    "rows of all partitions of lagkv compete: no ranks", OPT_HOW },
	{ 0, "filters", OPT_STRING, &filters_path, 0, "FILE",
	    "Q-Filters of the model, a safetensors file (qfilter)", OPT_READS },
	{ 0, "local", OPT_COUNT, &local, 0, "N",
	    "rows that cur compares, 0 = all (16)", OPT_HOW },
	{ 0, "norms", OPT_STRING, &norms_name, 0, "WHICH",
	    "norms that cur takes: product, mean, keys or values", OPT_HOW },
	{ 0, "query-stats", OPT_STRING, &query_stats_path, 0, "FILE",
	    "query statistics of other texts, in place of the text's", OPT_READS },
	{ 0, "future", OPT_COUNT, &future, 0, "N",
	    "later positions that expected and capkv look at (512)", OPT_HOW },
	{ 0, "epsilon", OPT_REAL, &epsilon, 0, "X",
	    "expected: add X to the attention of each row (0)", OPT_HOW },
	{ 0, "no-covariance", OPT_FLAG, &no_covariance, 1, NULL,
	    "expected: leave out the covariance of queries", OPT_HOW },
	{ 0, "no-value-norm", OPT_FLAG, &no_value_norm, 1, NULL,
	    "expected: leave out the norm of the value", OPT_HOW },
	{ 0, "blend", OPT_REAL, &blend, 0, "X",
	    "compactor: weight of leverage beside attention (0.35)", OPT_HOW },
	{ 0, "lambda", OPT_REAL, &lambda, 0, "X",
	    "rkv: weight of importance beside redundancy, 0 to 1 (0.07)", OPT_HOW },
	{ 0, "gamma", OPT_REAL, &variance_weight, 0, "X",
	    "cake: weight of the variance beside the mean (200)", OPT_HOW },
	{ 0, "z-score", OPT_FLAG, &z_score, 1, NULL,
	    "triattention: standardise the scores of each query head", OPT_HOW },
	{ 0, "sketch", OPT_COUNT, &sketch, 0, "K",
	    "leverage: project keys at random to a width of K, 0 = do not (0)", OPT_HOW },
	{ 0, "recent", OPT_COUNT, &last_rows, 0, "N",
	    "last rows that lazy layers of simlayer, compactor and fastkvzip keep", OPT_HOW },
	{ 0, "lazy", OPT_REAL, &lazy, 0, "X",
	    "share of attention on both ends that makes a layer lazy (0.9)", OPT_HOW },
	{ 0, "window", OPT_COUNT, &window, 0, "W",
	    "use only the last W of the stored observation queries", OPT_HOW },
	{ 0, "since", OPT_COUNT, &since, 0, "POSITION",
	    "do not score rows before it; they stay", OPT_HOW },
	{ .name = NULL }
};

void
opt_score_list(void)
{
	const struct method *m;

	for (m = methods; m->name != NULL; m++)
		print_listed(9, m->name, m->about, m->uses, m->aliases);
}

/* Has an option of score_opts been set? Each variable begins as its kind has it here. */
static int
given(const struct opt *o)
{
	switch (o->kind) {
	case OPT_FLAG:
		return *(const int *)o->to != 0;
	case OPT_STRING:
		return *(const char *const *)o->to != NULL;
	case OPT_COUNT:
		return *(const uint32_t *)o->to != NOT_GIVEN;
	case OPT_SEED:
		return *(const uint64_t *)o->to != NO_SEED;
	default:
		return *(const double *)o->to != REAL_NOT_GIVEN;
	}
}

/* Refuses an option that the method does not use, instead of ignoring it; --since is for all. */
static void
refuse_unused(const struct method *method)
{
	const struct opt *o;

	for (o = score_opts; o->name != NULL; o++)
		if (o->to != &since && given(o) && !names_word(method->uses, o->name))
			die(EXIT_USAGE, "--%s: method %s does not use it", o->name, method->name);
}

static unsigned
one_of(const char *option, const char *name, const char *const *names, unsigned otherwise)
{
	unsigned i;

	if (name == NULL)
		return otherwise;
	for (i = 0; names[i] != NULL; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	die(EXIT_USAGE, "--%s: '%s' is not one of its values, see --help%s", option, name,
	    did_you_mean("", name, names));
}

static void
load_filters(struct scorer *s)
{
	struct engine_error e;

	if (filters_path == NULL)
		die(EXIT_USAGE, "method %s needs --filters FILE, which is made for the model by "
		    "train/q_filters.py", s->method->name);
	must(query_filters_load(&s->filters, filters_path, &e), &e);
	memcpy(s->options.filters, s->filters.hash, sizeof s->options.filters);
}

static void
load_query_stats(struct scorer *s)
{
	struct engine_error e;

	must(query_calibration_load(&s->calibration, query_stats_path, &e), &e);
	memcpy(s->options.query_stats, s->calibration.hash, sizeof s->options.query_stats);
}

static void
set_count(uint32_t *to, uint32_t value)
{
	if (value != NOT_GIVEN)
		*to = value;
}

static void
set_real(struct score_real *to, double value)
{
	to->value = value;
	snprintf(to->text, sizeof to->text, "%g", value);
}

/* *to <- the value of an option that is a share, if it is given. */
static void
set_share(struct score_real *to, const char *option, double value)
{
	if (value == REAL_NOT_GIVEN)
		return;
	if (!(value >= 0 && value <= 1))
		die(EXIT_USAGE, "--%s: %g is not from 0 to 1", option, value);
	set_real(to, value);
}

/* *to <- the value of an option that is a weight, if it is given. */
static void
set_weight(struct score_real *to, const char *option, double value)
{
	if (value < 0)
		die(EXIT_USAGE, "--%s %g: want 0 or more", option, value);
	if (value != REAL_NOT_GIVEN)
		set_real(to, value);
}

/* *o <- the options of expected and capkv. */
static void
set_later_queries(struct score_options *o)
{
	if (future == 0)
		die(EXIT_USAGE, "--future: want at least one position");
	set_count(&o->future, future);
	set_weight(&o->epsilon, "epsilon", epsilon);
	o->covariance &= !no_covariance;
	o->value_norm &= !no_value_norm;
}

void
opt_score(struct scorer *s, const char *name)
{
	const struct method *method = name != NULL ? method_named(name) : NULL;
	struct score_options o;

	if (name == NULL)
		die(EXIT_USAGE, "--method is needed; --list names them");
	if (method == NULL)
		die(EXIT_USAGE, "--method: there is no '%s' in kv-score --list%s", name,
		    name_hint(NAME_METHOD, name));
	refuse_unused(method);
	o = method->defaults;
	set_count(&o.kernel, kernel);
	if (o.kernel % 2 == 0)
		die(EXIT_USAGE, "--kernel: %u is not odd", o.kernel);
	if (lag == 0)
		die(EXIT_USAGE, "--lag: a partition has at least 1 row");
	if (window == 0)
		die(EXIT_USAGE, "--window: a window without queries sees nothing");
	o.pool = one_of("pool", pool_name, pool_names, o.pool);
	o.reduce = one_of("reduce", reduce_name, reduce_names, o.reduce);
	o.order = one_of("order", order_name, order_names, o.order);
	o.over_queries = one_of("over-queries", over_name, over_names, o.over_queries);
	o.weight = one_of("weight", weight_name, weight_names, o.weight);
	set_count(&o.sink, sink);
	if (seed != NO_SEED)
		o.seed = seed;
	set_count(&o.window, window);
	set_count(&o.lag, lag);
	set_count(&o.local, local);
	set_count(&o.sketch, sketch);
	if (seed != NO_SEED && o.sketch == 0 && names_word(method->uses, "sketch"))
		die(EXIT_USAGE, "--seed: method %s is exact without --sketch", method->name);
	o.norms = one_of("norms", norms_name, norms_names, o.norms);
	set_later_queries(&o);
	set_share(&o.lazy, "lazy", lazy);
	set_share(&o.lambda, "lambda", lambda);
	set_weight(&o.blend, "blend", blend);
	set_weight(&o.gamma, "gamma", variance_weight);
	set_count(&o.recent, last_rows);
	o.keep_last = keep_last;
	o.cross = cross;
	o.z_score = z_score;
	scorer_init(s, method, &o, processors());
	s->since = since;
	if (method->needs & NEED_FILTER)
		load_filters(s);
	if (query_stats_path != NULL)
		load_query_stats(s);
}

void
opt_score_no_method(void)
{
	static const struct method none = { .name = SCORE_EXTERNAL, .uses = "" };

	refuse_unused(&none);
	if (since != 0)
		die(EXIT_USAGE,
		    "--since: --from has a score for each row; inf says that one stays");
}

const char *
opt_score_words(struct scorer *s, const char *text)
{
	const char *options, *word = option_word("score", text, &options);
	const size_t end = strcspn(word, "=");
	const char *folder = word[end] == '=' && word[end + 1] != '\0' ? word + end + 1 : NULL;
	char name[64];

	snprintf(name, sizeof name, "%.*s", (int)end, word);
	options_words("score", options, score_opts);
	opt_score(s, name);
	if (s->method->needs & NEED_PROBE_MASS)
		die(EXIT_USAGE, "--score: method %s needs probe tokens, which only kv-observe "
		    "runs", s->method->name);
	if ((s->method->needs & NEED_UNSTORED) && folder == NULL)
		die(EXIT_USAGE,
		    "--score: method %s needs learned tokens: give their folder, %s=DIR",
		    s->method->name, s->method->name);
	if (!(s->method->needs & NEED_UNSTORED) && word[end] != '\0')
		die(EXIT_USAGE, "--score: method %s takes no folder", s->method->name);
	return folder;
}

void
opt_score_sign(const struct scorer *s, uint32_t queries)
{
	char words[128], *word, *rest = words;
	const char *text;
	uint64_t number = 0;

	snprintf(words, sizeof words, "%s", s->method->uses);
	sign_text("method", s->method->name);
	while ((word = strtok_r(rest, " ", &rest)) != NULL)
		if ((text = score_option(&s->options, word, queries, &number)) != NULL)
			sign_text(word, text);
		else
			sign_count(word, number);
	if (s->since != 0)
		sign_count("since", s->since);
}
