/* tool.h - what the programs share: options, messages, progress, opening and closing snapshots
 *
 * Only here a program may exit, read the environment (KV_ALLOW_CONFIG, KV_ALLOW_TENSOR, KV_THREADS,
 * KV_DEVICE, KV_PRODUCTS, KV_PROGRESS, KV_REPORT, KV_FINGERPRINTS, XDG_CACHE_HOME, HOME, TMPDIR) or
 * handle signals. */
#ifndef KVPIPE_TOOL_H
#define KVPIPE_TOOL_H

#include <math.h>
#include <stdio.h>

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"

/* Exit codes, the same for every program; kvpipe(7). */
enum {
	EXIT_OK = 0,
	EXIT_RUN = 1,           /* run time, input/output */
	EXIT_USAGE = 2,
	EXIT_DAMAGED = 3,       /* input truncated or corrupt */
	EXIT_MODEL = 4,         /* the snapshot does not fit the model */
	EXIT_UNSUPPORTED = 5    /* version, feature, architecture; a text too long for the model */
};

/* ---- options ---- */

#define NOT_GIVEN UINT32_MAX    /* an OPT_COUNT that begins so can tell that it was not given: no value is it */
#define REAL_NOT_GIVEN INFINITY /* an OPT_REAL */

enum opt_kind {
	OPT_FLAG,               /* int *: set to value */
	OPT_STRING,             /* const char ** */
	OPT_STRINGS,            /* struct strings *: may be repeated */
	OPT_COUNT,              /* uint32_t *: value .. NOT_GIVEN-1, suffixes k (1024) and m */
	OPT_SEED,               /* uint64_t * */
	OPT_BYTES,              /* uint64_t *: value .. 2^63-1, suffixes k, m, g, t, or in capitals */
	OPT_REAL,               /* double *: finite */
	OPT_SHARE               /* double *: 0 < x <= 1; "10%" is 0.1 */
};

struct strings {
	const char **at;
	size_t n;
};

struct opt {
	char letter;            /* 0 = long form only */
	const char *name;       /* long form */
	enum opt_kind kind;
	void *to;
	int value;              /* of OPT_FLAG; of OPT_COUNT and OPT_BYTES the least: 1 where 0 is the
	                         * variable's sign for "not given" */
	const char *arg;        /* "N" in the help; NULL for a flag */
	const char *help;
};

/* Options that mean the same everywhere; a program takes those it names. */
enum {
	TAKES_MODEL = 1,        /* -m, --model DIR (required) */
	TAKES_OUTPUT = 2,       /* -o, --output FILE; -z, --lz4; output_refuse() at the start */
	TAKES_THREADS = 4,      /* -j, --threads N; --device cpu|cuda[:N]|auto */
	TAKES_JSON = 8,         /* --json */
	TAKES_PROGRESS = 16,    /* --progress auto|always|never */
	TAKES_CONFIG = 32,      /* --allow-config KEY, --allow-tensor NAME, --products TYPE: for those
	                         * that run the model */
	TAKES_FOLDER = 64       /* -o may be a folder: the program calls output_refuse() */
};                              /* and always: -q, -v, --report, --help, --version */

struct tool {
	const char *name;       /* "kv-evict" */
	const char *about;      /* one line, as under NAME in its page; NULL: that of programs.h */
	const char *synopsis;   /* what follows the name in SYNOPSIS, word for word; a line that
	                         * begins with the name is another form of the command */
	const char *example;    /* a command, for the end of --help */
	const struct opt *opts; /* own options, ends with a zero name */
	const struct opt *more; /* those of a part that programs share, in the same way; or NULL */
	unsigned takes;
	unsigned min_operands, max_operands;
};

/* Values of the shared options. */
struct settings {
	const char *model;      /* NULL unless given */
	/* keys of config.json and tensors that are passed over; KV_ALLOW_CONFIG, KV_ALLOW_TENSOR
	 * too */
	struct strings allow_config, allow_tensor;
	const char *output;     /* "-" unless given */
	unsigned write_flags;   /* KV_LZ4 */
	uint32_t threads;       /* 0 = all */
	const char *device;     /* "auto" */
	const char *products;   /* NULL unless given; from session_open() on "bf16", or NULL for f32 */
	const char *report;     /* NULL unless given; report.h */
	const char *fingerprints;       /* file for those of weights that have been read; NULL: none */
	int json, quiet, verbose;
};
extern struct settings settings;

/* settings.threads, or for 0 the number of processors that this process may use. */
unsigned processors(void);

/* Parses the command line (getopt_long; --help and --version print and exit 0; anything wrong
 * exits 2 with the synopsis). Writing to a closed pipe is an error (stdout_failed()). Installs
 * handlers that remove an unfinished output. Returns the index of the first operand. */
int tool_start(const struct tool *tool, int argc, char **argv);

/* Sets options of a table from the value of --option, a text of words "name=value", or "name" for
 * a flag ("name=0" leaves it): how a program takes the options of another one. Quotes and
 * backslashes are those of sh. Dies with EXIT_USAGE and names the option and the word. */
