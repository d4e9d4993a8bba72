/* diff_print.h - two snapshots compared, on standard output
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_DIFF_PRINT_H
#define KVPIPE_DIFF_PRINT_H

#include <jansson.h>

#include "cli/diff_rows.h"

/* One of them, and once: the records of KV heads are read. A line for each layer, or each KV head
 * where the result has them. */
void diff_print(struct diff_rows *);
/* The result has KV heads. */
void diff_print_json(struct diff_rows *);

/* What other comparisons of two snapshots print, too: the lines a and b, the same as JSON, and the
 * keys about tokens. */
void print_compared(const struct layer_reader *a, const struct layer_reader *b,
    const struct tokens_compared *);
json_t *compared_json(const struct layer_reader *, uint64_t rows);
void put_tokens(json_t *o, const struct tokens_compared *);

/* a is the reference of what is lost: of one text the other way round is seldom meant. */
void warn_smaller_reference(const struct layer_reader *a, uint64_t a_rows,
    const struct layer_reader *b, uint64_t b_rows, const struct tokens_compared *);

#endif
