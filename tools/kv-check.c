/* kv-check - verify snapshots: every block, every rule, the index; silent when they hold */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/explain.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/snapshot_io.h"
#include "cli/terminal_escape.h"
#include "cli/text_input.h"
#include "cli/tool.h"

static const struct tool tool = {
	.name = "kv-check",
	.synopsis = "[-qv] [--json] [--progress WHEN] [--report FILE] [snapshot ...]",
	.example = "kv-check full.kv small.kv",
	.takes = TAKES_JSON | TAKES_PROGRESS,
	.max_operands = -1u
};

/* kv_next() checks the content, since it is neither loaded nor skipped. */
static int
read_all(struct kv_reader *r, struct kv_log *log)
{
	struct kv_section sec;
	int code;

	while ((code = kv_next(r, &sec)) == 1) {
		if ((code = kv_log_see(log, r, &sec)) != KV_OK)
			return code;
		progress(sec.offset + sec.stored_size);
	}
	return code == 0 ? kv_check_index(r) : code;
}

/* Rows are valid whatever the log says, so the reader does not check this (4.11). */
static int
check_log(struct kv_log *log)
{
	struct kv_event e;
	int code;

	while ((code = kv_log_next(log, &e)) == 1)
		continue;
	return code;
}

/* Prints the result; kv-check(1) explains the keys. why: NULL: valid */
static void
print_verdict(const char *name, const struct kv_reader *r, int status, const char *why)
{
	json_t *o = json_object();
	struct kv_digests d;

	put_text(o, "snapshot", name);
	put_value(o, "ok", json_boolean(why == NULL));
	put_count(o, "status", (uint64_t)status);
	if (why == NULL) {
		kv_reader_digests(r, &d);
		put_count(o, "sections", d.sections);
		put_count(o, "bytes", d.size);
		put_text(o, "stream_digest", d.stream);
		put_text(o, "logical_digest", d.logical);
	} else
		put_text(o, "error", why);
	print_json(o);
}

/* Prints the result. Returns the exit code for this file. */
static int
tell(const char *path, const struct kv_reader *r, int code, const char *why)
{
	const int status = code != KV_OK ? input_status(code) : EXIT_OK;
	const char *name = path_name(path);
	struct kv_digests d;
	char text[1024];

	if (code != KV_OK) {
		snprintf(text, sizeof text, "%s", *why != '\0' ? why : kv_error_name(code));
		explain_snapshot(path, text, sizeof text);
		warning("%s", why = text);
	}
	if (settings.json)
		print_verdict(name, r, status, code != KV_OK ? why : NULL);
	else if (code == KV_OK && settings.verbose) {
		kv_reader_digests(r, &d);
		printf("%s: ok, %u sections, %llu bytes, logical digest %s\n", shown(name),
		    d.sections, (unsigned long long)d.size, d.logical);
	}
	return status;
}

/* Returns the exit code for this file. */
static int
check(const char *path)
{
	struct kv_reader *r = NULL;
	struct kv_log *log = NULL;
	const char *why;
	struct stat st;
	int code, status;

	if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO))
		die(EXIT_USAGE, "a snapshot is not read from a terminal: "
		    "name a file or use a pipe");
	progress_start(path, stat(path, &st) == 0 ? (uint64_t)st.st_size : 0, "B");
	report_enter_snapshot(path);
	code = kv_open(path, &r);
	report_leave();
	report_reader(r);
	if (code == KV_OK) {
		log = kv_log_new(kv_reader_head(r));
		code = log != NULL ? read_all(r, log) : KV_ENOMEM;
	}
	why = r != NULL ? kv_reader_error(r) : "";
	if (code == KV_OK && (code = check_log(log)) != KV_OK)
		why = kv_log_error(log);
	progress_end();
	status = tell(path, r, code, why);
	kv_log_free(log);
	kv_close(r);
	return status;
}

int
main(int argc, char **argv)
{
	int i = tool_start(&tool, argc, argv), status = EXIT_OK, this;

	if (i == argc)
		status = check("-");
	for (; i < argc; i++) {
		this = check(argv[i]);
		if (status == EXIT_OK)
			status = this;
	}
	return finish_with(status);
}
