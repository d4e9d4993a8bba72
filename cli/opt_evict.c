/* opt_evict.c - the budget options, and the choice of the rows of a layer that stay */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "cli/opt_evict.h"

#define NOT_GIVEN UINT32_MAX
#define NO_REAL INFINITY                /* cannot be given */

enum { MAX_LAYERS = 4096 };             /* kv-snapshot(5), 4.1 */
/* DuoAttention's sinks, PruLong's recent positions; the published masks were made with these */
enum { STREAM_SINK = 128, STREAM_RECENT = 1024 };

static uint32_t budget = NOT_GIVEN, sink = NOT_GIVEN, recent = NOT_GIVEN, since;
static double rate;                     /* 0 = not given */
static double alpha = NO_REAL, sparsity = NO_REAL;
static const char *policy_name = "uniform", *select_name = "head", *of_name = "rows";
static const char *heads_path, *skip_text;
static int normalize;

const struct opt evicting_opts[] = {
	{ 0, "budget", OPT_COUNT, &budget, 0, "N", "keep N rows in each KV head of each layer" },
	{ 0, "rate", OPT_SHARE, &rate, 0, "R", "keep this share of them: 0.1 or 10%" },
	{ 0, "of", OPT_STRING, &of_name, 0, "WHAT",
	    "what --rate is a share of: the head's rows, or all tokens seen" },
#define POLICY(...)
#include "methods/policies.h"
#undef POLICY
	{ 0, "policy", OPT_STRING, &policy_name, 0, "NAME", POLICY_NAMES },
	{ 0, "alpha", OPT_REAL, &alpha, 0, "A",
	    "ada: the share of its budget that a KV head has for sure (0.2)" },
	{ 0, "normalize", OPT_FLAG, &normalize, 1, NULL,
	    "ada: weigh heads by the part of their scores that the budget holds" },
	{ 0, "select", OPT_STRING, &select_name, 0, "BY",
	    "head: each KV head its own rows; layer: all the same" },
	{ 0, "heads", OPT_STRING, &heads_path, 0, "FILE",
	    "head mask: a line for each layer, a number for each KV head" },
	{ 0, "sparsity", OPT_REAL, &sparsity, 0, "S",
	    "this share of the heads streams; without it those below 0.5" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "always keep the first N positions" },
	{ 0, "recent", OPT_COUNT, &recent, 0, "N", "always keep the last N positions" },
	{ 0, "since", OPT_COUNT, &since, 0, "POSITION",
	    "rows before it all stay, on top of the budget" },
	{ 0, "skip-layers", OPT_STRING, &skip_text, 0, "LIST",
	    "layers that keep all rows: 0,1,30-31" },
	{ .name = NULL }
};

static const struct policy *policy;
static struct evict_options options;
static int of_tokens, will_look;
static uint8_t skip[MAX_LAYERS];        /* 1 = the layer keeps all rows */
static uint32_t last_skipped;
static struct head_mask mask;           /* full == NULL: none */
static char mask_hash[33];
static uint8_t *streaming;              /* [layers][heads] of the mask */
static struct global *all_layers;
static const uint32_t *all_counts;      /* [L][G] rows that stay, when all have been seen */

/* ---- options ---- */

static int
second_of(const char *option, const char *name, const char *first, const char *second)
{
	int is_second = strcmp(name, second) == 0;

	if (!is_second && strcmp(name, first) != 0)
		die(EXIT_USAGE, "--%s: '%s' is neither %s nor %s", option, name, first, second);
	return is_second;
}

static uint32_t
layer_number(const char *p, char **end)
{
	unsigned long number = strtoul(p, end, 10);

	if (*p < '0' || *p > '9' || number >= MAX_LAYERS)
		die(EXIT_USAGE, "--skip-layers: '%s' is not a list of layers such as 0,1,30-31",
		    skip_text);
	return (uint32_t)number;
}

/* skip[] <- a list of layers, and of ranges of layers. */
static void
parse_layers(const char *p)
{
	uint32_t first, last;
	char *end;

	for (;; p = end + 1) {
		first = last = layer_number(p, &end);
		if (*end == '-')
			last = layer_number(end + 1, &end);
		if (first > last || (*end != ',' && *end != '\0'))
			die(EXIT_USAGE, "--skip-layers: '%s' is not a list of layers such as "
			    "0,1,30-31", skip_text);
		memset(skip + first, 1, last - first + 1);
		last_skipped = last > last_skipped ? last : last_skipped;
		if (*end == '\0')
			return;
	}
}

