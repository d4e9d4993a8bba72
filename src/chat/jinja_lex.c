/* jinja_lex.c - cuts a template into text and tokens
 *
 * White space around tags follows trim_blocks and lstrip_blocks: the newline after {% %} or {#
 * #} is not printed, nor are blanks between the beginning of a line and such a tag; a - on its
 * side removes all white space, a + none. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_run.h"

struct lexer {
	struct run *run;
	const char *at, *end;
	struct token *tokens;
	size_t n, cap;
};

static struct token *
push(struct lexer *l, enum token_kind kind)
{
	struct token *t;

	if (l->n == l->cap) {
		l->cap = 2 * l->cap + 64;
		t = run_alloc(l->run, l->cap * sizeof(*t));
		if (l->n > 0)
			memcpy(t, l->tokens, l->n * sizeof(*t));
		l->tokens = t;
	}
	t = &l->tokens[l->n++];
	memset(t, 0, sizeof(*t));
	t->kind = kind;
	t->line = l->run->line;
	return t;
}

static void
push_text(struct lexer *l, const char *text, size_t n)
{
	struct token *t;

	if (n == 0)
		return;
	t = push(l, T_TEXT);
	t->at = text;
	t->n = n;
}

static const char *
copy_text(struct lexer *l, const char *s, size_t n)
{
	char *p = run_alloc(l->run, n + 1);

	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

static int
starts(const struct lexer *l, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(l->end - l->at) >= n && memcmp(l->at, with, n) == 0;
}

static void
count_lines(struct lexer *l, const char *from, const char *to)
{
	for (; from < to; from++)
		l->run->line += *from == '\n';
}

/* ---- inside a tag ---- */

/* Returns the character that \c stands for in a string; -1: the backslash stays. */
static int
escaped(char c)
{
	static const char from[] = "ntrbfva0\\'\"", to[] = "\n\t\r\b\f\v\a\0\\'\"";
	const char *p = c != '\0' ? strchr(from, c) : NULL;

	return p == NULL ? -1 : (unsigned char)to[p - from];
}

