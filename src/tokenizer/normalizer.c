/* normalizer.c - applies the steps of a normaliser in order */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/expr.h"
#include "tokenizer/growth.h"
#include "tokenizer/nfc.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tokenizer.h"

int
normalizer_add(struct normalizer *n, enum normal_kind kind, char *from, char *to, char *err,
    size_t errlen)
{
	struct normal_step *s;

	if (n->n == NORMALIZER_MOST) {
		snprintf(err, errlen, "more than %d steps", NORMALIZER_MOST);
		free(from);
		free(to);
		return TOKENIZER_EUNSUPPORTED;
	}
	s = &n->step[n->n++];
	memset(s, 0, sizeof(*s));
	s->kind = kind;
	s->from = from;
	s->to = to;
	return kind != NORMAL_REPLACE_EXPR ? 0 :
	    expr_compile(from, &s->code, &s->own, err, errlen);
}

void
normalizer_free(struct normalizer *n)
{
	for (; n->n > 0; n->n--) {
		free(n->step[n->n - 1].from);
		free(n->step[n->n - 1].to);
		expr_free(n->step[n->n - 1].code);
	}
}

/* A growing text; NULL only while nothing, not even an empty text, was appended. */
struct growing {
	char *text;
	size_t n, cap, most;
};

static int
append_text(struct growing *g, const char *text, size_t len)
{
	size_t cap;
	char *p;

	if (len > g->most - g->n)
		return TOKENIZER_EUNSUPPORTED;
	if (g->text == NULL || len > g->cap - g->n) {
		cap = g->cap + g->cap / 2 + len + 64;
		p = realloc(g->text, cap);
		if (p == NULL)
			return TOKENIZER_ENOMEM;
		g->text = p;
		g->cap = cap;
	}
	memcpy(g->text + g->n, text, len);
	g->n += len;
	return 0;
}

static int
replace(const struct normal_step *s, const char *text, size_t len, struct growing *g)
{
	size_t from = strlen(s->from), to = strlen(s->to), done = 0;
	const char *at;
	int rc = 0;

	while (rc == 0 && (at = memmem(text + done, len - done, s->from, from)) != NULL) {
		rc = append_text(g, text + done, (size_t)(at - text) - done);
		if (rc == 0)
			rc = append_text(g, s->to, to);
		done = (size_t)(at - text) + from;
	}
	return rc != 0 ? rc : append_text(g, text + done, len - done);
}

static int
replace_matches(const struct normal_step *s, struct expr_work *work, const char *text, size_t len,
    struct growing *g, char *err, size_t errlen)
{
	struct expr_matches m = { .code = s->code, .work = work, .expr = s->from, .len = len };
	size_t room = 0;
	char *buffer = NULL;
	int rc = 0, found = 0;

	m.text = expr_prepare(s->own, text, len, &buffer, &room);
	if (m.text == NULL)
		return TOKENIZER_ENOMEM;
	while (rc == 0 && (found = expr_next(&m, err, errlen)) > 0) {
		rc = append_text(g, text + m.done, m.start - m.done);
		if (rc == 0)
			rc = append_text(g, s->to, strlen(s->to));
	}
	free(buffer);
	if (found < 0)
		return found;
	return rc != 0 ? rc : append_text(g, text + m.done, len - m.done);
}

/* Applies one step; *g stays empty if it changes nothing. */
static int
run_step(const struct normal_step *s, struct expr_work *work, const char *text, size_t len,
    struct growing *g, char *err, size_t errlen)
{
	int rc;

	switch (s->kind) {
	case NORMAL_NFC:
		return nfc_is_plain(text, len) ? 0 : nfc(text, len, &g->text, &g->n);
	case NORMAL_PREPEND:
		if (len == 0)
			return 0;
		rc = append_text(g, s->to, strlen(s->to));
		return rc != 0 ? rc : append_text(g, text, len);
	case NORMAL_REPLACE:
		if (memmem(text, len, s->from, strlen(s->from)) == NULL)
			return 0;
		return replace(s, text, len, g);
	case NORMAL_REPLACE_EXPR:
		return replace_matches(s, work, text, len, g, err, errlen);
	}
	return TOKENIZER_EUNSUPPORTED;
}

int
normalizer_run(const struct normalizer *n, struct expr_work *work, const char *text, size_t len,
    int prepend, char **out, size_t *outlen, char *err, size_t errlen)
{
	struct growing g;
	unsigned i;
	int rc;

	*out = NULL;
	*outlen = len;
	for (i = 0; i < n->n; i++) {
		if (n->step[i].kind == NORMAL_PREPEND && !prepend)
			continue;
		g = (struct growing){ .most = growth_most(len) };
		rc = run_step(&n->step[i], work, *out != NULL ? *out : text, *outlen, &g, err,
		    errlen);
		if (rc == TOKENIZER_EUNSUPPORTED)
			snprintf(err, errlen, "the normaliser makes more than %zu bytes of %zu",
			    g.most, len);
		if (rc != 0) {
			free(g.text);
			free(*out);
			*out = NULL;
			return rc;
		}
		if (g.text == NULL)
			continue;
		free(*out);
		*out = g.text;
		*outlen = g.n;
	}
	return 0;
}