static void
read_mask(void)
{
	XXH128_canonical_t hash;
	char *text, why[256];
	size_t len, i;

	must_read_all(heads_path, &text, &len);
	switch (head_mask_parse(&mask, text, len, why, sizeof why)) {
	case MASK_ETEXT:
		die(EXIT_DAMAGED, "%s: %s", heads_path, why);
	case MASK_ENOMEM:
		die(EXIT_RUN, "out of memory");
	}
	XXH128_canonicalFromHash(&hash, XXH3_128bits(text, len));
	for (i = 0; i < sizeof hash.digest; i++)
		snprintf(mask_hash + 2 * i, 3, "%02x", hash.digest[i]);
	streaming = must_alloc((size_t)mask.layers * mask.heads, 1);
	if (head_mask_cut(&mask, sparsity != NO_REAL ? sparsity : -1, streaming) != 0)
		die(EXIT_RUN, "out of memory");
	free(text);
}

static void
check_policy(void)
{
	if ((policy = policy_named(policy_name)) == NULL)
		die(EXIT_USAGE, "--policy: there is no '%s', see --help", policy_name);
	if (policy->global && !will_look)
		die(EXIT_USAGE, "--policy global compares the scores of all layers, which are not "
		    "there when the first one is evicted: use kv-evict");
	if (alpha != NO_REAL && !names_word(policy->uses, "alpha"))
		die(EXIT_USAGE, "--alpha: policy %s does not use it", policy->name);
	if (normalize && !names_word(policy->uses, "normalize"))
		die(EXIT_USAGE, "--normalize: policy %s does not use it", policy->name);
	if (alpha != NO_REAL && !(alpha >= 0 && alpha <= 1))
		die(EXIT_USAGE, "--alpha: %g is not from 0 to 1", alpha);
	options.policy = policy;
	options.alpha = alpha != NO_REAL ? alpha : 0.2;
	options.normalize = normalize;
}

/* What cannot be had together. */
static void
check_conflicts(void)
{
	int shares = policy_shares(policy);

	if (budget != NOT_GIVEN && rate != 0)
		die(EXIT_USAGE, "give --budget or --rate, and not both");
	if (budget == NOT_GIVEN && rate == 0 && heads_path == NULL)
		die(EXIT_USAGE, "give --budget, --rate or --heads");
	if (budget == 0)
		die(EXIT_USAGE, "--budget 0 would keep nothing");
	if (of_tokens && rate == 0)
		die(EXIT_USAGE, "--of says what --rate is a share of: give --rate");
	if (options.same_rows && shares)
		die(EXIT_USAGE, "--select layer: with policy %s heads keep different numbers of "
		    "rows", policy->name);
	if (heads_path != NULL && (options.same_rows || shares))
		die(EXIT_USAGE, "--heads: not with %s, where heads depend on each other",
		    shares ? policy->name : "--select layer");
	if (heads_path == NULL && sparsity != NO_REAL)
		die(EXIT_USAGE, "--sparsity: a share of which heads? Give --heads");
	if (sparsity != NO_REAL && !(sparsity >= 0 && sparsity <= 1))
		die(EXIT_USAGE, "--sparsity: %g is not from 0 to 1", sparsity);
	if (heads_path != NULL && options.stream_sink == 0 && options.stream_recent == 0)
		die(EXIT_USAGE, "--sink 0 --recent 0: streaming heads would keep nothing");
}

void
evicting_check(void)
{
	check_policy();
	of_tokens = second_of("of", of_name, "rows", "tokens");
	options.same_rows = second_of("select", select_name, "head", "layer");
	options.budget = budget != NOT_GIVEN ? budget : 0;
	options.rate = budget == NOT_GIVEN && rate == 0 ? 1 : rate;     /* a mask alone */
	options.sink = sink != NOT_GIVEN ? sink : 0;
	options.recent = recent != NOT_GIVEN ? recent : 0;
	options.since = since;
	options.stream_sink = sink != NOT_GIVEN ? sink : STREAM_SINK;
	options.stream_recent = recent != NOT_GIVEN ? recent : STREAM_RECENT;
	check_conflicts();
	if (skip_text != NULL)
		parse_layers(skip_text);
	if (heads_path != NULL)
		read_mask();
}

