/* input_twice.h - reads a snapshot twice, for outputs whose first bytes depend on the end of the
 * input
 *
 * A regular file is read again. A pipe is first copied into a temporary file in $TMPDIR, as
 * large as the snapshot, without a name, deleted when the program ends. */
#ifndef KVPIPE_INPUT_TWICE_H
#define KVPIPE_INPUT_TWICE_H

#include "libkvfile/kvfile.h"

struct input_twice {
	int fd;
	const char *name;       /* for messages */
};

/* Opens path ("-" = standard input) for input_twice_open(); copies a pipe to its end. Dies. */
void input_twice_start(struct input_twice *in, const char *path);
/* Returns a reader at the start of the snapshot; close the one before it first. Dies with the
 * status that fits. */
struct kv_reader *input_twice_open(const struct input_twice *in);
void input_twice_end(struct input_twice *in);

#endif
