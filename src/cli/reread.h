/* reread.h - a snapshot that is read two times, where the first bytes of the output depend on the
 * last ones of the input
 *
 * A regular file is simply read again. What comes through a pipe is put into a temporary file
 * first: in $TMPDIR, as large as the snapshot, without a name, gone when the program ends. */
#ifndef KVPIPE_REREAD_H
#define KVPIPE_REREAD_H

#include "libkvfile/kvfile.h"

struct reread {
	int fd;
	const char *name;       /* for messages */
};

/* "-" is standard input. Reads a pipe to its end. Dies. */
void reread_start(struct reread *in, const char *path);
/* The snapshot from its start; the reader before has been closed. Dies with the right status. */
struct kv_reader *reread_open(const struct reread *in);
void reread_end(struct reread *in);

#endif
