/* opt_retrieve.c - the options of retrieval, and its report */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/opt_retrieve.h"

#define NOT_GIVEN UINT32_MAX

static const char *retrieve_word, *reduce_word;
static uint32_t budget, dense = NOT_GIVEN;
static enum retrieve_method method;
static enum join join;

const struct opt retrieving_opts[] = {
	{ 0, "retrieve", OPT_STRING, &retrieve_word, 0, "METHOD",
	    "read only rows that matter: fier, quest, cluster, shadow" },
	{ 0, "budget", OPT_COUNT, &budget, 0, "N", "how many rows of each KV head and step" },
	{ 0, "reduce", OPT_STRING, &reduce_word, 0, "HOW",
	    "over the query heads of a KV head: max, mean, sum (max)" },
	{ 0, "dense-layers", OPT_COUNT, &dense, 0, "N", "the first N layers read all rows (2)" },
	{ .name = NULL }
};

int
retrieving_wanted(void)
{
	return retrieve_word != NULL;
}

/* The first of the options that mean nothing without --retrieve. */
static const char *
stray(void)
{
	return budget != 0 ? "budget" : reduce_word != NULL ? "reduce" :
	    dense != NOT_GIVEN ? "dense-layers" : NULL;
}

void
retrieving_check(void)
{
	static const char *const words[] = {
		[JOIN_MAX] = "max", [JOIN_MEAN] = "mean", [JOIN_SUM] = "sum" };
	int found;

	if (retrieve_word == NULL) {
		if (stray() != NULL)
			die(EXIT_USAGE, "--%s: of what? Give --retrieve, too", stray());
		return;
	}
	if ((found = retrieve_named(retrieve_word)) < 0)
		die(EXIT_USAGE, "--retrieve %s: want fier, quest, cluster or shadow",
		    retrieve_word);
	method = (enum retrieve_method)found;
	if (reduce_word == NULL)
		reduce_word = words[JOIN_MAX];
	for (join = JOIN_MAX; join <= JOIN_SUM && strcmp(words[join], reduce_word) != 0; join++)
		;
	if (join > JOIN_SUM)
		die(EXIT_USAGE, "--reduce %s: want max, mean or sum", reduce_word);
	if (budget == 0)
		die(EXIT_USAGE, "--retrieve %s: how many rows? Give --budget, at least 1",
		    retrieve_word);
	if (dense == NOT_GIVEN)
		dense = 2;
}

struct retrieval_options
retrieving_options(void)
{
	return (struct retrieval_options){ .method = method, .budget = budget, .join = join,
	    .dense = dense };
}

unsigned
retrieving_needs(void)
{
	return retrieve_word != NULL ? 1u << retrieve_needs(method) : 0;
}

void
retrieving_fit(const char *name, uint32_t l, const struct layer_index *x)
{
	enum index_kind kind = retrieve_needs(method);

	if (l >= dense && !index_has(x, kind))
		die(EXIT_RUN, "%s: layer %u has no %s (%s), which --retrieve %s needs: add them "
		    "with %s", name, l, index_words(kind), index_type(kind), retrieve_word,
		    index_command(kind));
}

void
retrieving_sign(void)
{
	sign_text("retrieve", retrieve_word);
	sign_count("budget", budget);
	sign_text("reduce", reduce_word);
	sign_count("dense_layers", dense);
}

const char *
retrieving_reduce(void)
{
	return reduce_word;
}

/* ---- the report ---- */

void
retrieving_add(struct retrieval_stats *to, const struct retrieval_stats *s)
{
	to->steps += s->steps;
	to->rows += s->rows;
	to->of_rows += s->of_rows;
	to->index_bytes += s->index_bytes;
	to->key_bytes += s->key_bytes;
	to->value_bytes += s->value_bytes;
	to->of_bytes += s->of_bytes;
	to->recall += s->recall;
	to->mass += s->mass;
}

/* Of layers l .. l1-1, all KV heads. */
static struct retrieval_stats
sum_of(const struct retrieval *t, uint32_t l, uint32_t l1, uint32_t heads)
{
	struct retrieval_stats sum = { 0 };
	size_t i;

	for (i = (size_t)l * heads; i < (size_t)l1 * heads; i++)
		retrieving_add(&sum, &retrieval_stats(t)[i]);
	return sum;
}

double
retrieving_share(const struct retrieval_stats *s)
{
	return (double)(s->index_bytes + s->key_bytes + s->value_bytes) / (double)s->of_bytes;
}

void
retrieving_note(const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	struct retrieval_stats all = sum_of(t, 0, layers, heads);
	struct retrieval_stats some = sum_of(t, dense, layers, heads);

	if (all.of_bytes == 0 || some.of_bytes == 0)
		return;
	note("%s: read %.1f%% of what full attention reads, %.1f%% in the %u layers that retrieve",
	    retrieve_word, 100 * retrieving_share(&all), 100 * retrieving_share(&some),
	    layers - dense);
	if (retrieval_options(t)->audit)
		note("%s: recall %.4f, mass %.4f", retrieve_word,
		    some.recall / (double)some.steps, some.mass / (double)some.steps);
}

static void
set(json_t *o, const char *key, json_t *value)
{
	if (value == NULL || json_object_set_new(o, key, value) != 0)
		die(EXIT_RUN, "no memory for the report");
}

/* A mean; null when there is nothing to take it of. */
static json_t *
mean(double sum, double n)
{
	return n > 0 ? json_real(sum / n) : json_null();
}

/* Means over steps and KV heads. */
static void
set_means(json_t *o, const struct retrieval_stats *s, int audit)
{
	double n = (double)s->steps;

	set(o, "rows", mean((double)s->rows, n));
	set(o, "of_rows", mean((double)s->of_rows, n));
	set(o, "index_bytes", mean((double)s->index_bytes, n));
	set(o, "key_bytes", mean((double)s->key_bytes, n));
	set(o, "value_bytes", mean((double)s->value_bytes, n));
	set(o, "of_bytes", mean((double)s->of_bytes, n));
	set(o, "share", s->of_bytes > 0 ? json_real(retrieving_share(s)) : json_null());
	if (audit) {
		set(o, "recall", mean(s->recall, n));
		set(o, "mass", mean(s->mass, n));
	}
}

static json_t *
report(const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	int audit = retrieval_options(t)->audit;
	struct retrieval_stats sum = sum_of(t, 0, layers, heads);
	json_t *o = json_object(), *part, *list = json_array();
	uint32_t l;

	set(o, "retrieve", json_string(retrieve_word));
	set(o, "budget", json_integer(budget));
	set(o, "reduce", json_string(reduce_word));
	set(o, "dense_layers", json_integer(dense));
	set(o, "steps", json_integer((json_int_t)retrieval_stats(t)[0].steps));
	set(o, "all", part = json_object());
	set_means(part, &sum, audit);
	sum = sum_of(t, dense, layers, heads);
	set(o, "retrieving", part = json_object());
	set_means(part, &sum, audit);
	for (l = 0; l < layers; l++) {
		part = json_object();
		set(part, "layer", json_integer(l));
		sum = sum_of(t, l, l + 1, heads);
		set_means(part, &sum, audit);
		if (json_array_append_new(list, part) != 0)
			die(EXIT_RUN, "no memory for the report");
	}
	set(o, "layers", list);
	return o;
}

void
retrieving_report(const char *path, const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	json_t *o = report(t, layers, heads);
	FILE *f = text_create(path);

	if (json_dumpf(o, f, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 || fputc('\n', f) == EOF)
		die(EXIT_RUN, "%s:", path);
	text_commit(f);
	json_decref(o);
}
