/* splitexpr.c - the regular expressions of tokenizer.json, rewritten for PCRE2
 *
 * Hugging Face compiles them with Oniguruma in Ruby syntax. The two dialects agree on most of
 * what such expressions use, but not on everything, and a silent difference would give other
 * tokens. So everything is refused that is not known to mean the same: \R, \X, \K, back references,
 * options without a scope, captures by name, properties other than general categories (\p{Han} is
 * the script in one, the script extensions in the other), nested classes and &&, {,n}, and + or ?
 * after an interval. One difference cannot be seen in the expression: under (?i:) Oniguruma also
 * lets one character stand for several (U+00DF for ss); the contractions of GPT-2 have no such
 * pair.
 *
 * Rewritten is what is not the same and can be said otherwise. \s: PCRE2 counts U+180E, Oniguruma
 * follows White_Space, which does not. \w, and so \b: TR18's without joiners, and with what is not
 * a decimal digit in Latin-1. \h: a hexadecimal digit, in PCRE2 horizontal space; \v: one of the
 * characters that it is in PCRE2. ^ and $ are those of lines in both (PCRE2_MULTILINE). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/splitexpr.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

#define EXPR_MOST 65536 /* bytes; nobody writes longer expressions by hand */

/* For use in a class */
#define SPACE "\\t-\\r\\x{85}\\p{Z}"    /* White_Space */
#define WORD \
	"\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
	"\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX "0-9A-Fa-f"
#define BOUNDARY "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_BOUNDARY "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

struct rewrite {
	const char *in;         /* input that is left */
	char *out;              /* end of the output */
	const char *refused;
	int in_class;
};

static void
put_text(struct rewrite *r, const char *text)
{
	size_t n = strlen(text);

	memcpy(r->out, text, n);
	r->out += n;
}

static void
copy_bytes(struct rewrite *r, size_t n)
{
	memcpy(r->out, r->in, n);
	r->out += n;
	r->in += n;
}

static void
refuse(struct rewrite *r, const char *what)
{
	if (r->refused == NULL)
		r->refused = what;
}

/* Copies \p{L}, \p{Lu}, \P{N}: general categories, in braces. */
static void
property(struct rewrite *r)
{
	const char *p = r->in + 2;

	if (*p++ != '{') {
		refuse(r, "a property without braces");
		return;
	}
	if (*p == '^')
		p++;
	if (!isupper((unsigned char)*p) || strchr("CLMNPSZ", *p) == NULL) {
		refuse(r, "a property that is not a general category");
		return;
	}
	p++;
	if (islower((unsigned char)*p))
		p++;
	if (*p++ != '}') {
		refuse(r, "a property that is not a general category");
		return;
	}
	copy_bytes(r, (size_t)(p - r->in));
}

/* Escapes to rewrite, in a class and outside; NULL: not possible there. */
static const struct {
	char escape;
	const char *in_class, *outside;
} rewritten[] = {
	{ 's', SPACE, "[" SPACE "]" },
	/* in a class: the characters that PCRE2 does not count as white space, and the one that
	 * it wrongly does */
	{ 'S', "\\S\\x{180e}", "[^" SPACE "]" },
	{ 'w', WORD, "[" WORD "]" },
	{ 'W', NULL, "[^" WORD "]" },
	{ 'h', HEX, "[" HEX "]" },
	{ 'H', NULL, "[^" HEX "]" },
	{ 'b', NULL, BOUNDARY },
	{ 'B', NULL, NO_BOUNDARY },
	{ 'v', "\\x{b}", "\\x{b}" },
	{ 'A', NULL, "\\A" },
	{ 'z', NULL, "\\z" },
	{ 'Z', NULL, "\\Z" },
};

/* Returns 1 if the escape is in the list. */
static int
rewrite_escape(struct rewrite *r)
{
	const char *text;
	size_t i;

	for (i = 0; i < sizeof(rewritten) / sizeof(rewritten[0]); i++) {
		if (rewritten[i].escape != r->in[1])
			continue;
		text = r->in_class ? rewritten[i].in_class : rewritten[i].outside;
		if (text == NULL)
			return 0;
		put_text(r, text);
		r->in += 2;
		return 1;
	}
	return 0;
}

static void
escape(struct rewrite *r)
{
	char c = r->in[1];

	if (c == 'p' || c == 'P') {
		property(r);
	} else if (rewrite_escape(r)) {
		return;
	} else if (c != '\0' && (strchr("dDrntf", c) != NULL || ispunct((unsigned char)c))) {
		copy_bytes(r, 2);
	} else if (c == 'x' && r->in[2] == '{' &&
	    strspn(r->in + 3, "0123456789abcdefABCDEF") > 0 &&
	    r->in[3 + strspn(r->in + 3, "0123456789abcdefABCDEF")] == '}') {
		copy_bytes(r, 4 + strspn(r->in + 3, "0123456789abcdefABCDEF"));
	} else if (c == 'u' && strspn(r->in + 2, "0123456789abcdefABCDEF") >= 4) {
		put_text(r, "\\x{");
		r->in += 2;
		copy_bytes(r, 4);
		put_text(r, "}");
	} else
		refuse(r, "an escape that PCRE2 and Oniguruma read differently");
}

