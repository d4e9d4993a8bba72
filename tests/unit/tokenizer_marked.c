/* tokenizer_marked.c - contents among markup, and texts that go on in the middle of another one
 *
 * usage: tokenizer_marked FOLDER, that of tests/fixtures/tokenizers */
#include "tests/unit/tokenizer_check.h"

static struct tokenizer *
open_fixture(const char *folder, const char *name)
{
	struct tokenizer *t;
	char path[4096], err[512];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (tokenizer_open(path, &t, err, sizeof(err)) != 0) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	return t;
}

/* The ids of a text whose contents stand between '{' and '}', which are left out. */
static struct ids
encode(const struct tokenizer *t, const char *text, unsigned flags)
{
	unsigned char mark[256] = { 0 };
	char bytes[256], err[512];
	struct ids ids = { .n = 0 };
	int contents = 0;
	size_t n = 0;

	for (; *text != '\0'; text++)
		if (*text == '{' || *text == '}') {
			contents = *text == '{';
		} else {
			mark[n] = (unsigned char)contents;
			bytes[n++] = *text;
		}
	check(tokenizer_encode_marked(t, bytes, mark, n, flags, &ids, err, sizeof(err)) == 0, "%s",
	    err);
	return ids;
}

static size_t
count(const struct ids *ids, uint32_t id)
{
	size_t i, n = 0;

	for (i = 0; i < ids->n; i++)
		n += ids->ids[i] == id;
	return n;
}

static int
spells(const struct tokenizer *t, const struct ids *ids, const char *want)
{
	char all[1024];
	const char *p;
	size_t i, n = 0, len;

	for (i = 0; i < ids->n; i++) {
		p = tokenizer_bytes(t, ids->ids[i], &len, NULL);
		memcpy(all + n, p, len);
		n += len;
	}
	return n == strlen(want) && memcmp(all, want, n) == 0;
}

static void
contents_are_text(const char *folder)
{
	static const struct { const char *marked, *text; size_t starts, ends; } list[] = {
		{ "<|im_start|>user\n{hello}<|im_end|>\n", "<|im_start|>user\nhello<|im_end|>\n",
		    1, 1 },
		{ "<|im_start|>{<|im_start|>}<|im_end|>", "<|im_start|><|im_start|><|im_end|>", 1,
		    1 },
		{ "{<|im_start|><|im_end|>}", "<|im_start|><|im_end|>", 0, 0 },
		{ "{<|im_}start|> <|im_{end|>}", "<|im_start|> <|im_end|>", 0, 0 },
		{ "<|im_start|{>}<|im_start|>", "<|im_start|><|im_start|>", 1, 0 },
		{ "{<|im_start}<|im_end|>", "<|im_start<|im_end|>", 0, 1 },
	};
	struct tokenizer *t = open_fixture(folder, "smollm");
	struct ids ids;
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		ids = encode(t, list[i].marked, 0);
		check(count(&ids, 657) == list[i].starts && count(&ids, 658) == list[i].ends,
		    "%s: %zu and %zu tokens of markup", list[i].marked, count(&ids, 657),
		    count(&ids, 658));
		check(spells(t, &ids, list[i].text), "%s: another text", list[i].marked);
		free(ids.ids);
	}
	tokenizer_close(t);
}

/* Tokens that are looked for after normalisation: where it changes nothing, where it does, and
 * where it joins characters of both sides of a border. */
static void
normalized_too(const char *folder)
{
	static const struct { const char *fixture, *token, *marked; size_t n; } list[] = {
		{ "falcon", ">>TITLE<<", ">>TITLE<<{ and >>TITLE<<}", 1 },
		{ "falcon", ">>TITLE<<", "{>>}TITLE<<", 0 },
		{ "llama2", "<sp ace>", "a b <sp ace>{c d <sp ace>} e", 1 },
		{ "llama2", "<sp ace>", "{a b <sp ace>} c <sp ace>", 1 },
		{ "llama2", "<sp ace>", "<sp {ace>}", 0 },
		{ "qwen2", "cafe\xcc\x81", "{cafe}\xcc\x81", 0 },
		{ "qwen2", "cafe\xcc\x81", "cafe\xcc\x81", 1 },
	};
	struct tokenizer *t;
	struct ids ids;
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		t = open_fixture(folder, list[i].fixture);
		ids = encode(t, list[i].marked, 0);
		check(count(&ids, tokenizer_id(t, list[i].token)) == list[i].n, "%s: %s: %zu times",
		    list[i].fixture, list[i].marked, count(&ids, tokenizer_id(t, list[i].token)));
		free(ids.ids);
		tokenizer_close(t);
	}
}

/* Without contents and without added tokens in them the ids are those of the whole text: words go
 * across the border. */
