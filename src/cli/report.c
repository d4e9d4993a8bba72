/* report.c - the record of --report: clocks, counts, and the line made of them
 *
 * One write() appends it, so that the programs of a pipeline can share a file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/report.h"
#include "cli/tool_internal.h"
#include "engine/op_counts.h"

enum {
	DEEP = 16,                      /* most nested phases */
	NUMBERS = 16,                   /* of the program, at most */
	DEVICES = THREADS_MOST + 1,     /* most open devices: one for each thread */
	ROOM = 8192                     /* bytes of a record after its head */
};

struct clocks {
	double wall, cpu;
};

static struct {
	int fd;                         /* -1: nothing is recorded */
	int argc;
	char **argv;
	pthread_t thread;               /* whose time it is */
	struct timespec started;        /* as the calendar has it */
	struct clocks start, since;     /* of the program; of the innermost phase */
	struct clocks phase[REPORT_PHASES];
	enum report_phase stack[DEEP];
	int depth;
	struct kv_watch watch;
	struct op_counts *work[DEVICES];
	int devices;
	struct { const char *key; uint64_t n; } number[NUMBERS];
	int numbers;
	int has_first;
	struct clocks first;            /* start to first token; cpu: of these, waited */
	struct op_counts first_work;
	int has_eviction;
	double eviction_began, eviction_seconds;
	struct op_counts eviction_before, eviction_work;
	uint64_t steps;
	double step_began, step_seconds;
	char *text;                     /* head, and room for the rest */
	size_t head, used, size;
	volatile int written;
} it = { .fd = -1 };

/* ---- clocks ---- */

static double
clock_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct clocks
clocks_now(void)
{
	return (struct clocks){ clock_of(CLOCK_MONOTONIC), clock_of(CLOCK_PROCESS_CPUTIME_ID) };
}

/* Adds the time since the last call to the innermost phase. */
static void
settle(void)
{
	const struct clocks now = clocks_now();
	const enum report_phase p = it.depth == 0 ? REPORT_COMPUTE :
	    it.stack[(it.depth < DEEP ? it.depth : DEEP) - 1];

	it.phase[p].wall += now.wall - it.since.wall;
	it.phase[p].cpu += now.cpu - it.since.cpu;
	it.since = now;
}

static int
records(void)
{
	return it.fd >= 0 && pthread_equal(pthread_self(), it.thread);
}

void
report_enter(enum report_phase phase)
{
	if (!records())
		return;
	settle();
	if (it.depth < DEEP)
		it.stack[it.depth] = phase;
	it.depth++;
}

void
report_leave(void)
{
	if (!records())
		return;
	settle();
	it.depth--;
}

static int
is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

void
report_enter_descriptor(int fd, enum report_phase phase)
{
	if (records())
		report_enter(is_file(fd) ? phase : REPORT_WAIT);
}

void
report_enter_snapshot(const char *path)
{
	struct stat st;
	const int known = strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &st) : stat(path, &st);

	report_enter(known == 0 && !S_ISREG(st.st_mode) ? REPORT_WAIT : REPORT_LOAD);
}

static void
begin(void *with, enum kv_doing doing)
{
	(void)with;
	report_enter(doing == KV_DOING_READ ? REPORT_LOAD : doing == KV_DOING_WRITE ? REPORT_WRITE :
	    REPORT_WAIT);
}

static void
end(void *with)
{
	(void)with;
	report_leave();
}

/* ---- counts ---- */

void
report_count(const char *key, uint64_t n)
{
	if (it.fd >= 0 && it.numbers < NUMBERS) {
		it.number[it.numbers].key = key;
		it.number[it.numbers++].n = n;
	}
}

void
report_bytes_in(uint64_t n)
{
	it.watch.bytes_in += n;
}

static struct op_counts
all_work(void)
{
	struct op_counts sum = { .products = 0 };
	int i;

	for (i = 0; i < it.devices; i++)
		op_counts_add(&sum, it.work[i]);
	return sum;
}

void
report_first_token(void)
{
	if (!records() || it.has_first)
		return;
	settle();
	it.has_first = 1;
	it.first.wall = it.since.wall - it.start.wall;
	it.first.cpu = it.phase[REPORT_WAIT].wall;
	it.first_work = all_work();
}

