/* chat_internal.h - what a template of conversations consists of */
#ifndef KVPIPE_CHAT_INTERNAL_H
#define KVPIPE_CHAT_INTERNAL_H

#include "chat/chat.h"

struct chat {
	struct jinja *template;
	json_t *variables;              /* bos_token and the like, as far as the folder says them */
	const char *tokens;             /* chat_tokens() */
};

/* Is it a variable that has the text of a special token: bos_token and so on? */
int chat_is_token(const char *variable);

#endif
