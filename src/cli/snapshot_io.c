/* snapshot_io.c - opens, copies and finishes snapshots; the first failure ends the program */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/explain.h"
#include "cli/report.h"
#include "cli/snapshot_io.h"
#include "cli/tool_internal.h"
#include "engine/residual_check.h"
#include "libkvfile/temporary.h"

/* ---- input ---- */

int
input_status(int code)
{
	switch (code) {
	case KV_ETRUNCATED:
	case KV_ECORRUPT:
		return EXIT_DAMAGED;
	case KV_EVERSION:
		return EXIT_UNSUPPORTED;
	default:
		return EXIT_RUN;
	}
}

void
input_failed(struct kv_reader *r, int code)
{
	const char *text = r != NULL ? kv_reader_error(r) : "";

	die(input_status(code), "%s", *text != '\0' ? text : kv_error_name(code));
}

void
input_check(struct kv_reader *r, int code)
{
	if (code < 0)
		input_failed(r, code);
}

struct kv_reader *
input_try(const char *path, struct engine_error *e)
{
	struct kv_reader *r = NULL;
	int code;

	if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO))
		die(EXIT_USAGE, "a snapshot is not read from a terminal: "
		    "name a file or use a pipe");
	report_enter_snapshot(path);
	code = kv_open(path, &r);
	report_leave();
	report_reader(r);
	if (code >= 0)
		return r;
	if (r != NULL)
		engine_fail_reader(e, r, code);
	else
		engine_fail(e, ENGINE_ERUN, "%s: %s", path, kv_error_name(code));
	explain_snapshot(path, e->text, sizeof e->text);
	kv_close(r);
	return NULL;
}

struct kv_reader *
input_open(const char *path)
{
	struct engine_error e;

	return must_have(input_try(path, &e), &e);
}

/* The last section of input_next(), and the name of its snapshot: for messages */
static struct kv_section current;
static char current_name[256];

void
input_refuse_residual(const struct kv_reader *r, const char *why)
{
	const struct kv_head *head = kv_reader_head(r);
	struct engine_error e;

	if (head->residual != 0)
		must(residual_refused(head, kv_reader_name(r), why, &e), &e);
}

int
input_next(struct kv_reader *r, struct kv_section *sec)
{
	int code = kv_next(r, sec);

	if (code < 0)
		input_failed(r, code);
	current = *sec;
	snprintf(current_name, sizeof current_name, "%s", kv_reader_name(r));
	return code;
}

struct kv_tokens
input_tokens(struct kv_reader *r)
{
	struct kv_tokens tokens;
	struct kv_section sec;

	input_next(r, &sec);                    /* TOKS is the first, always */
	input_check(r, kv_load_tokens(r, &tokens));
	input_check(r, kv_again(r));
	return tokens;
}

const char *
input_place(void)
{
	static char place[sizeof current_name + 32];

	if (current_name[0] == '\0' || current.layer == KV_NO_LAYER)
		return current_name;
	snprintf(place, sizeof place, "%s: layer %" PRIu32, current_name, current.layer);
	return place;
}

const void *
input_load(struct kv_reader *r)
{
	const void *data;
	int code = kv_load(r, &data);

	if (code < 0)
		input_failed(r, code);
	return data;
}

const struct kv_rows *
input_rows(struct kv_reader *r)
{
	const struct kv_rows *rows;
	int code = kv_load_rows(r, &rows);

	if (code < 0)
		input_failed(r, code);
	return rows;
}

/* ---- output ---- */

void
output_refuse_terminal(void)
{
	if (strcmp(settings.output, "-") == 0 && isatty(STDOUT_FILENO))
		die(EXIT_USAGE, "a snapshot is not written to a terminal: use -o FILE or a pipe");
}

/* Returns the errno that a file of this name would cause, or 0. A regular file is written under
 * a temporary name beside it. */
static int
obstacle(const char *path)
{
	struct kv_temporary trial;
	struct stat st;
	const int there = stat(path, &st) == 0;
	int fd, error = 0;
	char *final;

	if (there && S_ISDIR(st.st_mode))
		return EISDIR;
	if (there && access(path, W_OK) != 0)
		return errno;
	if (there && !S_ISREG(st.st_mode))
		return 0;
	if ((final = kv_final_name(path)) == NULL)
		return errno;
	hold_signals(1);
	if ((fd = kv_temporary_create(&trial, final, 0600)) < 0)
		error = errno;
	else
		close(fd);
	kv_temporary_end(&trial);
	hold_signals(0);
	free(final);
	return error;
}

void
output_refuse(const char *option, const char *path)
{
	if (path == NULL || strcmp(path, "-") == 0)
		return;
	if (*path == '\0')
		die(EXIT_USAGE, "%s: the name is empty", option);
	if ((errno = obstacle(path)) != 0)
		die(EXIT_RUN, "%s %s:", option, path);
}

static int to_standard_output;          /* the output that is written */

