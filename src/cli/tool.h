/* tool.h - what every program has: start and end, settings of shared options, messages
 *
 * Only this part may exit, read the environment (KV_MODEL, KV_ALLOW_CONFIG, KV_ALLOW_TENSOR,
 * KV_THREADS, KV_DEVICE, KV_KERNELS, KV_PRODUCTS, KV_PROGRESS, KV_REPORT, KV_FINGERPRINTS,
 * XDG_CACHE_HOME, HOME, TMPDIR) or handle signals. */
#ifndef KVPIPE_TOOL_H
#define KVPIPE_TOOL_H

#include <stdio.h>

#include "cli/options.h"
#include "engine/engine_error.h"

/* Exit codes, the same for every program; kvpipe(7). */
enum {
	EXIT_OK = 0,
	EXIT_RUN = 1,           /* run time, input/output */
	EXIT_USAGE = 2,
	EXIT_DAMAGED = 3,       /* input truncated or corrupt */
	EXIT_MODEL = 4,         /* the snapshot does not fit the model */
	EXIT_UNSUPPORTED = 5    /* version, feature, architecture; a text too long for the model */
};

/* ---- a program ---- */

/* Options with the same meaning everywhere; a program names those it takes. */
enum {
	TAKES_MODEL = 1,        /* -m, --model MODEL (required; KV_MODEL) */
	TAKES_OUTPUT = 2,       /* -o, --output FILE; -z, --lz4; output_refuse() at the start */
	TAKES_THREADS = 4,      /* -j, --threads N; --device cpu|cuda[:N]|auto */
	TAKES_JSON = 8,         /* --json */
	TAKES_PROGRESS = 16,    /* --progress auto|always|never */
	TAKES_CONFIG = 32,      /* --allow-config KEY, --allow-tensor NAME, --products TYPE */
	TAKES_FOLDER = 64       /* -o may be a folder: the program calls output_refuse() */
};                              /* and always: -q, -v, --report, --help, --version */

struct tool {
	const char *name;       /* "kv-evict" */
	const char *about;      /* one line, as under NAME in its page; NULL: that of programs.h */
	/* what follows the name in SYNOPSIS, word for word; a line that begins with the name is
	 * another form */
	const char *synopsis;
	const char *example;    /* a command, for the end of --help */
	const struct opt *opts; /* own options, ends with a zero name */
	const struct opt *more; /* options shared with other programs, in the same form; or NULL */
	unsigned takes;
	unsigned min_operands, max_operands;
};

/* Values of the shared options. */
struct settings {
	const char *model;      /* NULL unless given */
	/* keys of config.json and tensors to ignore; KV_ALLOW_CONFIG, KV_ALLOW_TENSOR included */
	struct strings allow_config, allow_tensor;
	const char *output;     /* "-" unless given */
	unsigned write_flags;   /* KV_LZ4 */
	uint32_t threads;       /* 0 = all */
	const char *device;     /* "auto" */
	/* NULL unless given; after session_open() "bf16", or NULL for f32 */
	const char *products;
	const char *report;     /* NULL unless given; report.h */
	const char *kernels;    /* KV_KERNELS, "auto" unless set */
	/* file with fingerprints of weights that were hashed before; NULL: none */
	const char *fingerprints;
	int json, quiet, verbose;
};
extern struct settings settings;

/* Returns KV_MODEL, or NULL: for a program that only sometimes needs a model */
const char *model_of_environment(void);
/* Returns the path of the cache file of this name, below XDG_CACHE_HOME or HOME; NULL: there is
 * none. Not to be freed before the process ends. */
const char *cache_file(const char *name);
/* Returns settings.threads, or for 0 the number of processors available to this process. */
unsigned processors(void);

/* Parses the command line (getopt_long; --help and --version print and exit 0; anything wrong
 * exits 2 with the synopsis). Writing to a closed pipe is an error (stdout_failed()). Installs
 * handlers that remove an unfinished output. Returns the index of the first operand. */
int tool_start(const struct tool *tool, int argc, char **argv);

/* Returns the operand at index i, or "-" if there is none. */
const char *operand(int argc, char **argv, int i);

/* ---- messages, on standard error, "kv-evict: ..."; a format that ends in a colon gets errno's
 * text ---- */

void die(int status, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Ends the program after a failed write to standard output: as SIGPIPE would, without a
 * message, if the reader has gone; else dies. why: the message; NULL: errno's */
void stdout_failed(const char *why) __attribute__((noreturn));
/* Prints the error of engine/, and returns its exit code. */
int failed(const struct engine_error *e);
/* Dies with the exit code and message of e, unless rc is ENGINE_OK; must_have(): unless p is
 * not NULL, and returns p. */
void must(int rc, const struct engine_error *e);
/* As must(), of a code and message of model/. */
void must_model(int rc, const char *err);
void *must_have(void *p, const struct engine_error *e);
/* Returns the error message of the device, or NULL. die() appends it, since a device error is
 * then the cause of what it reports. Set by device_open(). */
extern const char *(*device_failure)(void);
void warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));      /* not with -q */
/* Prints an error after which the program continues: also with -q. */
void trouble(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* warning() and trouble() in the form that engine/ calls (struct notice_hook); with is unused */
void warn_notice(void *with, const char *text);
void trouble_notice(void *with, const char *text);
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));         /* only with -v */
/* Returns n * size zeroed bytes; dies */
void *must_alloc(size_t n, size_t size);
/* Returns the descriptor of a new file in $TMPDIR (/tmp if unset), for reading and writing,
 * that has no name and is deleted when the program ends; dies */
int temporary_file(void);
/* Returns the folder of temporary files, for messages. */
const char *temporary_folder(void);

/* Flushes and closes standard output; a late write error is an error too. Returns EXIT_OK, for
 * main. */
int finish(void);
/* As finish(), for a program that has failed in a part of its work: returns status. */
int finish_with(int status);

#endif
