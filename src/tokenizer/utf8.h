/* utf8.h - checking and walking UTF-8 (the stream half of utf8.c is declared in tokenizer.h) */
#ifndef KVPIPE_UTF8_H
#define KVPIPE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Offset of the first byte of the first ill-formed sequence of s[len]; len when there is none. */
size_t utf8_check(const char *s, size_t len);

/* The code point that starts at s, which must be well-formed; *used becomes its length. */
uint32_t utf8_get(const char *s, unsigned *used);

/* The code point that ends before s + end (end > 0, well-formed); *used becomes its length. */
uint32_t utf8_get_before(const char *s, size_t end, unsigned *used);

#endif
