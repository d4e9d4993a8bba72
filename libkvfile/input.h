/* input.h - where a snapshot comes from: a mapping of a regular file, or a stream
 *
 * Internal to libkvfile. Both are read front to back by the same call; a stream is never read
 * further than asked. */
#ifndef KVFILE_INPUT_H
#define KVFILE_INPUT_H

#include "watch.h"

#pragma GCC visibility push(hidden)

struct kv_input {
	int fd;
	int regular;            /* a regular file, mapped or not */
	int whole;              /* a regular file that is read from its beginning */
	const uint8_t *map;     /* NULL for a stream */
	uint64_t size;          /* of the mapping */
	uint64_t pos;           /* bytes taken so far; the end of the input after a short take */
	int error;              /* errno of a failed read, else 0 */
	uint64_t dropped;       /* the mapping is given back up to here */
	struct kv_watch *watch; /* NULL: nobody watches */
};

/* fd stays the caller's, to be closed after kv_input_close(). Returns 0 or an errno. */
int kv_input_open(struct kv_input *in, int fd);

/* The next n bytes: in the mapping, or read into buf[n]. NULL when the input ends or fails
 * before; then *got, when got is not NULL, is what there was. */
const uint8_t *kv_input_take(struct kv_input *in, void *buf, size_t n, size_t *got);

/* Passes over n bytes of a mapping; -1 when there are not so many. */
int kv_input_skip(struct kv_input *in, uint64_t n);

/* The caller will not look at what it has taken any more: a mapping then needs no memory for
 * it. */
void kv_input_drop(struct kv_input *in);

void kv_input_close(struct kv_input *in);

#pragma GCC visibility pop
#endif