/* Writes n hexadecimal digits at p as UTF-8. */
static size_t
code_point(struct lexer *l, const char *p, unsigned digits, char *out)
{
	uint32_t c = 0;
	unsigned i;

	for (i = 0; i < digits; i++) {
		if (p + i >= l->end || !isxdigit((unsigned char)p[i]))
			run_fail(l->run, CHAT_EINVALID, "a string has a broken escape");
		c = c * 16 + (uint32_t)(isdigit((unsigned char)p[i]) ? p[i] - '0' :
		    tolower((unsigned char)p[i]) - 'a' + 10);
	}
	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		run_fail(l->run, CHAT_EINVALID, "a string has an escape that is no character");
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

static void
lex_string(struct lexer *l)
{
	const char quote = *l->at, *p;
	unsigned digits;
	struct token *t;
	char *out;
	size_t n = 0;
	int c;

	for (p = l->at + 1; p < l->end && *p != quote; p++)
		p += *p == '\\' && p + 1 < l->end;
	if (p >= l->end)
		run_fail(l->run, CHAT_EINVALID, "a string does not end");
	out = run_alloc(l->run, (size_t)(p - l->at) + 1);
	t = push(l, T_STRING);
	for (p = l->at + 1; *p != quote; p++) {
		if (*p != '\\') {
			out[n++] = *p;
			continue;
		}
		p++;
		digits = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
		if (digits > 0) {
			n += code_point(l, p + 1, digits, out + n);
			p += digits;
		} else if (*p == '\n') {
			continue;
		} else if ((c = escaped(*p)) >= 0) {
			out[n++] = (char)c;
		} else {
			out[n++] = '\\';
			out[n++] = *p;
		}
	}
	t->at = out;
	t->n = n;
	count_lines(l, l->at, p);
	l->at = p + 1;
}

static void
lex_number(struct lexer *l)
{
	char digits[64];
	size_t n = 0;
	struct token *t;
	int real = 0;

	for (; l->at < l->end && n < sizeof(digits) - 1; l->at++) {
		if (*l->at == '.' && !real && l->at + 1 < l->end &&
		    isdigit((unsigned char)l->at[1]))
			real = 1;
		else if ((*l->at == 'e' || *l->at == 'E') && real < 2 && l->at + 1 < l->end &&
		    isdigit((unsigned char)l->at[1]))
			real = 2;
		else if (*l->at == '_' && l->at + 1 < l->end && isdigit((unsigned char)l->at[1]))
			continue;
		else if (!isdigit((unsigned char)*l->at))
			break;
		digits[n++] = *l->at;
	}
	digits[n] = '\0';
	t = push(l, real ? T_REAL : T_INT);
	errno = 0;
	if (real)
		t->r = strtod(digits, NULL);
	else
		t->i = strtoll(digits, NULL, 10);
	if (errno != 0 || n == sizeof(digits) - 1)
		run_fail(l->run, CHAT_EINVALID, "%s is not a number that we have", digits);
}

static void
lex_operator(struct lexer *l)
{
	static const char *const operators[] = { "==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
		"/", "%", "~", "<", ">", "=", ".", ",", ":", "(", ")", "[", "]", "{", "}", "|" };
	struct token *t;
	size_t i;

	for (i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
		if (starts(l, operators[i])) {
			t = push(l, T_OP);
			t->at = operators[i];
			l->at += strlen(operators[i]);
			return;
		}
	run_fail(l->run, CHAT_EINVALID, "unexpected character 0x%02X in a tag",
	    (unsigned)(unsigned char)*l->at);
}

static void
lex_token(struct lexer *l)
{
	const char *from = l->at;
	struct token *t;

	if (isalpha((unsigned char)*l->at) || *l->at == '_') {
		while (l->at < l->end && (isalnum((unsigned char)*l->at) || *l->at == '_'))
			l->at++;
		t = push(l, T_NAME);
		t->n = (size_t)(l->at - from);
		if (t->n > NAME_MOST)
			run_fail(l->run, CHAT_EUNSUPPORTED, "a name of more than %d bytes",
			    NAME_MOST);
		t->at = copy_text(l, from, t->n);
	} else if (isdigit((unsigned char)*l->at)) {
		lex_number(l);
	} else if (*l->at == '"' || *l->at == '\'') {
		lex_string(l);
	} else {
		lex_operator(l);
	}
}

/* Reads from after "{%" or "{{" to the end of the tag. Returns 1 if it ends with "-", so that
 * the text after it begins with its first visible character; 2 for "+"; else 0. */
static int
lex_tag(struct lexer *l, enum token_kind ends, const char *end)
{
	unsigned depth = 0;
	int sign;

	for (;;) {
		while (l->at < l->end && isspace((unsigned char)*l->at))
			l->run->line += *l->at++ == '\n';
		if (l->at >= l->end)
			run_fail(l->run, CHAT_EINVALID, "a tag does not end with %s", end);
		sign = *l->at == '-' ? 1 : *l->at == '+' ? 2 : 0;
		if (depth == 0 && l->end - l->at >= 2 + (sign > 0) &&
		    memcmp(l->at + (sign > 0), end, 2) == 0) {
			l->at += 2 + (sign > 0);
			push(l, ends);
			return sign;
		}
		if (strchr("([{", *l->at) != NULL)
			depth++;
		if (strchr(")]}", *l->at) != NULL && depth > 0)
			depth--;
		lex_token(l);
	}
}

/* ---- between tags ---- */

static int
lex_comment(struct lexer *l)
{
	const char *from = l->at, *p;

	p = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
	if (p == NULL)
		run_fail(l->run, CHAT_EINVALID, "a comment does not end");
	l->at = p + 2;
	count_lines(l, from, p);
	return p > from && p[-1] == '-' ? 1 : p > from && p[-1] == '+' ? 2 : 0;
}

/* Returns the place after the tag {% word %}, p after its "{%", or NULL for another tag; *sign <-
 * as lex_tag() returns. */
static const char *
raw_tag(const char *p, const char *end, const char *word, int *sign)
{
	size_t n = strlen(word);

	if (p < end && (*p == '-' || *p == '+'))
		p++;
	while (p < end && isspace((unsigned char)*p))
		p++;
	if ((size_t)(end - p) < n || memcmp(p, word, n) != 0)
		return NULL;
	for (p += n; p < end && isspace((unsigned char)*p); p++)
		;
	*sign = p < end && *p == '-' ? 1 : p < end && *p == '+' ? 2 : 0;
	p += *sign > 0;
	return end - p >= 2 && memcmp(p, "%}", 2) == 0 ? p + 2 : NULL;
}

/* Reads {% raw %} ... {% endraw %}, with l->at after the first "{%". Returns as lex_tag(), or
 * -1 for another tag. */
static int
lex_raw(struct lexer *l)
{
	const char *from, *p = l->at, *behind;
	int sign, last;

	if ((from = raw_tag(p, l->end, "raw", &sign)) == NULL)
		return -1;
	for (p = from; (p = memmem(p, (size_t)(l->end - p), "{%", 2)) != NULL; p += 2)
		if ((behind = raw_tag(p + 2, l->end, "endraw", &last)) != NULL)
			break;
	if (p == NULL)
		run_fail(l->run, CHAT_EINVALID, "{%% raw %%} does not end");
	count_lines(l, l->at, behind);
	l->at = behind;
	while (sign == 1 && from < p && isspace((unsigned char)*from))
		from++;
	while (p[2] == '-' && p > from && isspace((unsigned char)p[-1]))
		p--;
	push_text(l, from, (size_t)(p - from));
	return last;
}

/* Adds the text before the tag at `tag`, without the white space that the tag removes; from:
 * its beginning, which is the beginning of a line if at_line is set. */
static size_t
text_before(const char *from, const char *tag, int at_line)
{
	const char *p = tag;

	if (tag[2] == '-') {
		while (p > from && isspace((unsigned char)p[-1]))
			p--;
	} else if (tag[1] != '{' && tag[2] != '+') {
		while (p > from && (p[-1] == ' ' || p[-1] == '\t' || p[-1] == '\f' ||
		    p[-1] == '\v'))
			p--;
		if (p > from ? p[-1] != '\n' : !at_line)
			p = tag;
	}
	return (size_t)(p - from);
}

static const char *
next_tag(const struct lexer *l)
{
	const char *p;

	for (p = l->at; p + 1 < l->end; p++)
		if (p[0] == '{' && (p[1] == '%' || p[1] == '{' || p[1] == '#'))
			return p;
	return l->end;
}

/* Reads one stretch of text and the tag after it. */
static void
lex_stretch(struct lexer *l, int *at_line)
{
	const char *tag = next_tag(l);
	char kind;
	int sign = -1;

	if (tag == l->end) {
		push_text(l, l->at, (size_t)(tag - l->at));
		l->at = tag;
		return;
	}
	push_text(l, l->at, tag + 2 < l->end ? text_before(l->at, tag, *at_line) :
	    (size_t)(tag - l->at));
	count_lines(l, l->at, tag);
	kind = tag[1];
	l->at = tag + 2;
	if (kind == '%')
		sign = lex_raw(l);
	if (sign < 0 && kind == '#') {
		sign = lex_comment(l);
	} else if (sign < 0) {
		l->at += l->at < l->end && (*l->at == '-' || *l->at == '+');
		push(l, kind == '%' ? T_BLOCK_BEGIN : T_PRINT_BEGIN);
		sign = lex_tag(l, kind == '%' ? T_BLOCK_END : T_PRINT_END, kind == '%' ? "%}" :
		    "}}");
	}
	*at_line = 0;
	if (sign == 1) {
		while (l->at < l->end && isspace((unsigned char)*l->at)) {
			*at_line = *l->at == '\n';
			l->run->line += *l->at++ == '\n';
		}
	} else if (sign == 0 && kind != '{' && l->at < l->end && *l->at == '\n') {
		*at_line = 1;
		l->run->line++;
		l->at++;
	}
}

struct token *
lex(struct run *r, const char *text, size_t len)
{
	struct lexer l = { .run = r };
	char *p = run_alloc(r, len + 1);
	size_t i, n = 0;
	int at_line = 1;

	/* newlines are "\n", and one at the end is not part of the template */
	for (i = 0; i < len; i++)
		if (text[i] != '\r')
			p[n++] = text[i];
		else if (i + 1 == len || text[i + 1] != '\n')
			p[n++] = '\n';
	if (n > 0 && p[n - 1] == '\n')
		n--;
	r->line = 1;
	l.at = p;
	l.end = p + n;
	while (l.at < l.end)
		lex_stretch(&l, &at_line);
	push(&l, T_END);
	return l.tokens;
}
