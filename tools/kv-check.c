/* kv-check - verify snapshots: every block, every rule, the index; silent when they hold */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tool.h"

static const struct tool tool = {
	.name = "kv-check",
	.about = "verify snapshots: every block, every rule, the index; silent when they hold",
	.synopsis = "[-qv] [--progress WHEN] snapshot ...",
	.takes = TAKES_PROGRESS,
	.min_operands = 1,
	.max_operands = -1u
};

/* Content that is neither loaded nor skipped is checked by kv_next(). */
static int
read_all(struct kv_reader *r)
{
	struct kv_section sec;
	int code;

	while ((code = kv_next(r, &sec)) == 1)
		progress(sec.offset + sec.stored_size);
	return code == 0 ? kv_check_index(r) : code;
}

/* Returns the exit code for this file. */
static int
check(const char *path)
{
	struct kv_reader *r = NULL;
	struct kv_digests d;
	struct stat st;
	int code;

	if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO))
		die(EXIT_USAGE, "a snapshot is not read from a terminal: "
		    "name a file or use a pipe");
	progress_start(path, stat(path, &st) == 0 ? (uint64_t)st.st_size : 0, "B");
	if ((code = kv_open(path, &r)) == KV_OK)
		code = read_all(r);
	progress_end();
	if (code != KV_OK)
		warning("%s", r != NULL ? kv_reader_error(r) : kv_error_name(code));
	else if (settings.verbose) {
		kv_reader_digests(r, &d);
		printf("%s: ok, %u sections, %llu bytes, logical digest %s\n", kv_reader_name(r),
		    d.sections, (unsigned long long)d.size, d.logical);
	}
	kv_close(r);
	return code != KV_OK ? input_status(code) : EXIT_OK;
}

int
main(int argc, char **argv)
{
	int i = tool_start(&tool, argc, argv), status = EXIT_OK, this;

	for (; i < argc; i++) {
		this = check(argv[i]);
		if (status == EXIT_OK)
			status = this;
	}
	finish();
	return status;
}
