/* kv-tokenize - text to token ids and back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/decoded_text.h"
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
	if (!count)                             /* of no tokens there is a number, too */
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

	d.start.begun = go_on;                  /* what a decoder leaves out stands at the beginning alone */
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
