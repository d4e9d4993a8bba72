/* print_diff.h - two snapshots compared, on standard output
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_PRINT_DIFF_H
#define KVPIPE_PRINT_DIFF_H

#include "cli/diff_result.h"

/* One of them, and once: the records of KV heads are read. A line for each layer, or each KV head
 * where the result has them. */
void print_diff(struct diff_result *);
/* The result has KV heads. */
void print_diff_json(struct diff_result *);

#endif
