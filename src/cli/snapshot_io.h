/* snapshot_io.h - snapshots that a program reads and writes, the provenance of its output, and a
 * text file beside it
 *
 * Functions without a code of their own die, with the exit code that belongs to the failure. */
#ifndef KVPIPE_SNAPSHOT_IO_H
#define KVPIPE_SNAPSHOT_IO_H

#include <stdio.h>

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"

struct kv_reader *input_open(const char *path);                   /* dies with the right status */
/* As input_open(), but returns NULL where that would die. */
struct kv_reader *input_try(const char *path, struct engine_error *);
int input_next(struct kv_reader *r, struct kv_section *sec);      /* 1 or 0; dies */
/* Where the last section was, "a.kv: layer 3", for messages; "" before there was one */
const char *input_place(void);
const void *input_load(struct kv_reader *r);
const struct kv_rows *input_rows(struct kv_reader *r);
void input_failed(struct kv_reader *r, int code) __attribute__((noreturn));
void input_check(struct kv_reader *r, int code);                  /* dies when code < 0 */
int input_status(int code);                                       /* the exit code for a KV_E* */

/* Binary output to a terminal is refused: for programs that work for long before
 * output_create(), which refuses too. */
void output_refuse_terminal(void);

/* Dies when no output could be written under this name, before the work that would be lost: its
 * folder is not there or not writable, it is a folder. option: "--output". path "-" or NULL:
 * nothing is asked. */
void output_refuse(const char *option, const char *path);

/* Starts the output named by settings.output, with the flags of -z. Refuses a terminal. */
struct kv_writer *output_create(const struct kv_head *head);
/* Starts an output of this name, "-" for standard output. */
struct kv_writer *output_create_at(const char *path, const struct kv_head *head);
void output_check(struct kv_writer *w, int code);                 /* dies when code < 0 */
/* Nothing is left of it, and the program goes on. */
void output_discard(struct kv_writer *w);
void output_copy(struct kv_reader *r, struct kv_writer *w);       /* kv_copy, dies */
/* An unknown section: copied, or dropped with a warning. */
void output_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed);

/* Options for the provenance line of each output that follows; the last value of a key counts. */
void sign_text(const char *key, const char *value);
void sign_count(const char *key, uint64_t value);
void sign_real(const char *key, double value);

/* Inherits the provenance of from (NULL = none), signs, commits, frees. */
void output_commit(struct kv_writer *w, const struct kv_reader *from);

/* A text file beside the output: it takes its name, that of a file, in text_commit() and is gone
 * when the program ends before. One at a time, and none while a snapshot is written. Dies. */
FILE *text_create(const char *path);
void text_commit(FILE *f);

#endif
