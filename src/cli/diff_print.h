/* diff_print.h - prints the comparison of two snapshots
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_DIFF_PRINT_H
#define KVPIPE_DIFF_PRINT_H

#include <jansson.h>

#include "cli/diff_rows.h"

/* Prints a line for each layer, or for each KV head if the result has them. Reads the records
 * of KV heads: call only one of diff_print() and diff_print_json(), once. */
void diff_print(struct diff_rows *);
/* As diff_print(), but JSON; the result must have KV heads. */
void diff_print_json(struct diff_rows *);

/* Shared with other comparisons of two snapshots: the lines a and b, the same as JSON, and the
 * keys about tokens. */
void print_compared(const struct layer_reader *a, const struct layer_reader *b,
    const struct tokens_compared *);
json_t *compared_json(const struct layer_reader *, uint64_t rows);
void put_tokens(json_t *o, const struct tokens_compared *);

/* Warns if a, the reference, has fewer rows than b of the same text: seldom intended. */
void warn_smaller_reference(const struct layer_reader *a, uint64_t a_rows,
    const struct layer_reader *b, uint64_t b_rows, const struct tokens_compared *);

#endif
