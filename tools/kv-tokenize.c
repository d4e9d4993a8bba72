/* kv-tokenize - text to token ids and back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/session.h"
#include "cli/tool.h"

static int decode, count, go_on, no_template, plain;

static const struct opt opts[] = {
	{ 'd', "decode", OPT_FLAG, &decode, 1, NULL, "token ids to text" },
	{ 0, "count", OPT_FLAG, &count, 1, NULL, "print only how many tokens there are" },
	{ 0, "continue", OPT_FLAG, &go_on, 1, NULL,
	    "the text goes on in the middle of another one: nothing is put before it" },
	{ 0, "no-template", OPT_FLAG, &no_template, 1, NULL,
	    "do not put the tokenizer's first tokens (BOS) before the text" },
	{ 0, "plain", OPT_FLAG, &plain, 1, NULL,
	    "take the text of special tokens literally; with --decode leave them out" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-tokenize",
	.about = "text to token ids and back",
	.synopsis = "-m DIR [-dqv] [--continue] [--count] [--no-template] [--plain] [--report FILE] [file]",
	.example = "kv-tokenize -m examples/demo-model --count examples/prompts/harbour.txt",
	.opts = opts,
	.takes = TAKES_MODEL,
	.max_operands = 1
};

static void
encode(const struct tokenizer *t, const char *name, const char *text, size_t len, struct ids *ids)
{
	unsigned flags = (go_on ? TOK_MIDDLE : no_template ? 0 : TOK_TEMPLATE) |
	    (plain ? TOK_PLAIN : 0);

	encode_text(t, name, text, len, flags, UINT32_MAX, EXIT_DAMAGED, ids);
}

static void
print_ids(const struct ids *ids)
{
	size_t i;

	for (i = 0; i < ids->n; i++)
		printf("%u\n", ids->ids[i]);
}

static void
print_text(const struct tokenizer *t, const struct ids *ids)
{
	struct utf8_stream stream = { .n = 0 };
	struct text_start start = { .begun = 0 };
	char *bytes = NULL, *out = NULL;
	size_t i, len, room = 0;
	int special;

	start.begun = go_on;                    /* what a decoder leaves out stands at the beginning alone */
	start.stripped = go_on ? SIZE_MAX : 0;
	for (i = 0; i < ids->n; i++) {
		if (tokenizer_bytes(t, ids->ids[i], &len, &special) == NULL)
			die(EXIT_DAMAGED, "token %zu: no token has the id %u", i + 1, ids->ids[i]);
		if (special && plain)
			continue;
		if (3 * (len + 4) > room) {
			room = 6 * (len + 4);
			free(out);
			out = must_alloc(room, 1);
			free(bytes);
			bytes = must_alloc(room, 1);
		}
		len = tokenizer_begin(t, &start, ids->ids[i], bytes);
		fwrite(out, 1, utf8_push(&stream, bytes, len, out), stdout);
	}
	if (out != NULL)
		fwrite(out, 1, utf8_flush(&stream, out), stdout);
	free(out);
	free(bytes);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	const char *name = path_name(path);
	struct ids ids = { .n = 0 };
	struct tokenizer *t;
	size_t len;
	char *text;

	t = session_tokenizer();
	(decode ? must_read_list : must_read_prose)(path, &text, &len);
	if (decode)
		parse_ids(name, text, len, tokenizer_size(t), &ids);
	else
		encode(t, name, text, len, &ids);
	if (count)
		printf("%zu\n", ids.n);
	else if (decode)
		print_text(t, &ids);
	else
		print_ids(&ids);
	free(ids.ids);
	free(text);
	tokenizer_close(t);
	return finish();
}
