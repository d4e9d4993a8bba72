/* jinja_text.c - texts in filters and methods: strip, replace, split, case, as Python's str */
#include <string.h>

#include "chat/jinja_run.h"

/* Returns the code point at p, well-formed UTF-8, and its length. */
static uint32_t
get_code_point(const char *at, size_t *used)
{
	const unsigned char *p = (const unsigned char *)at;

	*used = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	switch (*used) {
	case 1:
		return p[0];
	case 2:
		return (p[0] & 31u) << 6 | (p[1] & 63u);
	case 3:
		return (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
	default:
		return (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
	}
}

/* Python's str.isspace() */
static int
is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
	    c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
	    c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Returns whether the character c[n] is stripped: white space, or in a text. */
static int
is_stripped(struct run *r, const char *c, size_t n, const struct text *of)
{
	size_t used, i;

	if (of == NULL)
		return is_space(get_code_point(c, &used));
	for (i = 0; i < of->n; i += used) {
		get_code_point(of->at + i, &used);
		if (used == n && memcmp(of->at + i, c, n) == 0)
			break;
	}
	run_charge(r, 1, i);
	return i < of->n;
}

struct value
text_strip(struct run *r, const struct text *t, const struct text *of, int sides)
{
	size_t from = 0, to = t->n, used, last;

	while ((sides & STRIP_LEFT) && from < to) {
		get_code_point(t->at + from, &used);
		if (!is_stripped(r, t->at + from, used, of))
			break;
		from += used;
	}
	while ((sides & STRIP_RIGHT) && to > from) {
		for (last = to - 1; last > from && ((unsigned char)t->at[last] & 0xc0) == 0x80;
		    last--)
			;
		if (!is_stripped(r, t->at + last, to - last, of))
			break;
		to = last;
	}
	run_charge(r, 0, t->n - (to - from));
	return text_part(r, t, from, to);
}

const char *
text_find(struct run *r, const struct text *t, const struct text *part)
{
	const char *p = memmem(t->at, t->n, part->at, part->n);

	run_charge(r, 1, (p != NULL ? (size_t)(p - t->at) : t->n) + part->n);
	return p;
}

struct value
text_replace(struct run *r, const struct text *t, const struct text *from, const struct text *to,
    int64_t most)
{
	struct sink s = { .n = 0 };
	struct text part = *t;
	const char *p;

	if (from->n == 0)
		run_fail(r, CHAT_EUNSUPPORTED, "replacing an empty text is not supported");
	while (most-- != 0 && (p = text_find(r, &part, from)) != NULL) {
		const size_t n = (size_t)(p - part.at), skip = n + from->n;

		sink_put(r, &s, &(struct text){ part.at, part.mark, n });
		sink_put(r, &s, to);
		part.at += skip;
		part.mark = part.mark != NULL ? part.mark + skip : NULL;
		part.n -= skip;
	}
	sink_put(r, &s, &part);
	return sink_value(r, &s);
}

struct value
text_split(struct run *r, const struct text *t, const struct text *at, int64_t most)
{
	struct value all = value_list(r);
	struct text left = *t;
	const char *p;

	if (at->n == 0)
		run_fail(r, CHAT_EINVALID, "split() at an empty text");
	while (most-- != 0 && (p = text_find(r, &left, at)) != NULL) {
		const size_t n = (size_t)(p - left.at);

		list_push(r, all.u.list, text_part(r, &left, 0, n));
		left = *text_part(r, &left, n + at->n, left.n).u.text;
	}
	list_push(r, all.u.list, text_part(r, &left, 0, left.n));
	return all;
}

struct value
text_words(struct run *r, const struct text *t)
{
	struct value all = value_list(r);
	size_t from = 0, i, used;

	run_charge(r, 0, t->n);
	for (i = 0; i < t->n; i += used) {
		if (!is_space(get_code_point(t->at + i, &used)))
			continue;
		if (i > from)
			list_push(r, all.u.list, text_part(r, t, from, i));
		from = i + used;
	}
	if (i > from)
		list_push(r, all.u.list, text_part(r, t, from, i));
	return all;
}

static int
is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct value
text_case(struct run *r, const struct text *t, enum text_case how)
{
	char *p = run_alloc(r, t->n + 1);
	int upper, inside = 0;
	size_t i;

	for (i = 0; i < t->n; i++) {
		if ((unsigned char)t->at[i] >= 0x80)
			run_fail(r, CHAT_EUNSUPPORTED,
			    "upper and lower case beyond ASCII is not supported");
		upper = how == CASE_UPPER || (how == CASE_TITLE && !inside) ||
		    (how == CASE_CAPITALIZE && i == 0);
		inside = is_letter(t->at[i]);
		p[i] = t->at[i];
		if (inside)
			p[i] = (char)(upper ? p[i] & ~32 : p[i] | 32);
	}
	return value_text(r, p, t->mark, t->n);
}
