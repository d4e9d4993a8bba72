/* kv-score - score the rows of a snapshot: write it again with a score for each row */
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/opt_score.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/score_file.h"
#include "cli/snapshot_io.h"
#include "engine/queries.h"

static const char *method_name;
static const char *from_path;           /* NULL: a method scores */
static struct score_file from;
static int list;
static struct scorer scorer;            /* with NEED_WINDOW its device is open */

static const struct opt opts[] = {
	{ 0, "method", OPT_STRING, &method_name, 0, "NAME",
	    "scoring method; --list names them", OPT_HOW },
	{ 0, "from", OPT_STRING, &from_path, 0, "FILE",
	    "scores from a file: .npy, or layer, KV head, position, score", OPT_READS },
	{ 0, "list", OPT_FLAG, &list, 1, NULL,
	    "list the methods and the options they use", OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-score",
	.synopsis = "--method NAME | --from FILE | --list [-qvz] [-j N] [-o FILE] [-s N]\n"
	    "[--blend X] [--cross] [--device DEVICE] [--epsilon X] [--filters FILE]\n"
	    "[--future N] [--gamma X] [--keep-last] [--kernel K] [--lag N] [--lambda X]\n"
	    "[--lazy X] [--local N] [--no-covariance] [--no-value-norm] [--norms WHICH]\n"
	    "[--order WHICH] [--over-queries HOW] [--pool HOW] [--progress WHEN]\n"
	    "[--query-stats FILE] [--recent N] [--reduce HOW] [--report FILE]\n"
	    "[--since POSITION] [--sink N] [--sketch K] [--weight WHAT] [--window W]\n"
	    "[--z-score] [snapshot]",
	.example = "kv-score --method snapkv --kernel 7 -o scored.kv full.kv",
	.opts = opts,
	.more = score_opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- values of the rows of a layer ---- */

/* attention mass from all queries of the text (mASS), and from probe tokens (pAID); gate scores;
 * non-causal attention; NULL = not stored */
static float *text_mass, *probe_mass, *gate_scores, *noncausal;

static void
forget_values(void)
{
	free(text_mass);
	free(probe_mass);
	free(gate_scores);
	free(noncausal);
	text_mass = probe_mass = gate_scores = noncausal = NULL;
}

/* Are these the scores of a gate of the method? */
static void
check_gate(const struct kv_reader *r, const struct kv_section *sec, const struct kv_values *v)
{
	const char *name = scorer.method->name;
	const size_t n = strcspn(v->label, " ");

	if (n != strlen(name) || strncmp(v->label, name, n) != 0)
		die(EXIT_RUN, "%s: layer %u has scores of a gate of %.*s, and method %s needs one "
		    "of its own", kv_reader_name(r), sec->layer, (int)n, v->label, name);
}

/* At mASS, pAID, gATE or nCAU: returns a copy of its values. */
static float *
take_values(struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_values v;
	float *copy;

	input_check(r, kv_load_values(r, &v));
	if (sec->kind == KV_GATE)
		check_gate(r, sec, &v);
	copy = must_alloc(v.n, sizeof *copy);
	if (v.n > 0)
		memcpy(copy, v.value, v.n * sizeof *copy);
	return copy;
}

/* ---- query statistics of a layer ---- */

static struct kv_query_stats text_stats;
static double *stats_numbers;           /* NULL = none stored */

static void
forget_query_stats(void)
{
	free(stats_numbers);
	stats_numbers = NULL;
}

/* At qSTa: copies them. */
static void
take_query_stats(struct kv_reader *r, uint32_t layer)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	const uint64_t n = kv_query_stats_numbers(m, layer);

	input_check(r, kv_load_query_stats(r, &text_stats));
	stats_numbers = must_alloc(n, sizeof *stats_numbers);
	memcpy(stats_numbers, text_stats.sum, n * sizeof *stats_numbers);
	kv_query_stats_arrays(&text_stats, m, layer, stats_numbers);
}

/* ---- sections that wait for the values of their layer, KEYS first ---- */

static struct kv_held **held;
static size_t n_held;

static void
hold(struct kv_reader *r)
{
	struct kv_held **more = must_alloc(n_held + 1, sizeof *more);

	if (n_held > 0)
		memcpy(more, held, n_held * sizeof *more);
	free(held);
	held = more;
	input_check(r, kv_hold(r, &held[n_held]));
	n_held++;
}

static void
write_held(struct kv_writer *w)
{
	size_t i;

	for (i = 0; i < n_held; i++) {
		output_check(w, kv_write_held(w, held[i]));
		kv_held_free(held[i]);
	}
	n_held = 0;
}

/* ---- a layer ---- */

/* At KEYS, or, for a method that reads values, at VALS: scores the layer's rows and writes the
 * scores. */
static void
write_scores(struct kv_reader *r, struct kv_writer *w, uint32_t layer, const struct queries *q)
{
	const struct kv_head *head = kv_reader_head(r);
	const struct method *method = scorer.method;
	struct score_job l = { .in = { .layer = layer, .layers = head->model.layers,
	    .query_heads = head->model.query_heads,
	    .width = head->model.head_width, .rows = kv_current_rows(r),
	    .key_type = kv_head_row_type(head, KV_KEYS, layer),
	    .value_type = kv_head_row_type(head, KV_VALS, layer),
	    .window = q->n, .window_pos = q->pos, .next_position = head->next_position,
	    .sees = kv_layer_window(&head->model, layer) },
	    .model = &head->model, .dtype = head->dtype,
	    .softcap = (float)head->model.attention_softcap, .queries = q->q,
	    .sinks = q->sinks, .own_keys = q->own, .own_pos = q->own_pos, .n_own = q->n_own };
	char label[KV_SCORE_LABEL];
	uint64_t total = kv_rows_total(l.in.rows);
	float *score = must_alloc(total, sizeof *score);
	const struct kv_values values = { label, total, score };
	struct engine_error e;

	if ((method->needs & NEED_WINDOW) && q->n == 0)
		die(EXIT_RUN, "%s: layer %u has no observation queries, which method %s needs: "
		    "make the snapshot with kv-prefill --observe", kv_reader_name(r), layer,
		    method->name);
	if ((method->needs & NEED_UNSTORED) && q->n_own == 0)
		die(EXIT_RUN, "%s: layer %u has queries of the text only, and method %s needs "
		    "learned tokens: add them with kv-observe --lookahead", kv_reader_name(r),
		    layer,
		    method->name);
	if ((method->needs & NEED_MASS) && (l.in.mass = text_mass) == NULL)
		die(EXIT_RUN, "%s: layer %u has no attention mass, which method %s needs: make "
		    "the snapshot with kv-prefill --mass", kv_reader_name(r), layer, method->name);
	if ((method->needs & NEED_PROBE_MASS) && (l.in.probe_mass = probe_mass) == NULL)
		die(EXIT_RUN, "%s: layer %u has no probe mass, which method %s needs: add it with "
		    "kv-observe --repeat-context or --accumulate", kv_reader_name(r), layer,
		    method->name);
	if ((scorer_needs(&scorer) & NEED_QUERY_STATS) && stats_numbers == NULL)
		die(EXIT_RUN, "%s: layer %u has no query statistics, which method %s needs: make "
		    "the snapshot with kv-prefill --query-stats, or give those of other texts, "
		    "--query-stats FILE", kv_reader_name(r), layer, method->name);
	if ((method->needs & NEED_GATE) && (l.in.gate = gate_scores) == NULL)
		die(EXIT_RUN, "%s: layer %u has no gate scores, which method %s needs: make the "
		    "snapshot with kv-prefill --gate", kv_reader_name(r), layer, method->name);
	if ((method->needs & NEED_NONCAUSAL) && (l.in.noncausal = noncausal) == NULL)
		die(EXIT_RUN, "%s: layer %u has no non-causal attention, which method %s needs: "
		    "make the snapshot with kv-prefill --noncausal", kv_reader_name(r), layer,
		    method->name);
	l.in.query_stats = stats_numbers != NULL ? &text_stats : NULL;
	if (method->needs & NEED_VALUES) {
		l.in.keys = kv_held_content(held[0]);
		l.in.values = head->model.latent_rank != 0 ? l.in.keys : input_load(r);
	} else if (method->needs & (NEED_KEYS | NEED_WINDOW))
		l.in.keys = input_load(r);
	must(score_layer(&scorer, &l, score, &e), &e);
	score_label(label, sizeof label, method, &scorer.options, scorer.since, q->n);
	if (method->needs & NEED_EACH_QUERY)
		label_add_spread(label, sizeof label, &l.spread);
	output_check(w, kv_write_values(w, KV_SCOR, layer, &values));
	free(score);
}

/* At KEYS: writes the scores of the file. */
static void
write_given_scores(struct kv_reader *r, struct kv_writer *w, uint32_t layer)
{
	const struct kv_rows *rows = kv_current_rows(r);
	const uint64_t total = kv_rows_total(rows);
	float *score = must_alloc(total, sizeof *score);
	const struct kv_values values = { SCORE_EXTERNAL, total, score };

	score_file_layer(&from, layer, rows, score);
	output_check(w, kv_write_values(w, KV_SCOR, layer, &values));
	free(score);
}

static void
take_sinks(struct queries *q, struct kv_reader *r)
{
	struct engine_error e;
	const float *sinks;

	input_check(r, kv_load_sinks(r, &sinks));
	must(queries_take_sinks(q, sinks, kv_reader_head(r), &e), &e);
}

static void
take_queries(struct queries *q, struct kv_reader *r, uint32_t layer)
{
	struct kv_queries stored;
	struct engine_error e;
	uint32_t n;

	input_check(r, kv_load_queries(r, &stored));
	must(scorer_window(&scorer, stored.n, layer, &n, &e), &e);
	must(queries_take(q, &stored, kv_reader_head(r), n, &e), &e);
}

/* At eVNt, after all layers: the log may show that the scores' input is invalid, and then
 * nothing is written. */
static void
check_log(struct kv_reader *r, const struct kv_section *sec)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_log_content log = { .data = NULL };
	struct engine_error e;

	if (kv_log_copy(&log, input_load(r), sec->raw_size, head->model.kv_heads) != KV_OK)
		die(EXIT_RUN, "no memory for the event log");
	must(scorer_check_log(&scorer, &log, head, kv_reader_name(r), &e), &e);
	free(log.data);
}

