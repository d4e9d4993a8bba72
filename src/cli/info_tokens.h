/* info_tokens.h - prints the tokens of a snapshot, all or those kept: kv-info --ids, --text */
#ifndef KVPIPE_INFO_TOKENS_H
#define KVPIPE_INFO_TOKENS_H

#include "libkvfile/kvfile.h"

struct info_tokens_options {
	int ids, text;
	const char *kept;               /* any, all, LAYER or LAYER,HEAD; NULL: all tokens */
};

extern struct info_tokens_options info_tokens_options;

/* Returns whether one of these options was given. Dies with EXIT_USAGE if they contradict each
 * other. */
int opt_info_tokens(void);
/* Prints ids, one a line, or the text; with --json an object. The text needs settings.model.
 * Dies. */
void print_info_tokens(struct kv_reader *);

#endif
