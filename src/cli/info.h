/* info.h - a snapshot described on standard output
 *
 * r has been read to its end by snapshot_info_read(). Sections are listed when info lists them. */
#ifndef KVPIPE_INFO_H
#define KVPIPE_INFO_H

#include "engine/snapshot_info.h"

/* Lines for people. */
void print_info(const struct snapshot_info *info, const struct kv_reader *r);
/* One object, documented in kv-info(1). */
void print_info_json(const struct snapshot_info *info, const struct kv_reader *r);

#endif
