/* expr.c - regular expressions through PCRE2 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/expr.h"
#include "tokenizer/splitexpr.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

/* For expressions that repeat groups; the usual ones need no more than the 32 KiB that PCRE2
 * has on the machine's stack. Only address space until it is used. */
#define JIT_STACK_MOST ((size_t)64 << 20)

/* Steps of matching: STEPS for each matched byte, and STEPS_BESIDE once, for short texts.
 * Expressions of models need up to 30 for a byte. */
#define STEPS 256
#define STEPS_BESIDE 4000000

struct expr_work {
	uint64_t left;                  /* steps */
	size_t at;                      /* where the last one was */
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
		    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT, &error, &at,
		    context);
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
expr_compile(const char *text, void **code, uint64_t *own, char *err, size_t errlen)
{
	pcre2_code *compiled = NULL;
	const char *refused = NULL;
	char *rewritten;
	size_t at = 0;
	int rc;

	*code = NULL;
	rewritten = splitexpr_rewrite(text, &refused, &at);
	if (rewritten == NULL && refused != NULL) {
		snprintf(err, errlen, "%s, offset %zu of the expression %s", refused, at, text);
		return TOKENIZER_EUNSUPPORTED;
	}
	if (rewritten == NULL) {
		snprintf(err, errlen, "no memory");
		return TOKENIZER_ENOMEM;
	}
	rc = compile(rewritten, &compiled, err, errlen);
	*own = splitexpr_torn_kinds(rewritten);
	*code = compiled;
	free(rewritten);
	return rc;
}

void
expr_free(void *code)
{
	pcre2_code_free(code);
}

/* PCRE2 calls it before each item of the expression. The bytes read since the last call are
 * between the two places. */
static int
charge(pcre2_callout_block *b, void *arg)
{
	struct expr_work *w = arg;
	const PCRE2_SIZE at = b->current_position;
	const uint64_t steps = 1 + (at > w->at ? at - w->at : w->at - at);

	w->at = at;
	if (steps > w->left)
		return PCRE2_ERROR_CALLOUT;
	w->left -= steps;
	return 0;
}

struct expr_work *
expr_work_new(void)
{
	struct expr_work *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->left = STEPS_BESIDE;
	w->match = pcre2_match_data_create(1, NULL);    /* only the place of the whole match */
	w->context = pcre2_match_context_create(NULL);
	w->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MOST, NULL);
	if (w->match == NULL || w->context == NULL) {
		expr_work_free(w);
		return NULL;
	}
	pcre2_set_callout(w->context, charge, w);
	pcre2_set_heap_limit(w->context, JIT_STACK_MOST >> 10);
	if (w->stack != NULL)
		pcre2_jit_stack_assign(w->context, NULL, w->stack);
	return w;
}

void
expr_work_free(struct expr_work *w)
{
	if (w == NULL)
		return;
	pcre2_match_data_free(w->match);
	pcre2_match_context_free(w->context);
	pcre2_jit_stack_free(w->stack);
	free(w);
}

/* Writes c, of `used` bytes, as UTF-8. */
static void
put_code_point(char *s, uint32_t c, unsigned used)
{
	unsigned i;

	for (i = used; i-- > 1; c >>= 6)
		s[i] = (char)(0x80 | (c & 0x3f));
	s[0] = (char)((0xf00u >> used & 0xff) | c);
}

const char *
expr_prepare(uint64_t own, const char *text, size_t len, char **buffer, size_t *room)
{
	unsigned used, kind;
	uint32_t c, other;
	char *p;
	size_t i;

	if (!unicode_may_be_young(text, len))
		return text;
	if (len > *room) {
		free(*buffer);
		*room = len + len / 2;
		*buffer = malloc(*room);
		if (*buffer == NULL) {
			*room = 0;
			return NULL;
		}
	}
	p = *buffer;
	memcpy(p, text, len);
	for (i = 0; i < len; i += used) {
		c = utf8_get(text + i, &used);
		other = unicode_stand_in(c, &kind);
		if (other != c && (own >> kind & 1) == 0)
			put_code_point(p + i, other, used);
	}
	return p;
}

/* Finds the first match from m->from on; returns as expr_next(). */
static int
search(struct expr_matches *m, char *err, size_t errlen)
{
	PCRE2_UCHAR why[128];
	PCRE2_SIZE *where;
	int rc;

	m->work->at = m->from;
	/* checked once in tokenizer_encode(); checking the rest of the text for every word would
	 * be quadratic */
	rc = pcre2_match(m->code, (PCRE2_SPTR)m->text, m->len, m->from, PCRE2_NO_UTF_CHECK,
	    m->work->match, m->work->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc == PCRE2_ERROR_CALLOUT || rc == PCRE2_ERROR_MATCHLIMIT ||
	    rc == PCRE2_ERROR_HEAPLIMIT) {
		snprintf(err, errlen, "the expression %s takes more than %d steps for each byte of "
		    "the text", m->expr, STEPS);
		return TOKENIZER_EINVALID;
	}
	if (rc < 0) {
		pcre2_get_error_message(rc, why, sizeof(why));
		snprintf(err, errlen, "the expression %s: %s", m->expr, (char *)why);
		return rc == PCRE2_ERROR_NOMEMORY ? TOKENIZER_ENOMEM : TOKENIZER_EINVALID;
	}
	where = pcre2_get_ovector_pointer(m->work->match);
	m->start = where[0];
	m->end = where[1];
	return 1;
}

/* Oniguruma's iterator skips an empty match directly after the last one, and continues one
 * character later. */
int
expr_next(struct expr_matches *m, char *err, size_t errlen)
{
	unsigned used;
	int rc;

	m->done = m->end;
	if (!m->any && m->from == 0)
		m->work->left += STEPS * (uint64_t)m->len;
	while ((rc = search(m, err, errlen)) > 0) {
		if (m->end > m->start || !m->any || m->end != m->done) {
			m->from = m->end;
			m->any = 1;
			return 1;
		}
		if (m->from == m->len)
			return 0;
		utf8_get(m->text + m->from, &used);
		m->from += used;
	}
	return rc;
}
