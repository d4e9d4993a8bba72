/* tool.c - start, messages, errors, end: what every program does the same way
 *
 * Options are in options.c, snapshots in snapshot_io.c, the progress line in progress.c. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/bus_error.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/snapshot_io.h"
#include "cli/terminal_escape.h"
#include "cli/tool_internal.h"
#include "ops/ops.h"

struct settings settings = { .output = "-", .device = "auto", .kernels = "auto" };
const struct tool *the_tool = &(const struct tool){ .name = "kvpipe" };

/* ---- signals ---- */

/* The file to remove when the program is killed. The handler only reads it: the text is never
 * freed or changed while it is stored here. */
static char *volatile temporary;
static int pipe_is_ignored;     /* by the parent process, which then wants errors reported */
static const int deadly[] = { SIGHUP, SIGINT, SIGTERM, SIGABRT };

/* Libraries end the process too: libgomp by exit(), C++ by abort(). */
static void
remove_unfinished(void)
{
	if (temporary != NULL)
		unlink(temporary);
}

static void
on_signal(int sig)
{
	remove_unfinished();
	report_write_brief("signal", sig);
	/* SA_RESETHAND: the second signal kills, and the shell sees the true cause. */
	raise(sig);
}

/* status 0: SIGBUS will kill the process */
static void
on_bus_error(int status)
{
	remove_unfinished();
	report_write_brief(status != 0 ? "status" : "signal", status != 0 ? status : SIGBUS);
}

