/* score_file.c - reads scores of a snapshot's rows that another program has written */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/score_file.h"
#include "cli/text_input.h"
#include "cli/tool.h"

#define AT_ONCE 1024            /* numbers of a .npy file read at a time */

/* Returns why a number is not a score, or NULL. +inf is one: such a row is always kept
 * (kv-snapshot(5), 4.6). */
static const char *
no_score(double v)
{
	if (isnan(v))
		return "is not a number";
	if (v == -INFINITY)
		return "is -inf";
	return v != INFINITY && fabs(v) > FLT_MAX ? "is too great for an f32" : NULL;
}

/* ---- .npy: [L][G][S] ---- */

static void
check_shape(const struct score_file *x)
{
	const uint64_t *axis = x->npy.axis;

	if (x->npy.axes != 3)
		die(EXIT_DAMAGED, "%s: an array of %u axes: want 3, layers, KV heads and rows",
		    x->name, x->npy.axes);
	if (axis[0] != x->model.layers || axis[1] != x->model.kv_heads)
		die(EXIT_DAMAGED, "%s: scores of %" PRIu64 " layers of %" PRIu64 " KV heads, and "
		    "the snapshot has %u of %u", x->name, axis[0], axis[1], x->model.layers,
		    x->model.kv_heads);
}

/* Reads the n scores of a KV head; the axis after them must be NaN. */
static void
take_head(struct score_file *x, uint32_t layer, uint32_t g, uint32_t n, float *score)
{
	const uint64_t all = x->npy.axis[2];
	double value[AT_ONCE];
	uint64_t at, some, i;
	const char *why;

	if (n > all)
		die(EXIT_DAMAGED, "%s: layer %u KV head %u has %u rows, and the array has room for "
		    "%"
		    PRIu64, x->name, layer, g, n, all);
	for (at = 0; at < all; at += some) {
		some = all - at < AT_ONCE ? all - at : AT_ONCE;
		npy_take(&x->npy, value, (size_t)some);
		for (i = 0; i < some; i++) {
			if (at + i >= n && !isnan(value[i]))
				die(EXIT_DAMAGED, "%s: [%u, %u, %" PRIu64 "]: a score, but the KV "
				    "head has %u rows: want NaN behind "
				    "them", x->name, layer, g, at + i, n);
			if (at + i >= n)
				continue;
			if ((why = no_score(value[i])) != NULL)
				die(EXIT_DAMAGED, "%s: [%u, %u, %" PRIu64 "] %s", x->name, layer, g,
				    at + i, why);
			score[at + i] = (float)value[i];
		}
	}
}

/* ---- text ---- */

/* x->line <- the next line, without its end; for a comment its beginning. 0: end of file. */
static int
read_line(struct score_file *x)
{
	size_t n = 0;
	int c;

	x->number++;
	while ((c = getc(x->file)) != EOF && c != '\n') {
		if (n + 1 < sizeof x->line)
			x->line[n++] = (char)c;
		else if (x->line[0] != '#')
			die(EXIT_DAMAGED, "%s: line %zu: not a line of text with four fields",
			    x->name, x->number);
		if (c == '\0')
			die(EXIT_DAMAGED, "%s: line %zu: a NUL byte, which no text has", x->name,
			    x->number);
	}
	x->line[n] = '\0';
	if (ferror(x->file))
		die(EXIT_RUN, "%s:", x->name);
	if (x->number == 1 && strncmp(x->line, TEXT_MARK, strlen(TEXT_MARK)) == 0)
		memmove(x->line, x->line + strlen(TEXT_MARK), n + 1 - strlen(TEXT_MARK));
	return n > 0 || c == '\n';
}

/* x->line <- the next line that is not blank or a comment. 0: end of file. */
static int
next_line(struct score_file *x)
{
	while (read_line(x))
		if (x->line[0] != '#' && x->line[strspn(x->line, " \t\r")] != '\0')
			return 1;
	return 0;
}

/* Returns the next field of the line, a count below limit. */
static uint32_t
field(const struct score_file *x, char **rest, const char *what, uint64_t limit)
{
	char *word = strsep(rest, " \t"), *end;
	uint64_t v;

	while (word != NULL && *word == '\0')
		word = strsep(rest, " \t");
	if (word == NULL)
		die(EXIT_DAMAGED, "%s: line %zu: want layer, KV head, position and score", x->name,
		    x->number);
	errno = 0;
	v = strtoull(word, &end, 10);
	if (*word < '0' || *word > '9' || *end != '\0')
		die(EXIT_DAMAGED, "%s: line %zu: %s '%.40s' is not a number", x->name, x->number,
		    what, word);
	if (errno != 0 || v >= limit)
		die(EXIT_DAMAGED, "%s: line %zu: %s %.40s: the snapshot has %" PRIu64, x->name,
		    x->number, what, word, limit);
	return (uint32_t)v;
}