struct kv_writer *
output_create_at(const char *path, const struct kv_head *head)
{
	struct kv_writer *w = NULL;
	int code;

	to_standard_output = strcmp(path, "-") == 0;
	hold_signals(1);
	code = kv_create(path, head, settings.write_flags, &w);
	if (w != NULL)
		unfinished(kv_writer_temporary(w));
	hold_signals(0);
	if (w == NULL)
		die(EXIT_RUN, "%s", kv_error_name(code));
	output_check(w, code);
	report_writer(w);
	return w;
}

struct kv_writer *
output_create(const struct kv_head *head)
{
	output_refuse_terminal();
	return output_create_at(settings.output, head);
}

void
output_check(struct kv_writer *w, int code)
{
	if (code < 0 && to_standard_output)
		stdout_failed(kv_writer_error(w));
	if (code < 0)
		die(EXIT_RUN, "%s", kv_writer_error(w));
}

void
output_discard(struct kv_writer *w)
{
	hold_signals(1);
	kv_writer_free(w);
	unfinished(NULL);
	hold_signals(0);
}

/* kv_copy() fails for its input or its output: the object with a message is the one. */
static void
copy_failed(struct kv_reader *r, struct kv_writer *w, int code)
{
	if (*kv_reader_error(r) != '\0')
		input_failed(r, code);
	output_check(w, code);
}

void
output_copy(struct kv_reader *r, struct kv_writer *w)
{
	int code = kv_copy(r, w);

	if (code < 0)
		copy_failed(r, w, code);
}

void
output_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed)
{
	int code = kv_copy_unknown(r, w, rows_changed);

	if (code < 0)
		copy_failed(r, w, code);
	if (code == 0)
		warning("%s: dropped the unknown section %s, which depends on the rows that "
		    "changed", kv_reader_name(r), current.type);
}

/* ---- provenance, and the end ---- */

static json_t *options;         /* set by the sign functions */

static void
sign(const char *key, json_t *value)
{
	if (options == NULL)
		options = json_object();
	if (value == NULL || json_object_set_new(options, key, value) != 0)
		die(EXIT_RUN, "provenance: out of memory, or '%s' is not UTF-8", key);
}

void
sign_text(const char *key, const char *value)
{
	sign(key, json_string(value));
}

void
sign_count(const char *key, uint64_t value)
{
	sign(key, json_integer((json_int_t)value));
}

void
sign_real(const char *key, double value)
{
	sign(key, json_real(value));
}

void
output_commit(struct kv_writer *w, const struct kv_reader *from)
{
	char *text = NULL;

	if (options != NULL)
		text = json_dumps(options, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));
	if (options != NULL && text == NULL)
		die(EXIT_RUN, "provenance: out of memory");
	if (from != NULL)
		output_check(w, kv_inherit(w, from));
	output_check(w, kv_sign(w, the_tool->name, KVPIPE_VERSION, text != NULL ? text : "{}"));
	output_check(w, kv_commit(w));
	unfinished(NULL);
	kv_writer_free(w);
	free(text);
}

void
warn_left_behind(unsigned kinds)
{
	char names[256] = "";
	unsigned kind;
	size_t n;

	/* what is not known comes last */
	for (kind = KV_UNKNOWN + 1; kind <= KV_KIND_END; kind++)
		if (kinds >> kind % KV_KIND_END & 1) {
			n = strlen(names);
			snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "",
			    kind == KV_KIND_END ? "unknown sections" : kv_kind_type(kind));
		}
	if (names[0] != '\0')
		warning("left behind: %s", names);
}

/* ---- text ---- */

static char *text_path;
static struct kv_temporary text_temporary;      /* name NULL: written directly */

FILE *
text_create(const char *path)
{
	struct stat st;
	int direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);      /* a device, a pipe */
	int fd = -1;
	FILE *f = NULL;

	if ((text_path = kv_final_name(path)) == NULL)
		die(EXIT_RUN, "%s:", path);
	hold_signals(1);
	if (direct)
		f = fopen(path, "w");
	else if ((fd = kv_temporary_create(&text_temporary, text_path, 0666)) >= 0)
		f = fdopen(fd, "w");
	if (text_temporary.name != NULL)
		unfinished(text_temporary.name);
	hold_signals(0);
	if (f == NULL)
		die(EXIT_RUN, "%s:", path);
	return f;
}

void
text_commit(FILE *f)
{
	const int beside = text_temporary.name != NULL;

	report_enter(REPORT_WRITE);
	if (fflush(f) != 0 || (beside && fsync(fileno(f)) != 0) || fclose(f) != 0 ||
	    (beside && kv_temporary_rename(&text_temporary, text_path) != 0))
		die(EXIT_RUN, "%s:", text_path);
	report_leave();
	unfinished(NULL);
	kv_temporary_end(&text_temporary);
	free(text_path);
	text_path = NULL;
}
