/* provenance.h - a line of the provenance (kv-snapshot(5), 4.8)
 *
 * Internal to libkvfile. */
#ifndef KVFILE_PROVENANCE_H
#define KVFILE_PROVENANCE_H

#include "error.h"

#pragma GCC visibility push(hidden)

/* *line <- the line, to be freed. options is copied as text: numbers keep the digits that the
 * user typed. Returns KV_OK, KV_EINVAL or KV_ENOMEM. */
int kv_provenance_line(char **line, const char *tool, const char *version, const char *options,
    struct kv_message *why);

#pragma GCC visibility pop
#endif
