/* kv-tokenize - text to token ids and back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/decoded_text.h"
#include "cli/prompt_input.h"
#include "cli/session.h"
#include "cli/text_input.h"
#include "cli/tool.h"

static int decode, count, go_on, no_template, plain;
static struct prompt_input input;

static const struct opt opts[] = {
	{ 'p', "prompt", OPT_STRING, &input.text, 0, "TEXT", "the text, instead of a file",
	    OPT_READS },
	{ 'd', "decode", OPT_FLAG, &decode, 1, NULL, "token ids to text", OPT_HOW },
	{ 0, "continue", OPT_FLAG, &go_on, 1, NULL,
	    "the text continues another one: put nothing before it", OPT_HOW },
	{ 0, "no-template", OPT_FLAG, &no_template, 1, NULL,
	    "do not put the tokenizer's first tokens (BOS) before the text", OPT_HOW },
	{ 0, "plain", OPT_FLAG, &plain, 1, NULL,
	    "treat special tokens as plain text; with --decode leave them out", OPT_HOW },
	{ 0, "count", OPT_FLAG, &count, 1, NULL, "print only the number of tokens",
	    OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-tokenize",
	.synopsis = "-m MODEL [-dqv] [--continue] [--count] [--no-template] [--plain]\n"
	    "[--report FILE] [-p TEXT | file]",
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
	if (!count)                             /* prints 0 for no tokens */
		refuse_no_token(name, ids);
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
	struct decoded_text d = { .tokenizer = t, .plain = plain, .to = stdout };
	size_t i;

	/* decoders drop spaces only at the beginning of a text */
	d.start.begun = go_on;
	d.start.stripped = go_on ? SIZE_MAX : 0;
	for (i = 0; i < ids->n; i++)
		decoded_text_add(&d, ids->ids[i]);
	decoded_text_break(&d);
	decoded_text_free(&d);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = prompt_name(&input, argc, argv, first);
	const char *name = path_name(path);
	struct ids ids = { .n = 0 };
	struct tokenizer *t;
	size_t len;
	char *text;

	t = session_tokenizer();
	prompt_text(&input, path, decode, &text, &len);
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