/* Returns whether the reader of standard output has gone. */
static int
reader_has_gone(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

static void
catch_signals(void)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND }, old;
	size_t i;

	sigemptyset(&act.sa_mask);
	for (i = 0; i < sizeof deadly / sizeof *deadly; i++)
		/* signals that the parent ignores (nohup, a background job) stay ignored */
		if (sigaction(deadly[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(deadly[i], &act, NULL);
	bus_error_catch(the_tool->name, on_bus_error);
	atexit(remove_unfinished);
	/* a closed pipe becomes a write error, which stdout_failed() recognises; so does a file
	 * size limit */
	pipe_is_ignored = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
	signal(SIGXFSZ, SIG_IGN);
}

void
hold_signals(int hold)
{
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof deadly / sizeof *deadly; i++)
		sigaddset(&set, deadly[i]);
	sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

void
unfinished(const char *path)
{
	char *old = temporary;

	temporary = path != NULL ? strdup(path) : NULL;
	free(old);
	if (path != NULL && temporary == NULL) {
		unlink(path);
		die(EXIT_RUN, "out of memory");
	}
}

/* ---- start ---- */

/* If a standard descriptor is closed at the start, the next opened file would get its number,
 * and messages or data would be written into it. Opens something there that fails when it is
 * used. */
static void
occupy_standard_descriptors(void)
{
	int fd;

	for (fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
			(void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* glibc's malloc() reserves 64 MiB of addresses for each thread. If addresses are limited, all
 * threads share one area. */
static void
spare_addresses(void)
{
#ifdef M_ARENA_MAX
	struct rlimit space;

	if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
		mallopt(M_ARENA_MAX, 1);
#endif
}

/* Appends the words of a variable, each as if given as the option's value. */
static void
append_words(struct strings *to, const char *text)
{
	char *words = text != NULL ? strdup(text) : NULL, *word, *rest = words;

	if (text != NULL && words == NULL)
		die(EXIT_RUN, "out of memory");
	while ((word = strsep(&rest, " \t\n")) != NULL)
		if (*word != '\0')
			option_append(to, word);
}

const char *
model_of_environment(void)
{
	const char *folder = getenv("KV_MODEL");

	return folder != NULL && *folder != '\0' ? folder : NULL;
}

const char *
cache_file(const char *name)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n = 0;

	if (cache != NULL && *cache == '/')
		n = asprintf(&path, "%s/kvpipe/%s", cache, name);
	else if (home != NULL && *home == '/')
		n = asprintf(&path, "%s/.cache/kvpipe/%s", home, name);
	return n > 0 ? path : NULL;
}

/* Finds the file for fingerprints of weights: none without a home folder, or if the user
 * disables it. */
static void
find_fingerprints(void)
{
	const char *off = getenv("KV_FINGERPRINTS");

	if (off != NULL && *off != '\0' && strcmp(off, "off") != 0)
		die(EXIT_USAGE, "KV_FINGERPRINTS: '%s' is not off", off);
	if (off == NULL || *off == '\0')
		settings.fingerprints = cache_file("fingerprints");
}

static void
read_environment(const struct tool *tool)
{
	const char *text;

	if (tool->takes & TAKES_MODEL)
		settings.model = model_of_environment();
	if ((text = getenv("KV_REPORT")) != NULL && *text != '\0')
		settings.report = text;
	if (tool->takes & TAKES_THREADS) {
		if ((text = getenv("KV_THREADS")) != NULL && *text != '\0')
			settings.threads = option_count("KV_THREADS", text, 0);
		if ((text = getenv("KV_DEVICE")) != NULL && *text != '\0')
			settings.device = text;
		if ((text = getenv("KV_KERNELS")) != NULL && *text != '\0')
			settings.kernels = text;
	}
	if (tool->takes & TAKES_CONFIG) {
		if ((text = getenv("KV_PRODUCTS")) != NULL && *text != '\0')
			settings.products = text;
		append_words(&settings.allow_config, getenv("KV_ALLOW_CONFIG"));
		append_words(&settings.allow_tensor, getenv("KV_ALLOW_TENSOR"));
		find_fingerprints();
	}
	if (tool->takes & TAKES_PROGRESS)
		if ((text = getenv("KV_PROGRESS")) != NULL && *text != '\0')
			progress_mode("KV_PROGRESS", text);
}

const char *
temporary_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder != NULL && *folder != '\0' ? folder : "/tmp";
}

int
temporary_file(void)
{
	const char *folder = temporary_folder();
	char path[4096];
	int fd;

	if (snprintf(path, sizeof path, "%s/kvpipe.XXXXXX", folder) >= (int)sizeof path)
		die(EXIT_RUN, "TMPDIR is too long");
	hold_signals(1);
	if ((fd = mkostemp(path, O_CLOEXEC)) >= 0)
		unlink(path);
	hold_signals(0);
	if (fd < 0)
		die(EXIT_RUN, "a temporary file in %s:", folder);
	return fd;
}

/* The status of exit(), which C has for no handler: of our own calls, by ends_with(), else of a
 * library that has given up. */
static int last_status = EXIT_RUN;

int
ends_with(int status)
{
	last_status = status;
	return status;
}

/* Called at exit() and after main(). */
static void
report_at_exit(void)
{
	if (report_write(last_status) == 0)
		return;
	trouble("--report: %s:", settings.report);
	if (last_status == EXIT_OK) {
		fflush(NULL);
		_exit(EXIT_RUN);
	}
}

int
tool_start(const struct tool *tool, int argc, char **argv)
{
	int operands;

	the_tool = tool;
	report_start(argc, argv);
	occupy_standard_descriptors();
	catch_signals();
	spare_addresses();
	json_must_allocate();
	read_environment(tool);
	operands = options_parse(tool, argc, argv);
	if (settings.threads > THREADS_MOST)
		die(EXIT_USAGE,
		    "--threads or KV_THREADS: %u, want at most %d, or 0 for all processors",
		    settings.threads, THREADS_MOST);
	report_open();
	if ((tool->takes & (TAKES_OUTPUT | TAKES_FOLDER)) == TAKES_OUTPUT)
		output_refuse("--output", settings.output);
	if (settings.report != NULL && atexit(report_at_exit) != 0)
		die(EXIT_RUN, "out of memory");
	return operands;
}

unsigned
processors(void)
{
	cpu_set_t set;

	if (settings.threads != 0)
		return settings.threads;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

const char *
operand(int argc, char **argv, int i)
{
	return i < argc ? argv[i] : "-";
}

/* ---- messages ---- */

void
message(const char *fmt, va_list ap)
{
	int error = errno;
	size_t len = strlen(fmt);
	char *text = NULL, brief[256];
	va_list again;

	progress_clear();
	va_copy(again, ap);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		vsnprintf(brief, sizeof brief, fmt, again);
	}
	va_end(again);
	fprintf(stderr, "%s: %s", the_tool->name, shown(text != NULL ? text : brief));
	free(text);
	if (len > 0 && fmt[len - 1] == ':')
		fprintf(stderr, " %s", strerror(error));
	fputc('\n', stderr);
}

const char *(*device_failure)(void);

void
die(int status, const char *fmt, ...)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	const char *why;
	char text[1024];
	va_list ap;

	pthread_mutex_lock(&one);       /* of several threads only the first prints */
	va_start(ap, fmt);
	message(fmt, ap);
	va_end(ap);
	if (device_failure != NULL && (why = device_failure()) != NULL) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof text, fmt, ap);
		va_end(ap);
		if (strstr(text, why) == NULL)
			fprintf(stderr, "%s: the device has failed: %s\n", the_tool->name, why);
	}
	remove_unfinished();
	if (report_write(status) != 0)
		fprintf(stderr, "%s: --report: %s: %s\n", the_tool->name, shown(settings.report),
		    strerror(errno));
	/* Not exit(): its handlers would free what other threads are using. */
	fflush(stdout);
	_exit(status);
}

