/* diff_scores_print.h - prints the comparison of two snapshots' scores
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_DIFF_SCORES_PRINT_H
#define KVPIPE_DIFF_SCORES_PRINT_H

#include "cli/diff_scores.h"

/* Prints a line for each layer, or for each KV head if the result has them. Reads the records
 * of KV heads: call only one of diff_scores_print() and diff_scores_print_json(), once. */
void diff_scores_print(struct diff_scores *);
/* As diff_scores_print(), but JSON; the result must have KV heads. */
void diff_scores_print_json(struct diff_scores *);

#endif
