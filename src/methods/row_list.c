/* row_list.c - parses a list of the rows of each KV head to keep, chosen by another program
 *
 * A line has a layer, a KV head and the positions of the rows that stay, ascending, separated
 * by blanks, as kv-info --positions prints them. A line without positions leaves the head
 * empty. Each KV head of each layer has one line, in any order; # begins a comment, empty lines
 * are ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"

enum { WORD_SHOWN = 40 };        /* bytes of an invalid word in a message */

struct row_list_line {
	uint32_t layer, head;
	size_t first;           /* index of its first position in row_list.pos */
	size_t n;
	size_t number;          /* number of the line in the text, from 1 */
};

/* The state of parsing, one pass over the text. */
struct parser {
	const char *p, *end;    /* rest of the line */
	size_t number;
	size_t lines, positions;        /* allocated */
	char *why;
	size_t size;
};

/* ---- reading ---- */

/* Goes to the next word of the line. 0: there is none. */
static int
next_word(struct parser *in)
{
	while (in->p < in->end && (*in->p == ' ' || *in->p == '\t' || *in->p == '\r'))
		in->p++;
	return in->p < in->end && *in->p != '#';
}

/* *n <- the word, a decimal number. Returns EVICT_OK or EVICT_EINPUT. */
static int
take_number(struct parser *in, uint32_t *n)
{
	const char *word = in->p;
	uint64_t v = 0;

	for (; in->p < in->end && *in->p >= '0' && *in->p <= '9' && v <= UINT32_MAX; in->p++)
		v = 10 * v + (uint64_t)(*in->p - '0');
	*n = (uint32_t)v;
	if (v <= UINT32_MAX && in->p > word &&
	    (in->p == in->end || strchr(" \t\r#", *in->p) != NULL))
		return EVICT_OK;
	while (in->p < in->end && in->p < word + WORD_SHOWN && strchr(" \t\r#", *in->p) == NULL)
		in->p++;
	snprintf(in->why, in->size, "line %zu: '%.*s' is no number of a layer, KV head or position",
	    in->number, (int)(in->p - word), word);
	return EVICT_EINPUT;
}

/* Makes room for one more of n members. */
static int
grow(void *array, size_t n, size_t *room, size_t size)
{
	void **at = array, *more;

	if (n < *room)
		return EVICT_OK;
	*room = *room == 0 ? 1024 : 2 * *room;
	if ((more = reallocarray(*at, *room, size)) == NULL)
		return EVICT_ENOMEM;
	*at = more;
	return EVICT_OK;
}

static int
take_positions(struct row_list *out, struct parser *in, struct row_list_line *line)
{
	uint32_t position;
	int code;

	for (line->first = out->positions; next_word(in); line->n++) {
		if ((code = take_number(in, &position)) != EVICT_OK ||
		    (code = grow(&out->pos, out->positions, &in->positions, sizeof *out->pos)) !=
		    EVICT_OK)
			return code;
		if (line->n > 0 && position <= out->pos[out->positions - 1]) {
			snprintf(in->why, in->size, "line %zu: position %u after position %u: they "
			    "must ascend", in->number, position, out->pos[out->positions - 1]);
			return EVICT_EINPUT;
		}
		out->pos[out->positions++] = position;
	}
	return EVICT_OK;
}

/* Parses a line that has a word. */
static int
take_line(struct row_list *out, struct parser *in)
{
	struct row_list_line line = { .number = in->number };
	int code = take_number(in, &line.layer);

	if (code == EVICT_OK && !next_word(in)) {
		snprintf(in->why, in->size, "line %zu: a layer, and no KV head", in->number);
		code = EVICT_EINPUT;
	}
	if (code == EVICT_OK)
		code = take_number(in, &line.head);
	if (code == EVICT_OK)
		code = take_positions(out, in, &line);
	if (code == EVICT_OK)
		code = grow(&out->line, out->lines, &in->lines, sizeof *out->line);
	if (code == EVICT_OK)
		out->line[out->lines++] = line;
	return code;
}

static int
by_head(const void *a, const void *b)
{
	const struct row_list_line *x = a, *y = b;

	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->head != y->head)
		return x->head < y->head ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

