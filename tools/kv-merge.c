/* kv-merge - make one snapshot of documents that were prefilled apart */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/merge_documents.h"

static struct merge_documents job = { .step = { progress_step, NULL } };

static const struct opt opts[] = {
	{ 0, "prefix", OPT_COUNT, &job.prefix, 0, "N",
	    "the first N tokens of all documents are the same: take them once (0)", OPT_READS },
	{ 0, "drop-first", OPT_COUNT, &job.drop_first, 0, "N",
	    "drop the rows of the first N tokens of each later document (0)", OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-merge",
	.synopsis = "[-qvz] [-o FILE] [--drop-first N] [--prefix N] [--progress WHEN]\n"
	    "[--report FILE] snapshot ...",
	.example = "kv-merge -o both.kv a.kv b.kv",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_PROGRESS,
	.min_operands = 1,
	.max_operands = -1u
};

/* Opens the documents. At most one is standard input. */
static struct kv_reader **
open_documents(char **paths, uint32_t n)
{
	struct kv_reader **r = must_alloc(n, sizeof *r);
	uint32_t i, pipes = 0;

	for (i = 0; i < n; i++) {
		if ((pipes += strcmp(paths[i], "-") == 0) > 1)
			die(EXIT_USAGE, "two documents cannot both come from standard input");
		r[i] = input_open(paths[i]);
		input_refuse_residual(r[i], "keys that are quantised in groups, and full rows "
		    "behind quantised ones, do not move: merge before kv-quantize");
	}
	return r;
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct engine_error e;
	struct kv_reader **r;
	struct kv_writer *w;
	struct kv_head head;
	uint32_t i;

	output_refuse_terminal();
	job.n = (uint32_t)(argc - first);
	job.reader = r = open_documents(argv + first, job.n);
	must(merge_head(&job, &head, &e), &e);
	w = output_create(&head);
	progress_start("merge", head.model.layers, "layers");
	must(merge_write(&job, w, &e), &e);
	progress_end();
	warn_left_behind(job.left & ~(1u << KV_LGTS | 1u << KV_EVNT));
	if (job.n > 1 && job.prefix == 0 && job.same_first != UINT32_MAX)
		note("all documents begin with token %" PRIu32 ": if that is BOS, --prefix 1 takes "
		    "it once", job.same_first);
	for (i = 1; i < job.n; i++)
		output_check(w, kv_inherit(w, r[i - 1]));
	sign_count("documents", head.documents.n + 1);
	if (job.drop_first > 0)
		sign_count("drop-first", job.drop_first);
	if (job.prefix > 0)
		sign_count("prefix", job.prefix);
	output_commit(w, r[job.n - 1]);
	note("%u documents, %" PRIu64 " tokens, %" PRIu64 " rows", head.documents.n + 1,
	    job.tokens, job.rows);
	merge_free(&job);
	for (i = 0; i < job.n; i++)
		kv_close(r[i]);
	free(r);
	return finish();
}
