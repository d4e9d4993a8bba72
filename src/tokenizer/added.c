/* added.c - finds added tokens in text
 *
 * The tokens are sorted by their bytes. At each place of the text that starts like one of them,
 * the range of candidates is narrowed byte by byte; the last complete one on the way is the
 * longest. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/added.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

int
added_add(struct added *a, char *text, size_t len, uint32_t id, unsigned flags)
{
	struct added_token *p;

	p = realloc(a->token, (a->n + 1) * sizeof(*p));
	if (p == NULL) {
		free(text);
		return TOKENIZER_ENOMEM;
	}
	a->token = p;
	p += a->n;
	p->order = a->n++;
	p->text = text;
	p->len = len;
	p->id = id;
	p->flags = flags;
	return 0;
}

static int
compare(const struct added_token *a, const struct added_token *b)
{
	int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);

	return c != 0 ? c : (a->len > b->len) - (a->len < b->len);
}

static int
by_text(const void *va, const void *vb)
{
	const struct added_token *a = va, *b = vb;
	int c = compare(a, b);

	return c != 0 ? c : (a->order > b->order) - (a->order < b->order);
}

void
added_ready(struct added *a)
{
	size_t i, kept = 0;

	if (a->n > 1)
		qsort(a->token, a->n, sizeof(*a->token), by_text);
	for (i = 0; i < a->n; i++) {
		a->first[(unsigned char)a->token[i].text[0]] = 1;
		if (kept > 0 && compare(&a->token[kept - 1], &a->token[i]) == 0)
			free(a->token[i].text);
		else
			a->token[kept++] = a->token[i];
	}
	a->n = kept;
}

void
added_free(struct added *a)
{
	size_t i;

	for (i = 0; i < a->n; i++)
		free(a->token[i].text);
	free(a->token);
	memset(a, 0, sizeof(*a));
}

/* Returns the first token in [low, high) whose byte at depth is `byte` or greater. All of them
 * agree before depth; one that ends there comes first. */
static size_t
lower_bound(const struct added *a, size_t low, size_t high, size_t depth, unsigned byte)
{
	const struct added_token *t;
	size_t middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		t = &a->token[middle];
		if (t->len <= depth || (unsigned char)t->text[depth] < byte)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the longest token that text[len] starts with, or NULL. */
static const struct added_token *
longest(const struct added *a, const char *text, size_t len)
{
	const struct added_token *found = NULL;
	size_t low = 0, high = a->n, depth;
	unsigned byte;

	for (depth = 0; depth < len && low < high; depth++) {
		byte = (unsigned char)text[depth];
		low = lower_bound(a, low, high, depth, byte);
		high = lower_bound(a, low, high, depth, byte + 1);
		if (low < high && a->token[low].len == depth + 1)
			found = &a->token[low];
	}
	return found;
}

static int
stands_alone(const char *text, size_t len, size_t start, size_t end)
{
	unsigned used;

	return (start == 0 || !unicode_is_word(utf8_get_before(text, start, &used))) &&
	    (end == len || !unicode_is_word(utf8_get(text + end, &used)));
}

/* Extends the hit over adjacent white space, on the left no further than `done`. */
static void
swallow(const char *text, size_t len, size_t done, unsigned flags, struct added_hit *hit)
{
	unsigned used;

	if (flags & TOKEN_LSTRIP) {
		while (hit->start > done && unicode_is_space(utf8_get_before(text, hit->start,
		    &used)))
			hit->start -= used;
		if (hit->start < done)
			hit->start = done;
	}
	/* the white space between here and the end of the previous hit belongs to that one */
	if ((flags & TOKEN_RSTRIP) && hit->end < done)
		hit->end = done;
	if (flags & TOKEN_RSTRIP)
		while (hit->end < len && unicode_is_space(utf8_get(text + hit->end, &used)))
			hit->end += used;
}

static int
is_blank(const struct added_token *t)
{
	unsigned used;
	size_t i;

	for (i = 0; i < t->len; i += used)
		if (!unicode_is_space(utf8_get(t->text + i, &used)))
			return 0;
	return 1;
}

/* As longest(), but with no byte of contents. */
static const struct added_token *
longest_markup(const struct added *a, const char *text, const unsigned char *mark, size_t len)
{
	const struct added_token *t = longest(a, text, len);
	size_t n;

	if (t == NULL || mark == NULL)
		return t;
	for (n = 0; n < t->len && mark[n] == 0; n++)
		;
	return n == t->len || is_blank(t) ? t : longest(a, text, n);
}

int
added_next(const struct added *a, const char *text, const unsigned char *mark, size_t len,
    size_t done, unsigned skip, struct added_hit *hit)
{
	const struct added_token *t;
	size_t i;

	if (a->n == 0)
		return 0;
	for (i = hit->resume; i < len; i++) {
		if (!a->first[(unsigned char)text[i]])
			continue;
		t = longest_markup(a, text + i, mark != NULL ? mark + i : NULL, len - i);
		if (t == NULL)
			continue;
		hit->start = i;
		hit->end = hit->resume = i + t->len;
		hit->id = t->id;
		if ((t->flags & skip) == 0 &&
		    (!(t->flags & TOKEN_SINGLE_WORD) ||
			stands_alone(text, len, hit->start, hit->end))) {
			swallow(text, len, done, t->flags, hit);
			return 1;
		}
		i = hit->end - 1;       /* ignored, but its text is not searched again */
	}
	hit->resume = len;
	return 0;
}
