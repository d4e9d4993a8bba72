/* splitexpr.h - the regular expressions of tokenizer.json, rewritten for PCRE2 */
#ifndef KVPIPE_SPLITEXPR_H
#define KVPIPE_SPLITEXPR_H

#include <stddef.h>
#include <stdint.h>

/* Returns expr (Oniguruma, Ruby syntax, UTF-8) rewritten so that PCRE2 with UTF, UCP, MULTILINE
 * and the newline set to LF finds the same matches; for free(). NULL: *refused names the
 * unsupported construct and *at is its offset; *refused NULL: no memory. */
char *splitexpr_rewrite(const char *expr, const char **refused, size_t *at);

/* Returns the kinds of young code points (unicode.h) that need no stand-in, because the
 * expression from splitexpr_rewrite() names some of them and not the others. */
uint64_t splitexpr_torn_kinds(const char *rewritten_expr);

/* Returns an expression that matches exactly this text: a backslash before every ASCII
 * punctuation character. NULL: no memory. */
char *splitexpr_quote(const char *text);

#endif