void
stdout_failed(const char *why)
{
	const int error = errno;

	if (!pipe_is_ignored && reader_has_gone()) {
		remove_unfinished();
		report_write_brief("signal", SIGPIPE);
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	errno = error;
	if (why != NULL)
		die(EXIT_RUN, "%s", why);
	die(EXIT_RUN, "stdout:");
}

static int
status_of(const struct engine_error *e)
{
	return e->code == ENGINE_EOPTION ? EXIT_USAGE :
	    e->code == ENGINE_EDAMAGED ? EXIT_DAMAGED : e->code == ENGINE_EMODEL ? EXIT_MODEL :
	    e->code == ENGINE_EUNSUPPORTED ? EXIT_UNSUPPORTED : EXIT_RUN;
}

void
trouble(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message(fmt, ap);
	va_end(ap);
}

int
failed(const struct engine_error *e)
{
	trouble("%s", e->text);
	return status_of(e);
}

/* For a device out of memory the message names the section that was being read. */
static void
die_of(const struct engine_error *e)
{
	const char *place = e->code == ENGINE_ENOROOM ? input_place() : "";

	if (e->code == ENGINE_EOUTPUT && strcmp(settings.output, "-") == 0)
		stdout_failed(e->text);
	die(status_of(e), "%s%s%s", place, *place != '\0' ? ": " : "", e->text);
}

void
must(int rc, const struct engine_error *e)
{
	if (rc != ENGINE_OK)
		die_of(e);
}

void
must_model(int rc, const char *err)
{
	struct engine_error e;

	if (rc != 0)
		must(engine_fail_model(&e, rc, err), &e);
}

void *
must_have(void *p, const struct engine_error *e)
{
	if (p == NULL)
		die_of(e);
	return p;
}

void
warning(const char *fmt, ...)
{
	va_list ap;

	if (settings.quiet)
		return;
	va_start(ap, fmt);
	message(fmt, ap);
	va_end(ap);
}

void
warn_notice(void *with, const char *text)
{
	(void)with;
	warning("%s", text);
}

void
trouble_notice(void *with, const char *text)
{
	(void)with;
	trouble("%s", text);
}

void
note(const char *fmt, ...)
{
	va_list ap;

	if (!settings.verbose)
		return;
	va_start(ap, fmt);
	message(fmt, ap);
	va_end(ap);
}

/* ---- memory and text files ---- */

void *
must_alloc(size_t n, size_t size)
{
	void *p = calloc(n != 0 ? n : 1, size != 0 ? size : 1);

	if (p == NULL)
		die(EXIT_RUN, "out of memory (%zu x %zu bytes)", n, size);
	return p;
}

/* ---- the end ---- */

int
finish_with(int status)
{
	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	if (fflush(stdout) != 0 || ferror(stdout) || fclose(stdout) != 0)
		stdout_failed(NULL);
	report_leave();
	return ends_with(status);
}

int
finish(void)
{
	return finish_with(EXIT_OK);
}
