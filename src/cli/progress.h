/* progress.h - a progress line on standard error, if that is a terminal and the work takes more
 * than a second */
#ifndef KVPIPE_PROGRESS_H
#define KVPIPE_PROGRESS_H

#include <stdint.h>

/* "prefill", 8192, "tokens"; unit "B" prints MiB */
void progress_start(const char *what, uint64_t total, const char *unit);
void progress(uint64_t done);                                     /* cheap; may be called often */
/* progress(), in the form that engine/ and model/ call (struct step_hook); with is unused */
void progress_step(void *with, uint64_t done);
void progress_end(void);

#endif
