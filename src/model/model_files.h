/* model_files.h - the files of a model folder: opening, JSON, messages, hashes
 *
 * Internal to model/. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_MODEL_FILES_H
#define KVPIPE_MODEL_FILES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

/* Writes the message, "FILE: ..."; returns code. */
int model_file_fail(char *err, size_t errlen, int code, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* "DIR/NAME", to be freed; NULL when there is no memory. */
char *model_file_path(const char *dir, const char *name);

/* Opens a regular file for reading. Returns the descriptor, or MODEL_EIO. */
int model_file_open(const char *path, uint64_t *size, char *err, size_t errlen);

/* Reads a file that must be one JSON object without duplicate keys, into *out, to be
 * json_decref'ed. A mistake is named by line and column. */
int model_file_json(const char *path, json_t **out, char *err, size_t errlen);

/* hex <- a hash as 32 hexadecimal digits (kv-snapshot(5), 6), and a zero byte. */
void model_hash_text(XXH128_hash_t, char hex[33]);

#endif
