/* info.h - prints the description of a snapshot
 *
 * snapshot_info_read() has read r to its end. Sections are listed if info lists them. */
#ifndef KVPIPE_INFO_H
#define KVPIPE_INFO_H

#include "engine/snapshot_info.h"

/* Prints lines of text. */
void print_info(const struct snapshot_info *info, const struct kv_reader *r);
/* Prints one object; kv-info(1) explains its keys. */
void print_info_json(const struct snapshot_info *info, const struct kv_reader *r);

#endif
