/* chat_input.c - a conversation: its template, its messages from files and options, its token
 * ids */
#include <stdlib.h>
#include <string.h>

#include "cli/chat_input.h"
#include "cli/explain.h"
#include "cli/nearest_name.h"
#include "cli/session.h"
#include "cli/text_input.h"
#include "cli/tool.h"
#include "model/file_kind.h"
#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/model.h"
#include "tokenizer/utf8.h"

static int
status_of(int code)
{
	switch (code) {
	case CHAT_EINVALID: case CHAT_EREFUSED:
		return EXIT_DAMAGED;
	case CHAT_EUNSUPPORTED:
		return EXIT_UNSUPPORTED;
	default:
		return EXIT_RUN;
	}
}

void
chat_must(int rc, const char *place, const char *err)
{
	const int date = rc == CHAT_EREFUSED && strstr(err, "asks for the date") != NULL;

	if (rc != 0)
		die(status_of(rc), "%s%s%s%s", place, place[0] != '\0' ? ": " : "", err,
		    date ? ": give it one with --date YYYY-MM-DD, or --date today" : "");
}

/* ---- the template ---- */

/* Returns the first of the tokens, separated by blanks, that the tokenizer lacks; "" if it has
 * all. */
static const char *
missing_token(const struct tokenizer *t, const char *tokens)
{
	static char word[128];
	struct ids ids = { .n = 0 };
	char err[512];
	size_t n;
	int rc;

	for (; *tokens != '\0'; tokens += n + strspn(tokens + n, " ")) {
		n = strcspn(tokens, " ");
		memcpy(word, tokens, n);
		word[n] = '\0';
		ids.n = 0;
		rc = tokenizer_encode(t, word, n, TOK_MIDDLE, &ids, err, sizeof err);
		if (rc == TOKENIZER_ENOMEM)
			die(EXIT_RUN, "%s", err);
		if (rc != 0 || ids.n != 1)
			break;
	}
	free(ids.ids);
	return *tokens != '\0' ? word : "";
}

/* Returns ": its tokenizer has the tokens of chatml, smollm", or "". */
static const char *
those_that_fit(const struct tokenizer *t)
{
	static char text[512];
	const char *name, *tokens;
	size_t i, n = 0;

	text[0] = '\0';
	for (i = 0; (name = chat_builtin(i, &tokens)) != NULL; i++)
		if (*missing_token(t, tokens) == '\0' && n < sizeof text)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n == 0 ?
			    ": its tokenizer has the tokens of " : ", ", name);
	return text;
}

/* Returns what a GGUF file has of a chat, to be json_decref'ed; NULL for a folder. */
static json_t *
chat_of_file(void)
{
	json_t *config;
	char err[1024];

	if (!gguf_is(settings.model))
		return NULL;
	must_model(gguf_chat(settings.model, &config, err, sizeof err), err);
	return config;
}

/* Returns ": did you mean tool_use?", or "". */
static const char *
nearest_template(const char *name, const json_t *config)
{
	json_t *names = json_array();
	const char *known[64] = { NULL }, *text;
	size_t i, n;

	chat_folder_names(settings.model, config, names);
	for (n = 0; n < json_array_size(names) && n < 63; n++)
		known[n] = json_string_value(json_array_get(names, n));
	for (i = 0; n < 63 && (known[n] = chat_builtin(i, NULL)) != NULL; i++)
		n++;
	text = did_you_mean("", name, known);
	json_decref(names);
	return text;
}

struct chat *
chat_input_open(const char *name, const struct tokenizer *t)
{
	json_t *config = chat_of_file();
	const char *missing;
	struct chat *c;
	char err[1024];
	int rc = chat_open(settings.model, config, name, &c, err, sizeof err);

	if (rc == CHAT_EIO || rc == CHAT_EINVALID)
		explain_file(settings.model, err, sizeof err);
	if (rc == CHAT_EUNSUPPORTED && strstr(err, "has no chat_template") != NULL)
		die(EXIT_UNSUPPORTED, "%s%s", err, those_that_fit(t));
	if (rc == CHAT_EUNSUPPORTED && strstr(err, "there is no template") != NULL)
		die(EXIT_USAGE, "--template: %s%s", err, nearest_template(name, config));
	chat_must(rc, "", err);
	json_decref(config);
	if (chat_tokens(c) != NULL && *(missing = missing_token(t, chat_tokens(c))) != '\0')
		die(EXIT_UNSUPPORTED, "--template %s: %s has no token %s", name, settings.model,
		    missing);
	return c;
}

