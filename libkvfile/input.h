/* input.h - the input of a snapshot: a regular file, or a stream
 *
 * Internal to libkvfile. Both are read front to back by the same call; a stream is never read
 * further than asked. */
#ifndef KVFILE_INPUT_H
#define KVFILE_INPUT_H

#include "watch.h"

#pragma GCC visibility push(hidden)

struct kv_input {
	int fd;
	int regular;            /* a regular file */
	int whole;              /* a regular file, read from its beginning */
	uint64_t pos;           /* bytes read so far; the end of the input after a short read */
	int error;              /* errno of a failed read, else 0 */
	struct kv_watch *watch; /* NULL: not watched */
};

/* Initialises in; fd remains the caller's. Returns 0 or an errno. */
int kv_input_open(struct kv_input *in, int fd);

/* buf <- the next n bytes. Returns -1 if the input ends or fails before; then *got (got may be
 * NULL) is the number of bytes read. */
int kv_input_take(struct kv_input *in, void *buf, size_t n, size_t *got);

/* Skips n bytes of a file that is read from its beginning; returns -1 if it has fewer. */
int kv_input_skip(struct kv_input *in, uint64_t n);

#pragma GCC visibility pop
#endif
