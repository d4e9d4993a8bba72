/* json.h - JSON output, and the memory of the JSON library: what programs with --json share
 *
 * All functions die without memory, and for text that is not UTF-8. */
#ifndef KVPIPE_JSON_H
#define KVPIPE_JSON_H

#include <stdint.h>

#include <jansson.h>

/* Makes jansson end the program when memory is out, for all its callers in this process. Its
 * parser (2.14, src/load.c) does not check whether the buffer of a token could grow: it loses
 * the character, and may then access memory past the token. So it must never get NULL. */
void json_must_allocate(void);

/* o[key] <- value, whose reference it steals. */
void put_value(json_t *o, const char *key, json_t *value);
void put_count(json_t *o, const char *key, uint64_t n);
/* o[key] <- a text from outside, with U+FFFD for bytes that are not UTF-8, as where text is
 * printed. put_bytes() is for a text that may contain NUL. */
void put_text(json_t *o, const char *key, const char *text);
void put_bytes(json_t *o, const char *key, const char *text, size_t n);
/* o[key] <- x; null if x is not finite, which JSON cannot express. */
void put_real(json_t *o, const char *key, double x);

/* Prints o followed by a newline, and drops it. Escapes all control characters, DEL and C1
 * included. */
void print_json(json_t *o);
/* As print_json(), but on one line, for JSON Lines. */
void print_json_line(json_t *o);

/* Writes o to a file, and drops it. The file gets its name when it is complete. Dies. */
void write_json(const char *path, json_t *o);

/* As print_json(), but in parts, for an object whose last member is a long list that is not
 * held in memory. The object needs one member before; it is dropped, and so is each element. */
void print_json_begin(json_t *o, const char *key);
void print_json_element(json_t *element);
void print_json_end(void);

#endif
