/* kv-chat - role-tagged messages to token ids */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/chat_input.h"
#include "cli/decode_questions.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/terminal_escape.h"
#include "cli/text_input.h"
#include "cli/tool.h"

static const char *system_text, *user, *user_file, *assistant, *template, *date, *ask;
static int open_turn, go_on, no_prompt, text_out;
static struct strings sets;

static const struct opt opts[] = {
	{ 0, "system", OPT_STRING, &system_text, 0, "TEXT", "a system message", OPT_READS },
	{ 0, "user", OPT_STRING, &user, 0, "TEXT", "a user message", OPT_READS },
	{ 0, "user-file", OPT_STRING, &user_file, 0, "FILE", "a user message in FILE", OPT_READS },
	{ 0, "assistant", OPT_STRING, &assistant, 0, "TEXT",
	    "end of the answer to continue, before the user's message (often '')",
	    OPT_READS },
	{ 0, "open", OPT_FLAG, &open_turn, 1, NULL,
	    "leave the turn of the last message open", OPT_READS },
	{ 0, "continue", OPT_FLAG, &go_on, 1, NULL,
	    "begin inside the turn of the first message, which was left open", OPT_HOW },
	{ 0, "questions", OPT_STRING, &ask, 0, "FILE",
	    "continue an open turn with each line of FILE, for kv-decode --questions", OPT_READS },
	{ 0, "no-generation-prompt", OPT_FLAG, &no_prompt, 1, NULL,
	    "end with the last message, not with the beginning of an answer", OPT_WRITES },
	{ 0, "template", OPT_STRING, &template, 0, "NAME",
	    "use a built-in template, or a file, instead of the folder's", OPT_HOW },
	{ 0, "set", OPT_STRINGS, &sets, 0, "NAME=VALUE",
	    "a variable of the template, JSON or text (repeatable)", OPT_HOW },
	{ 0, "date", OPT_STRING, &date, 0, "DATE",
	    "date for templates that use it: YYYY-MM-DD, or today (none)", OPT_HOW },
	{ 0, "text", OPT_FLAG, &text_out, 1, NULL, "print the text instead of ids", OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-chat",
	.synopsis = "-m MODEL [-qv] [--assistant TEXT] [--continue] [--date DATE]\n"
	    "[--no-generation-prompt] [--open] [--report FILE] [--set NAME=VALUE] [--system TEXT]\n"
	    "[--template NAME] [--text] [--user TEXT | --user-file FILE | messages]\n"
	    "kv-chat -m MODEL [-qv] [--date DATE] [--report FILE] [--set NAME=VALUE]\n"
	    "[--template NAME] --questions FILE",
	.example = "kv-chat -m MODEL --user 'Who are you?' | kv-prefill -m MODEL --ids -o chat.kv",
	.opts = opts,
	.takes = TAKES_MODEL,
	.max_operands = 1
};

/* --date as YYYY-MM-DD */
static const char *
take_date(void)
{
	static char today[16];
	const char *form = "dddd-dd-dd", *p = date;
	time_t now = time(NULL);
	struct tm t;

	if (date == NULL)
		return NULL;
	if (strcmp(date, "today") == 0 && localtime_r(&now, &t) != NULL &&
	    strftime(today, sizeof today, "%Y-%m-%d", &t) > 0)
		return today;
	for (; *form != '\0' && (*form == 'd' ? *p >= '0' && *p <= '9' : *p == *form); form++)
		p++;
	if (*form != '\0' || *p != '\0' || atoi(date + 5) < 1 || atoi(date + 5) > 12 ||
	    atoi(date + 8) < 1 || atoi(date + 8) > 31 || atoi(date) < 1900)
		die(EXIT_USAGE, "--date %s: want YYYY-MM-DD, or today", date);
	return date;
}

/* --set: a value that is valid JSON is parsed, any other is a text. */
static json_t *
take_sets(void)
{
	json_t *all = json_object(), *value;
	json_error_t e;
	const char *at;
	char *name;
	size_t i;

	for (i = 0; i < sets.n; i++) {
		at = strchr(sets.at[i], '=');
		if (at == NULL || at == sets.at[i])
			die(EXIT_USAGE, "--set %s: want NAME=VALUE", sets.at[i]);
		name = must_alloc((size_t)(at - sets.at[i]) + 1, 1);
		memcpy(name, sets.at[i], (size_t)(at - sets.at[i]));
		if (strcmp(name, "messages") == 0 || strcmp(name, "add_generation_prompt") == 0)
			die(EXIT_USAGE, "--set %s: it is not a variable to be set", name);
		value = json_loads(at + 1, JSON_DECODE_ANY, &e);
		if (value == NULL && (value = json_string(at + 1)) == NULL)
			die(EXIT_USAGE, "--set %s: the value is not UTF-8", name);
		put_value(all, name, value);
		free(name);
	}
	return all;
}

static void
add_option(json_t *messages, const char *role, const char *option, const char *text)
{
	if (text != NULL)
		messages_add(messages, role, option, text, strlen(text));
}

/* Returns the messages of --system, --assistant and --user, in this order. */
static json_t *
messages_of_options(void)
{
	json_t *all = json_array();
	char err[512], *text;
	size_t len;

	add_option(all, "system", "--system", system_text);
	add_option(all, "assistant", "--assistant", assistant);
	add_option(all, "user", "--user", user);
	if (user_file != NULL) {
		must_read_prose(user_file, &text, &len);
		messages_add(all, "user", path_name(user_file), text, len);
		free(text);
	}
	chat_must(chat_messages(all, err, sizeof err), "", err);
	return all;
}

static void
check_options(int operands)
{
	const int by_options = system_text != NULL || user != NULL || user_file != NULL ||
	    assistant != NULL;

	if (by_options && operands > 0)
		die(EXIT_USAGE, "messages come from a file, or from --system, --assistant, --user");
	if (user != NULL && user_file != NULL)
		die(EXIT_USAGE, "--user and --user-file are the same message");
	if (assistant != NULL && !go_on)
		die(EXIT_USAGE, "--assistant is the end of an answer that is continued: give "
		    "--continue, too, or a file of messages");
	if (assistant != NULL && system_text != NULL)
		die(EXIT_USAGE, "--system begins a conversation, and --assistant continues one");
	if (ask != NULL && (by_options || operands > 0 || open_turn || no_prompt || text_out))
		die(EXIT_USAGE, "--questions: each is the rest of the user's turn, no more: "
		    "no messages, --open, --no-generation-prompt or --text");
}

struct conversation {
	const struct chat *chat;
	const struct tokenizer *tokenizer;
	struct chat_request request;
};

static int
is_assistant(const json_t *message)
{
	return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

/* After a last message that is not the assistant's the prompt for an answer follows. */
static void
convert(struct conversation *c, const char *place, struct marked_text *text, struct ids *ids)
{
	struct chat_request *q = &c->request;
	const size_t n = json_array_size(q->messages);
	char err[1024];

	q->flags = (open_turn ? CHAT_OPEN : 0) | (go_on ? CHAT_CONTINUE : 0);
	if (!open_turn && !no_prompt && !is_assistant(json_array_get(q->messages, n - 1)))
		q->flags |= CHAT_PROMPT;
	chat_must(chat_render(c->chat, q, text, err, sizeof err), place, err);
	if (ids != NULL)
		chat_encode(c->tokenizer, text, q->flags, ids);
}

static void
print_question(void *with, const char *place, json_t *asked)
{
	struct conversation *c = with;
	const json_t *question = json_object_get(asked, "question");
	json_t *messages = json_array(), *list_of_ids = json_array();
	struct marked_text text;
	struct ids ids = { .n = 0 };
	size_t i;

	messages_add(messages, "user", place, json_string_value(question),
	    json_string_length(question));
	c->request.messages = messages;
	convert(c, place, &text, &ids);
	for (i = 0; i < ids.n; i++)
		json_array_append_new(list_of_ids, json_integer(ids.ids[i]));
	put_value(asked, "ids", list_of_ids);
	print_json_line(asked);
	json_decref(messages);
	free(ids.ids);
	free(text.text);
	free(text.mark);
}

static void
print_conversation(struct conversation *c, json_t *messages)
{
	struct marked_text text;
	struct ids ids = { .n = 0 };
	size_t i;

	c->request.messages = messages;
	convert(c, "", &text, text_out ? NULL : &ids);
	if (text_out)
		(void)write_shown(stdout, text.text, text.n);    /* finish() looks */
	for (i = 0; i < ids.n; i++)
		printf("%u\n", ids.ids[i]);
	free(ids.ids);
	free(text.text);
	free(text.mark);
	json_decref(messages);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct conversation c = { .chat = NULL };
	struct tokenizer *t;
	struct chat *chat;
	json_t *variables;

	check_options(argc - first);
	c.request.date = take_date();
	c.request.set = variables = take_sets();
	c.tokenizer = t = session_tokenizer();
	c.chat = chat = chat_input_open(template, t);
	if (ask != NULL) {
		go_on = 1;
		questions_each(ask, print_question, &c);
	} else {
		print_conversation(&c, system_text != NULL || user != NULL || user_file != NULL ||
		    assistant != NULL ? messages_of_options() : messages_read(path));
	}
	if (c.request.flags & CHAT_PROMPT)
		chat_check_end(chat, &c.request, t);
	json_decref(variables);
	chat_close(chat);
	tokenizer_close(t);
	return finish();
}
