/* chat_input.h - a conversation: its template, its messages from files and options, its token
 * ids */
#ifndef KVPIPE_CHAT_INPUT_H
#define KVPIPE_CHAT_INPUT_H

#include <jansson.h>

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

/* Dies with the exit code that belongs to a CHAT_E* code; place: in front of the message, or "". */
void chat_must(int rc, const char *place, const char *err);

/* Opens the template of the folder settings.model, or the one of the name. Dies, also when a
 * built-in template writes tokens that the tokenizer does not have; where the folder has no
 * template the message names those that would do. */
struct chat *chat_input_open(const char *name, const struct tokenizer *);

/* The messages of a file ("-" = standard input): a JSON list, an object with a list "messages",
 * or a message in each line. They are checked. Dies, naming the place. */
json_t *messages_read(const char *path);
/* Appends a message whose text is not checked yet; where: for messages. Dies. */
void messages_add(json_t *messages, const char *role, const char *where, const char *text,
    size_t len);

/* Appends the ids of a rendered conversation. Dies. */
void chat_encode(const struct tokenizer *, const struct marked_text *, unsigned flags,
    struct ids *out);

/* Warns when the token that ends an answer is not one at which kv-decode ends. */
void chat_check_end(const struct chat *, const struct chat_request *, const struct tokenizer *);

#endif
