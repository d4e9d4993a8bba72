/* input_twice.h - a snapshot that is read two times, where the first bytes of the output depend on
 * the last ones of the input
 *
 * A regular file is simply read again. What comes through a pipe is put into a temporary file
 * first: in $TMPDIR, as large as the snapshot, without a name, gone when the program ends. */
#ifndef KVPIPE_INPUT_TWICE_H
#define KVPIPE_INPUT_TWICE_H

#include "libkvfile/kvfile.h"

struct input_twice {
	int fd;
	const char *name;       /* for messages */
};

/* "-" is standard input. Reads a pipe to its end. Dies. */
void input_twice_start(struct input_twice *in, const char *path);
/* The snapshot from its start; the reader before has been closed. Dies with the right status. */
struct kv_reader *input_twice_open(const struct input_twice *in);
void input_twice_end(struct input_twice *in);

#endif