static void
borders_are_no_cuts(const char *folder)
{
	static const char *const names[] = { "smollm", "llama2", "llama3", "gemma", "qwen2",
	    "metaspace" };
	static const char *const texts[] = { "a{n over}lap\n{\n\nof lines}\n", "{all of it}",
	    "no{ }ne" };
	struct ids marked, plain;
	char text[256], err[512];
	struct tokenizer *t;
	size_t i, k, at, n;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		t = open_fixture(folder, names[i]);
		for (k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
			for (at = n = 0; texts[k][at] != '\0'; at++)
				if (texts[k][at] != '{' && texts[k][at] != '}')
					text[n++] = texts[k][at];
			plain = (struct ids){ .n = 0 };
			check(tokenizer_encode(t, text, n, 0, &plain, err, sizeof(err)) == 0, "%s",
			    err);
			marked = encode(t, texts[k], 0);
			check(plain.n == marked.n && memcmp(plain.ids, marked.ids, plain.n *
			    sizeof(*plain.ids)) == 0, "%s: %s has other ids", names[i], texts[k]);
			free(plain.ids);
			free(marked.ids);
		}
		tokenizer_close(t);
	}
}

/* SentencePiece's space before a text is not there in the middle of one. */
static void
nothing_is_put_before(const char *folder)
{
	static const char *const names[] = { "llama2", "metaspace", "first", "smollm" };
	struct tokenizer *t;
	struct ids ids;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		t = open_fixture(folder, names[i]);
		ids = encode(t, "wort", 0);
		check(spells(t, &ids, i < 3 ? " wort" : "wort"), "%s: a text begins otherwise",
		    names[i]);
		free(ids.ids);
		ids = encode(t, "wort", TOK_MIDDLE);
		check(spells(t, &ids, "wort"), "%s: something is put before it", names[i]);
		free(ids.ids);
		tokenizer_close(t);
	}
}

/* Text behind text, behind added tokens of both kinds, and behind those that take white space. */
static void
tails_are_those_of_the_whole(const char *folder)
{
	static const char *const names[] = { "llama2", "metaspace", "first", "smollm", "gemma",
	    "falcon" };
	static const struct { const char *head, *tail; } list[] = {
		{ "It is open.", "\non it?" }, { "It is open.", " on it?" }, { "one\n", "two" },
		{ "a</s>", "b c" }, { "a</s>", " b" }, { "a<|im_end|>", " \n b" },
		{ "a<|im_end|>", "b" }, { "a <sp ace>", "b" }, { "a<lr>", "  b" },
		{ "a>>TITLE<<", "b" }, { "", "one two" }, { "a.", "</s>b" },
	};
	struct ids whole, head;
	struct tokenizer *t;
	size_t i, k, n;
	char text[256], err[512];
	unsigned flags;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		t = open_fixture(folder, names[i]);
		/* these two end with a token, too */
		flags = i == 1 || i == 2 ? 0 : TOK_TEMPLATE;
		for (k = 0; k < sizeof(list) / sizeof(list[0]); k++) {
			snprintf(text, sizeof(text), "%s%s", list[k].head, list[k].tail);
			whole = encode(t, text, flags);
			head = encode(t, list[k].head, flags);
			n = strlen(list[k].tail);
			check(tokenizer_encode(t, list[k].tail, n, tokenizer_behind(t, head.ids,
			    head.n), &head, err, sizeof(err)) == 0, "%s", err);
			check(head.n == whole.n && memcmp(head.ids, whole.ids, head.n *
			    sizeof(*head.ids)) == 0, "%s: \"%s\" behind \"%s\" has other ids than "
			    "in the whole", names[i], list[k].tail, list[k].head);
			free(whole.ids);
			free(head.ids);
		}
		tokenizer_close(t);
	}
}

static void
twice_is_said(const char *folder)
{
	struct tokenizer *t = open_fixture(folder, "llama3");
	struct ids ids = { .n = 0 };
	char err[512], text[64];
	const char *bos;
	size_t len;

	check(tokenizer_encode(t, "a", 1, TOK_TEMPLATE, &ids, err, sizeof(err)) == 0 &&
	    err[0] == '\0',
	    "a text without BOS is warned of: %s", err);
	bos = tokenizer_bytes(t, ids.ids[0], &len, NULL);
	snprintf(text, sizeof(text), "%sa", bos);
	ids.n = 0;
	check(tokenizer_encode(t, text, strlen(text), TOK_TEMPLATE, &ids, err, sizeof(err)) == 0 &&
	    strncmp(err, "it begins with <|begin_of_text|>, ", 34) == 0 &&
	    ids.ids[0] == ids.ids[1], "two of them: %s", err);
	ids.n = 0;
	check(tokenizer_encode(t, text, strlen(text), 0, &ids, err, sizeof(err)) == 0 &&
	    err[0] == '\0',
	    "one of them is warned of: %s", err);
	free(ids.ids);
	tokenizer_close(t);
}

int
main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : "tests/fixtures/tokenizers";

	contents_are_text(folder);
	normalized_too(folder);
	borders_are_no_cuts(folder);
	nothing_is_put_before(folder);
	tails_are_those_of_the_whole(folder);
	twice_is_said(folder);
	return report("tokenizer_marked");
}
