/* diff_retrieval_print.h - prints the result of a trial of retrieval (kv-diff --retrieve) */
#ifndef KVPIPE_DIFF_RETRIEVAL_PRINT_H
#define KVPIPE_DIFF_RETRIEVAL_PRINT_H

#include "engine/retrieval_trial.h"

/* Prints a line for each layer, or for each KV head. */
void diff_retrieval_print(const struct retrieval_trial *, int heads);
/* Prints everything, layers and KV heads; the keys are those of kv-decode's report. Dies
 * without memory. */
void diff_retrieval_print_json(const struct retrieval_trial *);

#endif