/* ---- messages ---- */

/* Reads one message per line. */
static json_t *
read_lines(const char *name, const char *text, size_t size)
{
	const char *end, *next, *all_end = text + size;
	json_t *all = json_array(), *one;
	json_error_t e;
	size_t line = 0;

	for (; text < all_end; text = next) {
		end = memchr(text, '\n', (size_t)(all_end - text));
		next = end != NULL ? end + 1 : all_end;
		end = end != NULL ? end : all_end;
		line++;
		if (strspn(text, " \t\r\n") >= (size_t)(end - text))
			continue;
		one = json_loadb(text, (size_t)(end - text),
		    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
		if (one == NULL)
			die(EXIT_DAMAGED, "%s: line %zu: byte %d: %s", name, line, e.position,
			    json_words(&e));
		json_array_append_new(all, one);
	}
	return all;
}

json_t *
messages_read(const char *path)
{
	const char *name = path_name(path);
	char *text, err[512];
	json_t *all, *list;
	json_error_t e;
	size_t size;

	must_read_list(path, &text, &size);
	all = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
	list = json_object_get(all, "messages");
	if (list != NULL) {
		json_incref(list);
		json_decref(all);
		all = list;
	} else if (!json_is_array(all) && text[strspn(text, " \t\r\n")] == '{') {
		json_decref(all);
		all = read_lines(name, text, size);
	} else if (all == NULL) {
		die(EXIT_DAMAGED, "%s: line %d, column %d: %s", name, e.line, e.column,
		    json_words(&e));
	}
	free(text);
	chat_must(chat_messages(all, err, sizeof err), name, err);
	return all;
}

void
messages_add(json_t *messages, const char *role, const char *where, const char *text, size_t len)
{
	const size_t bad = utf8_check(text, len);

	if (bad < len)
		die(where[0] == '-' ? EXIT_USAGE : EXIT_DAMAGED,
		    "%s: not UTF-8: byte %02X at offset %zu",
		    where, (unsigned)(unsigned char)text[bad], bad);
	if (json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role, "content", text,
	    len)) != 0)
		die(EXIT_RUN, "%s: no memory", where);
}

/* ---- ids ---- */

void
chat_encode(const struct tokenizer *t, const struct marked_text *text, unsigned flags,
    struct ids *out)
{
	char err[512];
	int rc = tokenizer_encode_marked(t, text->text, text->mark, text->n,
	    flags & CHAT_CONTINUE ? TOK_MIDDLE : 0, out, err, sizeof err);

	if (rc != 0)
		die(rc == TOKENIZER_ENOMEM ? EXIT_RUN : EXIT_DAMAGED, "the conversation: %s", err);
	if (err[0] != '\0')
		warning("the conversation: %s", err);
}

void
chat_check_end(const struct chat *c, const struct chat_request *q, const struct tokenizer *t)
{
	uint32_t eos[MODEL_EOS_MAX], n, i;
	struct marked_text end;
	struct ids ids = { .n = 0 };
	const char *text = NULL;
	int special = 0;
	char err[1024];
	size_t len;

	/* A folder without such files is not a model that kv-decode could run. */
	if (model_end_tokens(settings.model, eos, &n, err, sizeof err) != 0 || n == 0)
		return;
	if (chat_answer_end(c, q, &end, err, sizeof err) != 0) {
		note("the end of an answer is unknown: %s", err);
		return;
	}
	chat_encode(t, &end, CHAT_CONTINUE, &ids);
	if (ids.n > 0)
		text = tokenizer_bytes(t, ids.ids[0], &len, &special);
	for (i = 0; i < n && ids.n > 0 && eos[i] != ids.ids[0]; i++)
		;
	if (text != NULL && special && i == n)
		warning("an answer ends with %s, which is not an end token in "
		    "generation_config.json: use kv-decode --stop '%s'", text, text);
	free(ids.ids);
	free(end.text);
	free(end.mark);
}
