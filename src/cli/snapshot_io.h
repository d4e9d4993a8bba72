/* snapshot_io.h - input and output of snapshots, the provenance of the output, and a text file
 * beside it
 *
 * Functions without an error code die, with the exit code that fits the failure. */
#ifndef KVPIPE_SNAPSHOT_IO_H
#define KVPIPE_SNAPSHOT_IO_H

#include <stdio.h>

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

struct kv_reader *input_open(const char *path);                   /* dies with the right status */
/* As input_open(), but returns NULL instead of dying. */
struct kv_reader *input_try(const char *path, struct engine_error *);
/* Dies with EXIT_UNSUPPORTED if the snapshot has full rows behind quantised ones; why: as
 * residual_refused() has it. */
void input_refuse_residual(const struct kv_reader *r, const char *why);
/* Returns the tokens of a snapshot of which nothing has been read, and leaves it there. Dies. */
struct kv_tokens input_tokens(struct kv_reader *r);
int input_next(struct kv_reader *r, struct kv_section *sec);      /* 1 or 0; dies */
/* Returns where the last section was, "a.kv: layer 3", for messages; "" before the first. */
const char *input_place(void);
const void *input_load(struct kv_reader *r);
const struct kv_rows *input_rows(struct kv_reader *r);
void input_failed(struct kv_reader *r, int code) __attribute__((noreturn));
void input_check(struct kv_reader *r, int code);                  /* dies when code < 0 */
int input_status(int code);                                       /* the exit code for a KV_E* */

/* Dies if the output is a terminal: for programs that work long before output_create(), which
 * checks it too. */
void output_refuse_terminal(void);

/* Dies if no output can be written under this name, before work is lost: its folder is missing
 * or not writable, or it is a folder. option: "--output". path "-" or NULL: no check. */
void output_refuse(const char *option, const char *path);

/* Starts the output named by settings.output, with the flags of -z. Refuses a terminal. */
struct kv_writer *output_create(const struct kv_head *head);
/* As output_create(), with this name, "-" for standard output. */
struct kv_writer *output_create_at(const char *path, const struct kv_head *head);
void output_check(struct kv_writer *w, int code);                 /* dies when code < 0 */
/* Deletes the unfinished output; the program continues. */
void output_discard(struct kv_writer *w);
void output_copy(struct kv_reader *r, struct kv_writer *w);       /* kv_copy, dies */
/* Copies an unknown section, or drops it with a warning. */
void output_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed);

/* Set options for the provenance line of all later outputs; the last value of a key counts. */
void sign_text(const char *key, const char *value);
void sign_count(const char *key, uint64_t value);
void sign_real(const char *key, double value);

/* Inherits the provenance of from (NULL = none), signs, commits, frees. */
void output_commit(struct kv_writer *w, const struct kv_reader *from);

/* Warns of the kinds of sections that the output has not, 1 << enum kv_kind each. */
void warn_left_behind(unsigned kinds);

/* Creates a text file beside the output: text_commit() gives it its name; a program that ends
 * before leaves nothing. One at a time, and none while a snapshot is being written. Dies. */
FILE *text_create(const char *path);
void text_commit(FILE *f);

#endif
