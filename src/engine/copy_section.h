/* copy_section.h - copies sections of a snapshot that another one is made from */
#ifndef KVPIPE_COPY_SECTION_H
#define KVPIPE_COPY_SECTION_H

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"
#include "model/notice.h"

/* Copies the current section. Returns an ENGINE_* code, with the message of the reader or of the
 * writer, as does the next one. */
int copy_section(struct kv_reader *, struct kv_writer *, struct engine_error *);
/* Copies a section of an unknown type, or drops it and says so, if the rows have changed and it
 * depends on them (kv-snapshot(5), 3.5). */
int copy_unknown_section(struct kv_reader *, struct kv_writer *, const struct kv_section *,
    int rows_changed, const struct notice_hook *, struct engine_error *);

#endif
