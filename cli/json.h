/* json.h - JSON on standard output: what programs with --json share
 *
 * All functions die without memory, and for text that is not UTF-8. */
#ifndef KVPIPE_JSON_H
#define KVPIPE_JSON_H

#include <stdint.h>

#include <jansson.h>

/* o[key] <- value, whose reference it takes. */
void put(json_t *o, const char *key, json_t *value);
void put_count(json_t *o, const char *key, uint64_t n);
/* null for what is not finite: JSON has no word for it. */
void put_real(json_t *o, const char *key, double x);

/* Prints o with a newline after it, and drops it. Control characters are escaped, DEL and C1, too. */
void print_json(json_t *o);

#endif
