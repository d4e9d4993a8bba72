/* retrieval_report.h - how much retrieval has read, as JSON and as a line of -v */
#ifndef KVPIPE_RETRIEVAL_REPORT_H
#define KVPIPE_RETRIEVAL_REPORT_H

#include <jansson.h>

#include "retrieval/retrieval.h"

/* o <- means over steps and KV heads, null without a step; kv-decode(1) explains the keys.
 * Recall and mass if `audit`, overlap if `overlap`. Dies without memory. */
void put_retrieval_means(json_t *o, const struct retrieval_stats *,
    const struct retrieval_options *);

/* Prints, with -v, how much was read, in one line. */
void retrieval_note(const struct retrieval *, uint32_t layers, uint32_t heads);
/* Returns the report, an object; kv-decode(1) explains its keys. Dies without memory. */
json_t *retrieval_json(const struct retrieval *, uint32_t layers, uint32_t heads);
/* Writes the report, for --stats. The file gets its name when it is complete. Dies. */
void retrieval_report(const char *path, const struct retrieval *, uint32_t layers, uint32_t heads);
/* Dies if no report can be written under this name (NULL: none is wanted). */
void stats_refuse(const char *path);

#endif
