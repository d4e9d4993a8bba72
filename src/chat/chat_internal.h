/* chat_internal.h - the parts of a chat template */
#ifndef KVPIPE_CHAT_INTERNAL_H
#define KVPIPE_CHAT_INTERNAL_H

#include "chat/chat.h"

struct chat {
	struct jinja *template;
	json_t *variables;              /* bos_token and so on, if the folder has them */
	const char *tokens;             /* chat_tokens() */
};

/* Returns whether a variable holds a special token: bos_token and so on. */
int chat_is_token(const char *variable);

#endif
