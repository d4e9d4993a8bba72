/* jsontext.h - JSON text of a snapshot, in HEAD and pROv (kv-snapshot(5), 4.1)
 *
 * Internal to libkvfile. */
#ifndef KVFILE_JSONTEXT_H
#define KVFILE_JSONTEXT_H

#include <jansson.h>

#include "error.h"

#pragma GCC visibility push(hidden)

/* Returns the object that the text contains, to be decref'd; NULL, with a message, if it is not
 * an object or breaks a rule of 4.1. */
json_t *kv_json_object(const char *text, size_t size, struct kv_message *why);

#pragma GCC visibility pop
#endif
