/* opt_retrieve.c - --retrieve: which rows a decoding step reads */
#include <string.h>

#include "cli/name_hints.h"
#include "cli/opt_retrieve.h"
#include "cli/options.h"
#include "cli/snapshot_io.h"

#define RETRIEVAL(NAME, symbol, word, ...) " " word
static const char retrieve_words[] =
#include "retrieval/retrievals.h"
    ;
static const char retrieve_help[] =
    "read only rows that matter: 'METHOD budget=N [NAME=VALUE ...]':"
#include "retrieval/retrievals.h"
    ;
#undef RETRIEVAL

static const char *retrieve_text, *reduce_word, *head_folder, *per_word;
static uint32_t budget, dense = NOT_GIVEN, sink = NOT_GIVEN, recent = NOT_GIVEN;

const struct opt retrieve_opts[] = {
	{ 0, "retrieve", OPT_STRING, &retrieve_text, 0, "WORDS", retrieve_help, OPT_HOW },
	{ .name = NULL }
};

/* Those from `head` on are for specontext. */
static const struct opt words[] = {
	{ 0, "budget", OPT_COUNT, &budget, 1, "N", "", OPT_HOW },
	{ 0, "reduce", OPT_STRING, &reduce_word, 0, "HOW", "", OPT_HOW },
	{ 0, "dense", OPT_COUNT, &dense, 0, "N", "", OPT_HOW },
	{ 0, "head", OPT_STRING, &head_folder, 0, "DIR", "", OPT_HOW },
	{ 0, "per", OPT_STRING, &per_word, 0, "WHAT", "", OPT_HOW },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "", OPT_HOW },
	{ 0, "recent", OPT_COUNT, &recent, 1, "N", "", OPT_HOW },
	{ .name = NULL }
};

const char *
opt_retrieve_head(void)
{
	return head_folder;
}

const char *
opt_retrieve_reduce(enum reduce reduce)
{
	static const char *const names[] = {
		[REDUCE_MAX] = "max", [REDUCE_MEAN] = "mean", [REDUCE_SUM] = "sum" };

	return names[reduce];
}

static enum reduce
take_reduce(void)
{
	enum reduce reduce = REDUCE_MEAN;

	if (reduce_word == NULL)
		return REDUCE_MAX;
	while (reduce <= REDUCE_SUM && strcmp(opt_retrieve_reduce(reduce), reduce_word) != 0)
		reduce++;
	if (reduce > REDUCE_SUM)
		die(EXIT_USAGE, "--retrieve: reduce=%s: want max, mean or sum", reduce_word);
	return reduce;
}

const char *
opt_retrieve_per(enum choice_per per)
{
	return per == PER_QUERY_HEAD ? "query-head" : "kv-head";
}

static enum choice_per
take_per(void)
{
	if (per_word == NULL)
		return PER_MODEL;
	if (strcmp(per_word, opt_retrieve_per(PER_QUERY_HEAD)) == 0)
		return PER_QUERY_HEAD;
	if (strcmp(per_word, opt_retrieve_per(PER_KV_HEAD)) != 0)
		die(EXIT_USAGE, "--retrieve: per=%s: want query-head or kv-head", per_word);
	return PER_KV_HEAD;
}

/* Sets whose choices are made, and the first and last rows that are always read, as part of the
 * budget. */
static void
take_for_head(struct retrieval_options *o)
{
	const char *stray = head_folder != NULL ? "head" : per_word != NULL ? "per" :
	    sink != NOT_GIVEN ? "sink" : recent != NOT_GIVEN ? "recent" : NULL;

	if (o->method != RETRIEVE_SPECONTEXT) {
		if (stray != NULL)
			die(EXIT_USAGE, "--retrieve %s: %s= is for specontext",
			    retrieve_name(o->method), stray);
		return;
	}
	o->per = take_per();
	o->sinks = sink != NOT_GIVEN ? sink : 0;
	o->recent = recent != NOT_GIVEN ? recent : 1;
	if ((uint64_t)o->sinks + o->recent > o->budget)
		die(EXIT_USAGE, "--retrieve specontext: budget=%u is less than %u sinks and %u "
		    "recent tokens", o->budget, o->sinks, o->recent);
}

int
opt_retrieve(struct retrieval_options *o)
{
	const char *rest, *method;
	int found;

	if (retrieve_text == NULL)
		return 0;
	method = option_word("retrieve", retrieve_text, &rest);
	if ((found = retrieve_named(method)) < 0)
		die(EXIT_USAGE, "--retrieve: there is no method '%s', only%s%s", method,
		    retrieve_words, name_hint(NAME_RETRIEVE, method));
	options_words("retrieve", rest, words);
	o->method = (enum retrieve_method)found;
	o->reduce = take_reduce();
	if (budget == 0)
		die(EXIT_USAGE, "--retrieve %s: how many rows of each KV head? Give budget=N, at "
		    "least 1", method);
	o->budget = budget;
	o->dense = dense != NOT_GIVEN ? dense : o->method == RETRIEVE_SPECONTEXT ? 0 : 2;
	take_for_head(o);
	return 1;
}

void
opt_retrieve_sign(const struct retrieval_options *o)
{
	sign_text("retrieve", retrieve_name(o->method));
	sign_count("budget", o->budget);
	sign_text("reduce", opt_retrieve_reduce(o->reduce));
	sign_count("dense_layers", o->dense);
	if (o->per == PER_QUERY_HEAD)
		sign_text("per", opt_retrieve_per(o->per));
	if (o->method == RETRIEVE_SPECONTEXT) {
		sign_count("sinks", o->sinks);
		sign_count("recent", o->recent);
	}
}
