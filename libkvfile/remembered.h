/* remembered.h - a small text file in which programs remember results that take long to find
 *
 * Internal to libkvfile, and for the caches of programs. A line that names the format, a line for
 * each key with its value, the newest last, and a line with the XXH3-64 of all before. Nothing here
 * is an error: a file that cannot be read, is damaged, or could have been written by others is as
 * good as none, and so is one that cannot be written. It is read whole and replaced whole, by
 * rename(2), so that readers and writers need not wait for each other: of two that write at once
 * one is forgotten. */
#ifndef KVFILE_REMEMBERED_H
#define KVFILE_REMEMBERED_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

enum {
	KV_REMEMBERED_KEYS = 256,       /* the oldest go where there are more */
	KV_REMEMBERED_LINE = 192        /* bytes of key and value together, at most */
};

struct kv_remembered {
	const char *file;               /* NULL: nothing is found, nothing added */
	const char *format;             /* the first line, without a newline */
};

/* value[size] <- what is remembered for this key. Returns 1; 0: nothing, or it does not fit. */
int kv_remembered_find(const struct kv_remembered *, const char *key, char *value, size_t size);
/* Remembers it, in place of what was remembered for the key. A key has no blank and no newline, a
 * value no newline. */
void kv_remembered_add(const struct kv_remembered *, const char *key, const char *value);

#pragma GCC visibility pop
#endif
