/* label.c - the options of scoring methods by name, and the label that lists them */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"

const char *const pool_names[] = { "avg", "max", NULL };
const char *const reduce_names[] = { "mean", "max", "sum", NULL };
const char *const over_names[] = { "sum", "max", NULL };
const char *const order_names[] = { "pool-first", "reduce-first", NULL };
const char *const weight_names[] = { "none", "visible", NULL };

const char *
score_option(const struct score_options *opt, const char *name, uint32_t queries, uint64_t *number)
{
	if (strcmp(name, "pool") == 0)
		return pool_names[opt->pool];
	if (strcmp(name, "reduce") == 0)
		return reduce_names[opt->reduce];
	if (strcmp(name, "order") == 0)
		return order_names[opt->order];
	if (strcmp(name, "over-queries") == 0)
		return over_names[opt->over_queries];
	if (strcmp(name, "weight") == 0)
		return weight_names[opt->weight];
	if (strcmp(name, "filters") == 0)
		return opt->filters;
	if (strcmp(name, "query-stats") == 0)
		return opt->query_stats[0] != '\0' ? opt->query_stats : "text";
	if (strcmp(name, "recent") == 0 && opt->recent == RECENT_BY_LENGTH)
		return "by-length";
	if (strcmp(name, "blend") == 0)
		return opt->blend.text;
	if (strcmp(name, "lambda") == 0)
		return opt->lambda.text;
	if (strcmp(name, "gamma") == 0)
		return opt->gamma.text;
	if (strcmp(name, "lazy") == 0)
		return opt->lazy.text;
	if (strcmp(name, "epsilon") == 0)
		return opt->epsilon.text;
	if (strcmp(name, "norms") == 0)
		return norms_names[opt->norms];
	*number = strcmp(name, "kernel") == 0 ? opt->kernel :
	    strcmp(name, "sink") == 0 ? opt->sink :
	    strcmp(name, "keep-last") == 0 ? (uint64_t)opt->keep_last :
	    strcmp(name, "lag") == 0 ? opt->lag :
	    strcmp(name, "cross") == 0 ? (uint64_t)opt->cross :
	    strcmp(name, "local") == 0 ? opt->local :
	    strcmp(name, "sketch") == 0 ? opt->sketch :
	    strcmp(name, "future") == 0 ? opt->future :
	    strcmp(name, "recent") == 0 ? opt->recent :
	    strcmp(name, "z-score") == 0 ? (uint64_t)opt->z_score :
	    strcmp(name, "no-covariance") == 0 ? (uint64_t)!opt->covariance :
	    strcmp(name, "no-value-norm") == 0 ? (uint64_t)!opt->value_norm :
	    strcmp(name, "window") == 0 ? queries : opt->seed;
	return NULL;
}

void
score_label(char *label, size_t size, const struct method *method, const struct score_options *opt,
    uint32_t since, uint32_t queries)
{
	char words[128], *word, *rest = words;
	const char *text;
	uint64_t number = 0;
	size_t n;

	snprintf(words, sizeof words, "%s", method->uses);
	n = (size_t)snprintf(label, size, "%s", method->name);
	while ((word = strtok_r(rest, " ", &rest)) != NULL)
		if ((text = score_option(opt, word, queries, &number)) != NULL)
			n += (size_t)snprintf(label + n, size - n, " %s=%s", word, text);
		else
			n += (size_t)snprintf(label + n, size - n, " %s=%" PRIu64, word, number);
	if (since != 0)
		snprintf(label + n, size - n, " since=%u", since);
}

void
label_add_spread(char *label, size_t size, const struct attention_spread *spread)
{
	const size_t n = strlen(label);

	snprintf(label + n, size - n, " entropy=%.9g variance=%.9g", spread->entropy,
	    spread->variance);
}

/* *number <- the value of the word NAME=VALUE of a label; returns whether there is one, finite and
 * not negative. name: " NAME=" */
static int
label_number(const char *label, const char *name, double *number)
{
	const char *at = strstr(label, name);
	char *end;

	if (at == NULL)
		return 0;
	at += strlen(name);
	*number = strtod(at, &end);
	return end != at && (*end == ' ' || *end == '\0') && isfinite(*number) && *number >= 0;
}

int
label_spread(const char *label, struct attention_spread *spread)
{
	return label_number(label, " entropy=", &spread->entropy) &&
	    label_number(label, " variance=", &spread->variance);
}
