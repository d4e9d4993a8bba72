/* chat.h - a conversation as the text that a model was trained on
 *
 * The template is that of the model folder, or one of those that are built in. Of the text each
 * byte is known to be markup, which the template has written, or contents, which stands in a
 * message: the tokenizer finds special tokens in markup only. */
#ifndef KVPIPE_CHAT_H
#define KVPIPE_CHAT_H

#include "chat/jinja.h"

struct chat;

/* Opens the template of a model folder: chat_template.jinja, or chat_template of
 * tokenizer_config.json or chat_template.json. name, where not NULL, overrules it: one of several
 * that the folder has, in additional_chat_templates/NAME.jinja or by name in chat_template; a
 * built-in one; or, with a slash or ".jinja" in it, a file. "default" is the one without a name.
 * Returns 0 or a CHAT_E* code with a message. */
int chat_open(const char *dir, const char *name, struct chat **out, char *err, size_t errlen);
void chat_close(struct chat *);                /* NULL allowed */

/* Appends the names of the templates of a model folder, texts, 40 at most. Files that cannot be
 * read have none. */
void chat_folder_names(const char *dir, json_t *names);
/* The name of a built-in template and, between blanks, the tokens that it writes; NULL behind the
 * last one. */
const char *chat_builtin(size_t i, const char **tokens);
/* The tokens that the template writes, where it is a built-in one; otherwise NULL. */
const char *chat_tokens(const struct chat *);

enum {
	CHAT_PROMPT = 1,        /* with what an answer begins with */
	CHAT_OPEN = 2,          /* ends with the last message's contents: its turn stays open */
	CHAT_CONTINUE = 4       /* begins with the first message's contents: its turn was open */
};

struct chat_request {
	const json_t *messages; /* of chat_messages() */
	const json_t *set;      /* variables for the template besides, or NULL */
	const char *date;       /* YYYY-MM-DD; NULL: there is none */
	unsigned flags;
};

/* Checks messages as they come from a file, and makes contents that are lists of texts one text.
 * Returns 0 or a CHAT_E* code with a message that names the message. */
int chat_messages(json_t *messages, char *err, size_t errlen);

/* Renders; mark is not 0 where contents are. CHAT_CONTINUE of an assistant's message: a user's is
 * thought before it. Returns 0 or a CHAT_E* code with a message. */
int chat_render(const struct chat *, const struct chat_request *, struct marked_text *out,
    char *err, size_t errlen);

/* What the template writes behind an answer, as chat_render() does it. */
int chat_answer_end(const struct chat *, const struct chat_request *, struct marked_text *out,
    char *err, size_t errlen);

#endif
