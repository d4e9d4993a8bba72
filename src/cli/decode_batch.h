/* decode_batch.h - generates after many snapshots, several at a time in one batch */
#ifndef KVPIPE_DECODE_BATCH_H
#define KVPIPE_DECODE_BATCH_H

#include "cli/decode_text.h"
#include "cli/session.h"
#include "engine/open_sequence.h"

struct decode_batch {
	/* opened by decode_batch_run(), unless no snapshot can be opened */
	struct session *session;
	enum tokenizer_need need;
	struct sequence_options *want;
	/* folder of a retrieval head, for want->head; NULL: none */
	const char *head;
	const struct decode_text_options *generation;
	char **operand;                 /* [n] names of snapshots, "-" once at most */
	size_t n;
	uint32_t most;                  /* at once, 1 to BATCH_MOST */
	/* folder for the snapshots after generation, each under its input's base name; NULL:
	 * none */
	const char *folder;
	/* writes such a snapshot to settings.output */
	int (*save)(struct open_sequence *, struct kv_reader *, const char *path,
	    struct engine_error *);
};

/* Dies with EXIT_USAGE for operands that cannot name outputs: two with the same base name, or
 * standard input. */
void decode_batch_check(const struct decode_batch *);
/* Prints the answers in the order of the operands, each followed by a newline, or as a line of
 * JSON. A failure is printed and does not stop the others. Returns the exit code of the first
 * failure in that order, or EXIT_OK. Dies if the device or an output fails. */
int decode_batch_run(const struct decode_batch *);

/* Returns FOLDER/BASENAME, to be freed. Dies. */
char *name_in_folder(const char *folder, const char *name);

#endif
