/* pretok.c - cuts text into words with PCRE2 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/pretok.h"
#include "tokenizer/splitexpr.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

/* For expressions that repeat groups; what the usual ones need fits into the 32 KiB that PCRE2
 * takes from the machine's stack. Only address space until it is used. */
#define JIT_STACK_MOST ((size_t)64 << 20)

struct pretok_work {
	pcre2_match_data *match;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

static int
compile(const char *expr, pcre2_code **code, char *err, size_t errlen)
{
	pcre2_compile_context *context;
	PCRE2_UCHAR why[128];
	PCRE2_SIZE at = 0;
	int error = 0;

	*code = NULL;
	context = pcre2_compile_context_create(NULL);
	if (context != NULL) {
		pcre2_set_newline(context, PCRE2_NEWLINE_LF);
		*code = pcre2_compile((PCRE2_SPTR)expr, PCRE2_ZERO_TERMINATED,
		    PCRE2_UTF | PCRE2_UCP, &error, &at, context);
		pcre2_compile_context_free(context);
	}
	if (*code == NULL) {
		pcre2_get_error_message(error, why, sizeof(why));
		snprintf(err, errlen, "%s, offset %zu of the expression %s", (char *)why,
		    (size_t)at, expr);
		return context == NULL || error == PCRE2_ERROR_HEAP_FAILED ? TOKENIZER_ENOMEM :
		    TOKENIZER_EINVALID;
	}
	/* Without a JIT compiler for this machine PCRE2 interprets: slower, the same matches. */
	pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
	return 0;
}

int
pretok_add(struct pretok *p, char *text, char *err, size_t errlen)
{
	pcre2_code *code = NULL;
	const char *refused = NULL;
	char *rewritten = NULL;
	size_t at = 0;
	int rc;

	if (p->n == PRETOK_MOST) {
		snprintf(err, errlen, "more than %d splits", PRETOK_MOST);
		rc = TOKENIZER_EUNSUPPORTED;
	} else if ((rewritten = splitexpr_rewrite(text, &refused, &at)) != NULL) {
		rc = compile(rewritten, &code, err, errlen);
	} else if (refused != NULL) {
		snprintf(err, errlen, "%s, offset %zu of the expression %s", refused, at, text);
		rc = TOKENIZER_EUNSUPPORTED;
	} else {
		snprintf(err, errlen, "no memory");
		rc = TOKENIZER_ENOMEM;
	}
	free(rewritten);
	if (rc != 0) {
		free(text);
		return rc;
	}
	p->expr[p->n].text = text;
	p->expr[p->n++].code = code;
	return 0;
}

void
pretok_free(struct pretok *p)
{
	for (; p->n > 0; p->n--) {
		free(p->expr[p->n - 1].text);
		pcre2_code_free(p->expr[p->n - 1].code);
	}
}

struct pretok_work *
pretok_work_new(void)
{
	struct pretok_work *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->match = pcre2_match_data_create(1, NULL);    /* only where the whole match is */
	w->context = pcre2_match_context_create(NULL);
	w->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MOST, NULL);
	if (w->match == NULL || w->context == NULL) {
		pretok_work_free(w);
		return NULL;
	}
	if (w->stack != NULL)
		pcre2_jit_stack_assign(w->context, NULL, w->stack);
	return w;
}

void
pretok_work_free(struct pretok_work *w)
{
	if (w == NULL)
		return;
	pcre2_match_data_free(w->match);
	pcre2_match_context_free(w->context);
	pcre2_jit_stack_free(w->stack);
	free(w);
}

struct run {
	const struct pretok *p;
	struct pretok_work *work;
	int (*word)(void *arg, const char *text, size_t len);
	void *arg;
	char *err;
	size_t errlen;
};

/* The next match in text[len] from `from` on. Returns 1, 0 when there is none, or an error. */
static int
match(struct run *r, unsigned k, const char *text, size_t len, size_t from, size_t *start,
    size_t *end)
{
	PCRE2_UCHAR why[128];
	PCRE2_SIZE *where;
	int rc;

	/* checked once in tokenizer_encode(); checking the rest of the text for every word would
	 * be quadratic */
	rc = pcre2_match(r->p->expr[k].code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK,
	    r->work->match, r->work->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_get_error_message(rc, why, sizeof(why));
		snprintf(r->err, r->errlen, "the expression %s: %s", r->p->expr[k].text,
		    (char *)why);
		return rc == PCRE2_ERROR_NOMEMORY ? TOKENIZER_ENOMEM : TOKENIZER_EINVALID;
	}
	where = pcre2_get_ovector_pointer(r->work->match);
	*start = where[0];
	*end = where[1];
	return 1;
}

/* Cuts text[len] with expression k and those after it. */
static int
cut(struct run *r, unsigned k, const char *text, size_t len)
{
	size_t from = 0, done = 0, start = 0, end = 0;
	unsigned used;
	int found, rc, any = 0;

	if (len == 0)
		return 0;
	if (k == r->p->n)
		return r->word(r->arg, text, len);
	while (from <= len && (found = match(r, k, text, len, from, &start, &end)) != 0) {
		if (found < 0)
			return found;
		if (end <= start && any && end == done) {
			/* nothing, directly behind the last match: Oniguruma's iterator goes on a
			 * character later */
			if (from == len)
				break;
			utf8_get(text + from, &used);
			from += used;
			continue;
		}
		if ((rc = cut(r, k + 1, text + done, start - done)) != 0 ||
		    (rc = cut(r, k + 1, text + start, end - start)) != 0)
			return rc;
		from = done = end;
		any = 1;
	}
	return cut(r, k + 1, text + done, len - done);
}

int
pretok_run(const struct pretok *p, struct pretok_work *work, const char *text, size_t len,
    int (*word)(void *arg, const char *text, size_t len), void *arg, char *err, size_t errlen)
{
	struct run r = { p, work, word, arg, err, errlen };

	return cut(&r, 0, text, len);
}
