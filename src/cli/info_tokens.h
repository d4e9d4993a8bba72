/* info_tokens.h - the tokens of a snapshot, and those that are kept: kv-info --ids, --text */
#ifndef KVPIPE_INFO_TOKENS_H
#define KVPIPE_INFO_TOKENS_H

#include "libkvfile/kvfile.h"

struct info_tokens_options {
	int ids, text;
	const char *kept;               /* any, all, LAYER or LAYER,HEAD; NULL: all tokens */
};

extern struct info_tokens_options info_tokens_options;

/* Is something of it asked for? Dies with EXIT_USAGE where options do not go together. */
int opt_info_tokens(void);
/* Prints ids, one a line, or the text; with --json an object. The text needs settings.model.
 * Dies. */
void print_info_tokens(struct kv_reader *);

#endif
