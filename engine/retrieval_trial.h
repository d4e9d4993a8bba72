/* retrieval_trial.h - what retrieval with the index of a snapshot would read, and lose, for the queries
 * that are stored in it: kv-diff --retrieve
 *
 * The options of retrieval are those of opt_retrieve.h. */
#ifndef KVPIPE_RETRIEVAL_TRIAL_H
#define KVPIPE_RETRIEVAL_TRIAL_H

/* Tries it on a snapshot ("-" is standard input), and prints what comes of it: a line for each
 * layer, or KV head, or JSON (settings.json) with all of them. Dies. */
void try_retrieval(const char *path, int heads);

#endif