void
evicting_sign(void)
{
	if (budget != NOT_GIVEN)
		sign_count("budget", budget);
	if (rate != 0)
		sign_real("rate", rate);
	sign_count("sink", heads_path != NULL ? options.stream_sink : options.sink);
	sign_count("recent", heads_path != NULL ? options.stream_recent : options.recent);
	if (policy != policies)
		sign_text("policy", policy->name);
	if (names_word(policy->uses, "alpha"))
		sign_real("alpha", options.alpha);
	if (normalize)
		sign_count("normalize", 1);
	if (options.same_rows)
		sign_text("select", select_name);
	if (of_tokens)
		sign_text("of", of_name);
	if (heads_path != NULL)
		sign_text("heads", mask_hash);
	if (sparsity != NO_REAL)
		sign_real("sparsity", sparsity);
	if (since != 0)
		sign_count("since", since);
	if (skip_text != NULL)
		sign_text("skip-layers", skip_text);
}

void
evicting_since(uint32_t position)
{
	since = options.since = position;
}

int
evicting_keeps_all(void)
{
	return options.rate == 1 && heads_path == NULL;
}

int
evicting_needs_scores(uint32_t layer)
{
	return !skip[layer] && (heads_path == NULL || budget != NOT_GIVEN || rate != 0);
}

/* ---- choosing ---- */

static void
check_shape(const struct evict_input *in)
{
	if (skip_text != NULL && last_skipped >= in->layers)
		die(EXIT_USAGE, "--skip-layers: there is no layer %u, only %u layers", last_skipped,
		    in->layers);
	if (heads_path != NULL && (mask.layers != in->layers || mask.heads != in->rows->heads))
		die(EXIT_DAMAGED, "%s: %u lines of %u numbers, but the model has %u layers of %u "
		    "KV heads", heads_path, mask.layers, mask.heads, in->layers, in->rows->heads);
}

/* Dies for what the library refuses. */
static void
must_choose(int code, const char *where, const char *why)
{
	if (code == EVICT_ENOMEM)
		die(EXIT_RUN, "out of memory");
	if (code != EVICT_OK)
		die(EXIT_USAGE, "%s%s", where, why);
}

/* *in and *opt <- what holds for this layer. */
static void
adapt(struct evict_input *in, struct evict_options *opt)
{
	check_shape(in);
	*opt = options;
	if (!of_tokens)
		in->tokens = 0;
	else if (since > 0)
		in->tokens = since < in->next_position ? in->next_position - since : 0;
	if (streaming != NULL)
		in->streaming = streaming + (size_t)in->layer * mask.heads;
	if (skip[in->layer]) {
		memset(opt, 0, sizeof *opt);
		opt->rate = 1;
		opt->since = UINT32_MAX;        /* no row is judged */
		in->tokens = 0;
		in->streaming = NULL;
	}
}

void
evicting_choose(const struct evict_input *given, struct kept *out)
{
	struct evict_input in = *given;
	struct evict_options opt;
	char why[256], where[32];

	adapt(&in, &opt);
	if (policy->global && all_counts == NULL)
		must_choose(global_counts(all_layers, &options, &all_counts, why, sizeof why), "",
		    why);
	if (policy->global)
		in.count = all_counts + (size_t)in.layer * in.rows->heads;
	snprintf(where, sizeof where, "layer %u ", in.layer);
	must_choose(evict_choose(&in, &opt, out, why, sizeof why), where, why);
}

/* ---- looking ahead ---- */

void
evicting_will_look(void)
{
	will_look = 1;
}

int
evicting_looks_ahead(void)
{
	return policy->global;
}

void
evicting_look(const struct evict_input *given)
{
	struct evict_input in = *given;
	struct evict_options opt;
	char why[256], where[32];

	if (all_layers == NULL && (all_layers = global_new()) == NULL)
		die(EXIT_RUN, "out of memory");
	adapt(&in, &opt);
	snprintf(where, sizeof where, "layer %u ", in.layer);
	must_choose(global_add(all_layers, &in, &opt, why, sizeof why), where, why);
}
