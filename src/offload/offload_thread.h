/* offload_thread.h - a thread that fetches the rows of layers while others run, in the order in which the layers
 * were begun */
#ifndef KVPIPE_OFFLOAD_THREAD_H
#define KVPIPE_OFFLOAD_THREAD_H

#include "offload/offload.h"

struct far_reader;

/* For the layers of f. NULL without memory, or a thread: rows are fetched when they are waited for, then. */
struct far_reader *far_reader_new(struct far_rows *f);
/* What was begun and not waited for is not fetched. NULL allowed. */
void far_reader_free(struct far_reader *);

/* far_fetch_layer() of layer l, from now on: each layer once before it is waited for. */
void far_reader_begin(struct far_reader *, uint32_t l);
/* Until that has been done */
void far_reader_wait(struct far_reader *, uint32_t l);

#endif
