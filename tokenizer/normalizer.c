/* normalizer.c - the steps of a normaliser, one after the other */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/expr.h"
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

/* Growing text; NULL only as long as nothing, not even nothing, was appended. */
struct growing {
	char *text;
	size_t n, cap;
};

static int
append(struct growing *g, const char *text, size_t len)
{
	size_t cap;
	char *p;

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

	while ((at = memmem(text + done, len - done, s->from, from)) != NULL) {
		if (append(g, text + done, (size_t)(at - text) - done) != 0 ||
		    append(g, s->to, to) != 0)
			return TOKENIZER_ENOMEM;
		done = (size_t)(at - text) + from;
	}
	return append(g, text + done, len - done);
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
		rc = append(g, text + m.done, m.start - m.done);
		if (rc == 0)
			rc = append(g, s->to, strlen(s->to));
	}
	free(buffer);
	if (found < 0)
		return found;
	return rc != 0 ? rc : append(g, text + m.done, len - m.done);
}

static int
run_expr(const struct normal_step *s, const char *text, size_t len, struct growing *g, char *err,
    size_t errlen)
{
	struct expr_work *work = expr_work_new();
	int rc = TOKENIZER_ENOMEM;

	if (work != NULL)
		rc = replace_matches(s, work, text, len, g, err, errlen);
	expr_work_free(work);
	return rc;
}

/* One step; *g stays empty when it changes nothing. */
static int
run_step(const struct normal_step *s, const char *text, size_t len, struct growing *g, char *err,
    size_t errlen)
{
	int rc;

	switch (s->kind) {
	case NORMAL_NFC:
		return nfc_is_plain(text, len) ? 0 : nfc(text, len, &g->text, &g->n);
	case NORMAL_PREPEND:
		if (len == 0)
			return 0;
		rc = append(g, s->to, strlen(s->to));
		return rc != 0 ? rc : append(g, text, len);
	case NORMAL_REPLACE:
		if (memmem(text, len, s->from, strlen(s->from)) == NULL)
			return 0;
		return replace(s, text, len, g);
	case NORMAL_REPLACE_EXPR:
		return run_expr(s, text, len, g, err, errlen);
	}
	return TOKENIZER_EUNSUPPORTED;
}

int
normalizer_run(const struct normalizer *n, const char *text, size_t len, int prepend, char **out,
    size_t *outlen, char *err, size_t errlen)
{
	struct growing g;
	unsigned i;
	int rc;

	*out = NULL;
	*outlen = len;
	for (i = 0; i < n->n; i++) {
		if (n->step[i].kind == NORMAL_PREPEND && !prepend)
			continue;
		memset(&g, 0, sizeof(g));
		rc = run_step(&n->step[i], *out != NULL ? *out : text, *outlen, &g, err, errlen);
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