/* Returns the score, which must end the line. */
static float
last_field(const struct score_file *x, const char *rest)
{
	const char *word = rest != NULL ? rest + strspn(rest, " \t") : "", *why;
	const int n = (int)strcspn(word, " \t\r\n");
	char *end;
	double v;

	errno = 0;
	v = strtod(word, &end);
	if (end == word || end[strspn(end, " \t\r\n")] != '\0')
		die(EXIT_DAMAGED, "%s: line %zu: want layer, KV head, position and score", x->name,
		    x->number);
	why = errno == ERANGE && isinf(v) ? "is too great for an f32" : no_score(v);
	if (why != NULL)
		die(EXIT_DAMAGED, "%s: line %zu: score %.*s %s", x->name, x->number, n, word, why);
	return (float)v;
}

/* Parses the next line. 0: end of file. */
static int
next_row(struct score_file *x)
{
	char *rest = x->line;

	if (!next_line(x))
		return 0;
	rest += strspn(rest, " \t");
	x->layer = field(x, &rest, "layer", x->model.layers);
	x->head = field(x, &rest, "KV head", x->model.kv_heads);
	x->position = field(x, &rest, "position", UINT64_C(1) << 32);
	x->score = last_field(x, rest);
	return 1;
}

/* Stores the score of the line. NaN there: not set yet. */
static void
put_score(const struct score_file *x, const struct kv_rows *rows, float *score)
{
	const uint32_t *pos = rows->pos[x->head];
	uint32_t low = 0, high = rows->count[x->head], middle, g;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (pos[middle] < x->position)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == rows->count[x->head] || pos[low] != x->position)
		die(EXIT_DAMAGED, "%s: line %zu: layer %u KV head %u has no row at position %u",
		    x->name, x->number, x->layer, x->head, x->position);
	for (g = 0; g < x->head; g++)
		score += rows->count[g];
	if (!isnan(score[low]))
		die(EXIT_DAMAGED,
		    "%s: line %zu: layer %u KV head %u position %u has a score already", x->name,
		    x->number, x->layer, x->head, x->position);
	score[low] = x->score;
}

static void
check_all_there(const struct score_file *x, uint32_t layer, const struct kv_rows *rows,
    const float *score)
{
	uint32_t g, i;

	for (g = 0; g < rows->heads; score += rows->count[g++])
		for (i = 0; i < rows->count[g]; i++)
			if (isnan(score[i]))
				die(EXIT_DAMAGED,
				    "%s: no score for layer %u KV head %u position %u", x->name,
				    layer, g, rows->pos[g][i]);
}

static void
take_lines(struct score_file *x, uint32_t layer, const struct kv_rows *rows, float *score)
{
	const uint64_t total = kv_rows_total(rows);
	uint64_t i;

	for (i = 0; i < total; i++)
		score[i] = NAN;
	while (x->waiting || next_row(x)) {
		if ((x->waiting = x->layer > layer))
			break;
		if (x->layer < layer)
			die(EXIT_DAMAGED,
			    "%s: line %zu: layer %u, after lines of layer %u: they must "
			    "stand layer after layer, as sort -n puts them",
			    x->name, x->number, x->layer, layer);
		put_score(x, rows, score);
	}
	check_all_there(x, layer, rows, score);
}

/* ---- both ---- */

void
score_file_open(struct score_file *x, const char *path, const struct kv_model *model)
{
	const int standard = strcmp(path, "-") == 0;

	*x = (struct score_file){ .name = standard ? "stdin" : path, .model = *model,
	    .file = standard ? stdin : fopen(path, "rb") };
	if (x->file == NULL)
		die(EXIT_RUN, "%s:", path);
	x->is_npy = npy_begins(x->file);
	if (!x->is_npy)
		return;
	npy_start(&x->npy, x->file, x->name);
	check_shape(x);
}

void
score_file_layer(struct score_file *x, uint32_t layer, const struct kv_rows *rows, float *score)
{
	uint32_t g;

	if (!x->is_npy) {
		take_lines(x, layer, rows, score);
		return;
	}
	for (g = 0; g < rows->heads; score += rows->count[g++])
		take_head(x, layer, g, rows->count[g], score);
}

void
score_file_close(struct score_file *x)
{
	/* a waiting line would be of a layer that the snapshot has, so it was used */
	if (x->is_npy)
		npy_end(&x->npy);
	else if (next_row(x))
		die(EXIT_DAMAGED, "%s: line %zu: layer %u, after lines of layer %u", x->name,
		    x->number, x->layer, x->model.layers - 1);
	if (x->file != stdin)
		fclose(x->file);
}
