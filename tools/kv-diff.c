/* kv-diff - compare two snapshots of one model, or full attention with retrieval */
#include <string.h>

#include "cli/device.h"
#include "cli/opt_retrieve.h"
#include "cli/print_diff.h"
#include "cli/print_trial.h"
#include "cli/tool.h"
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
	.example = "kv-diff full.kv small.kv",
	.opts = opts,
	.more = retrieve_opts,
	.takes = TAKES_THREADS | TAKES_JSON | TAKES_PROGRESS,
	.max_operands = 2
};

/* ---- two snapshots ---- */

/* Rows are compared by their positions. */
static void
warn_of_renumbering(const struct diff_result *c)
{
	int64_t more = (int64_t)c->b.n_tokens - (int64_t)c->a.n_tokens;

	if (c->tokens.how != TOKENS_OTHER &&
	    (int64_t)c->a.head->next_position + more != (int64_t)c->b.head->next_position)
		warning("positions were given anew in one of them (kv-evict --positions compact?): "
		    "rows at the same position need not be of the same token");
}

static void
refuse_other_model(const struct diff_result *c)
{
	char fields[2048];

	if (kv_model_diff(&c->a.head->model, &c->b.head->model, kv_reader_name(c->a.r),
	    kv_reader_name(c->b.r), fields, sizeof fields) != 0)
		die(EXIT_MODEL, "%s and %s are not of one model: %s", kv_reader_name(c->a.r),
		    kv_reader_name(c->b.r), fields);
}

static void
compare(struct diff_result *c, const struct device *d)
{
	struct compare_areas areas = { 0 };
	struct layer_compared layer;
	struct kv_digests a, b;
	struct engine_error e;
	uint32_t l;

	progress_start("compare", c->L, "layers");
	must(layer_compared_init(&layer, &c->a.head->model, &e), &e);
	must(compare_tokens(&c->tokens, &c->a, &c->b, &e), &e);
	warn_of_renumbering(c);
	for (l = 0; l < c->L; l++) {
		must(layer_reader_next(&c->a, l, &e), &e);
		must(layer_reader_next(&c->b, l, &e), &e);
		c->a_rows += kv_rows_total(c->a.rows);
		c->b_rows += kv_rows_total(c->b.rows);
		must(compare_layers(&layer, d, &areas, &c->a, &c->b, &e), &e);
		diff_result_add(c, &layer);
		progress(l + 1);
	}
	must(layer_reader_finish(&c->a, &e), &e);
	must(layer_reader_finish(&c->b, &e), &e);
	progress_end();
	layer_compared_free(&layer);
	compare_release(d, &areas);
	kv_reader_digests(c->a.r, &a);
	kv_reader_digests(c->b.r, &b);
	c->same = strcmp(a.logical, b.logical) == 0;
}

static int
by_head(void)
{
	return by != NULL && strcmp(by, "head") == 0;
}

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
	struct diff_result c = { .same = 1 };
	struct device d;

	if (strcmp(a, "-") == 0 && strcmp(b, "-") == 0)
		die(EXIT_USAGE, "only one of the snapshots can be standard input");
	open_snapshot(&c.a, a);
	open_snapshot(&c.b, b);
	refuse_other_model(&c);
	diff_result_init(&c, &c.a.head->model, settings.json || by_head());
	d = device_open();
	compare(&c, &d);
	if (settings.json)
		print_diff_json(&c);
	else
		print_diff(&c);
	diff_result_free(&c);
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
		print_trial(&t, by_head());
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
