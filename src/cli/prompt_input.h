/* prompt_input.h - the ids of a prompt: from a file of text or of ids, or from the command line */
#ifndef KVPIPE_PROMPT_INPUT_H
#define KVPIPE_PROMPT_INPUT_H

#include "cli/session.h"

struct prompt_input {
	const char *text;               /* -p TEXT; NULL: the file is read */
	int ids;                        /* 1: the input is a list of ids, not text */
	int plain;                      /* 1: special tokens in the text are plain text */
	int no_template;                /* 1: no BOS before the text */
};

/* Returns the name of the prompt for messages: the operand of the command line, "-" for none, or
 * "--prompt". Dies with EXIT_USAGE when both -p and an operand are given. */
const char *prompt_name(const struct prompt_input *, int argc, char **argv, int first);

/* text[len] <- the text of the prompt, or its file's; for ids as must_read_list(). To be freed.
 * Dies. */
void prompt_text(const struct prompt_input *, const char *name, int list, char **text, size_t *len);
/* Appends the ids of the prompt. from: the snapshot that it continues, not read yet; NULL:
 * none. Dies, also when there are no ids. */
void prompt_read(const struct prompt_input *, const char *name, const struct tokenizer *,
    uint32_t vocabulary, struct kv_reader *from, struct ids *out);

#endif
