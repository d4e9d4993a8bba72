/* chat.h - renders a conversation as the text that a model was trained on
 *
 * With the template of the model folder or a built-in one. Each byte of the text is marked as
 * markup, written by the template, or contents, from a message: the tokenizer finds special
 * tokens in markup only. */
#ifndef KVPIPE_CHAT_H
#define KVPIPE_CHAT_H

#include "chat/jinja.h"

struct chat;

/* Opens a chat template. config: what tokenizer_config.json would be of a model that is no folder,
 * and dir names that; NULL: the folder's files. name NULL: that of the model, from
 * chat_template.jinja, or chat_template of tokenizer_config.json or chat_template.json. Else name
 * is one of several in the folder, in additional_chat_templates/NAME.jinja or by name in
 * chat_template ("default" is the one without a name); a built-in one; or, with a slash or ".jinja"
 * in it, a file. Returns 0 or a CHAT_E* code with a message. */
int chat_open(const char *dir, const json_t *config, const char *name, struct chat **out, char *err,
    size_t errlen);
void chat_close(struct chat *);                /* NULL allowed */

/* Appends the names of the templates of a model folder, or of such a config, texts, at most 40.
 * Ignores files that cannot be read. */
void chat_folder_names(const char *dir, const json_t *config, json_t *names);
/* Returns the name of built-in template i, and its tokens separated by blanks; NULL after the
 * last one. */
const char *chat_builtin(size_t i, const char **tokens);
/* Returns the tokens that a built-in template writes; NULL for other templates. */
const char *chat_tokens(const struct chat *);

enum {
	CHAT_PROMPT = 1,        /* end with the beginning of an answer */
	CHAT_OPEN = 2,          /* end with the last message's contents: its turn stays open */
	CHAT_CONTINUE = 4       /* begin with the first message's contents: its turn was open */
};

struct chat_request {
	const json_t *messages; /* of chat_messages() */
	const json_t *set;      /* additional variables for the template, or NULL */
	const char *date;       /* YYYY-MM-DD; NULL: not defined */
	unsigned flags;
};

/* Checks messages as read from a file, and joins contents that are lists of texts. Returns 0 or
 * a CHAT_E* code with a message that names the message. */
int chat_messages(json_t *messages, char *err, size_t errlen);

/* Renders; mark is not 0 for contents. CHAT_CONTINUE of an assistant's message: as if a user's
 * came before it. Returns 0 or a CHAT_E* code with a message. */
int chat_render(const struct chat *, const struct chat_request *, struct marked_text *out,
    char *err, size_t errlen);

/* As chat_render(), but only what the template writes after an answer. */
int chat_answer_end(const struct chat *, const struct chat_request *, struct marked_text *out,
    char *err, size_t errlen);

#endif
