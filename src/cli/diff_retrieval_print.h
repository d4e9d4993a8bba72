/* diff_retrieval_print.h - what came of a trial of retrieval, on standard output */
#ifndef KVPIPE_DIFF_RETRIEVAL_PRINT_H
#define KVPIPE_DIFF_RETRIEVAL_PRINT_H

#include "engine/retrieval_trial.h"

/* A line for each layer, or each KV head. */
void diff_retrieval_print(const struct retrieval_trial *, int heads);
/* All of both; the keys are those of kv-decode's report. Dies without memory. */
void diff_retrieval_print_json(const struct retrieval_trial *);

#endif
