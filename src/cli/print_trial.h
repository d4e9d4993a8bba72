/* print_trial.h - what came of a trial of retrieval, on standard output */
#ifndef KVPIPE_PRINT_TRIAL_H
#define KVPIPE_PRINT_TRIAL_H

#include "engine/retrieval_trial.h"

/* A line for each layer, or each KV head. */
void print_trial(const struct retrieval_trial *, int heads);
/* All of both; the keys are those of kv-decode's report. Dies without memory. */
void print_trial_json(const struct retrieval_trial *);

#endif
