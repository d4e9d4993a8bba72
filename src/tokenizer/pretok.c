/* pretok.c - cuts text into words, step by step
 *
 * Each step passes a piece to the next one as soon as it has it, so a text is never held as a
 * list of words. A changed piece is in a buffer of the step, which is free again when the
 * following steps are done with the piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/expr.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"

int
pretok_add(struct pretok *p, enum pretok_kind kind, struct pretok_step **out, char *err,
    size_t errlen)
{
	if (p->n == PRETOK_MOST) {
		snprintf(err, errlen, "more than %d steps", PRETOK_MOST);
		return TOKENIZER_EUNSUPPORTED;
	}
	*out = &p->step[p->n++];
	memset(*out, 0, sizeof(**out));
	(*out)->kind = kind;
	return 0;
}

int
pretok_add_expr(struct pretok *p, char *text, struct pretok_step **out, char *err, size_t errlen)
{
	int rc = pretok_add(p, PRETOK_EXPR, out, err, errlen);

	if (rc != 0) {
		free(text);
		return rc;
	}
	(*out)->text = text;
	return expr_compile(text, &(*out)->code, &(*out)->own, err, errlen);
}

void
pretok_free(struct pretok *p)
{
	for (; p->n > 0; p->n--) {
		free(p->step[p->n - 1].text);
		expr_free(p->step[p->n - 1].code);
	}
}

struct pretok_work {
	struct expr_work *expr;
	struct {
		char *text;
		size_t room;
	/* the step's changed piece, or its stand-ins for matching */
	} level[PRETOK_MOST];
};

struct pretok_work *
pretok_work_new(void)
{
	struct pretok_work *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->expr = expr_work_new();
	if (w->expr == NULL) {
		pretok_work_free(w);
		return NULL;
	}
	return w;
}

void
pretok_work_free(struct pretok_work *w)
{
	unsigned k;

	if (w == NULL)
		return;
	expr_work_free(w->expr);
	for (k = 0; k < PRETOK_MOST; k++)
		free(w->level[k].text);
	free(w);
}

struct expr_work *
pretok_expr(struct pretok_work *w)
{
	return w->expr;
}

struct run {
	const struct pretok *p;
	struct pretok_work *work;
	int (*word)(void *arg, const char *text, size_t len);
	void *arg;
	char *err;
	size_t errlen;
};

static int piece(struct run *, unsigned k, const char *text, size_t len, int first);

/* ---- splitting ---- */

/* Matches and the gaps between them in order, joined as the behaviour says. */
struct splitter {
	struct run *r;
	unsigned k;
	const struct pretok_step *step;
	const char *text;               /* of the piece */
	int first;                      /* is the piece the beginning, as in pretok_run() */
	int open, before;               /* a piece is pending; the last event was a match */
	size_t start, end;              /* the pending piece */
};

static int
emit(struct splitter *s, size_t start, size_t end)
{
	return piece(s->r, s->k + 1, s->text + start, end - start,
	    start == 0 ? s->first : 0);
}

static int
event(struct splitter *s, size_t start, size_t end, int match)
{
	int rc = 0, join = 0;

	match ^= s->step->invert;
	switch (s->step->behavior) {
	case PRETOK_ISOLATED:
		return emit(s, start, end);
	case PRETOK_REMOVED:
		return match ? 0 : emit(s, start, end);
	case PRETOK_CONTIGUOUS:
		join = match == s->before;
		break;
	case PRETOK_MERGED_WITH_PREVIOUS:
		join = match && !s->before;
		break;
	case PRETOK_MERGED_WITH_NEXT:
		join = !match && s->before;
		break;
	}
	if (!s->open || !join) {
		if (s->open)
			rc = emit(s, s->start, s->end);
		s->start = start;
		s->open = 1;
	}
	s->end = end;
	s->before = match;
	return rc;
}

/* Emits the last piece, and the text after the last match. */
static int
finish(struct splitter *s, size_t done, size_t len)
{
	int rc = 0;

	if (done < len)
		rc = event(s, done, len, 0);
	if (rc == 0 && s->open)
		rc = emit(s, s->start, s->end);
	return rc;
}

static int
split_expr(struct splitter *s, size_t len)
{
	struct run *r = s->r;
	struct expr_matches m = { .code = s->step->code, .work = r->work->expr,
	    .expr = s->step->text, .len = len };
	int found, rc;

	m.text = expr_prepare(s->step->own, s->text, len, &r->work->level[s->k].text,
	    &r->work->level[s->k].room);
	if (m.text == NULL)
		return TOKENIZER_ENOMEM;
	while ((found = expr_next(&m, r->err, r->errlen)) > 0)
		if ((m.done < m.start && (rc = event(s, m.done, m.start, 0)) != 0) ||
		    (rc = event(s, m.start, m.end, 1)) != 0)
			return rc;
	return found < 0 ? found : finish(s, m.done, len);
}

static int
is_match(enum pretok_kind kind, uint32_t c)
{
	return kind == PRETOK_NUMERIC ? unicode_is_numeric(c) :
	    kind == PRETOK_PUNCTUATION ? unicode_is_punctuation(c) : unicode_is_space(c);
}

