/* chat_input.h - a conversation: its template, its messages from files and options, its token
 * ids */
#ifndef KVPIPE_CHAT_INPUT_H
#define KVPIPE_CHAT_INPUT_H

#include <jansson.h>

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

/* Dies with the exit code of a CHAT_E* code; returns for 0. place: prefix of the message, or
 * "". */
void chat_must(int rc, const char *place, const char *err);

/* Opens the template `name`, or, if NULL, that of the folder settings.model. Dies, also when a
 * built-in template writes tokens that the tokenizer does not have. If the folder has no
 * template, the message names built-in ones that fit. */
struct chat *chat_input_open(const char *name, const struct tokenizer *);

/* Returns the messages of a file ("-" = standard input), checked: a JSON list, an object with a
 * list "messages", or one message per line. Dies and names the place. */
json_t *messages_read(const char *path);
/* Appends a message; where: prefix of the error message. Dies if text is not UTF-8. */
void messages_add(json_t *messages, const char *role, const char *where, const char *text,
    size_t len);

/* Appends the ids of a rendered conversation. Dies. */
void chat_encode(const struct tokenizer *, const struct marked_text *, unsigned flags,
    struct ids *out);

/* Warns if kv-decode does not stop at the token that ends an answer. */
void chat_check_end(const struct chat *, const struct chat_request *, const struct tokenizer *);

#endif
