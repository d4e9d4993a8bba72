/* unicode.h - which characters are letters, numbers and spaces to Hugging Face tokenizers
 *
 * Unicode 16.0, whatever the system's libraries have: ids must not depend on the machine.
 * Differing parts of tokenizers (Rust's own tables have Unicode 17.0, those of Punctuation 9.0)
 * are named at their functions. */
#ifndef KVPIPE_UNICODE_H
#define KVPIPE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* White_Space */
int unicode_is_space(uint32_t c);

/* \w of Unicode TR18 annex C, as Rust's regex has it: alphabetic, marks, decimal digits,
 * connectors, joiners. */
int unicode_is_word(uint32_t c);

/* Rust's char::is_numeric: categories N*, and those that Unicode 17.0 added to 16.0. */
int unicode_is_numeric(uint32_t c);

/* Categories P* of Unicode 9.0, and the ASCII characters that are neither letters nor digits. */
int unicode_is_punctuation(uint32_t c);

/* ---- stand-ins: how PCRE2 is made to see Unicode 16.0 ----
 *
 * A code point is young if Unicode 14.0, the oldest that PCRE2 may have here, lacks it or has
 * another category for it. Its stand-in is one that every PCRE2 has in the same category, with
 * the same length in UTF-8. Both are of one kind: category and length in UTF-8, UNICODE_KINDS
 * of them. */

#define UNICODE_KINDS 64 /* a bit for each fits into an uint64_t */

/* Returns 0 if text[len] certainly has no young code point. */
int unicode_may_be_young(const char *text, size_t len);

/* Returns the stand-in of c, and its kind; c itself if it is not young. */
uint32_t unicode_stand_in(uint32_t c, unsigned *kind);

/* Returns, a bit each, the kinds of which the range [first, last] contains some but not all of
 * young code points and stand-in. */
uint64_t unicode_torn_kinds(uint32_t first, uint32_t last);

#endif
