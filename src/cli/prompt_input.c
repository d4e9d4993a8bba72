/* prompt_input.c - the ids of a prompt */
#include <stdlib.h>
#include <string.h>

#include "cli/prompt_input.h"
#include "cli/text_input.h"
#include "cli/tool.h"

const char *
prompt_name(const struct prompt_input *p, int argc, char **argv, int first)
{
	if (p->text == NULL)
		return operand(argc, argv, first);
	if (first < argc)
		die(EXIT_USAGE, "give --prompt or the file %s, and not both", argv[first]);
	return "--prompt";
}

void
prompt_text(const struct prompt_input *p, const char *name, int list, char **text, size_t *len)
{
	if (p->text == NULL) {
		(list ? must_read_list : must_read_prose)(name, text, len);
		return;
	}
	*len = strlen(p->text);
	*text = must_alloc(*len + 1, 1);
	memcpy(*text, p->text, *len);
}

void
prompt_read(const struct prompt_input *p, const char *name, const struct tokenizer *tok,
    uint32_t vocabulary, struct kv_reader *from, struct ids *out)
{
	unsigned flags = p->plain ? TOK_PLAIN : 0;
	char *text;
	size_t len;

	prompt_text(p, name, p->ids, &text, &len);
	name = path_name(name);
	if (p->ids) {
		parse_ids(name, text, len, vocabulary, out);
	} else {
		if (from != NULL)
			flags |= text_behind(tok, from);
		else if (!p->no_template)
			flags |= TOK_TEMPLATE;
		encode_text(tok, name, text, len, flags, vocabulary, EXIT_DAMAGED, out);
	}
	free(text);
	refuse_no_token(name, out);
}
