/* decoded_text.c - the text of token ids, special tokens by their names */
#include <stdlib.h>

#include "cli/decoded_text.h"
#include "cli/terminal_escape.h"
#include "cli/tool.h"

void
decoded_text_add(struct decoded_text *d, uint32_t id)
{
	size_t len;
	int special;

	d->n++;
	if (tokenizer_bytes(d->tokenizer, id, &len, &special) == NULL)
		die(EXIT_DAMAGED, "%s%stoken %zu: no token has the id %u",
		    d->name != NULL ? d->name : "", d->name != NULL ? ": " : "", d->n, id);
	if (special && d->plain)
		return;
	if (3 * (len + 4) > d->room) {
		d->room = 6 * (len + 4);
		free(d->out);
		d->out = must_alloc(d->room, 1);
		free(d->bytes);
		d->bytes = must_alloc(d->room, 1);
	}
	len = tokenizer_begin(d->tokenizer, &d->start, id, d->bytes);
	(void)write_shown(d->to, d->out, utf8_push(&d->utf8, d->bytes, len, d->out));
}

void
decoded_text_break(struct decoded_text *d)
{
	char tail[3];

	(void)write_shown(d->to, tail, utf8_flush(&d->utf8, tail));
}

void
decoded_text_free(struct decoded_text *d)
{
	free(d->out);
	free(d->bytes);
}
