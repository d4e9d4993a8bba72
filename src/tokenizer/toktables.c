/* toktables.c - scans tokenizer.json for its two large tables
 *
 * Everything else is skipped by its brackets and quotes, because a JSON reader sees it
 * afterwards. The tables themselves are read strictly: the scan gives up at the first
 * unexpected byte. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/toktables.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"

/* ---- the tables ---- */

void
tables_free(struct tables *t)
{
	free(t->word);
	free(t->slot);
	free(t->pair);
	free(t->text);
	memset(t, 0, sizeof(*t));
}

/* Returns the slot of the word, or the free one for it. */
static uint32_t *
probe(const struct tables *t, const char *text, size_t len)
{
	size_t i = (size_t)XXH3_64bits(text, len) & t->mask;
	const struct word *w;

	for (; t->slot[i] != 0; i = (i + 1) & t->mask) {
		w = &t->word[t->slot[i] - 1];
		if (w->len == len && memcmp(w->text, text, len) == 0)
			break;
	}
	return &t->slot[i];
}

static int
grow_words(struct tables *t)
{
	const size_t cap = t->word_cap == 0 ? 1024 : 2 * t->word_cap;
	struct word *word;
	uint32_t *slot;
	size_t i;

	if (cap > UINT32_MAX / 4)
		return -1;
	if ((word = realloc(t->word, cap * sizeof(*word))) == NULL)
		return -1;
	t->word = word;
	if ((slot = calloc(2 * cap, sizeof(*slot))) == NULL)
		return -1;
	free(t->slot);
	t->slot = slot;
	t->mask = 2 * cap - 1;
	t->word_cap = cap;
	for (i = 0; i < t->words; i++)
		*probe(t, word[i].text, word[i].len) = (uint32_t)i + 1;
	return 0;
}

int
tables_add(struct tables *t, const char *text, size_t len, uint32_t id)
{
	uint32_t *slot;

	if (t->words == t->word_cap && grow_words(t) != 0)
		return -1;
	slot = probe(t, text, len);
	if (*slot != 0)
		return 1;
	t->word[t->words] = (struct word){ .text = text, .len = len, .id = id };
	*slot = (uint32_t)++t->words;
	return 0;
}

const struct word *
tables_find(const struct tables *t, const char *text, size_t len)
{
	uint32_t found = t->words == 0 ? 0 : *probe(t, text, len);

	return found == 0 ? NULL : &t->word[found - 1];
}

static int
add_pair(struct tables *t, const char *left, const char *right)
{
	struct pair *p;
	size_t cap;

	if (t->pairs == t->pair_cap) {
		cap = t->pair_cap == 0 ? 1024 : 2 * t->pair_cap;
		if ((p = realloc(t->pair, cap * sizeof(*p))) == NULL)
			return -1;
		t->pair = p;
		t->pair_cap = cap;
	}
	t->pair[t->pairs++] = (struct pair){ left, right };
	return 0;
}

/* ---- the scan: functions return 0, or -1 to give up ---- */

struct scan {
	const char *p, *end;
	struct tables *t;
	char *out;              /* where the next word's text is written */
	const char *open[2], *close[2]; /* brackets of the tables, in the file's order */
	int cuts, has_words, has_pairs;
};

/* Returns the next byte that is not white space, without skipping it; 0 at the end. */
static char
next(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
		s->p++;
	return s->p < s->end ? *s->p : '\0';
}

/* Skips c, if it is next. */
static int
take(struct scan *s, char c)
{
	if (next(s) != c || c == '\0')
		return -1;
	s->p++;
	return 0;
}

