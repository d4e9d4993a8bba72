/* kv-info - describe snapshots: model, rows, size */
#include <stdio.h>

#include "cli/info.h"
#include "cli/info_tokens.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

static int all, positions;
static int tokens;              /* --ids or --text */

static const struct opt opts[] = {
	{ 'a', "all", OPT_FLAG, &all, 1, NULL,
	    "list every section and the digests; verifies everything", OPT_WRITES },
	{ 'p', "positions", OPT_FLAG, &positions, 1, NULL,
	    "print layer, KV head and the positions of its rows, nothing else", OPT_WRITES },
	{ 0, "ids", OPT_FLAG, &info_tokens_options.ids, 1, NULL,
	    "print the token ids of the text, one a line, nothing else", OPT_WRITES },
	{ 0, "text", OPT_FLAG, &info_tokens_options.text, 1, NULL,
	    "print the text, nothing else; with --model", OPT_WRITES },
	{ 0, "kept", OPT_STRING, &info_tokens_options.kept, 0, "WHERE",
	    "only tokens with rows in: any, all, LAYER or LAYER,HEAD", OPT_WRITES },
	{ 'm', "model", OPT_STRING, &settings.model, 0, "MODEL",
	    "with --text: the model, for its tokenizer (KV_MODEL)", OPT_READS },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-info",
	.synopsis = "[-apqv] [--json] [--report FILE] [snapshot ...]\n"
	    "kv-info [-qv] [-m MODEL] --ids | --text [--json] [--kept WHERE] [--report FILE]\n"
	    "[snapshot]",
	.example = "kv-info full.kv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = -1u
};

/* Prints one line for each KV head of each layer, for join, comm, diff and awk. */
static void
print_positions(struct kv_reader *r)
{
	const struct kv_rows *rows;
	struct kv_section sec;
	uint32_t g, i;

	while (input_next(r, &sec)) {
		if (sec.kind != KV_POSN) {
			input_check(r, kv_skip(r));
			continue;
		}
		rows = input_rows(r);
		for (g = 0; g < rows->heads; g++) {
			printf("%u %u", sec.layer, g);
			for (i = 0; i < rows->count[g]; i++)
				printf(" %u", rows->pos[g][i]);
			putchar('\n');
		}
	}
}

static void
print_file_info(const char *path)
{
	struct kv_reader *r = input_open(path);
	struct snapshot_info info;
	struct engine_error e;

	if (tokens) {
		print_info_tokens(r);
	} else if (positions) {
		print_positions(r);
	} else {
		must(snapshot_info_read(&info, r, all, &e), &e);
		if (settings.json)
			print_info_json(&info, r);
		else
			print_info(&info, r);
		snapshot_info_free(&info);
	}
	kv_close(r);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv), i;

	if (positions && (all || settings.json))
		die(EXIT_USAGE, "--positions goes with neither --all nor --json");
	tokens = opt_info_tokens();
	if (tokens && (all || positions))
		die(EXIT_USAGE, "--%s prints tokens and nothing else: --%s does not go with it",
		    info_tokens_options.ids ? "ids" : "text", all ? "all" : "positions");
	if (tokens && argc - first > 1)
		die(EXIT_USAGE, "--%s is of one snapshot",
		    info_tokens_options.ids ? "ids" : "text");
	if (!tokens && settings.model != NULL)
		die(EXIT_USAGE, "--model: its tokenizer is for --text");
	if (first == argc)
		print_file_info("-");
	for (i = first; i < argc; i++) {
		if (i > first && !settings.json && !positions)
			putchar('\n');
		print_file_info(argv[i]);
	}
	return finish();
}
