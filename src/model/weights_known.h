/* weights_known.h - hashes of weights that have been read before, in a file
 *
 * Internal to model/. A folder is found again by device, inode, size and times of its files: who
 * changes a file changes its ctime. Nothing here is an error: a file that cannot be read, is
 * damaged, or could have been written by others is as good as none, and the weights are read. */
#ifndef KVPIPE_WEIGHTS_KNOWN_H
#define KVPIPE_WEIGHTS_KNOWN_H

#include <time.h>
#include <xxhash.h>

#include "model/safetensors.h"

struct weights_known {
	const char *file;               /* NULL: nothing is looked up, nothing added */
	char key[33];
	struct timespec began;          /* before the weights were read */
};

/* Looks these files up. Returns 1 with hex[33], else 0. x: for its own use */
int weights_known_find(struct weights_known *, const char *file, const struct tensor_set *,
    XXH3_state_t *x, char *hex);
/* Remembers what weights_known_find() did not find, unless one of the files has changed meanwhile,
 * or so short before that another change could have left the same times. */
void weights_known_add(const struct weights_known *, const struct tensor_set *, const char *hex);

#endif
