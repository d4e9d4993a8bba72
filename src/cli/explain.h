/* explain.h - a message about a file that says what the file is, where it is not what it should
 * be */
#ifndef KVPIPE_EXPLAIN_H
#define KVPIPE_EXPLAIN_H

#include <stddef.h>

/* err is "DIR/NAME: ...", about the tokenizer or the chat template of a model folder: where that
 * file is no text at all, what follows the name becomes what it is. */
void explain_file(const char *dir, char *err, size_t errlen);
/* err is about a snapshot that could not be read: where it does not begin as one, the message
 * becomes what it is. "-" is standard input. */
void explain_snapshot(const char *path, char *err, size_t errlen);
/* As explain_snapshot(), for a descriptor. */
void explain_snapshot_open(int fd, const char *name, char *err, size_t errlen);

#endif
