/* logits_file.h - the file of --logits: a matrix of NumPy with a row for each token
 *
 * Dies. */
#ifndef KVPIPE_LOGITS_FILE_H
#define KVPIPE_LOGITS_FILE_H

#include <stdint.h>
#include <stdio.h>

/* All zero: none is written. */
struct logits_file {
	FILE *file;
	const char *path;               /* the caller's */
	uint64_t columns;
};

/* Dies with EXIT_USAGE when the option names standard output, for which there is something else
 * ("the snapshot is"), the output, or one of the files that are read; others[n], NULL = none. And
 * as output_refuse(). */
void logits_file_check(const char *path, const char *instead, const char *const *others, size_t n);
/* path NULL: none */
void logits_file_open(struct logits_file *, const char *path, uint64_t rows, uint64_t columns);
/* The next row; with is a struct logits_file (struct logits_sink of engine/). */
void logits_file_put(void *with, const float *logits);
/* It is complete, and appears under its name. */
void logits_file_close(struct logits_file *);

#endif
