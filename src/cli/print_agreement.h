/* print_agreement.h - the scores of two snapshots compared, on standard output
 *
 * kv-diff(1) explains columns and keys. */
#ifndef KVPIPE_PRINT_AGREEMENT_H
#define KVPIPE_PRINT_AGREEMENT_H

#include "cli/agreement_result.h"

/* One of them, and once: the records of KV heads are read. A line for each layer, or each KV head
 * where the result has them. */
void print_agreement(struct agreement_result *);
/* The result has KV heads. */
void print_agreement_json(struct agreement_result *);

#endif