void options_words(const char *option, const char *text, const struct opt *table);
/* The first word of the text, without its quotes, which lives on; *rest <- what is behind it. */
const char *option_word(const char *option, const char *text, const char **rest);
/* The text with another value in its last word "name=...", which is there; must be freed. */
char *option_reworded(const char *option, const char *text, const char *name, const char *value);

/* A value of OPT_SHARE; dies and names the option as `where` does, "--rate". */
double option_share(const char *where, const char *text);

/* The operand at index i, or "-" when there is none. */
const char *operand(int argc, char **argv, int i);

/* ---- messages, on standard error, "kv-evict: ..."; a format that ends in a colon gets errno's
 * text ---- */

void die(int status, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Standard output cannot be written: ends as SIGPIPE ends a program, without a message, when its
 * reader has gone, and else dies. why: the message; NULL: errno's */
void stdout_failed(const char *why) __attribute__((noreturn));
/* Says what engine/ has failed with, and returns the exit code that belongs to it. */
int failed(const struct engine_error *e);
/* What engine/ returns: dies with the exit code that belongs to it, and its message, unless rc is
 * ENGINE_OK; or unless p is there, which is returned. */
void must(int rc, const struct engine_error *e);
void *must_have(void *p, const struct engine_error *e);
/* Says what the device has failed with, or NULL: then that is why whatever die() tells happened,
 * and it tells that too. Set by device_open(). */
extern const char *(*device_failure)(void);
void warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));      /* not with -q */
/* What has failed where the program goes on: with -q, too. */
void trouble(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* warning() and trouble(), as engine/ calls them (struct notice_hook); with is not used */
void warn_notice(void *with, const char *text);
void trouble_notice(void *with, const char *text);
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));         /* only with -v */
/* n * size bytes, zeroed; dies */
void *must_alloc(size_t n, size_t size);
#define TEXT_MARK "\xef\xbb\xbf"   /* U+FEFF, a byte order mark, in UTF-8 */
/* The name of an input for messages: "stdin" for "-" */
const char *path_name(const char *path);
/* The whole of a file ("-" = standard input), zero-terminated; a byte order mark is left out,
 * UTF-16 is refused. Both die. A list, a table, JSON: a NUL is refused, too. */
void must_read_list(const char *path, char **text, size_t *len);
/* What a model reads as it is: warns of a mark, of a NUL, and of lines that end in CR LF. */
void must_read_prose(const char *path, char **text, size_t *len);
/* A new file in $TMPDIR (/tmp unless set) that has no name and is gone when the program ends:
 * its descriptor, to read and write; dies */
int temporary_file(void);
/* Where that is, for messages. */
const char *temporary_folder(void);

/* ---- snapshots ---- */

struct kv_reader *input_open(const char *path);                   /* dies with the right status */
struct kv_reader *input_try(const char *path, struct engine_error *); /* NULL where that would die */
int input_next(struct kv_reader *r, struct kv_section *sec);      /* 1 or 0; dies */
/* Where the last section was, "a.kv: layer 3", for messages; "" before there was one */
const char *input_place(void);
const void *input_load(struct kv_reader *r);
const struct kv_rows *input_rows(struct kv_reader *r);
void input_failed(struct kv_reader *r, int code) __attribute__((noreturn));
void input_check(struct kv_reader *r, int code);                  /* dies when code < 0 */
int input_status(int code);                                       /* the exit code for a KV_E* */

/* Binary output to a terminal is refused: for programs that work for long before
 * output_create(), which refuses too. */
void output_refuse_terminal(void);

/* Dies when no output could be written under this name, before the work that would be lost: its
 * folder is not there or not writable, it is a folder. option: "--output". path "-" or NULL:
 * nothing is asked. */
void output_refuse(const char *option, const char *path);

/* The output named by settings.output, with the flags of -z. Refuses a terminal. */
struct kv_writer *output_create(const struct kv_head *head);
void output_check(struct kv_writer *w, int code);                 /* dies when code < 0 */
/* Nothing is left of it, and the program goes on. */
void output_discard(struct kv_writer *w);
void output_copy(struct kv_reader *r, struct kv_writer *w);       /* kv_copy, dies */
/* An unknown section: copied, or dropped with a warning. */
void output_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed);

/* Options for the provenance line of each output that follows; the last value of a key counts. */
void sign_text(const char *key, const char *value);
void sign_count(const char *key, uint64_t value);
void sign_real(const char *key, double value);

/* Inherits the provenance of from (NULL = none), signs, commits, frees. */
void output_commit(struct kv_writer *w, const struct kv_reader *from);

/* Flushes and closes standard output; a late write error is an error. Returns EXIT_OK, for main. */
int finish(void);

/* A text file beside the output: it takes its name, that of a file, in text_commit() and is gone
 * when the program ends before. One at a time, and none while a snapshot is written. Dies. */
FILE *text_create(const char *path);
void text_commit(FILE *f);

/* ---- progress: one line on standard error, when it is a terminal and the work takes more than
 * a second ---- */

/* "prefill", 8192, "tokens"; unit "B" prints MiB */
void progress_start(const char *what, uint64_t total, const char *unit);
void progress(uint64_t done);                                     /* cheap; may be called often */
/* progress(), as engine/ and model/ call it (struct step_hook); with is not used */
void progress_step(void *with, uint64_t done);
void progress_end(void);

#endif
