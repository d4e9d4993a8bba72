/* progress.c - the progress line on standard error: what, done, total, speed, time left */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/terminal_escape.h"
#include "cli/tool_internal.h"

static struct {
	int mode;
	const char *what, *unit;
	uint64_t total;
	double started, shown;          /* seconds; shown 0 = no line on the screen */
} line;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void
progress_mode(const char *where, const char *text)
{
	static const char *const names[] = { "auto", "always", "never" };
	int i;

	for (i = 0; i < 3; i++)
		if (strcmp(text, names[i]) == 0) {
			line.mode = i;
			return;
		}
	die(EXIT_USAGE, "%s: '%s' is not auto, always or never", where, text);
}

static int
wanted(void)
{
	if (line.what == NULL || line.mode == PROGRESS_NEVER || settings.quiet)
		return 0;
	return line.mode == PROGRESS_ALWAYS || isatty(STDERR_FILENO);
}

void
progress_start(const char *what, uint64_t total, const char *unit)
{
	line.what = what;
	line.total = total;
	line.unit = unit;
	line.started = now();
	line.shown = 0;
}

static void
print_amounts(uint64_t done)
{
	if (strcmp(line.unit, "B") == 0)
		fprintf(stderr, "%.1f/%.1f MiB", (double)done / 0x1p20,
		    (double)line.total / 0x1p20);
	else
		fprintf(stderr, "%" PRIu64 "/%" PRIu64 " %s", done, line.total, line.unit);
}

static void
print_line(uint64_t done, double t)
{
	int bytes = strcmp(line.unit, "B") == 0;
	double elapsed = t - line.started, rate = elapsed > 0 ? (double)done / elapsed : 0;
	unsigned left;

	fprintf(stderr, "%s%s: %s ", isatty(STDERR_FILENO) ? "\r" : "", the_tool->name,
	    shown(line.what));
	print_amounts(done);
	if (done > 0 && done <= line.total && rate > 0) {
		left = (unsigned)((double)(line.total - done) / rate + 0.5);
		fprintf(stderr, ", %.4g %s/s, %u:%02u left", bytes ? rate / 0x1p20 : rate,
		    bytes ? "MiB" : line.unit, left / 60, left % 60);
	}
	fputs(isatty(STDERR_FILENO) ? "\033[K" : "\n", stderr);
	fflush(stderr);
	line.shown = t;
}

/* Shows the line after the first second, ten times a second; with "always" from the start to
 * the end. */
void
progress(uint64_t done)
{
	double t;

	if (!wanted())
		return;
	t = now();
	if (line.mode == PROGRESS_ALWAYS ? t - line.shown >= 0.1 || done >= line.total
	    : t - line.started >= 1 && t - line.shown >= 0.1)
		print_line(done, t);
}

void
progress_step(void *with, uint64_t done)
{
	(void)with;
	progress(done);
}

void
progress_clear(void)
{
	if (line.shown != 0 && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	line.shown = 0;
}

void
progress_end(void)
{
	progress_clear();
	line.what = NULL;
}
