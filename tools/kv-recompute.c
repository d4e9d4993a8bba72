/* kv-recompute - compute some rows of a merged snapshot again, so that they see all documents */
#include <inttypes.h>
#include <string.h>

#include "cli/positions.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/open_sequence.h"
#include "engine/recompute.h"
#include "ops/compose.h"

static const char *by = "keys";
static uint32_t layer = NOT_GIVEN;
static struct recompute how = { .step = { progress_step, NULL } };

static const struct opt opts[] = {
	{ 0, "rate", OPT_SHARE, &how.rate, 0, "R",
	    "CacheBlend: the share R of the later documents' tokens that deviates most",
	    OPT_HOW },
	{ 0, "layer", OPT_COUNT, &layer, 0, "N", "measure the deviation in layer N (1)", OPT_HOW },
	{ 0, "by", OPT_STRING, &by, 0, "WHAT",
	    "what deviates: keys, values, or random: tokens by chance (keys)", OPT_HOW },
	{ 0, "seed", OPT_SEED, &how.seed, 0, "N", "with --by random: other tokens (0)", OPT_HOW },
	{ 0, "first", OPT_COUNT, &how.first, 1, "N",
	    "EPIC: the first N tokens of each later document", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-recompute",
	.synopsis = "-m MODEL --rate R | --first N [-qvz] [-j N] [-o FILE] [--allow-config KEY]\n"
	    "[--allow-tensor NAME] [--by WHAT] [--device DEVICE] [--layer N]\n"
	    "[--products TYPE] [--progress WHEN] [--report FILE] [--seed N] [snapshot]",
	.example = "kv-recompute -m examples/demo-model --rate 0.15 -o again.kv merged.kv",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

static void
check_options(void)
{
	static const char *const names[] = { [RECOMPUTE_BY_KEYS] = "keys",
		[RECOMPUTE_BY_VALUES] = "values", [RECOMPUTE_BY_RANDOM] = "random" };
	size_t i;

	if (how.rate == 0 && how.first == 0)
		die(EXIT_USAGE, "which tokens run again? Give --rate or --first, or both");
	for (i = 0; i < sizeof names / sizeof *names && strcmp(by, names[i]) != 0; i++)
		;
	if (i == sizeof names / sizeof *names)
		die(EXIT_USAGE, "--by: '%s' is neither keys, values nor random", by);
	how.by = (enum recompute_by)i;
	if (how.seed != 0 && how.by != RECOMPUTE_BY_RANDOM)
		die(EXIT_USAGE, "--seed: of what? Give --by random, too");
	if (layer != NOT_GIVEN && (how.by == RECOMPUTE_BY_RANDOM || how.rate == 0))
		die(EXIT_USAGE, "--layer: no deviation is measured%s", how.rate == 0 ?
		    " without --rate" : " with --by random");
}

/* Loads the weights if there is room for the tokens that run again. */
static uint32_t
load_model(struct session *s, const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	const uint32_t n = recompute_tokens(head), tile = ops_tile(s->device.ops);
	const uint32_t at_once = n < tile ? n : tile;
	struct memory_demand d = { .tokens = head->next_position, .stored = head,
		.at_once = at_once, .stream = 2 * (uint64_t)n };

	/* the rows of the snapshot are counted when it is loaded; here those of a tile */
	d.rows = (uint64_t)at_once * head->model.kv_heads * 2;
	session_load(s, &d);
	return at_once;
}

static void
run(struct sequence *s, const struct kv_head *head, uint32_t at_once)
{
	const struct model *m = s->cache->model;
	struct workspace *ws = workspace_new(m, at_once);
	struct engine_error e;
	double t0 = seconds();

	if (ws == NULL)
		die(EXIT_RUN, "no memory for %u tokens at a time", at_once);
	progress_start("recompute", recompute_total(&how, head), "rows");
	report_enter(REPORT_COMPUTE);
	must(recompute_run(&how, s, ws, &e), &e);
	report_leave();
	progress_end();
	note("%u of %u tokens of the later documents ran again, in %.2f s", how.chosen, how.later,
	    seconds() - t0);
	workspace_free(ws, m);
}

/* Collects the kinds of sections that were made from the rows before. */
static int
see_section(void *with, struct kv_reader *r, const struct kv_section *sec)
{
	unsigned *left = with;
	const unsigned written = 1u << KV_TOKS | 1u << KV_POSN | 1u << KV_KEYS | 1u << KV_VALS |
	    1u << KV_LGTS | 1u << KV_EVNT | 1u << KV_PROV;

	(void)r;
	*left |= 1u << sec->kind & ~written;
	return KV_OK;
}

static void
sign(void)
{
	sign_count("chosen", how.chosen);
	if (how.first > 0)
		sign_count("first", how.first);
	if (how.rate == 0)
		return;
	sign_text("by", by);
	sign_real("rate", how.rate);
	if (how.by == RECOMPUTE_BY_RANDOM)
		sign_count("seed", how.seed);
	else
		sign_count("layer", how.layer);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	unsigned left = 0;
	const struct section_hook hook = { see_section, &left };
	const struct sequence_options want = { .section = &hook,
	    .notice = { .call = warn_notice } };
	struct open_sequence x;
	struct engine_error e;
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_head head;
	struct session s;
	uint32_t at_once;

	check_options();
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	input_refuse_residual(r, "no single row of theirs can be replaced: recompute before "
	    "kv-quantize");
	head = *kv_reader_head(r);
	how.layer = layer != NOT_GIVEN ? layer : head.model.layers > 1;
	must(recompute_check(&how, &head, input_tokens(r).n, kv_reader_name(r), &e), &e);
	session_open(&s, r, TOKENIZER_IF_THERE);
	warn_of_positions(s.model, head.next_position);
	at_once = load_model(&s, r);
	must(open_sequence(&x, s.model, &want, r, &s.plan, &e), &e);
	run(&x.sequence, &head, at_once);
	snapshot_head(x.sequence.cache, &head);
	warn_left_behind(left);
	w = output_create(&head);
	output_check(w, sequence_save(w, &x.sequence, NULL));
	sign();
	output_commit(w, r);
	report_count("tokens_run", x.sequence.cache->ran);
	kv_close(r);
	close_sequence(&x);
	session_close(&s);
	return finish();
}
