/* retrieval_report.c - how much retrieval has read, as JSON and as a line of -v */
#include <string.h>

#include "cli/json.h"
#include "cli/opt_retrieve.h"
#include "cli/retrieval_report.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

/* Returns the sum over layers l .. l1-1, all KV heads. */
static struct retrieval_stats
sum_of(const struct retrieval *t, uint32_t l, uint32_t l1, uint32_t heads)
{
	const struct retrieval_stats *stats = retrieval_stats(t);
	struct retrieval_stats sum = { 0 };
	size_t i;

	for (i = (size_t)l * heads; i < (size_t)l1 * heads; i++)
		retrieval_stats_add(&sum, &stats[i]);
	return sum;
}

void
retrieval_note(const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	const struct retrieval_options *o = retrieval_options(t);
	const struct retrieval_stats all = sum_of(t, 0, layers, heads);
	const struct retrieval_stats some = sum_of(t, o->dense, layers, heads);
	const char *name = retrieve_name(o->method);

	if (all.of_bytes == 0 || some.of_bytes == 0)
		return;
	note("%s: read %.1f%% of what full attention reads, %.1f%% in the %u layers that retrieve",
	    name, 100 * retrieval_stats_share(&all), 100 * retrieval_stats_share(&some),
	    layers - o->dense);
	if (o->per == PER_QUERY_HEAD)
		note("%s: %.1f rows of a layer and step, each for %.2f query heads", name,
		    (double)some.rows / (double)some.steps,
		    (double)some.head_rows / (double)some.rows);
	if (o->audit)
		note("%s: recall %.4f, mass %.4f", name, some.recall / (double)some.steps,
		    some.mass / (double)some.steps);
}

void
put_retrieval_means(json_t *o, const struct retrieval_stats *s,
    const struct retrieval_options *r)
{
	const double n = (double)s->steps;      /* 0: all means are NaN, printed as null */

	put_real(o, "rows", (double)s->rows / n);
	put_real(o, "of_rows", (double)s->of_rows / n);
	if (r->per == PER_QUERY_HEAD)
		put_real(o, "head_rows", (double)s->head_rows / n);
	put_real(o, "index_bytes", (double)s->index_bytes / n);
	put_real(o, "key_bytes", (double)s->key_bytes / n);
	put_real(o, "value_bytes", (double)s->value_bytes / n);
	put_real(o, "of_bytes", (double)s->of_bytes / n);
	put_real(o, "share", retrieval_stats_share(s));
	if (r->offload)
		put_real(o, "fetched_bytes", (double)s->fetched_bytes / n);
	if (r->overlap)
		put_real(o, "overlap", s->overlap / (double)s->pairs);
	if (r->audit) {
		put_real(o, "recall", s->recall / n);
		put_real(o, "mass", s->mass / n);
	}
}

json_t *
retrieval_json(const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	const struct retrieval_options *r = retrieval_options(t);
	struct retrieval_stats sum = sum_of(t, 0, layers, heads);
	json_t *o = json_object(), *all = json_object(), *some = json_object();
	json_t *list = json_array(), *layer;
	uint32_t l;

	put_value(o, "retrieve", json_string(retrieve_name(r->method)));
	put_count(o, "budget", r->budget);
	put_value(o, "reduce", json_string(opt_retrieve_reduce(r->reduce)));
	put_count(o, "dense_layers", r->dense);
	if (r->method == RETRIEVE_SPECONTEXT) {
		put_value(o, "per", json_string(opt_retrieve_per(r->per)));
		put_count(o, "sinks", r->sinks);
		put_count(o, "recent", r->recent);
	}
	put_count(o, "steps", retrieval_stats(t)[0].steps);
	put_value(o, "all", all);
	put_retrieval_means(all, &sum, r);
	put_value(o, "retrieving", some);
	sum = sum_of(t, r->dense, layers, heads);
	put_retrieval_means(some, &sum, r);
	for (l = 0; l < layers; l++) {
		layer = json_object();
		put_count(layer, "layer", l);
		sum = sum_of(t, l, l + 1, heads);
		put_retrieval_means(layer, &sum, r);
		json_array_append_new(list, layer);
	}
	put_value(o, "layers", list);
	return o;
}

void
retrieval_report(const char *path, const struct retrieval *t, uint32_t layers, uint32_t heads)
{
	write_json(path, retrieval_json(t, layers, heads));
}

void
stats_refuse(const char *path)
{
	if (path == NULL)
		return;
	if (strcmp(path, "-") == 0)
		die(EXIT_USAGE, "--stats -: standard output is for the text");
	if (strcmp(path, settings.output) == 0)
		die(EXIT_USAGE, "--stats and --output name the same file, %s", path);
	output_refuse("--stats", path);
}
