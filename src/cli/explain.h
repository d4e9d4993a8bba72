/* explain.h - completes an error message about a file of the wrong type by naming its type */
#ifndef KVPIPE_EXPLAIN_H
#define KVPIPE_EXPLAIN_H

#include <stddef.h>

/* err is "DIR/NAME: ...", about the tokenizer or chat template of a model folder. If that file
 * is not text, replaces what follows the name by the file's type. */
void explain_file(const char *dir, char *err, size_t errlen);
/* err is about a snapshot that could not be read. If the file does not begin like one, replaces
 * err by the file's type. "-" is standard input. */
void explain_snapshot(const char *path, char *err, size_t errlen);
/* As explain_snapshot(), for a descriptor. */
void explain_snapshot_open(int fd, const char *name, char *err, size_t errlen);

#endif