void
report_eviction_begin(void)
{
	if (!records())
		return;
	it.eviction_began = clock_of(CLOCK_MONOTONIC);
	it.eviction_before = all_work();
}

void
report_eviction_end(void)
{
	struct op_counts now, more;

	if (!records())
		return;
	now = all_work();
	more = op_counts_since(&now, &it.eviction_before);
	op_counts_add(&it.eviction_work, &more);
	it.eviction_seconds += clock_of(CLOCK_MONOTONIC) - it.eviction_began;
	it.has_eviction = 1;
}

void
report_step_begin(void)
{
	if (records())
		it.step_began = clock_of(CLOCK_MONOTONIC);
}

void
report_step_end(void)
{
	if (!records())
		return;
	it.steps++;
	it.step_seconds += clock_of(CLOCK_MONOTONIC) - it.step_began;
}

void
report_device(struct device *d)
{
	struct engine_error e;

	if (it.fd < 0 || it.devices == DEVICES)
		return;
	it.work[it.devices] = must_alloc(1, sizeof **it.work);
	must(op_counts_start(d, it.work[it.devices], &e), &e);
	it.devices++;
}

void
report_reader(struct kv_reader *r)
{
	if (it.fd >= 0 && r != NULL)
		kv_reader_watch(r, &it.watch);
}

void
report_writer(struct kv_writer *w)
{
	if (it.fd >= 0 && w != NULL)
		kv_writer_watch(w, &it.watch);
}

/* ---- the line ---- */

static void __attribute__((format(printf, 1, 2)))
add(const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(it.text + it.used, it.size - it.used, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < it.size - it.used)
		it.used += (size_t)n;
}

static void
add_seconds(void)
{
	static const char *const name[] = { "load", "compute", "write", "wait" };
	int p;

	add(",\"seconds\":{\"wall\":%.6f,\"cpu\":%.6f", it.since.wall - it.start.wall,
	    it.since.cpu);
	for (p = 0; p < REPORT_PHASES; p++)
		add(",\"%s\":{\"wall\":%.6f,\"cpu\":%.6f}", name[p], it.phase[p].wall,
		    it.phase[p].cpu);
	add("}");
}

static void
add_work(const struct op_counts *w)
{
	add("\"flops\":{\"products\":%" PRIu64 ",\"attention\":%" PRIu64 ",\"retrieval\":%" PRIu64
	    "},\"traffic\":{\"weights\":%" PRIu64 ",\"rows_read\":%" PRIu64 ",\"rows_written\":%"
	    PRIu64 ",\"indexes\":%" PRIu64 "}", w->products, w->attention, w->retrieval, w->weights,
	    w->rows_read, w->rows_written, w->indexes);
}

/* The end of an object: the work, where a device was open */
static void
add_part(const struct op_counts *work)
{
	if (it.devices > 0) {
		add(",");
		add_work(work);
	}
	add("}");
}

static void
add_first_token(void)
{
	if (!it.has_first)
		return;
	add(",\"first_token\":{\"wall\":%.6f,\"wait\":%.6f", it.first.wall, it.first.cpu);
	add_part(&it.first_work);
}

static void
add_eviction(void)
{
	if (!it.has_eviction)
		return;
	add(",\"eviction\":{\"wall\":%.6f", it.eviction_seconds);
	add_part(&it.eviction_work);
}

static void
add_numbers(void)
{
	int i;

	for (i = 0; i < it.numbers; i++)
		add(",\"%s\":%" PRIu64, it.number[i].key, it.number[i].n);
	if (it.steps > 0)
		add(",\"steps\":%" PRIu64 ",\"step_seconds\":%.6f", it.steps, it.step_seconds);
}

static void
add_rest(int status)
{
	const struct op_counts work = all_work();
	struct rusage usage;

	if (pthread_equal(pthread_self(), it.thread))
		settle();
	add(",\"status\":%d", status);
	add_seconds();
	add_numbers();
	add_first_token();
	add_eviction();
	add(",\"in\":{\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64 "},\"out\":{\"bytes\":%" PRIu64
	    ",\"rows\":%" PRIu64 "}", it.watch.bytes_in, it.watch.rows_in, it.watch.bytes_out,
	    it.watch.rows_out);
	if (it.devices > 0) {
		add(",");
		add_work(&work);
	}
	getrusage(RUSAGE_SELF, &usage);
	add(",\"peak_host\":%ld", usage.ru_maxrss * 1024);
	if (work.device_peak > 0)
		add(",\"peak_device\":%" PRIu64, work.device_peak);
	add("}\n");
}

