/* splitexpr.h - the regular expressions of tokenizer.json, rewritten for PCRE2 */
#ifndef KVPIPE_SPLITEXPR_H
#define KVPIPE_SPLITEXPR_H

#include <stddef.h>
#include <stdint.h>

/* Rewrites expr (Oniguruma, Ruby syntax, UTF-8) so that PCRE2 with UTF, UCP, MULTILINE and the
 * newline set to LF finds the same matches. Returns a string for free(), or NULL: *refused then
 * names the construct that is not taken over and *at is its offset; *refused is NULL when there is
 * no memory. */
char *splitexpr_rewrite(const char *expr, const char **refused, size_t *at);

/* The kinds of young code points (unicode.h) that stand-ins are not for, because what
 * splitexpr_rewrite() gave names some of them and not the others. */
uint64_t splitexpr_torn_kinds(const char *rewritten_expr);

/* An expression that matches exactly this text: a backslash before every ASCII punctuation
 * character. NULL: no memory. */
char *splitexpr_quote(const char *text);

#endif
