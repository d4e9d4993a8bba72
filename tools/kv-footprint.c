/* kv-footprint - KV footprint, memory and peak of snapshots, measured; critical footprints */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/footprint.h"
#include "methods/offload_thresholds.h"
#include "cli/score_table.h"
#include "cli/escape.h"
#include "cli/json.h"
#include "cli/tool.h"


static const char *by, *convention, *table;
static double full_score = NAN, keep;           /* not given, as plan's shares: NaN or 0 */
static int stored_only;
#define NO_BYTES UINT64_MAX                     /* none were given, and 0 is a value */
static struct offload_plan offload = {          /* --plan; limit 0: not asked for */
    .head_weights = NO_BYTES };
static struct prulong plan = { .prompt = NOT_GIVEN, .generated = NOT_GIVEN, .chunk = NOT_GIVEN,
    .sink = NOT_GIVEN, .recent = NOT_GIVEN, .head_sparsity = NAN, .sparsity = NAN };

static const struct opt opts[] = {
	{ 0, "by", OPT_STRING, &by, 0, "WHAT", "for each layer, or each KV head (head), too" },
	{ 0, "stored-only", OPT_FLAG, &stored_only, 1, NULL,
	    "leave out tokens that were run and not stored: drafts, repetitions, patches" },
	{ 0, "critical", OPT_STRING, &table, 0, "TABLE",
	    "read lines of method, footprint, score; print critical footprints" },
	{ 0, "full", OPT_REAL, &full_score, 0, "SCORE", "score of the full cache" },
	{ 0, "keep", OPT_SHARE, &keep, 0, "SHARE", "share of the full score to keep (0.9)" },
	{ 0, "convention", OPT_STRING, &convention, 0, "NAME",
	    "read nothing, compute what this script does (prulong) from:" },
	{ 0, "prompt", OPT_COUNT, &plan.prompt, 0, "N", "tokens of the prompt" },
	{ 0, "generate", OPT_COUNT, &plan.generated, 0, "N", "tokens after it (0)" },
	{ 0, "chunk", OPT_COUNT, &plan.chunk, 0, "N", "tokens prefilled at once (all)" },
	{ 0, "head-sparsity", OPT_REAL, &plan.head_sparsity, 0, "SHARE",
	    "share of heads with only sink and recent rows (0)" },
	{ 0, "sink", OPT_COUNT, &plan.sink, 0, "N", "first positions that those keep (0)" },
	{ 0, "recent", OPT_COUNT, &plan.recent, 0, "N", "last positions that those keep (0)" },
	{ 0, "sparsity", OPT_REAL, &plan.sparsity, 0, "SHARE",
	    "share of each chunk that the other heads drop (0)" },
	{ 0, "plan", OPT_BYTES, &offload.limit, 1, "LIMIT",
	    "how long a text may be in so much memory, with layers on the host (SpeContext):" },
	{ 0, "weights", OPT_BYTES, &offload.weights, 1, "N", "bytes of the model's weights" },
	{ 0, "head-weights", OPT_BYTES, &offload.head_weights, 0, "N",
	    "bytes of the retrieval head's (0)" },
	{ 0, "budget", OPT_COUNT, &offload.budget, 1, "N", "rows of a KV head that a step reads" },
	{ 0, "batch", OPT_COUNT, &offload.requests, 1, "N", "texts at once (1)" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-footprint",
	.synopsis = "[-qv] [--by WHAT] [--json] [--report FILE] [--stored-only] [snapshot ...]\n"
	    "kv-footprint --critical TABLE [-qv] [--full SCORE] [--json] [--keep SHARE]\n"
	    "[--report FILE]\n"
	    "kv-footprint --convention NAME --prompt N [-qv] [--chunk N] [--generate N]\n"
	    "[--head-sparsity SHARE] [--json] [--recent N] [--report FILE] [--sink N]\n"
	    "[--sparsity SHARE]\n"
	    "kv-footprint --plan LIMIT --weights N --budget N [-qv] [--batch N]\n"
	    "[--head-weights N] [--json] [--report FILE] [snapshot]",
	.example = "kv-footprint full.kv small.kv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = -1u
};

/* ---- snapshots ---- */

/* Reads a snapshot to its end, without its keys and values where the input can seek. */
static void
measure(struct footprint *f, struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_log *log = kv_log_new(head);
	struct kv_section sec;
	struct kv_event e;
	int code = KV_OK;

	if (log == NULL)
		die(EXIT_RUN, "out of memory");
	while (input_next(r, &sec)) {
		if (sec.kind == KV_KEYS || sec.kind == KV_VALS)
			code = kv_skip(r);
		else
			code = kv_log_see(log, r, &sec);
		if (code < 0)
			input_failed(r, code);
	}
	if (kv_log_count(log, 0) == 0)
		die(EXIT_RUN, "%s has no event log, so how its rows came and went is not known: "
		    "make it with kv-prefill from the start (kv-info shows what it holds now)",
		    kv_reader_name(r));
	if (footprint_init(f, head->model.layers, head->model.kv_heads, kv_log_tokens(log)) != 0)
		die(EXIT_RUN, "out of memory");
	f->stored_only = stored_only;
	while ((code = kv_log_next(log, &e)) == 1)
		footprint_add(f, &e);
	if (code < 0)
		die(EXIT_DAMAGED, "%s", kv_log_error(log));
	kv_log_free(log);
}

static uint64_t
bytes_of(const struct kv_head *head, const struct share *s)
{
	return s->rows * 2 * head->model.head_width * kv_dtype_size(head->dtype);
}

static void
print_titles(void)
{
	printf("%9s %9s %9s %9s %13s  ", "footprint", "memory", "peak", "kept", "bytes");
	if (by != NULL)
		printf("%5s  ", "layer");
	if (by != NULL && strcmp(by, "head") == 0)
		printf("%4s  ", "head");
	puts("snapshot");
}

/* layer, head: NULL where there is no such column. */
static void
print_line(const struct kv_reader *r, const struct share *s, const char *layer, const char *head)
{
	printf("%8.2f%% %8.2f%% %8.2f%% %8.2f%% %13" PRIu64 "  ", 100 * s->footprint,
	    100 * s->memory, 100 * s->peak, 100 * s->kept, bytes_of(kv_reader_head(r), s));
	if (layer != NULL)
		printf("%5s  ", layer);
	if (head != NULL)
		printf("%4s  ", head);
	puts(shown(kv_reader_name(r)));
}

static void
print_text(const struct footprint *f, const struct kv_reader *r)
{
	struct share s = footprint_all(f);
	int heads = by != NULL && strcmp(by, "head") == 0;
	char layer[16], head[16];
	uint32_t l, g;

	print_line(r, &s, by != NULL ? "all" : NULL, heads ? "all" : NULL);
	for (l = 0; by != NULL && l < f->layers; l++) {
		snprintf(layer, sizeof layer, "%u", l);
		if (!heads) {
			s = footprint_layer(f, l);
			print_line(r, &s, layer, NULL);
		}
		for (g = 0; heads && g < f->heads; g++) {
			snprintf(head, sizeof head, "%u", g);
			s = footprint_head(f, l, g);
			print_line(r, &s, layer, head);
		}
	}
}

static json_t *
share_json(const struct share *s)
{
	json_t *o = json_object();

	put(o, "footprint", json_real(s->footprint));
	put(o, "memory", json_real(s->memory));
	put(o, "peak", json_real(s->peak));
	put(o, "kept", json_real(s->kept));
	put_count(o, "rows", s->rows);
	return o;
}

static json_t *
layer_json(const struct footprint *f, uint32_t l)
{
	struct share s = footprint_layer(f, l);
	json_t *o = share_json(&s), *heads;
	uint32_t g;

	if (strcmp(by, "layer") == 0)
		return o;
	heads = json_array();
	for (g = 0; g < f->heads; g++) {
		s = footprint_head(f, l, g);
		json_array_append_new(heads, share_json(&s));
	}
	put(o, "heads", heads);
	return o;
}

static void
print_snapshot_json(const struct footprint *f, const struct kv_reader *r)
{
	struct share s = footprint_all(f);
	json_t *o = share_json(&s);
	uint32_t l;

	put_text(o, "snapshot", kv_reader_name(r));
	put_count(o, "tokens", f->tokens);
	put_count(o, "kv_bytes", bytes_of(kv_reader_head(r), &s));
	if (by == NULL) {
		print_json(o);
		return;
	}
	print_json_begin(o, "layers");
	for (l = 0; l < f->layers; l++)
		print_json_element(layer_json(f, l));
	print_json_end();
}

static void
do_snapshot(const char *path)
{
	struct kv_reader *r = input_open(path);
	static int titles;
	struct footprint f;

	measure(&f, r);
	if (settings.json)
		print_snapshot_json(&f, r);
	else {
		if (!titles++)
			print_titles();
		print_text(&f, r);
	}
	footprint_free(&f);
	kv_close(r);
}

/* ---- the convention of PruLong's script ---- */

static double
share_or_0(double share, const char *option)
{
	if (isnan(share))
		return 0;
	if (share < 0 || share > 1)
		die(EXIT_USAGE, "--%s %g: want 0 to 1", option, share);
	return share;
}

static void
do_convention(void)
{
	struct prulong_result r;
	json_t *o;

	if (strcmp(convention, "prulong") != 0)
		die(EXIT_USAGE, "--convention %s: only prulong is known", convention);
	if (plan.prompt == NOT_GIVEN)
		die(EXIT_USAGE, "--convention needs --prompt");
	plan.generated = plan.generated != NOT_GIVEN ? plan.generated : 0;
	plan.chunk = plan.chunk != NOT_GIVEN ? plan.chunk : 0;
	plan.sink = plan.sink != NOT_GIVEN ? plan.sink : 0;
	plan.recent = plan.recent != NOT_GIVEN ? plan.recent : 0;
	plan.head_sparsity = share_or_0(plan.head_sparsity, "head-sparsity");
	plan.sparsity = share_or_0(plan.sparsity, "sparsity");
	if (plan.generated > UINT32_MAX - plan.prompt || plan.prompt + plan.generated == 0)
		die(EXIT_USAGE, "--prompt %u and --generate %u: want 1 to 2^32 - 1 tokens",
		    plan.prompt, plan.generated);
	r = footprint_prulong(&plan);
	if (!settings.json) {
		printf("%9s %9s\n%8.2f%% %8.2f%%\n", "footprint", "peak", 100 * r.footprint,
		    100 * r.peak);
		return;
	}
	o = json_object();
	put(o, "footprint", json_real(r.footprint));
	put(o, "peak", json_real(r.peak));
	put_count(o, "streaming_entries", r.streaming);
	put_count(o, "evicting_entries", r.evicting);
	put_count(o, "full_entries", r.full);
	print_json(o);
}

/* ---- critical footprints ---- */

static const char *const kind_mark[] = { "<", "", ">" };
static const char *const kind_name[] = { "below", "at", "above" };

static json_t *
crossing_json(const struct crossing *c)
{
	json_t *o = json_object();

	put(o, kind_name[c->kind], json_real(c->at));
	return o;
}

static json_t *
critical_json(const struct verdict *v)
{
	json_t *o = json_object();

	put_text(o, "method", v->method);
	put(o, "critical", crossing_json(&v->at.stays));
	put(o, "first", crossing_json(&v->at.first));
	put(o, "reached", json_string(verdict_word(v)));
	return o;
}

static void
print_crossing(const struct crossing *c)
{
	char text[40];

	snprintf(text, sizeof text, "%s%.6g", kind_mark[c->kind], c->at);
	printf("%10s ", text);
}

static void
print_critical(const struct verdict *v)
{
	print_crossing(&v->at.stays);
	print_crossing(&v->at.first);
	printf("%-13s %s\n", verdict_word(v), shown(v->method));
}

static void
do_critical(void)
{
	struct score_table t;
	struct verdict v;
	json_t *list = json_array();

	keep = keep != 0 ? keep : 0.9;
	score_table_read(&t, table, full_score);
	if (!settings.json)
		printf("score %.6g, %g of %.6g\n%10s %10s %-13s %s\n", keep * t.full, keep, t.full,
		    "critical", "first", "reached", "method");
	while (score_table_next(&t, keep * t.full, &v))
		if (settings.json)
			json_array_append_new(list, critical_json(&v));
		else
			print_critical(&v);
	if (settings.json)
		print_json(list);
	else
		json_decref(list);
	score_table_free(&t);
}

/* ---- layers on the host ---- */

static json_t *
threshold_json(uint32_t i, int fits, uint64_t tokens)
{
	json_t *o = json_object();

	put_count(o, "layers", i);
	put(o, "tokens", fits ? json_integer((json_int_t)tokens) : json_null());
	return o;
}

/* The shape is that of the snapshot's model. */
static void
do_plan(const char *path)
{
	struct kv_reader *r = input_open(path);
	const struct kv_head *head = kv_reader_head(r);
	const struct kv_model *m = &head->model;
	json_t *list = json_array(), *all = json_object();
	uint64_t tokens;
	uint32_t i;
	int fits;

	offload.layers = m->layers;
	offload.kv_heads = m->kv_heads;
	offload.width = m->head_width;
	offload.group = m->query_heads / m->kv_heads;
	offload.element = (uint32_t)kv_dtype_size(head->dtype);
	/* thresholds ascend or descend: where neither end has a token, none has */
	if ((!offload_threshold(&offload, m->layers, &tokens) || tokens < 1) &&
	    (!offload_threshold(&offload, 0, &tokens) || tokens < 1))
		die(EXIT_RUN, "--plan: not a token fits into %" PRIu64 " bytes: the weights take %.0f with "
		    "what runs", offload.limit, 1.3 * ((double)offload.weights +
		    (double)offload.head_weights));
	if (!settings.json)
		printf("%6s  %12s\n", "layers", "tokens");
	for (i = 0; i <= m->layers; i++) {
		fits = offload_threshold(&offload, i, &tokens);
		if (settings.json)
			json_array_append_new(list, threshold_json(i, fits, tokens));
		else if (fits)
			printf("%6u  %12" PRIu64 "\n", i, tokens);
		else
			printf("%6u  %12s\n", i, "-");
	}
	put(all, "thresholds", list);
	if (settings.json)
		print_json(all);
	else
		json_decref(all);
	kv_close(r);
}

static void
check_plan(int operands)
{
	if (table != NULL || convention != NULL || by != NULL || stored_only)
		die(EXIT_USAGE, "--plan measures nothing: --critical, --convention, --by and "
		    "--stored-only do not go with it");
	if (operands > 1)
		die(EXIT_USAGE, "--plan: want one snapshot, for the shape of its model");
	if (offload.weights == 0)
		die(EXIT_USAGE, "--plan: of which model? Give --weights, the bytes of its weights");
	if (offload.budget == 0)
		die(EXIT_USAGE, "--plan: how many rows does a step read? Give --budget, at least 1");
	if (offload.head_weights == NO_BYTES)
		offload.head_weights = 0;
	if (offload.weights >> 60 != 0 || offload.head_weights >> 60 != 0)
		die(EXIT_USAGE, "--plan: weights of 2^60 bytes and more");
}

/* ---- options ---- */

/* An option that does nothing is a mistake, and not to be ignored. */
static void
refuse(int given, const char *option, const char *without)
{
	if (given)
		die(EXIT_USAGE, "%s is of no use %s", option, without);
}

static void
check_options(int operands)
{
	const char *without = "without --convention";

	refuse(offload.limit == 0 && (offload.weights != 0 || offload.head_weights != NO_BYTES),
	    offload.weights != 0 ? "--weights" : "--head-weights", "without --plan");
	refuse(offload.limit == 0 && (offload.budget != 0 || offload.requests != 0),
	    offload.budget != 0 ? "--budget" : "--batch", "without --plan");
	if (offload.limit != 0)
		check_plan(operands);
	if (offload.requests == 0)
		offload.requests = 1;
	if (table != NULL && convention != NULL)
		die(EXIT_USAGE, "give --critical or --convention, and not both");
	if (by != NULL && strcmp(by, "layer") != 0 && strcmp(by, "head") != 0)
		die(EXIT_USAGE, "--by %s: want layer or head", by);
	refuse(by != NULL && (table != NULL || convention != NULL), "--by", "but for snapshots");
	refuse(stored_only && (table != NULL || convention != NULL), "--stored-only",
	    "but for snapshots");
	refuse(keep != 0 && table == NULL, "--keep", "without --critical");
	refuse(!isnan(full_score) && table == NULL, "--full", "without --critical");
	if ((table != NULL || convention != NULL) && operands > 0)
		die(EXIT_USAGE, "--critical and --convention read no snapshots");
	if (convention != NULL)
		return;
	refuse(plan.prompt != NOT_GIVEN, "--prompt", without);
	refuse(plan.generated != NOT_GIVEN, "--generate", without);
	refuse(plan.chunk != NOT_GIVEN, "--chunk", without);
	refuse(plan.sink != NOT_GIVEN, "--sink", without);
	refuse(plan.recent != NOT_GIVEN, "--recent", without);
	refuse(!isnan(plan.head_sparsity), "--head-sparsity", without);
	refuse(!isnan(plan.sparsity), "--sparsity", without);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv), i;

	check_options(argc - first);
	if (offload.limit != 0) {
		do_plan(operand(argc, argv, first));
		return finish();
	}
	if (convention != NULL)
		do_convention();
	else if (table != NULL)
		do_critical();
	else if (first == argc)
		do_snapshot("-");
	for (i = first; i < argc; i++)
		do_snapshot(argv[i]);
	return finish();
}
