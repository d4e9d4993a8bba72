/* kv-diff - compare two snapshots of one model, or full attention with retrieval
 *
 * Two snapshots are printed here, a trial of retrieval in print_trial.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/escape.h"
#include "cli/json.h"
#include "cli/opt_retrieve.h"
#include "cli/print_trial.h"
#include "cli/tool.h"
#include "engine/compare.h"
#include "engine/retrieval_trial.h"

static const char *by;
static int exit_code;
static struct retrieval_options retrieval;      /* with --retrieve */

static const struct opt opts[] = {
	{ 0, "by", OPT_STRING, &by, 0, "WHAT", "a line for each layer, or each KV head (head)" },
	{ 0, "exit-code", OPT_FLAG, &exit_code, 1, NULL,
	    "exit 1 when tokens, rows, keys, values or anything else critical differ" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-diff",
	.about = "compare two snapshots of one model, or full attention with retrieval",
	.synopsis = "[-qv] [-j N] [--by WHAT] [--device DEVICE] [--exit-code] [--json]\n"
	    "[--progress WHEN] snapshot snapshot\n"
	    "kv-diff --retrieve METHOD --budget N [-qv] [-j N] [--by WHAT] [--dense-layers N]\n"
	    "[--device DEVICE] [--json] [--progress WHEN] [--reduce HOW] [snapshot]",
	.opts = opts,
	.more = retrieve_opts,
	.takes = TAKES_THREADS | TAKES_JSON | TAKES_PROGRESS,
	.max_operands = 2
};

/* ---- all of it ---- */

enum tokens { TOKENS_SAME, TOKENS_CONTINUED, TOKENS_BEGINNING, TOKENS_OTHER };

static const char *const tokens_word[] = { "same", "continued", "beginning", "other" };

struct comparison {
	const struct kv_model *model;
	struct layer_reader a, b;
	enum tokens tokens;             /* those of b, to those of a */
	uint64_t common;                /* ids at the start that are the same */
	uint64_t a_rows, b_rows;
	uint32_t L, G, R;
	struct layer_compared *layer;   /* [L] */
	int same;                       /* one logical digest */
};

static void
compare_tokens(struct comparison *c)
{
	uint64_t n = c->a.n_tokens, m = c->b.n_tokens, i = 0;

	while (i < n && i < m && c->a.tokens[i] == c->b.tokens[i])
		i++;
	c->common = i;
	if (i < n && i < m)
		c->tokens = TOKENS_OTHER;
	else
		c->tokens = n == m ? TOKENS_SAME : n < m ? TOKENS_CONTINUED : TOKENS_BEGINNING;
}

/* Rows are compared by their positions. */
static void
warn_of_renumbering(const struct comparison *c)
{
	int64_t more = (int64_t)c->b.n_tokens - (int64_t)c->a.n_tokens;

	if (c->tokens != TOKENS_OTHER &&
	    (int64_t)c->a.head->next_position + more != (int64_t)c->b.head->next_position)
		warning("positions were given anew in one of them (kv-evict --positions compact?): "
		    "rows at the same position need not be of the same token");
}

static void
refuse_other_model(const struct comparison *c)
{
	char fields[2048];

	if (kv_model_diff(&c->a.head->model, &c->b.head->model, kv_reader_name(c->a.r),
	    kv_reader_name(c->b.r), fields, sizeof fields) != 0)
		die(EXIT_MODEL, "%s and %s are not of one model: %s", kv_reader_name(c->a.r),
		    kv_reader_name(c->b.r), fields);
}

static void
compare(struct comparison *c, const struct device *d)
{
	struct compare_areas areas = { 0 };
	struct kv_digests a, b;
	struct engine_error e;
	uint32_t l;

	progress_start("compare", c->L, "layers");
	for (l = 0; l < c->L; l++) {
		must(layer_reader_next(&c->a, l, &e), &e);
		must(layer_reader_next(&c->b, l, &e), &e);
		if (l == 0) {
			compare_tokens(c);
			warn_of_renumbering(c);
		}
		c->a_rows += kv_rows_total(c->a.rows);
		c->b_rows += kv_rows_total(c->b.rows);
		must(compare_layers(&c->layer[l], d, &areas, &c->a, &c->b, &e), &e);
		progress(l + 1);
	}
	must(layer_reader_finish(&c->a, &e), &e);
	must(layer_reader_finish(&c->b, &e), &e);
	progress_end();
	compare_release(d, &areas);
	kv_reader_digests(c->a.r, &a);
	kv_reader_digests(c->b.r, &b);
	c->same = strcmp(a.logical, b.logical) == 0;
}

/* ---- sums ---- */

/* What is printed of a KV head, a layer, or everything. */
struct share {
	struct rows_compared rows;
	double mass, error;             /* NaN: not known */
};

static struct share
share_of_head(const struct comparison *c, uint32_t l, uint32_t g)
{
	const struct head_compared *head = &c->layer[l].head[g];
	struct attention_compared sum = { 0 };
	uint32_t r;

	for (r = 0; r < c->R; r++)
		attention_add(&sum, &head->query[r]);
	return (struct share){ head->rows, mass_recall(&sum), output_error(&sum) };
}

/* Adds to *all, too. */
static struct share
share_of_layer(const struct comparison *c, uint32_t l, struct attention_compared *all)
{
	struct attention_compared sum = { 0 };
	struct share share = { 0 };
	uint32_t g, r;

	for (g = 0; g < c->G; g++) {
		rows_add(&share.rows, &c->layer[l].head[g].rows);
		for (r = 0; r < c->R; r++)
			attention_add(&sum, &c->layer[l].head[g].query[r]);
	}
	share.mass = mass_recall(&sum);
	share.error = output_error(&sum);
	attention_add(all, &sum);
	return share;
}

/* The error of all is the mean of those of the layers: they differ in scale. */
static struct share
share_of_all(const struct comparison *c)
{
	struct attention_compared sum = { 0 };
	struct share all = { 0 }, share;
	uint32_t l, n = 0;

	for (l = 0; l < c->L; l++) {
		share = share_of_layer(c, l, &sum);
		rows_add(&all.rows, &share.rows);
		if (!isnan(share.error)) {
			all.error += share.error;
			n++;
		}
	}
	all.mass = mass_recall(&sum);
	all.error = n > 0 ? all.error / n : NAN;
	return all;
}

/* The first layer with queries, NULL where there is none. */
static const struct layer_compared *
observed_layer(const struct comparison *c)
{
	uint32_t l = 0;

	while (l < c->L && c->layer[l].queries == 0)
		l++;
	return l < c->L ? &c->layer[l] : NULL;
}

/* ---- text ---- */

static void
print_snapshots(const struct comparison *c)
{
	const struct layer_reader *a = &c->a, *b = &c->b;
	const struct layer_compared *observed = observed_layer(c);

	printf("a        %s: %" PRIu64 " tokens, next position %" PRIu32 ", %s\n",
	    shown(kv_reader_name(a->r)), a->n_tokens, a->head->next_position,
	    kv_dtype_name(a->head->dtype));
	printf("b        %s: ", shown(kv_reader_name(b->r)));
	if (c->tokens == TOKENS_SAME)
		printf("the same tokens");
	else if (c->tokens == TOKENS_OTHER)
		printf("%" PRIu64 " tokens, others from token %" PRIu64 " on", b->n_tokens,
		    c->common);
	else
		printf("%" PRIu64 " tokens, which %s those of a", b->n_tokens,
		    c->tokens == TOKENS_CONTINUED ? "continue" : "begin");
	printf(", next position %" PRIu32 ", %s\n", b->head->next_position,
	    kv_dtype_name(b->head->dtype));
	if (observed != NULL)
		printf("queries  %" PRIu32 " of %s\n", observed->queries,
		    observed->queries_of_b ? "b: a has none" : "a");
	else
		puts("queries  none: no attention is compared (kv-prefill --observe)");
}

static void
print_difference(uint64_t both, uint64_t differ, double difference)
{
	if (both == 0)
		printf(" %9s", "-");
	else if (differ == 0)
		printf(" %9s", "same");
	else
		printf(" %9.3g", difference);
}

/* layer, head: NULL where there is no such column. */
static void
print_share(const struct share *s, int attention, const char *layer, const char *head)
{
	const struct rows_compared *rows = &s->rows;

	printf("%9" PRIu64 " %9" PRIu64 " %9" PRIu64, rows->both, rows->only_a, rows->only_b);
	print_difference(rows->both, rows->keys_differ, rows->key_difference);
	print_difference(rows->both, rows->values_differ, rows->value_difference);
	if (attention && isnan(s->mass))
		printf(" %9s %9s", "-", "-");
	else if (attention)
		printf(" %8.2f%% %9.3g", 100 * s->mass, s->error);
	printf("  %5s", layer);
	if (head != NULL)
		printf("  %4s", head);
	putchar('\n');
}

static void
print_text(const struct comparison *c)
{
	int heads = by != NULL && strcmp(by, "head") == 0, attention = observed_layer(c) != NULL;
	struct attention_compared unused = { 0 };
	struct share s = share_of_all(c);
	char layer[16], head[16];
	uint32_t l, g;

	print_snapshots(c);
	printf("%9s %9s %9s %9s %9s%s  %5s%s\n", "both", "only a", "only b", "keys", "values",
	    attention ? "      mass     error" : "", "layer", heads ? "  head" : "");
	print_share(&s, attention, "all", heads ? "all" : NULL);
	for (l = 0; l < c->L; l++) {
		snprintf(layer, sizeof layer, "%" PRIu32, l);
		if (!heads) {
			s = share_of_layer(c, l, &unused);
			print_share(&s, attention, layer, NULL);
		}
		for (g = 0; heads && g < c->G; g++) {
			snprintf(head, sizeof head, "%" PRIu32, g);
			s = share_of_head(c, l, g);
			print_share(&s, attention, layer, head);
		}
	}
}

/* ---- JSON ---- */

static json_t *
snapshot_json(const struct layer_reader *s, uint64_t rows)
{
	json_t *o = json_object();

	put(o, "snapshot", json_string(kv_reader_name(s->r)));
	put(o, "dtype", json_string(kv_dtype_name(s->head->dtype)));
	put_count(o, "tokens", s->n_tokens);
	put_count(o, "next_position", s->head->next_position);
	put_count(o, "rows", rows);
	put_count(o, "kv_bytes",
	    rows * 2 * s->head->model.head_width * kv_dtype_size(s->head->dtype));
	return o;
}

static json_t *
share_json(const struct share *s)
{
	json_t *o = json_object();

	put_count(o, "both", s->rows.both);
	put_count(o, "only_a", s->rows.only_a);
	put_count(o, "only_b", s->rows.only_b);
	put_count(o, "keys_differ", s->rows.keys_differ);
	put_count(o, "values_differ", s->rows.values_differ);
	put_real(o, "key_difference", s->rows.key_difference);
	put_real(o, "value_difference", s->rows.value_difference);
	put_real(o, "mass", s->mass);
	put_real(o, "output_error", s->error);
	return o;
}

static json_t *
head_json(const struct comparison *c, uint32_t l, uint32_t g)
{
	struct share s = share_of_head(c, l, g);
	json_t *o = share_json(&s), *list = json_array(), *query;
	const struct attention_compared *x = c->layer[l].head[g].query;
	uint32_t r;

	for (r = 0; r < c->R; r++) {
		query = json_object();
		put_real(query, "mass", mass_recall(&x[r]));
		put_real(query, "output_error", output_error(&x[r]));
		json_array_append_new(list, query);
	}
	put(o, "query_heads", list);
	return o;
}

static json_t *
layer_json(const struct comparison *c, uint32_t l)
{
	const struct layer_compared *layer = &c->layer[l];
	struct attention_compared unused = { 0 };
	struct share s = share_of_layer(c, l, &unused);
	json_t *o = share_json(&s), *heads = json_array();
	uint32_t g;

	put_count(o, "queries", layer->queries);
	put(o, "queries_of", layer->queries == 0 ? json_null() :
	    json_string(layer->queries_of_b ? "b" : "a"));
	for (g = 0; g < c->G; g++)
		json_array_append_new(heads, head_json(c, l, g));
	put(o, "heads", heads);
	return o;
}

static void
print_comparison_json(const struct comparison *c)
{
	struct share s = share_of_all(c);
	json_t *o = share_json(&s), *layers = json_array();
	uint32_t l;

	put(o, "a", snapshot_json(&c->a, c->a_rows));
	put(o, "b", snapshot_json(&c->b, c->b_rows));
	put(o, "tokens", json_string(tokens_word[c->tokens]));
	put_count(o, "tokens_common", c->common);
	put(o, "same", json_boolean(c->same));
	for (l = 0; l < c->L; l++)
		json_array_append_new(layers, layer_json(c, l));
	put(o, "layers", layers);
	print_json(o);
}

/* ---- two snapshots ---- */

static void
open_snapshot(struct layer_reader *s, const char *path)
{
	struct engine_error e;

	must(layer_reader_init(s, input_open(path), &e), &e);
}

static void
close_snapshot(struct layer_reader *s, const struct device *d)
{
	layer_reader_free(s, d);
	kv_close(s->r);
}

/* Returns 1 when they are not the same. */
static int
two_snapshots(const char *a, const char *b)
{
	struct comparison c = { .same = 1 };
	struct device d;
	uint32_t l;

	if (strcmp(a, "-") == 0 && strcmp(b, "-") == 0)
		die(EXIT_USAGE, "only one of the snapshots can be standard input");
	open_snapshot(&c.a, a);
	open_snapshot(&c.b, b);
	refuse_other_model(&c);
	c.model = &c.a.head->model;
	c.L = c.model->layers;
	c.G = c.model->kv_heads;
	c.R = c.model->query_heads / c.G;
	c.layer = must_alloc(c.L, sizeof *c.layer);
	d = device_open();
	compare(&c, &d);
	if (settings.json)
		print_comparison_json(&c);
	else
		print_text(&c);
	for (l = 0; l < c.L; l++)
		layer_compared_free(&c.layer[l], c.G);
	free(c.layer);
	close_snapshot(&c.a, &d);
	close_snapshot(&c.b, &d);
	device_close(&d);
	return !c.same;
}

/* ---- full attention and retrieval ---- */

static void
try_retrieval(const char *path)
{
	struct kv_reader *r = input_open(path);
	struct device d = device_open();
	struct retrieval_trial t;
	struct engine_error e;
	uint32_t l;

	must(retrieval_trial_init(&t, &d, r, &retrieval, &e), &e);
	progress_start("retrieve", t.L, "layers");
	for (l = 0; l < t.L; l++) {
		must(retrieval_trial_layer(&t, l, &e), &e);
		progress(l + 1);
	}
	must(retrieval_trial_finish(&t, &e), &e);
	progress_end();
	if (settings.json)
		print_trial_json(&t);
	else
		print_trial(&t, by != NULL && strcmp(by, "head") == 0);
	retrieval_trial_free(&t);
	device_close(&d);
	kv_close(r);
}

/* Returns 1 when retrieval is to be tried. */
static int
check_options(int operands)
{
	int retrieves;

	if (by != NULL && strcmp(by, "layer") != 0 && strcmp(by, "head") != 0)
		die(EXIT_USAGE, "--by %s: want layer or head", by);
	retrieves = opt_retrieve(&retrieval);
	if (retrieves && operands > 1)
		die(EXIT_USAGE, "--retrieve is tried on one snapshot");
	if (retrieves && exit_code)
		die(EXIT_USAGE, "--exit-code: --retrieve compares no snapshots");
	if (!retrieves && operands != 2)
		die(EXIT_USAGE, "want two snapshots, or --retrieve and one");
	return retrieves;
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv), other = 0;

	if (check_options(argc - first))
		try_retrieval(operand(argc, argv, first));
	else
		other = two_snapshots(argv[first], argv[first + 1]);
	finish();
	return exit_code && other ? EXIT_RUN : EXIT_OK;
}
