/* kv-info - describe snapshots: whose cache it is, which rows there are, what they cost */
#include <stdio.h>

#include "cli/info.h"
#include "cli/tool.h"

static int all, positions;

static const struct opt opts[] = {
	{ 'a', "all", OPT_FLAG, &all, 1, NULL,
	    "list every section and the digests; verifies everything" },
	{ 'p', "positions", OPT_FLAG, &positions, 1, NULL,
	    "print layer, KV head and the positions of its rows, nothing else" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-info",
	.about = "describe snapshots: whose cache it is, which rows there are, what they cost",
	.synopsis = "[-apqv] [--json] [--report FILE] [snapshot ...]",
	.example = "kv-info full.kv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = -1u
};

/* One line for each KV head of each layer, for join, comm, diff and awk. */
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
describe(const char *path)
{
	struct kv_reader *r = input_open(path);
	struct snapshot_info info;
	struct engine_error e;

	if (positions) {
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
	if (first == argc)
		describe("-");
	for (i = first; i < argc; i++) {
		if (i > first && !settings.json && !positions)
			putchar('\n');
		describe(argv[i]);
	}
	return finish();
}
