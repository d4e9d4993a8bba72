/* decode_batch.h - texts behind many snapshots, as many at once as a batch has room for */
#ifndef KVPIPE_DECODE_BATCH_H
#define KVPIPE_DECODE_BATCH_H

#include "cli/decode_text.h"
#include "cli/session.h"
#include "engine/open_sequence.h"

struct decode_batch {
	/* decode_batch_run() opens it, unless no snapshot can be opened */
	struct session *session;
	enum tokenizer_need need;
	struct sequence_options *want;
	/* folder of a retrieval head, which becomes want->head; NULL: none */
	const char *head;
	const struct decode_text_options *generation;
	char **operand;                 /* [n] names of snapshots, "-" once at most */
	size_t n;
	uint32_t most;                  /* at once, 1 to BATCH_MOST */
	/* takes the snapshots behind the texts, each under the last part of its name; NULL: they
	 * are not kept */
	const char *folder;
	/* writes one of them to settings.output */
	int (*save)(struct open_sequence *, struct kv_reader *, const char *path,
	    struct engine_error *);
};

/* Refuses, with EXIT_USAGE, names that cannot be those of outputs: two that are the same in the
 * folder, standard input. */
void decode_batch_check(const struct decode_batch *);
/* Prints the answers in the order of the names, a line break behind each, or a line of JSON.
 * One that fails says why and the others go on. Returns the exit code of the first failure in
 * that order, or EXIT_OK. Dies where the device or an output fails. */
int decode_batch_run(const struct decode_batch *);

/* FOLDER/last part of the name, to be freed. Dies. */
char *name_in_folder(const char *folder, const char *name);

#endif
