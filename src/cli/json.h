/* json.h - memory of the JSON library, and JSON on standard output: what programs with --json share
 *
 * All functions die without memory, and for text that is not UTF-8. */
#ifndef KVPIPE_JSON_H
#define KVPIPE_JSON_H

#include <stdint.h>

#include <jansson.h>

/* From here on jansson, whoever calls it in this process, ends the program when there is no memory.
 * Its parser (2.14, src/load.c) does not look whether the buffer of a token could grow: it loses
 * the character, and may then read and write past the token. So it never gets NULL. */
void json_must_allocate(void);

/* o[key] <- value, whose reference it takes. */
void put_value(json_t *o, const char *key, json_t *value);
void put_count(json_t *o, const char *key, uint64_t n);
/* Texts from outside: what is not UTF-8 in them becomes U+FFFD, as where text is printed. The
 * second for one that may have zeros in it. */
void put_text(json_t *o, const char *key, const char *text);
void put_bytes(json_t *o, const char *key, const char *text, size_t n);
/* null for what is not finite: JSON has no word for it. */
void put_real(json_t *o, const char *key, double x);

/* Prints o with a newline after it, and drops it. All control characters are escaped, DEL and C1,
 * too. */
void print_json(json_t *o);
/* The same in one line, for JSON Lines. */
void print_json_line(json_t *o);

/* The same in parts, where the last member of an object is a list that may be long: the list is not
 * held. The object has a member at least; it is dropped, as each element is. */
void print_json_begin(json_t *o, const char *key);
void print_json_element(json_t *element);
void print_json_end(void);

#endif
