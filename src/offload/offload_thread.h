/* offload_thread.h - a thread that reads the rows of layers while other layers run, in the order of
 * the calls of offload_thread_begin() */
#ifndef KVPIPE_OFFLOAD_THREAD_H
#define KVPIPE_OFFLOAD_THREAD_H

#include "offload/offload.h"

struct offload_thread;

/* Starts a thread for the layers of f, and returns it. NULL without memory or a thread: then
 * offload_wait() reads the rows. */
struct offload_thread *offload_thread_new(struct offload *f);
/* Stops the thread, and drops reads that were begun and not waited for. NULL allowed. */
void offload_thread_free(struct offload_thread *);

/* Queues offload_read_layer() of layer l, which must have no unfinished read. */
void offload_thread_begin(struct offload_thread *, uint32_t l);
/* Waits until layer l has been read. */
void offload_thread_wait(struct offload_thread *, uint32_t l);

#endif