static void
score_snapshot(struct kv_reader *r, struct kv_writer *w)
{
	const unsigned needs = from_path != NULL ? 0 : scorer_needs(&scorer);
	const enum kv_kind at = needs & NEED_VALUES ? KV_VALS : KV_KEYS;
	struct queries q = { 0 };
	struct kv_section sec;
	uint32_t used = 0;

	progress_start("score", kv_reader_head(r)->model.layers, "layers");
	while (input_next(r, &sec)) {
		if (sec.kind == KV_SCOR || sec.kind == KV_PROV)
			continue;               /* replaced; inherited */
		if (sec.kind == KV_POSN) {
			queries_forget(&q);
			forget_values();
			forget_query_stats();
		} else if (sec.kind == KV_SINK && (needs & NEED_WINDOW))
			take_sinks(&q, r);
		else if (sec.kind == KV_OBSQ && (needs & NEED_WINDOW))
			take_queries(&q, r, sec.layer);
		else if (sec.kind == KV_QSTA && (needs & NEED_QUERY_STATS))
			take_query_stats(r, sec.layer);
		else if (sec.kind == KV_MASS && (needs & NEED_MASS))
			text_mass = take_values(r, &sec);
		else if (sec.kind == KV_PAID && (needs & NEED_PROBE_MASS))
			probe_mass = take_values(r, &sec);
		else if (sec.kind == KV_NCAU && (needs & NEED_NONCAUSAL))
			noncausal = take_values(r, &sec);
		else if (sec.kind == KV_GATE && (needs & NEED_GATE))
			gate_scores = take_values(r, &sec);
		else if (sec.kind != at && (sec.kind == KV_KEYS || n_held > 0) &&
		    needs & NEED_VALUES) {
			hold(r);
			continue;
		} else if (sec.kind == at) {
			if (from_path != NULL)
				write_given_scores(r, w, sec.layer);
			else
				write_scores(r, w, sec.layer, &q);
			write_held(w);
			used = q.n;
			progress(sec.layer + 1);
		} else if (sec.kind == KV_EVNT && (needs & NEED_EVERY_QUERY))
			check_log(r, &sec);
		output_copy(r, w);              /* unknown sections too: the rows stay */
	}
	progress_end();
	queries_forget(&q);
	forget_values();
	forget_query_stats();
	if (from_path != NULL)
		sign_text("method", SCORE_EXTERNAL);
	else
		opt_score_sign(&scorer, used);
}

/* Checks the source of scores: a method, or a file. path: of the snapshot */
static void
check_options(const char *path)
{
	if (from_path == NULL) {
		opt_score(&scorer, method_name);
		return;
	}
	if (method_name != NULL)
		die(EXIT_USAGE, "give --method or --from, and not both");
	opt_score_no_method();
	if (strcmp(from_path, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "--from - and the snapshot cannot both be standard input");
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct kv_reader *r;
	struct kv_writer *w;

	if (list) {
		opt_score_list();
		return finish();
	}
	check_options(path);
	output_refuse_terminal();
	r = input_open(path);
	input_refuse_residual(r, "no single row can be dropped: score and evict before "
	    "kv-quantize");
	if (from_path != NULL)
		score_file_open(&from, from_path, &kv_reader_head(r)->model);
	else if (scorer.method->needs & NEED_WINDOW)
		scorer.device = device_open();
	w = output_create(kv_reader_head(r));
	score_snapshot(r, w);
	if (from_path != NULL)
		score_file_close(&from);
	output_commit(w, r);
	kv_close(r);
	scorer_free(&scorer);
	free(held);
	if (scorer.device.ops != NULL)
		device_close(&scorer.device);
	return finish();
}
