/* error.h - an error code with its message
 *
 * Internal to libkvfile. Checks that know no file name set a struct kv_message; reader and
 * writer prefix name and place. */
#ifndef KVFILE_ERROR_H
#define KVFILE_ERROR_H

#include "kvfile.h"

#pragma GCC visibility push(hidden)

#define KV_TEXT 1024
#define KV_LABEL 40             /* room for "KEYS layer 4294967295", or four times \\xNN */

typedef unsigned long long ull;  /* for %llu */

struct kv_message {
	int code;               /* KV_OK until kv_say() */
	char text[KV_TEXT];
};

/* Sets code and text. Returns code. */
int kv_say(struct kv_message *m, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define kv_bad(m, ...) kv_say(m, KV_ECORRUPT, __VA_ARGS__)

/* text <- "KEYS layer 3" or "TOKS"; bytes that are not letters as \xNN. Returns text. */
const char *kv_label(char text[KV_LABEL], const char *type, uint32_t layer);

#pragma GCC visibility pop
#endif