/* Called in a signal handler: no printf, no lock. */
static void
add_brief(const char *key, int number)
{
	char *p = it.text + it.used;

	p = stpcpy(stpcpy(stpcpy(p, ",\""), key), "\":");
	if (number >= 10)
		*p++ = (char)('0' + number / 10 % 10);
	*p++ = (char)('0' + number % 10);
	*p++ = '}';
	*p++ = '\n';
	it.used = (size_t)(p - it.text);
}

/* Returns whether a record is wanted, and begins it with what is known from the start. */
static int
begin_record(void)
{
	if (it.fd < 0 || it.written)
		return 0;
	it.written = 1;
	it.used = it.head;
	return 1;
}

static int
append_record(void)
{
	ssize_t n;

	do
		n = write(it.fd, it.text, it.used);
	while (n < 0 && errno == EINTR);
	if (n >= 0 && (size_t)n < it.used)
		errno = ENOSPC;
	return n == (ssize_t)it.used ? 0 : -1;
}

int
report_write(int status)
{
	if (!begin_record())
		return 0;
	add_rest(status);
	return append_record();
}

void
report_write_brief(const char *key, int number)
{
	if (!begin_record())
		return;
	add_brief(key, number);
	(void)append_record();
}

/* ---- the start ---- */

void
report_start(int argc, char **argv)
{
	it.argc = argc;
	it.argv = argv;
	it.thread = pthread_self();
	it.start = it.since = clocks_now();
	it.since.cpu = 0;               /* the time before main() counts too */
	clock_gettime(CLOCK_REALTIME, &it.started);
	it.watch = (struct kv_watch){ .begin = begin, .end = end };
}

/* Writes {"program":...,"command":[...],"start":... */
static void
write_head(void)
{
	json_t *o = json_object(), *command = json_array();
	char *text;
	int i, n;

	put_text(o, "program", the_tool->name);
	put_text(o, "version", KVPIPE_VERSION);
	for (i = 0; i < it.argc; i++) {
		json_t *word = json_object();

		put_text(word, "word", it.argv[i]);
		json_array_append(command, json_object_get(word, "word"));
		json_decref(word);
	}
	put_value(o, "command", command);
	if ((text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII)) == NULL)
		die(EXIT_RUN, "out of memory");
	json_decref(o);
	it.size = strlen(text) + ROOM;
	it.text = must_alloc(it.size, 1);
	n = snprintf(it.text, it.size, "%.*s,\"start\":%lld.%06ld", (int)strlen(text) - 1, text,
	    (long long)it.started.tv_sec, it.started.tv_nsec / 1000);
	it.head = it.used = (size_t)n;
	free(text);
}

/* Refuses an output with the report's name: a snapshot replaces the file, and the record would
 * be lost with the old one. */
static void
refuse_output(int fd, const char *output)
{
	struct stat a, b;

	if (strcmp(output, "-") == 0 || fstat(fd, &a) != 0 || stat(output, &b) != 0 ||
	    !S_ISREG(a.st_mode))
		return;
	if (a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		die(EXIT_USAGE, "--report and --output name the same file, %s", settings.report);
}

void
report_refuse(const char *output)
{
	if (it.fd >= 0)
		refuse_output(it.fd, output);
}

void
report_open(void)
{
	const char *path = settings.report;
	int fd;

	if (path == NULL)
		return;
	if (strcmp(path, "-") == 0)
		die(EXIT_USAGE,
		    "--report -: standard output is for data: name a file, as /dev/stderr");
	if (strcmp(path, settings.output) == 0)
		die(EXIT_USAGE, "--report and --output name the same file, %s", path);
	if ((fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) < 0)
		die(EXIT_RUN, "--report: %s:", path);
	refuse_output(fd, settings.output);
	write_head();
	it.fd = fd;
	settle();
	it.phase[REPORT_LOAD] = it.phase[REPORT_COMPUTE];       /* of starting */
	it.phase[REPORT_COMPUTE] = (struct clocks){ 0, 0 };
}
