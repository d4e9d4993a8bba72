/* retrieval_report.h - what retrieval has read, as JSON and as a line of -v */
#ifndef KVPIPE_RETRIEVAL_REPORT_H
#define KVPIPE_RETRIEVAL_REPORT_H

#include <jansson.h>

#include "retrieval/retrieval.h"

/* o <- means over steps and KV heads, null where there was no step; kv-decode(1) explains the keys.
 * Recall and mass with audit, overlap with overlap. Dies without memory. */
void put_retrieval_means(json_t *o, const struct retrieval_stats *,
    const struct retrieval_options *);

/* -v: how much was read, in one line. */
void retrieval_note(const struct retrieval *, uint32_t layers, uint32_t heads);
/* The report, an object: kv-decode(1) explains its keys. Dies without memory. */
json_t *retrieval_json(const struct retrieval *, uint32_t layers, uint32_t heads);
/* Writes it, for --stats. The file appears under its
 * name when it is complete. Dies. */
void retrieval_report(const char *path, const struct retrieval *, uint32_t layers, uint32_t heads);

#endif
