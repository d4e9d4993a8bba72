/* utf8.h - checks and walks UTF-8 (tokenizer.h declares the streaming half of utf8.c) */
#ifndef KVPIPE_UTF8_H
#define KVPIPE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the offset of the first ill-formed sequence of s[len]; len if there is none. */
size_t utf8_check(const char *s, size_t len);

/* Returns the code point that starts at s, which must be well-formed; *used <- its length. */
uint32_t utf8_get(const char *s, unsigned *used);

/* Returns the code point that ends before s + end (end > 0, well-formed); *used <- its length. */
uint32_t utf8_get_before(const char *s, size_t end, unsigned *used);

#endif
