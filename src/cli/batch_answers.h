/* batch_answers.h - texts behind many snapshots, as many at once as a batch has room for */
#ifndef KVPIPE_BATCH_ANSWERS_H
#define KVPIPE_BATCH_ANSWERS_H

#include "cli/generation.h"
#include "cli/session.h"
#include "engine/open_sequence.h"

struct batch_answers {
	struct session *session;        /* answers_run() opens it, unless no snapshot can be opened */
	enum tokenizer_need need;
	struct sequence_options *want;
	const char *head;               /* folder of a retrieval head, which becomes want->head; NULL: none */
	const struct generation_options *generation;
	char **operand;                 /* [n] names of snapshots, "-" once at most */
	size_t n;
	uint32_t most;                  /* at once, 1 to BATCH_MOST */
	/* takes the snapshots behind the texts, each under the last part of its name; NULL: they
	 * are not kept */
	const char *folder;
	/* writes one of them to settings.output */
	int (*save)(struct open_sequence *, struct kv_reader *, struct engine_error *);
};

/* Refuses, with EXIT_USAGE, names that cannot be those of outputs: two that are the same in the
 * folder, standard input. */
void answers_check(const struct batch_answers *);
/* Prints the answers in the order of the names, a line break behind each, or a line of JSON.
 * One that fails says why and the others go on. Returns the exit code of the first failure in
 * that order, or EXIT_OK. Dies where the device or an output fails. */
int answers_run(const struct batch_answers *);

/* FOLDER/last part of the name, to be freed. Dies. */
char *name_in_folder(const char *folder, const char *name);

#endif