static int
split_characters(struct splitter *s, size_t len)
{
	size_t i, done = 0;
	unsigned used;
	int rc;

	for (i = 0; i < len; i += used) {
		if (!is_match(s->step->kind, utf8_get(s->text + i, &used)))
			continue;
		if ((done < i && (rc = event(s, done, i, 0)) != 0) ||
		    (rc = event(s, i, i + used, 1)) != 0)
			return rc;
		done = i + used;
	}
	return finish(s, done, len);
}

/* Returns 0 for white space, 1 for word characters, 2 for others. */
static int
class_of(uint32_t c)
{
	return unicode_is_word(c) ? 1 : unicode_is_space(c) ? 0 : 2;
}

static int
split_words(struct splitter *s, size_t len)
{
	size_t i, start = 0;
	unsigned used;
	int rc, class, last = 0;

	for (i = 0; i < len; i += used) {
		class = class_of(utf8_get(s->text + i, &used));
		if (class == last)
			continue;
		if (start < i && (rc = event(s, start, i, last != 0)) != 0)
			return rc;
		start = i;
		last = class;
	}
	if (last == 0)
		return finish(s, start, len);
	if ((rc = event(s, start, len, 1)) != 0)
		return rc;
	return finish(s, len, len);
}

/* ---- changing ---- */

static char *
room_for(struct run *r, unsigned k, size_t len)
{
	if (len > r->work->level[k].room) {
		free(r->work->level[k].text);
		r->work->level[k].room = len + len / 2;
		r->work->level[k].text = malloc(r->work->level[k].room);
		if (r->work->level[k].text == NULL)
			r->work->level[k].room = 0;
	}
	return r->work->level[k].text;
}

/* Cuts before each meta character, except one that begins the piece. */
static int
cut_meta(struct run *r, unsigned k, const char *text, size_t len, int first)
{
	const char *meta = r->p->step[k].meta;
	size_t n = strlen(meta), start = 0, i;
	int rc;

	for (i = 1; i + n <= len; i++) {
		if (text[i] != meta[0] || memcmp(text + i, meta, n) != 0)
			continue;
		if ((rc = piece(r, k + 1, text + start, i - start,
		    start == 0 ? first : 0)) != 0)
			return rc;
		start = i;
	}
	return piece(r, k + 1, text + start, len - start, start == 0 ? first : 0);
}

static int
metaspace(struct run *r, unsigned k, const char *text, size_t len, int first)
{
	const struct pretok_step *step = &r->p->step[k];
	size_t n = strlen(step->meta), i, out = 0, spaces = 0;
	int prepend;
	char *p;

	for (i = 0; i < len; i++)
		spaces += text[i] == ' ';
	p = room_for(r, k, len + (spaces + 1) * n);
	if (p == NULL)
		return TOKENIZER_ENOMEM;
	prepend = first >= 0 &&
	    (step->prepend == PRETOK_ALWAYS || (step->prepend == PRETOK_FIRST && first > 0));
	if (prepend && text[0] != ' ' && (len < n || memcmp(text, step->meta, n) != 0)) {
		memcpy(p, step->meta, n);
		out = n;
	}
	for (i = 0; i < len; i++)
		if (text[i] == ' ') {
			memcpy(p + out, step->meta, n);
			out += n;
		} else
			p[out++] = text[i];
	return step->splits ? cut_meta(r, k, p, out, first) : piece(r, k + 1, p, out, first);
}

static int
prefix_space(struct run *r, unsigned k, const char *text, size_t len, int first)
{
	char *p;

	if (text[0] == ' ' || first < 0)
		return piece(r, k + 1, text, len, first);
	p = room_for(r, k, len + 1);
	if (p == NULL)
		return TOKENIZER_ENOMEM;
	p[0] = ' ';
	memcpy(p + 1, text, len);
	return piece(r, k + 1, p, len + 1, first);
}

static int
spell(struct run *r, unsigned k, const char *text, size_t len, int first)
{
	char *p = room_for(r, k, 2 * len);

	if (p == NULL)
		return TOKENIZER_ENOMEM;
	return piece(r, k + 1, p, vocab_unspell(text, len, p), first);
}

/* ---- one piece ---- */

/* Applies step k and those after it to text[len]. */
static int
piece(struct run *r, unsigned k, const char *text, size_t len, int first)
{
	struct splitter s = { .r = r, .k = k, .text = text, .first = first };

	if (len == 0)
		return 0;
	if (k == r->p->n)
		return r->word(r->arg, text, len);
	s.step = &r->p->step[k];
	switch (s.step->kind) {
	case PRETOK_EXPR:
		return split_expr(&s, len);
	case PRETOK_NUMERIC: case PRETOK_PUNCTUATION: case PRETOK_SPACE:
		return split_characters(&s, len);
	case PRETOK_WORDS:
		return split_words(&s, len);
	case PRETOK_METASPACE:
		return metaspace(r, k, text, len, first);
	case PRETOK_PREFIX_SPACE:
		return prefix_space(r, k, text, len, first);
	case PRETOK_SPELL:
		return spell(r, k, text, len, first);
	}
	return TOKENIZER_EUNSUPPORTED;
}

int
pretok_run(const struct pretok *p, struct pretok_work *work, const char *text, size_t len,
    int first, int (*word)(void *arg, const char *text, size_t len), void *arg, char *err,
    size_t errlen)
{
	struct run r = { p, work, word, arg, err, errlen };

	return piece(&r, 0, text, len, first);
}