/* Reads four digits of \uXXXX, after the u. */
static int
four_digits(struct scan *s, uint32_t *c)
{
	char digit;
	int i;

	*c = 0;
	for (i = 0; i < 4; i++) {
		if (s->p == s->end)
			return -1;
		digit = *s->p++;
		if (digit >= '0' && digit <= '9')
			*c = *c << 4 | (uint32_t)(digit - '0');
		else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f')
			*c = *c << 4 | (uint32_t)((digit | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return 0;
}

/* Writes a \u escape, or a surrogate pair of them, as UTF-8. Refuses zero and lone surrogates. */
static int
code_point(struct scan *s)
{
	uint32_t c, low;

	if (four_digits(s, &c) != 0 || c == 0 || (c >= 0xdc00 && c <= 0xdfff))
		return -1;
	if (c >= 0xd800 && c <= 0xdbff) {
		if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
			return -1;
		s->p += 2;
		if (four_digits(s, &low) != 0 || low < 0xdc00 || low > 0xdfff)
			return -1;
		c = 0x10000 + ((c & 0x3ff) << 10 | (low & 0x3ff));
		*s->out++ = (char)(0xf0 | c >> 18);
		*s->out++ = (char)(0x80 | (c >> 12 & 0x3f));
	} else if (c >= 0x800)
		*s->out++ = (char)(0xe0 | c >> 12);
	if (c >= 0x800)
		*s->out++ = (char)(0x80 | (c >> 6 & 0x3f));
	else if (c >= 0x80)
		*s->out++ = (char)(0xc0 | c >> 6);
	*s->out++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
	return 0;
}

static int
escape(struct scan *s)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (s->p == s->end || *s->p == '\0')
		return -1;
	if (*s->p == 'u') {
		s->p++;
		return code_point(s);
	}
	if ((found = strchr(from, *s->p++)) == NULL)
		return -1;
	*s->out++ = to[found - from];
	return 0;
}

/* *text[*len] <- a string, unescaped and zero-terminated */
static int
string(struct scan *s, const char **text, size_t *len)
{
	unsigned char bits = 0;

	if (take(s, '"') != 0)
		return -1;
	*text = s->out;
	while (s->p < s->end && *s->p != '"') {
		if ((unsigned char)*s->p < 0x20)
			return -1;
		bits |= (unsigned char)*s->p;
		if (*s->p != '\\')
			*s->out++ = *s->p++;
		else if (s->p++, escape(s) != 0)
			return -1;
	}
	*len = (size_t)(s->out - *text);
	if ((bits & 0x80) && utf8_check(*text, *len) < *len)
		return -1;
	*s->out++ = '\0';                       /* room: its quotes */
	return take(s, '"');
}

static int
number(struct scan *s, uint32_t *id)
{
	const char *start;
	uint32_t v = 0;

	next(s);
	for (start = s->p; s->p < s->end && *s->p >= '0' && *s->p <= '9' && v < VOCAB_LIMIT; s->p++)
		v = 10 * v + (uint32_t)(*s->p - '0');
	if (s->p == start || v >= VOCAB_LIMIT || (*start == '0' && s->p - start > 1))
		return -1;
	*id = v;
	return next(s) == ',' || next(s) == '}' ? 0 : -1;
}

/* Reads {"word": id, ...}, after the first bracket. */
static int
words(struct scan *s)
{
	const char *text;
	uint32_t id;
	size_t len;

	do {
		if (string(s, &text, &len) != 0 || take(s, ':') != 0 || number(s, &id) != 0 ||
		    tables_add(s->t, text, len, id) != 0)
			return -1;
	} while (take(s, ',') == 0);
	return next(s) == '}' ? 0 : -1;
}

/* Reads ["left right", ...] or [["left", "right"], ...], after the first bracket. Gives up at
 * the comment with which old files begin. */
static int
merges(struct scan *s)
{
	const char *left, *right;
	size_t len;

	do {
		if (take(s, '[') == 0) {
			if (string(s, &left, &len) != 0 || take(s, ',') != 0 ||
			    string(s, &right, &len) != 0 || take(s, ']') != 0)
				return -1;
		} else {
			if (string(s, &left, &len) != 0 ||
			    strncmp(left, "#version", 8) == 0 ||
			    (right = strchr(left, ' ')) == NULL || strchr(right + 1, ' ') != NULL)
				return -1;
			*(s->out - 1 - len + (right - left)) = '\0';
			right++;
		}
		if (add_pair(s->t, left, right) != 0)
			return -1;
	} while (take(s, ',') == 0);
	return next(s) == ']' ? 0 : -1;
}

static int
skip_string(struct scan *s)
{
	for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
		if (*s->p == '\\' && ++s->p == s->end)
			return -1;
	return take(s, '"');
}

/* Skips any value, up to the comma or bracket after it. */
static int
skip_value(struct scan *s)
{
	size_t depth = 0;
	char c;

	while ((c = next(s)) != '\0') {
		if (depth == 0 && (c == ',' || c == '}' || c == ']'))
			return 0;
		if (c == '"') {
			if (skip_string(s) != 0)
				return -1;
			continue;
		}
		if (c == '{' || c == '[')
			depth++;
		else if (c == '}' || c == ']')
			depth--;
		s->p++;
	}
	return -1;
}

/* Reads a table, if it has entries, by read(). */
static int
table(struct scan *s, char bracket, int (*read)(struct scan *), int *there)
{
	if (*there || next(s) != bracket)
		return -1;
	*there = 1;
	s->open[s->cuts] = s->p++;
	if (read(s) != 0)
		return -1;
	s->close[s->cuts++] = s->p++;
	return 0;
}

/* Returns whether the string from start to s->p is this one, without escapes. */
static int
is_key(const struct scan *s, const char *start, const char *key)
{
	const size_t n = strlen(key);

	return (size_t)(s->p - start) == n + 2 && memcmp(start + 1, key, n) == 0;
}

/* Scans the members of the file, or of its model. */
static int
object(struct scan *s, int of_model)
{
	int vocab, merge, model, rc;
	const char *key;

	if (take(s, '{') != 0)
		return -1;
	do {
		if (next(s) != '"')
			return -1;
		key = s->p;
		if (skip_string(s) != 0)
			return -1;
		vocab = of_model && is_key(s, key, "vocab");
		merge = of_model && is_key(s, key, "merges");
		model = !of_model && is_key(s, key, "model");
		if (take(s, ':') != 0)
			return -1;
		rc = vocab ? table(s, '{', words, &s->has_words) :
		    merge ? table(s, '[', merges, &s->has_pairs) :
		    model ? object(s, 1) : skip_value(s);
		if (rc != 0)
			return -1;
	} while (take(s, ',') == 0);
	return take(s, '}');
}

/* Returns the text without the contents of the tables' brackets. */
static char *
rest(const struct scan *s, const char *text, size_t *left)
{
	char *out = malloc((size_t)(s->end - text)), *p = out;
	const char *from = text;
	int i;

	for (i = 0; out != NULL && i < s->cuts; i++) {
		memcpy(p, from, (size_t)(s->open[i] + 1 - from));
		p += s->open[i] + 1 - from;
		from = s->close[i];
	}
	if (out != NULL) {
		memcpy(p, from, (size_t)(s->end - from));
		*left = (size_t)(p - out) + (size_t)(s->end - from);
	}
	return out;
}

char *
tables_cut(struct tables *t, const char *text, size_t n, size_t *left)
{
	struct scan s = { .p = text, .end = text + n, .t = t };
	char *out = NULL;

	/* an unescaped string is never longer than its source */
	if (n > 0 && (s.out = t->text = malloc(n)) != NULL && object(&s, 0) == 0 &&
	    s.has_words && s.has_pairs)
		out = rest(&s, text, left);
	if (out == NULL)
		tables_free(t);
	return out;
}
