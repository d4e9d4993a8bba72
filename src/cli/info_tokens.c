/* info_tokens.c - prints the tokens of a snapshot, all or those kept */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/decoded_text.h"
#include "cli/info_tokens.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/tool.h"
#include "engine/kept_tokens.h"

#define GAP "[...]"             /* stands for tokens that are not kept */

struct info_tokens_options info_tokens_options;
static struct kept_where where = { KEPT_ANYWHERE, KEPT_ANYWHERE, 0 };

/* Reads a number that is followed by `end` or the end of the text; NULL: invalid */
static const char *
number(const char *text, char end, uint32_t *n)
{
	char *rest;
	unsigned long long v = strtoull(text, &rest, 10);

	if (*text < '0' || *text > '9' || (*rest != '\0' && *rest != end) || v >= KEPT_ANYWHERE)
		return NULL;
	*n = (uint32_t)v;
	return *rest != '\0' ? rest + 1 : "";
}

static void
parse_where(const char *text)
{
	const char *rest;

	where.all = strcmp(text, "all") == 0;
	if (where.all || strcmp(text, "any") == 0)
		return;
	rest = number(text, ',', &where.layer);
	if (rest != NULL && *rest != '\0')
		rest = number(rest, '\0', &where.head);
	if (rest == NULL || text[strlen(text) - 1] == ',')
		die(EXIT_USAGE, "--kept %s: want any, all, LAYER or LAYER,HEAD", text);
}

int
opt_info_tokens(void)
{
	const struct info_tokens_options *o = &info_tokens_options;

	if (o->ids && o->text)
		die(EXIT_USAGE, "--ids and --text: give one of them; with --json --text has both");
	if (o->text && settings.model == NULL)
		settings.model = model_of_environment();
	if (o->text && settings.model == NULL)
		die(EXIT_USAGE, "--text: whose tokenizer? Give -m MODEL, too");
	if (o->kept != NULL && !o->ids && !o->text)
		die(EXIT_USAGE, "--kept: want --ids or --text of the tokens that are kept");
	if (o->kept != NULL)
		parse_where(o->kept);
	return o->ids || o->text;
}

static int
is_kept(const struct kept_tokens *t, uint64_t i)
{
	return t->kept == NULL || t->kept[i];
}

static void
write_text(const struct kept_tokens *t, const struct kv_reader *r, FILE *to)
{
	struct tokenizer *tokenizer = session_tokenizer_of(r);
	struct decoded_text d = { .tokenizer = tokenizer, .name = kv_reader_name(r), .to = to };
	int gap = 0;
	uint64_t i;

	for (i = 0; i < t->n; i++) {
		if (is_kept(t, i)) {
			decoded_text_add(&d, t->id[i]);
		} else if (!gap) {
			decoded_text_break(&d);
			fputs(GAP, to);
		}
		gap = !is_kept(t, i);
		if (gap)                /* the text after a gap is not the beginning of a text */
			d.start = (struct text_start){ 1, SIZE_MAX };
	}
	decoded_text_break(&d);
	decoded_text_free(&d);
	tokenizer_close(tokenizer);
}

static json_t *
list_json(const struct kept_tokens *t, int positions)
{
	json_t *list = json_array();
	uint64_t i;

	for (i = 0; i < t->n; i++)
		if (is_kept(t, i))
			json_array_append_new(list,
			    json_integer(positions ? (json_int_t)i : t->id[i]));
	return list;
}

static void
print_object(const struct kept_tokens *t, const struct kv_reader *r)
{
	json_t *o = json_object();
	char *text;
	size_t size;
	FILE *to;

	put_text(o, "snapshot", kv_reader_name(r));
	put_count(o, "tokens", t->n);
	if (t->kept != NULL)
		put_value(o, "positions", list_json(t, 1));
	put_value(o, "ids", list_json(t, 0));
	if (info_tokens_options.text) {
		if ((to = open_memstream(&text, &size)) == NULL)
			die(EXIT_RUN, "out of memory");
		write_text(t, r, to);
		if (fclose(to) != 0 || text == NULL)    /* as in decode_result.c */
			die(EXIT_RUN, "out of memory");
		put_bytes(o, "text", text, size);
		free(text);
	}
	print_json(o);
}

void
print_info_tokens(struct kv_reader *r)
{
	struct kept_tokens t;
	struct engine_error e;
	uint64_t i;

	must(kept_tokens_read(&t, r, info_tokens_options.kept != NULL ? &where : NULL, &e), &e);
	if (settings.json)
		print_object(&t, r);
	else if (info_tokens_options.text)
		write_text(&t, r, stdout);
	for (i = 0; !settings.json && info_tokens_options.ids && i < t.n; i++)
		if (is_kept(&t, i))
			printf("%" PRIu32 "\n", t.id[i]);
	kept_tokens_free(&t);
}
