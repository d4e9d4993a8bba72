/* report.h - --report FILE: a record of what a program has done, one JSON object in a line,
 * appended when it ends, whichever way
 *
 * kvpipe(7), REPORTS, explains the keys. Without --report all of this does nothing. Memory is taken
 * at the start only: a record of a program that has none left is written, too. */
#ifndef KVPIPE_REPORT_H
#define KVPIPE_REPORT_H

#include <stdint.h>

#include "engine/device_memory.h"
#include "libkvfile/kvfile.h"

/* What the time goes to. A wait is for another program, at the other end of a pipe. */
enum report_phase { REPORT_LOAD, REPORT_COMPUTE, REPORT_WRITE, REPORT_WAIT, REPORT_PHASES };

/* The clocks begin. For tool_start(), before options are read. */
void report_start(int argc, char **argv);
/* Opens settings.report; options have been read. Dies. */
void report_open(void);
/* Dies when the file that is recorded in would be replaced by this output, too. */
void report_refuse(const char *output);
/* Appends the record, once; later calls of either do nothing. Returns 0, or -1 with errno. */
int report_write(int status);
/* In a handler of signals, which may do this: one that ends in this key ("signal", say) with a
 * number below 100. */
void report_write_brief(const char *key, int number);

/* Time goes to this phase until report_leave(); they nest, and each moment belongs to the innermost
 * one. COMPUTE where there is none. */
void report_enter(enum report_phase);
void report_leave(void);
/* WAIT where the descriptor is no file, else the phase. */
void report_enter_descriptor(int fd, enum report_phase);
/* The same before a snapshot is opened, which reads its front: "-" is standard input. */
void report_enter_snapshot(const char *path);

/* A number of the program under this key, a literal; once for each key. */
void report_count(const char *key, uint64_t n);
/* More bytes that were read beside snapshots. */
void report_bytes_in(uint64_t n);
/* The first token of a text is known. */
void report_first_token(void);
/* Around each token that runs behind it. */
void report_step_begin(void);
void report_step_end(void);

/* Counts what the device is asked to do from now on. Dies. */
void report_device(struct device *);
/* Takes the time of snapshots, and counts what is in them. */
void report_reader(struct kv_reader *);
void report_writer(struct kv_writer *);

#endif
