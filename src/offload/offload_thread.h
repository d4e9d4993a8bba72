/* offload_thread.h - a thread that reads the rows of layers while others run, in the order of their
 * starts */
#ifndef KVPIPE_OFFLOAD_THREAD_H
#define KVPIPE_OFFLOAD_THREAD_H

#include "offload/offload.h"

struct offload_thread;

/* Starts a thread for the layers of f. NULL without memory or a thread: rows are read by
 * offload_wait() then. */
struct offload_thread *offload_thread_new(struct offload *f);
/* Stops it; rows that nobody has waited for are not read. NULL allowed. */
void offload_thread_free(struct offload_thread *);

/* Queues offload_read_layer() of layer l: once for each layer before it is waited for. */
void offload_thread_begin(struct offload_thread *, uint32_t l);
/* Waits until layer l has been read. */
void offload_thread_wait(struct offload_thread *, uint32_t l);

#endif
