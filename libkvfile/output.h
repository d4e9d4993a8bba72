/* output.h - the output of a snapshot: a file that gets its name at the end, or a stream
 *
 * Internal to libkvfile. */
#ifndef KVFILE_OUTPUT_H
#define KVFILE_OUTPUT_H

#include "error.h"
#include "temporary.h"
#include "watch.h"

#pragma GCC visibility push(hidden)

struct kv_output {
	int fd;
	char *name;             /* in messages: the path, or "stdout" */
	char *final;            /* final name of the file; NULL for a stream */
	struct kv_temporary temporary;  /* its name until then */
	int close;              /* the descriptor is ours */
	uint64_t size;          /* bytes put so far */
	uint8_t *buf;           /* bytes put and not yet written */
	size_t used;
	struct kv_watch *watch; /* NULL: not watched */
};

/* Opens an output. "-" is standard output; flags: of kv_create(). All functions here return
 * KV_OK or set *why, which then names the file. */
int kv_output_open(struct kv_output *o, const char *path, unsigned flags, struct kv_message *why);
int kv_output_put(struct kv_output *o, const void *data, size_t n, struct kv_message *why);
int kv_output_flush(struct kv_output *o, struct kv_message *why);

/* Flushes, synchronises, renames. */
int kv_output_commit(struct kv_output *o, struct kv_message *why);

/* Removes the temporary file if it still exists. */
void kv_output_free(struct kv_output *o);

#pragma GCC visibility pop
#endif
