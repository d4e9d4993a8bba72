/* diff_scores_print.h - the scores of two snapshots compared, on standard output
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_DIFF_SCORES_PRINT_H
#define KVPIPE_DIFF_SCORES_PRINT_H

#include "cli/diff_scores.h"

/* One of them, and once: the records of KV heads are read. A line for each layer, or each KV head
 * where the result has them. */
void diff_scores_print(struct diff_scores *);
/* The result has KV heads. */
void diff_scores_print_json(struct diff_scores *);

#endif
