/* head.h - the HEAD section: canonical JSON to struct kv_head and back (4.1)
 *
 * Internal to libkvfile. */
#ifndef KVFILE_HEAD_H
#define KVFILE_HEAD_H

#include "error.h"

#pragma GCC visibility push(hidden)

/* Parses json, checks ranges, and refuses with KV_ECORRUPT; with KV_EVERSION a
 * key of model, rope or row_types, or a text, that is not known. */
int kv_head_get(struct kv_head *head, const void *json, size_t size, struct kv_message *why);

/* *json <- the canonical text, to be freed by the caller. KV_EINVAL if kv_head_get() would
 * refuse it. */
int kv_head_put(const struct kv_head *head, char **json, size_t *size, struct kv_message *why);

#pragma GCC visibility pop
#endif