static void
group(struct rewrite *r)
{
	static const char *const opens[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
	size_t i;

	if (r->in[1] != '?') {
		copy_bytes(r, 1);
		return;
	}
	for (i = 0; i < sizeof(opens) / sizeof(opens[0]); i++)
		if (strncmp(r->in, opens[i], strlen(opens[i])) == 0) {
			copy_bytes(r, strlen(opens[i]));
			return;
		}
	refuse(r, "a kind of group that is not known");
}

/* Copies {n}, {n,}, {n,m}; any other brace stands for itself in both dialects. */
static void
interval(struct rewrite *r)
{
	size_t n = 1, digits = strspn(r->in + 1, "0123456789");

	n += digits;
	if (r->in[n] == ',') {
		n++;
		n += strspn(r->in + n, "0123456789");
	}
	if (r->in[n] != '}' || (digits == 0 && n == 1)) {
		copy_bytes(r, 1);
		return;
	}
	n++;
	if (digits == 0)
		refuse(r, "an interval without a lower bound");
	else if (r->in[n] == '+' || r->in[n] == '?')
		refuse(r, "+ or ? after an interval");
	else
		copy_bytes(r, n);
}

/* Copies one item between [ and ]. */
static void
class_item(struct rewrite *r, const char *start)
{
	if (*r->in == '\\') {
		escape(r);
	} else if (*r->in == '[') {
		refuse(r, "a class within a class");
	} else if (r->in[0] == '&' && r->in[1] == '&') {
		refuse(r, "&& in a class");
	} else if (*r->in == ']' && r->in == start) {
		refuse(r, "] as the first of a class");
	} else {
		r->in_class = *r->in != ']';
		copy_bytes(r, 1);
	}
}

static void
item(struct rewrite *r)
{
	switch (*r->in) {
	case '\\':
		escape(r);
		break;
	case '(':
		group(r);
		break;
	case '{':
		interval(r);
		break;
	case '[':
		r->in_class = 1;
		copy_bytes(r, r->in[1] == '^' ? 2 : 1);
		break;
	default:
		copy_bytes(r, 1);
		break;
	}
}

char *
splitexpr_rewrite(const char *expr, const char **refused, size_t *at)
{
	struct rewrite r = { .in = expr };
	const char *start = NULL;       /* of the class being read */
	size_t n = strlen(expr), grown = 0;
	const char *p;
	char *buffer;
	int was_in_class;

	*refused = NULL;
	*at = 0;
	if (n > EXPR_MOST) {
		*refused = "more than 65536 bytes";
		return NULL;
	}
	for (p = expr; *p != '\0'; p++)
		grown += *p == '\\' ? sizeof(BOUNDARY) + sizeof(NO_BOUNDARY) : 0;
	buffer = r.out = malloc(n * 4 + grown + 1);     /* \uXXXX is longer by 2 bytes */
	if (buffer == NULL)
		return NULL;
	while (*r.in != '\0' && r.refused == NULL) {
		*at = (size_t)(r.in - expr);
		was_in_class = r.in_class;
		if (r.in_class)
			class_item(&r, start);
		else
			item(&r);
		if (r.in_class && !was_in_class)
			start = r.in;
	}
	*r.out = '\0';
	if (r.refused != NULL) {
		*refused = r.refused;
		free(buffer);
		return NULL;
	}
	return buffer;
}

/* Returns one character of a rewritten expression at *p, and advances *p. UINT32_MAX for an
 * escape or a property. */
static uint32_t
character(const char **p)
{
	unsigned used;
	uint32_t c;
	char *end;

	if (**p != '\\') {
		c = utf8_get(*p, &used);
		*p += used;
		return c;
	}
	if ((*p)[1] == 'x' && (*p)[2] == '{') {
		c = (uint32_t)strtoul(*p + 3, &end, 16);
		*p = *end == '\0' ? end : end + 1;
		return c;
	}
	if ((*p)[1] == 'p' || (*p)[1] == 'P') {
		*p += strcspn(*p, "}");
		*p += **p != '\0';
		return UINT32_MAX;
	}
	*p += (*p)[1] == '\0' ? 1 : 2;
	return UINT32_MAX;      /* no escaped character is young */
}

uint64_t
splitexpr_torn_kinds(const char *rewritten_expr)
{
	const char *p = rewritten_expr;
	uint32_t first, last;
	uint64_t bits = 0;

	while (*p != '\0') {
		first = last = character(&p);
		if (first == UINT32_MAX)
			continue;
		/* also outside a class, where the three characters are in the range too */
		if (p[0] == '-' && p[1] != '\0' && p[1] != ']') {
			p++;
			last = character(&p);
		}
		if (last != UINT32_MAX && last >= 0x800)
			bits |= unicode_torn_kinds(first, last);
	}
	return bits;
}

char *
splitexpr_quote(const char *text)
{
	char *out = malloc(2 * strlen(text) + 1), *p = out;

	if (out == NULL)
		return NULL;
	for (; *text != '\0'; text++) {
		if ((unsigned char)*text < 0x80 && ispunct((unsigned char)*text))
			*p++ = '\\';
		*p++ = *text;
	}
	*p = '\0';
	return out;
}
