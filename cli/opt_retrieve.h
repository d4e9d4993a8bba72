/* opt_retrieve.h - the options of retrieval, and its report: what kv-decode shares with programs that
 * try retrieval out on a snapshot
 *
 * It knows no model. One set of options for a process. */
#ifndef KVPIPE_OPT_RETRIEVE_H
#define KVPIPE_OPT_RETRIEVE_H

#include "model/retrieve.h"
#include "cli/tool.h"

/* --retrieve, --budget, --reduce, --dense-layers: for struct tool's more */
extern const struct opt retrieving_opts[];

/* --retrieve was given. */
int retrieving_wanted(void);
/* Judges the options together, when all have been set. Dies with EXIT_USAGE. */
void retrieving_check(void);
/* What they say; the caller's: audit. */
struct retrieval_options retrieving_options(void);
/* 1 << the kind of index that the method needs; 0 when none is wanted. */
unsigned retrieving_needs(void);
/* Dies with EXIT_RUN unless layer l has what its retrieval needs; name: of the snapshot. */
void retrieving_fit(const char *name, uint32_t l, const struct layer_index *);
/* Tells them to the provenance. */
void retrieving_sign(void);
/* The value of --reduce. */
const char *retrieving_reduce(void);

/* What was read of several KV heads; and as a share of what full attention reads. */
void retrieving_add(struct retrieval_stats *sum, const struct retrieval_stats *more);
double retrieving_share(const struct retrieval_stats *);

/* -v: how much was read, in one line. */
void retrieving_note(const struct retrieval *, uint32_t layers, uint32_t heads);
/* Writes the report of --stats, JSON: kv-decode(1) explains its keys. The file appears under its
 * name when it is complete. Dies. */
void retrieving_report(const char *path, const struct retrieval *, uint32_t layers,
    uint32_t heads);

#endif
