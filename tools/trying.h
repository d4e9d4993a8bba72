/* trying.h - what retrieval with the index of a snapshot would read, and lose, for the queries
 * that are stored in it: kv-diff --retrieve
 *
 * The options of retrieval are those of retrieving.h. */
#ifndef KVPIPE_TRYING_H
#define KVPIPE_TRYING_H

/* Tries it on a snapshot ("-" is standard input), and prints what comes of it: a line for each
 * layer, or KV head, or JSON (settings.json) with all of them. Dies. */
void try_retrieval(const char *path, int heads);

#endif
