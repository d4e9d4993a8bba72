/* kv-diff - compare two snapshots of one model, their scores, or full attention with retrieval */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/device.h"
#include "cli/diff_print.h"
#include "cli/diff_retrieval_print.h"
#include "cli/diff_scores_print.h"
#include "cli/opt_retrieve.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/retrieval_trial.h"

static const char *by;
static int exit_code, scores;
static struct strings rates;                    /* of use with --scores */
static struct retrieval_options retrieval;      /* with --retrieve */

static const struct opt opts[] = {
	{ 0, "scores", OPT_FLAG, &scores, 1, NULL,
	    "compare scores, and the share of the first's that the second's rows keep",
	    OPT_HOW },
	{ 0, "at", OPT_STRINGS, &rates, 0, "RATE",
	    "with --scores: recall of the best rows (0.1); may be given several times", OPT_HOW },
	{ 0, "by", OPT_STRING, &by, 0, "WHAT", "a line for each layer, or each KV head (head)",
	    OPT_WRITES },
	{ 0, "exit-code", OPT_FLAG, &exit_code, 1, NULL,
	    "exit 1 when tokens, rows, keys, values or anything else critical differ",
	    OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-diff",
	.synopsis = "[-qv] [-j N] [--by WHAT] [--device DEVICE] [--exit-code] [--json]\n"
	    "[--progress WHEN] [--report FILE] snapshot snapshot\n"
	    "kv-diff --scores [-qv] [--at RATE] [--by WHAT] [--json] [--progress WHEN]\n"
	    "[--report FILE] snapshot snapshot\n"
	    "kv-diff --retrieve WORDS [-qv] [-j N] [--by WHAT] [--device DEVICE] [--json]\n"
	    "[--progress WHEN] [--report FILE] [snapshot]",
	.example = "kv-diff full.kv small.kv",
	.opts = opts,
	.more = retrieve_opts,
	.takes = TAKES_THREADS | TAKES_JSON | TAKES_PROGRESS,
	.max_operands = 2
};

/* ---- two snapshots ---- */

/* Rows are compared by position. Returns whether positions were renumbered in one of the two. */
static int
renumbered(const struct layer_reader *a, const struct layer_reader *b,
    const struct tokens_compared *tokens)
{
	const int64_t more = (int64_t)b->n_tokens - (int64_t)a->n_tokens;

	return tokens->how != TOKENS_OTHER &&
	    (int64_t)a->head->next_position + more != (int64_t)b->head->next_position;
}

static void
refuse_other_model(const struct layer_reader *a, const struct layer_reader *b)
{
	const char *a_name = kv_reader_name(a->r), *b_name = kv_reader_name(b->r);
	char fields[2048];

	if (kv_model_diff(&a->head->model, &b->head->model, a_name, b_name, fields,
	    sizeof fields) != 0)
		die(EXIT_MODEL, "%s and %s are not of one model: %s", a_name, b_name, fields);
}

static void
compare(struct diff_rows *c, const struct device *d)
{
	struct compare_areas areas = { 0 };
	struct layer_compared layer;
	struct kv_digests a, b;
	struct engine_error e;
	uint32_t l;

	progress_start("compare", c->L, "layers");
	must(layer_compared_init(&layer, &c->a.head->model, &e), &e);
	must(compare_tokens(&c->tokens, &c->a, &c->b, &e), &e);
	if (renumbered(&c->a, &c->b, &c->tokens))
		warning("one of them has renumbered positions (kv-evict --positions compact?): "
		    "rows at the same position may be of different tokens");
	for (l = 0; l < c->L; l++) {
		must(layer_reader_next(&c->a, l, &e), &e);
		must(layer_reader_next(&c->b, l, &e), &e);
		c->a_rows += kv_rows_total(c->a.rows);
		c->b_rows += kv_rows_total(c->b.rows);
		must(compare_layers(&layer, d, &areas, &c->a, &c->b, &e), &e);
		diff_rows_add(c, &layer);
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

/* Opens both, which must be of one model. */
static void
open_two(struct layer_reader *a, const char *a_path, struct layer_reader *b, const char *b_path)
{
	struct engine_error e;

	if (strcmp(a_path, "-") == 0 && strcmp(b_path, "-") == 0)
		die(EXIT_USAGE, "only one of the snapshots can be standard input");
	must(layer_reader_init(a, input_open(a_path), &e), &e);
	must(layer_reader_init(b, input_open(b_path), &e), &e);
	refuse_other_model(a, b);
}

/* d NULL: nothing was loaded on a device. */
static void
close_snapshot(struct layer_reader *s, const struct device *d)
{
	layer_reader_free(s, d);
	kv_close(s->r);
}

/* Returns 1 if they differ. */
static int
two_snapshots(const char *a, const char *b)
{
	struct diff_rows c = { .same = 1 };
	struct device d;

	open_two(&c.a, a, &c.b, b);
	diff_rows_init(&c, &c.a.head->model, settings.json || by_head());
	d = device_open();
	compare(&c, &d);
	if (settings.json)
		diff_print_json(&c);
	else
		diff_print(&c);
	if (!isnan(diff_rows_all(&c).mass))
		warn_smaller_reference(&c.a, c.a_rows, &c.b, c.b_rows, &c.tokens);
	diff_rows_free(&c);
	close_snapshot(&c.a, &d);
	close_snapshot(&c.b, &d);
	device_close(&d);
	return !c.same;
}

/* ---- scores ---- */

/* Scores can be compared only for the same text. */
static void
refuse_other_text(const struct diff_scores *c)
{
	const char *a = kv_reader_name(c->a.r), *b = kv_reader_name(c->b.r);

	if (c->tokens.how == TOKENS_OTHER)
		die(EXIT_RUN, "%s and %s are of different texts, from token %" PRIu64 " on: scores "
		    "of their rows cannot be compared", a, b, c->tokens.common);
	if (renumbered(&c->a, &c->b, &c->tokens))
		die(EXIT_UNSUPPORTED, "%s, %s: one has renumbered positions (kv-evict --positions "
		    "compact?): rows of the same token are unknown", a, b);
}

static void
refuse_without_measure(const struct diff_scores *c)
{
	const char *a = kv_reader_name(c->a.r);

	if (c->a.score_label[0] == '\0')
		die(EXIT_RUN, "%s has no scores, and is the reference: run kv-score first", a);
	if (c->b.score_label[0] == '\0' && c->negative < c->L && !(c->all.mass.whole > 0))
		die(EXIT_RUN, "%s: layer %" PRIu32 " has scores below 0 (%s), which are no mass "
		    "that rows keep, and %s has no scores to "
		    "compare", a, c->negative, c->a.score_label,
		    kv_reader_name(c->b.r));
}

static void
compare_all_scores(struct diff_scores *c)
{
	struct layer_agreement layer;
	struct engine_error e;
	uint32_t l;

	progress_start("compare", c->L, "layers");
	layer_reader_want_scores(&c->a);
	layer_reader_want_scores(&c->b);
	must(layer_agreement_init(&layer, &c->a.head->model, c->rate, c->rates, &e), &e);
	must(compare_tokens(&c->tokens, &c->a, &c->b, &e), &e);
	refuse_other_text(c);
	for (l = 0; l < c->L; l++) {
		must(layer_reader_next(&c->a, l, &e), &e);
		must(layer_reader_next(&c->b, l, &e), &e);
		must(compare_scores(&layer, &c->a, &c->b, &e), &e);
		diff_scores_add(c, &layer);
		progress(l + 1);
	}
	must(layer_reader_finish(&c->a, &e), &e);
	must(layer_reader_finish(&c->b, &e), &e);
	progress_end();
	layer_agreement_free(&layer);
}

static void
take_rates(struct diff_scores *c)
{
	if (rates.n > AGREEMENT_RATES)
		die(EXIT_USAGE, "--at: %zu rates, at most %d", rates.n, AGREEMENT_RATES);
	for (; c->rates < rates.n; c->rates++)
		c->rate[c->rates] = option_share("--at", rates.at[c->rates]);
	if (c->rates == 0)
		c->rate[c->rates++] = 0.1;
}

static void
two_scores(const char *a, const char *b)
{
	struct diff_scores c = { .rates = 0 };

	take_rates(&c);
	open_two(&c.a, a, &c.b, b);
	diff_scores_init(&c, &c.a.head->model, settings.json || by_head());
	compare_all_scores(&c);
	refuse_without_measure(&c);
	if (settings.json)
		diff_scores_print_json(&c);
	else
		diff_scores_print(&c);
	warn_smaller_reference(&c.a, c.a_rows, &c.b, c.b_rows, &c.tokens);
	diff_scores_free(&c);
	close_snapshot(&c.a, NULL);
	close_snapshot(&c.b, NULL);
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
		diff_retrieval_print_json(&t);
	else
		diff_retrieval_print(&t, by_head());
	retrieval_trial_free(&t);
	device_close(&d);
	kv_close(r);
}

/* Returns 1 if retrieval is to be tried. */
static int
check_options(int operands)
{
	const int retrieves = opt_retrieve(&retrieval);

	if (by != NULL && strcmp(by, "layer") != 0 && strcmp(by, "head") != 0)
		die(EXIT_USAGE, "--by %s: want layer or head", by);
	if (retrieves && retrieval.method == RETRIEVE_SPECONTEXT)
		die(EXIT_USAGE, "--retrieve specontext chooses by the tokens that run, and not by "
		    "stored queries: kv-decode --audit compares its choice");
	if (retrieves && scores)
		die(EXIT_USAGE, "--scores: --retrieve compares no snapshots");
	if (!scores && rates.n > 0)
		die(EXIT_USAGE, "--at: of what? Give --scores, too");
	if (retrieves && operands > 1)
		die(EXIT_USAGE, "--retrieve is tried on one snapshot");
	if (exit_code && (retrieves || scores))
		die(EXIT_USAGE, "--exit-code: %s", retrieves ? "--retrieve compares no snapshots" :
		    "--scores compares neither keys nor values");
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
	else if (scores)
		two_scores(argv[first], argv[first + 1]);
	else
		other = two_snapshots(argv[first], argv[first + 1]);
	return finish_with(exit_code && other ? EXIT_RUN : EXIT_OK);
}
