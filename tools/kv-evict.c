/* kv-evict - drop the rows of a snapshot that matter least */
#include <inttypes.h>
#include <string.h>

#include "cache/index.h"
#include "cli/input_twice.h"
#include "cli/opt_evict.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/evict_snapshot.h"

static int list;
static const char *rows;                /* the file of --rows */
static const char *positions = "original";
static struct evictor evictor;
static struct snapshot_evictor job = { .evictor = &evictor, .step = { progress_step, NULL },
    .notice = { warn_notice, NULL } };
static int compact;                     /* --positions compact */

static const struct opt opts[] = {
	{ 0, "rows", OPT_STRING, &rows, 0, "FILE",
	    "keep the rows listed in FILE, as kv-info --positions prints them", OPT_READS },
	{ 0, "keep-queries", OPT_FLAG, &job.keep_queries, 1, NULL,
	    "keep the observation queries, to score again", OPT_WRITES },
	{ 0, "positions", OPT_STRING, &positions, 0, "WHICH",
	    "original, or compact: renumber rows, rotate their keys to match", OPT_WRITES },
	{ 0, "list", OPT_FLAG, &list, 1, NULL,
	    "list the policies and the options they use", OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-evict",
	.synopsis = "--budget N | --rate R | --budgets FILE | --threshold X\n"
	    "| --head-mask FILE | --rows FILE | --list\n"
	    "[-qvz] [-o FILE] [--alpha A] [--epsilon X] [--first-stage F] [--keep-queries]\n"
	    "[--normalize] [--of WHAT] [--policy NAME] [--positions WHICH] [--progress WHEN]\n"
	    "[--recent N] [--report FILE] [--select BY] [--since POSITION] [--sink N]\n"
	    "[--skip-layers LIST] [--small WHAT] [--sparsity S] [--tau1 X] [--tau2 X]\n"
	    "[snapshot]",
	.example = "kv-evict --rate 0.1 -o small.kv scored.kv",
	.opts = opts,
	.more = evict_opts,
	.takes = TAKES_OUTPUT | TAKES_PROGRESS,
	.max_operands = 1
};

/* Opens the input. Reads it in advance if the beginning of the output depends on its end: the
 * rows that a global policy leaves to the first layer, or the next position of compact ones,
 * which is in HEAD. *head <- that of the output. */
static struct kv_reader *
open_ahead(const char *path, struct kv_head *head)
{
	struct engine_error e;
	struct kv_reader *r;
	struct input_twice input;

	input_twice_start(&input, path);
	r = input_twice_open(&input);
	*head = *kv_reader_head(r);
	if (evictor_looks_ahead(&evictor)) {
		must(evict_snapshot_look(&job, r, &e), &e);
		kv_close(r);
		r = input_twice_open(&input);
	}
	if (compact) {
		must(evict_snapshot_renumber(&job, r, &e), &e);
		kv_close(r);
		head->next_position = job.reposition.next;
		head->documents.n = 0;
		r = input_twice_open(&input);
	}
	input_twice_end(&input);
	return r;
}

static void
check_options(const char *path)
{
	if (rows != NULL && strcmp(rows, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "--rows - and the snapshot cannot both be standard input");
	if (rows != NULL)
		opt_evict_list_of_rows(&evictor, rows);
	else {
		opt_evict(&evictor, 1);
		opt_evict_sign(&evictor);
	}
	compact = strcmp(positions, "compact") == 0;
	if (!compact && strcmp(positions, "original") != 0)
		die(EXIT_USAGE, "--positions: '%s' is neither original nor compact", positions);
	if (compact && job.keep_queries)
		die(EXIT_USAGE, "--keep-queries does not go with --positions compact: the "
		    "positions of the queries are gone");
	if (compact)
		sign_text("positions", positions);
}

static void
report(void)
{
	char commands[INDEX_COMMANDS];

	if (job.rows_before == job.rows_after && !evictor_keeps_all(&evictor))
		warning("nothing was dropped: %s", rows != NULL ? "the list has all rows" :
		    "no KV head has more rows than its budget");
	opt_evict_tell(&evictor, 0);
	if (job.indexes_dropped != 0)
		warning("dropped the indexes of layers whose keys changed; make them again with %s",
		    index_commands(commands, job.indexes_dropped));
	note("%" PRIu64 " of %" PRIu64 " rows kept, %" PRIu64 " of %" PRIu64
	    " bytes of keys and values", job.rows_after, job.rows_before, job.bytes_after,
	    job.bytes_before);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct engine_error e;
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_head head;

	if (list) {
		opt_evict_list();
		return finish();
	}
	check_options(path);
	output_refuse_terminal();
	if (compact || evictor_looks_ahead(&evictor)) {
		r = open_ahead(path, &head);
	} else {
		r = input_open(path);
		head = *kv_reader_head(r);
	}
	input_refuse_residual(r, "no single row can be dropped: evict before kv-quantize");
	if (evictor.options.policy != NULL && policy_shares(evictor.options.policy) &&
	    head.model.kv_heads == 1)
		warning("policy %s: a layer has one KV head, which has all of its budget",
		    evictor.options.policy->name);
	w = output_create(&head);
	progress_start("evict", head.model.layers, "layers");
	must(evict_snapshot(&job, r, w, &e), &e);
	progress_end();
	output_commit(w, r);
	report();
	kv_close(r);
	evict_snapshot_free(&job);
	evictor_free(&evictor);
	return finish();
}
