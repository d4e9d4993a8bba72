/* unicode.h - what a letter, a number, a space is to Hugging Face tokenizers
 *
 * Unicode 16.0, whatever the system's libraries have: ids must not depend on the machine. The
 * parts of tokenizers that differ from that (Rust's own tables are of Unicode 17.0, those of
 * Punctuation of 9.0) are said at the function. */
#ifndef KVPIPE_UNICODE_H
#define KVPIPE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* White_Space */
int unicode_is_space(uint32_t c);

/* \w of Unicode TR18 annex C, as Rust's regex has it: alphabetic, marks, decimal digits,
 * connectors, joiners. */
int unicode_is_word(uint32_t c);

/* Rust's char::is_numeric: categories N*, and those of Unicode 17.0 that 16.0 does not have. */
int unicode_is_numeric(uint32_t c);

/* Categories P* of Unicode 9.0, and the ASCII characters that are neither letters nor digits. */
int unicode_is_punctuation(uint32_t c);

/* ---- stand-ins: how PCRE2 is made to see Unicode 16.0 ----
 *
 * A code point is young when Unicode 14.0, the oldest that PCRE2 may have here, has it otherwise or
 * not at all. Its stand-in is one that every PCRE2 has in the same category, and as long in UTF-8.
 * Both are of one kind: category and length in UTF-8, UNICODE_KINDS of them. */

#define UNICODE_KINDS 64 /* a bit for each fits into an uint64_t */

/* 0 when there is certainly no young code point in text[len]. */
int unicode_may_be_young(const char *text, size_t len);

/* The stand-in of c, and its kind; c itself when it is not young. */
uint32_t unicode_stand_in(uint32_t c, unsigned *kind);

/* The kinds of which the range [first, last] does not hold all young code points and the stand-in,
 * or none of them: a bit for each. */
uint64_t unicode_torn_kinds(uint32_t first, uint32_t last);

#endif