/* Sorts the lines, and checks them together. */
static int
order_lines(struct row_list *out, char *why, size_t size)
{
	const struct row_list_line *a, *b;
	size_t i;

	if (out->positions == 0) {
		snprintf(why, size, "no row is listed");
		return EVICT_EINPUT;
	}
	qsort(out->line, out->lines, sizeof *out->line, by_head);
	for (i = 1; i < out->lines; i++) {
		a = &out->line[i - 1];
		b = &out->line[i];
		if (a->layer == b->layer && a->head == b->head) {
			snprintf(why, size, "line %zu: layer %u KV head %u is on line %zu already",
			    b->number, b->layer, b->head, a->number);
			return EVICT_EINPUT;
		}
	}
	return EVICT_OK;
}

int
row_list_parse(struct row_list *out, const char *text, size_t len, char *why, size_t size)
{
	struct parser in = { .why = why, .size = size };
	const char *p = text, *end;
	int code = EVICT_OK;

	memset(out, 0, sizeof *out);
	for (; code == EVICT_OK && p < text + len; p = end + 1) {
		if ((end = memchr(p, '\n', (size_t)(text + len - p))) == NULL)
			end = text + len;
		in.p = p;
		in.end = end;
		in.number++;
		if (next_word(&in))
			code = take_line(out, &in);
	}
	if (code == EVICT_OK)
		code = order_lines(out, why, size);
	if (code != EVICT_OK)
		row_list_free(out);
	return code;
}

void
row_list_free(struct row_list *list)
{
	free(list->line);
	free(list->pos);
	memset(list, 0, sizeof *list);
}

/* ---- choosing ---- */

/* Returns the line of a KV head, or NULL with why. */
static const struct row_list_line *
line_of(const struct row_list *list, uint32_t layer, uint32_t head, char *why, size_t size)
{
	const struct row_list_line want = { .layer = layer, .head = head }, *at;
	size_t low = 0, high = list->lines, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		at = &list->line[middle];
		if (at->layer == want.layer && at->head == want.head)
			return at;
		if (by_head(at, &want) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	snprintf(why, size, "there is no line for layer %u KV head %u", layer, head);
	return NULL;
}

/* Refuses lines for layers or KV heads that the cache does not have. */
static int
check_shape(const struct row_list *list, const struct evict_input *in, char *why, size_t size)
{
	const uint32_t heads = in->rows->heads;
	const struct row_list_line *x;

	for (x = list->line; x < list->line + list->lines; x++) {
		if (x->layer >= in->layers)
			snprintf(why, size, "line %zu: layer %u of a model of %u layers", x->number,
			    x->layer, in->layers);
		else if (x->head >= heads)
			snprintf(why, size, "line %zu: KV head %u of a model of %u KV heads",
			    x->number, x->head, heads);
		else
			continue;
		return EVICT_EINPUT;
	}
	return EVICT_OK;
}

/* *keep <- the row numbers of the line's positions among pos[n]; both ascend. */
static int
find_rows(uint32_t **keep, const struct row_list *list, const struct row_list_line *line,
    const uint32_t *pos, uint32_t n, char *why, size_t size)
{
	const uint32_t *want = list->pos + line->first;
	uint32_t row = 0;
	size_t i;

	if ((*keep = malloc(line->n * sizeof **keep + 1)) == NULL)
		return EVICT_ENOMEM;
	for (i = 0; i < line->n; i++) {
		while (row < n && pos[row] < want[i])
			row++;
		if (row == n || pos[row] != want[i]) {
			snprintf(why, size, "line %zu: layer %u KV head %u has no row at position "
			    "%u", line->number, line->layer, line->head, want[i]);
			return EVICT_EINPUT;
		}
		(*keep)[i] = row;
	}
	return EVICT_OK;
}

int
row_list_choose(const struct row_list *list, const struct evict_input *in, struct kept *out,
    char *why, size_t size)
{
	const struct kv_rows *rows = in->rows;
	const struct row_list_line *line;
	int code = check_shape(list, in, why, size);
	uint32_t g;

	memset(out, 0, sizeof *out);
	if (code != EVICT_OK)
		return code;
	out->count = calloc(rows->heads, sizeof *out->count);
	out->keep = calloc(rows->heads, sizeof *out->keep);
	out->heads = rows->heads;
	if (out->count == NULL || out->keep == NULL)
		code = EVICT_ENOMEM;
	for (g = 0; code == EVICT_OK && g < rows->heads; g++) {
		if ((line = line_of(list, in->layer, g, why, size)) == NULL) {
			code = EVICT_EINPUT;
			break;
		}
		out->count[g] = (uint32_t)line->n;
		code = find_rows(&out->keep[g], list, line, rows->pos[g], rows->count[g], why,
		    size);
	}
	if (code != EVICT_OK)
		kept_free(out);
	return code;
}
