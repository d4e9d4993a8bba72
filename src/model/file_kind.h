/* file_kind.h - what a file is that is not what was asked for, and what is wrong with a JSON text
 *
 * Asked after reading has failed: most of those who are stuck there have a Git LFS pointer, half a
 * download or a web page where a file should be. */
#ifndef KVPIPE_FILE_KIND_H
#define KVPIPE_FILE_KIND_H

#include <jansson.h>
#include <stddef.h>

enum file_wanted { WANT_TEXT, WANT_SAFETENSORS, WANT_SNAPSHOT };

/* text[size] <- what the file is and what to do about it, from its first bytes, where it is
 * something else than what is wanted. Returns 0 where they do not tell. */
int file_kind(const char *path, enum file_wanted, char *text, size_t size);
/* As file_kind(), for a descriptor of a file, which stays where it is. */
int file_kind_open(int fd, enum file_wanted, char *text, size_t size);
/* Is there such a name, be it a link to nothing? */
int file_is_there(const char *path);

/* What is wrong with a JSON text: jansson's words, but for those that name what only a program
 * knows. */
const char *json_words(const json_error_t *);

#endif
