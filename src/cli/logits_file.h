/* logits_file.h - the file of --logits: a NumPy matrix with a row for each token
 *
 * All functions die. */
#ifndef KVPIPE_LOGITS_FILE_H
#define KVPIPE_LOGITS_FILE_H

#include <stdint.h>
#include <stdio.h>

/* All zero: no file is written. */
struct logits_file {
	FILE *file;
	const char *path;               /* the caller's */
	uint64_t columns;
};

/* Dies with EXIT_USAGE if path is standard output, which is used otherwise (instead: "the
 * snapshot is"), the output file, or one of the input files others[n] (NULL = none). Else as
 * output_refuse(). */
void logits_file_check(const char *path, const char *instead, const char *const *others, size_t n);
/* path NULL: none */
void logits_file_open(struct logits_file *, const char *path, uint64_t rows, uint64_t columns);
/* Appends a row; with: a struct logits_file (as struct logits_sink of engine/ calls it). */
void logits_file_put(void *with, const float *logits);
/* Completes the file and renames it to its path. */
void logits_file_close(struct logits_file *);

#endif
