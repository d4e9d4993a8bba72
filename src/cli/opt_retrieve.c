/* opt_retrieve.c - the options of retrieval */
#include <string.h>

#include "cli/opt_retrieve.h"
#include "cli/paper_names.h"

#define RETRIEVAL(NAME, symbol, word, ...) " " word
static const char retrieve_words[] =
#include "retrieval/retrievals.h"
    ;
static const char retrieve_help[] = "read only rows that matter to the query:"
#include "retrieval/retrievals.h"
    ;
#undef RETRIEVAL

static const char *retrieve_word, *reduce_word;
static uint32_t budget, dense = NOT_GIVEN;

struct ahead_options ahead_options = { NOT_GIVEN, NOT_GIVEN, NULL };

const struct opt retrieve_opts[] = {
	{ 0, "retrieve", OPT_STRING, &retrieve_word, 0, "METHOD",
	    retrieve_help },
	{ 0, "budget", OPT_COUNT, &budget, 1, "N", "how many rows of each KV head and step" },
	{ 0, "reduce", OPT_STRING, &reduce_word, 0, "HOW",
	    "over the query heads of a KV head: max, mean, sum (max)" },
	{ 0, "dense-layers", OPT_COUNT, &dense, 0, "N",
	    "the first N layers read all rows (2; specontext 0)" },
	{ .name = NULL }
};

const char *
opt_retrieve_reduce(enum reduce reduce)
{
	static const char *const words[] = {
		[REDUCE_MAX] = "max", [REDUCE_MEAN] = "mean", [REDUCE_SUM] = "sum" };

	return words[reduce];
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
		die(EXIT_USAGE, "--reduce %s: want max, mean or sum", reduce_word);
	return reduce;
}

/* The first of the options that mean nothing without --retrieve specontext. */
static const char *
stray_ahead(void)
{
	return ahead_options.head != NULL ? "head" : ahead_options.sinks != NOT_GIVEN ? "sinks" :
	    ahead_options.recent != NOT_GIVEN ? "recent" : NULL;
}

/* The first of the options that mean nothing without --retrieve. */
static const char *
stray(void)
{
	return budget != 0 ? "budget" : reduce_word != NULL ? "reduce" :
	    dense != NOT_GIVEN ? "dense-layers" : stray_ahead();
}

/* What is always read is paid for by the budget. */
static void
take_ahead(struct retrieval_options *o)
{
	const struct ahead_options *a = &ahead_options;

	if (o->method != RETRIEVE_SPECONTEXT) {
		if (stray_ahead() != NULL)
			die(EXIT_USAGE, "--%s is for --retrieve specontext", stray_ahead());
		return;
	}
	o->sinks = a->sinks != NOT_GIVEN ? a->sinks : 0;
	o->recent = a->recent != NOT_GIVEN ? a->recent : 1;
	if ((uint64_t)o->sinks + o->recent > o->budget)
		die(EXIT_USAGE, "--budget %u: it has to pay for %u sinks and %u recent tokens", o->budget,
		    o->sinks, o->recent);
}

int
opt_retrieve(struct retrieval_options *o)
{
	int found;

	if (retrieve_word == NULL) {
		if (stray() != NULL)
			die(EXIT_USAGE, "--%s: of what? Give --retrieve, too", stray());
		return 0;
	}
	if ((found = retrieve_named(retrieve_word)) < 0)
		die(EXIT_USAGE, "--retrieve %s: want one of%s%s", retrieve_word, retrieve_words,
		    name_hint(NAME_RETRIEVE, retrieve_word));
	o->method = (enum retrieve_method)found;
	o->reduce = take_reduce();
	if (budget == 0)
		die(EXIT_USAGE, "--retrieve %s: how many rows? Give --budget, at least 1",
		    retrieve_word);
	o->budget = budget;
	o->dense = dense != NOT_GIVEN ? dense : o->method == RETRIEVE_SPECONTEXT ? 0 : 2;
	take_ahead(o);
	return 1;
}

void
opt_retrieve_sign(const struct retrieval_options *o)
{
	sign_text("retrieve", retrieve_name(o->method));
	sign_count("budget", o->budget);
	sign_text("reduce", opt_retrieve_reduce(o->reduce));
	sign_count("dense_layers", o->dense);
	if (o->method == RETRIEVE_SPECONTEXT) {
		sign_count("sinks", o->sinks);
		sign_count("recent", o->recent);
	}
}
