/* report.h - --report FILE: a record of what a program has done, one JSON object on a line,
 * appended when it ends, in whatever way
 *
 * kvpipe(7), REPORTS, explains the keys. Without --report these functions do nothing. Memory is
 * allocated only at the start, so that a program that is out of memory still writes its record. */
#ifndef KVPIPE_REPORT_H
#define KVPIPE_REPORT_H

#include <stdint.h>

#include "engine/device_memory.h"
#include "libkvfile/kvfile.h"

/* Categories of time. WAIT: for another program at the other end of a pipe. */
enum report_phase { REPORT_LOAD, REPORT_COMPUTE, REPORT_WRITE, REPORT_WAIT, REPORT_PHASES };

/* Starts the clocks. Called by tool_start() before options are parsed. */
void report_start(int argc, char **argv);
/* Opens settings.report, after options are parsed. Dies. */
void report_open(void);
/* Dies if this output would replace the report file. */
void report_refuse(const char *output);
/* Appends the record; later calls of this and report_write_brief() do nothing. Returns 0, or -1
 * with errno. */
int report_write(int status);
/* As report_write(), async-signal-safe: a record that ends in this key ("signal", say) with a
 * number below 100. */
void report_write_brief(const char *key, int number);

/* Assigns time to this phase until report_leave(). Phases nest; time counts for the innermost
 * one, and for COMPUTE outside. */
void report_enter(enum report_phase);
void report_leave(void);
/* As report_enter(), but WAIT if the descriptor is not a regular file. */
void report_enter_descriptor(int fd, enum report_phase);
/* As report_enter_descriptor(), before a snapshot is opened, which reads its front: "-" is
 * standard input. */
void report_enter_snapshot(const char *path);

/* Adds a number under this key, a literal; once for each key. */
void report_count(const char *key, uint64_t n);
/* Counts bytes read from files other than snapshots. */
void report_bytes_in(uint64_t n);
/* Marks the time of the text's first token. */
void report_first_token(void);
/* Enclose scoring and eviction in the program, as often as there is some. */
void report_eviction_begin(void);
void report_eviction_end(void);
/* Enclose each later step of decoding. */
void report_step_begin(void);
void report_step_end(void);

/* Counts what the device does from this call on. Dies. */
void report_device(struct device *);
/* Measure the time that snapshots take, and count their contents. */
void report_reader(struct kv_reader *);
void report_writer(struct kv_writer *);

#endif
