/* tokenizer_tables.c - what tables_cut() reads is what a reader of JSON finds there, or nothing
 *
 * A small file with all that strings, numbers and merges may look like, and every file that differs
 * from it by one byte, put in another's place, left out or put in before it, or by its end. */
#include <jansson.h>

#include "tests/unit/tokenizer_check.h"
#include "tokenizer/toktables.h"
#include "tokenizer/vocab.h"

static const char base[] =
    "{\"version\": \"1.0\", \"x\": [\"}]\\\"\\\\\", {\"model\": {\"vocab\": 1}}, -1.5e3, null],\n"
    " \"model\" :{\"type\":\"BPE\", \"vocab\" : { \"a\": 0,\"b\":1,\t\"\\u0120a\": 12,\n"
    " \"\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20Ac\" : 16777215 ,"
    " \"\xc4\xa0\xe2\x82\xac\": 2},\n"
    " \"merges\":[\"a b\" , [\"\\u0120a\",\"# b\"], \"# #\", \" a\"], \"z\": {}},"
    " \"y\": \"model\"}\n";

static unsigned cut;                    /* texts whose tables were read */

/* The words and merges in the order of the file, and the rest with nothing in their place */
static void
compare(const struct tables *t, json_t *full, const json_t *left, const char *text)
{
	json_t *model = json_object_get(full, "model"), *vocab = json_object_get(model, "vocab");
	json_t *merges = json_object_get(model, "merges"), *value;
	char both[100], theirs[100];
	const char *key;
	size_t i = 0;

	check(json_object_size(vocab) == t->words && json_array_size(merges) == t->pairs,
	    "another number of words or merges: %s", text);
	json_object_foreach(vocab, key, value) {
		if (i == t->words)
			break;
		check(strcmp(key, t->word[i].text) == 0 && strlen(key) == t->word[i].len &&
		    json_is_integer(value) && json_integer_value(value) == t->word[i].id &&
		    t->word[i].id < VOCAB_LIMIT && tables_find(t, key, strlen(key)) == &t->word[i],
		    "word %zu: %s", i, text);
		i++;
	}
	for (i = 0; i < t->pairs && i < json_array_size(merges); i++) {
		snprintf(both, sizeof(both), "%s %s", t->pair[i].left, t->pair[i].right);
		value = json_array_get(merges, i);
		if (json_is_string(value))
			snprintf(theirs, sizeof(theirs), "%s", json_string_value(value));
		else
			snprintf(theirs, sizeof(theirs), "%s %s",
			    json_string_value(json_array_get(value, 0)),
			    json_string_value(json_array_get(value, 1)));
		check(strcmp(both, theirs) == 0 && json_array_size(value) % 2 == 0, "merge %zu: %s",
		    i, text);
	}
	json_object_clear(vocab);
	json_array_clear(merges);
	check(json_equal(full, left), "the rest: %s", text);
}

/* The text is copied to an end of memory of its own, so that a sanitizer sees what reads on. */
static void
one(const char *text, size_t n)
{
	json_t *full = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL), *left = NULL;
	struct tables t = { 0 };
	char *copy = malloc(n + (n == 0)), *rest;
	size_t size = 0;

	memcpy(copy, text, n);
	if ((rest = tables_cut(&t, copy, n, &size)) != NULL)
		left = json_loadb(rest, size, JSON_REJECT_DUPLICATES, NULL);
	check(rest != NULL || (t.words == 0 && t.word == NULL && t.text == NULL),
	    "something is left of tables that were not read: %s", text);
	check(left == NULL || full != NULL, "accepted, and is no JSON: %s", text);
	if (left != NULL && full != NULL) {
		cut++;
		compare(&t, full, left, text);
	}
	tables_free(&t);
	free(rest);
	free(copy);
	json_decref(left);
	json_decref(full);
}

/* Every text that differs by one byte, or that ends before */
static void
damaged(void)
{
	static const char with[] = "\"\\{}[],: 09-.eaudD/\x01\x7f\x80\xc3\xed\xff";
	char text[sizeof(base) + 1];
	size_t n = sizeof(base) - 1, i, k;

	for (i = 0; i <= n; i++) {
		memcpy(text, base, sizeof(base));
		text[i] = '\0';
		one(text, i);
		for (k = 0; k < sizeof(with); k++) {    /* and a zero */
			memcpy(text, base, sizeof(base));
			text[i] = with[k];
			one(text, n);
			memcpy(text + i + 1, base + i, sizeof(base) - i);
			one(text, n + 1);
		}
		if (i == n)
			break;
		memcpy(text, base, i);
		memcpy(text + i, base + i + 1, sizeof(base) - i - 1);
		one(text, n - 1);
	}
}

/* Are the tables of a file read that has this vocabulary and these merges? */
static void
is_read(int want, const char *vocab, const char *merges)
{
	char text[300], *rest;
	struct tables t = { 0 };
	size_t n, left;

	n = (size_t)snprintf(text, sizeof(text), "{\"model\":{\"vocab\":%s,\"merges\":%s}}", vocab,
	    merges);
	rest = tables_cut(&t, text, n, &left);
	check((rest != NULL) == want, "%s read: %s", want ? "not" : "wrongly", text);
	tables_free(&t);
	free(rest);
	one(text, n);
}

int
main(void)
{
	one(base, sizeof(base) - 1);
	check(cut == 1, "the tables of a good file are not read");
	damaged();
	check(cut > 1000, "the tables of %u damaged files only are read", cut);
	is_read(1, "{\"a\":0}", "[\"a a\"]");
	is_read(0, "{\"a\":0,\"a\":1}", "[\"a a\"]");
	is_read(0, "{\"a\":0,\"\\u0061\":1}", "[\"a a\"]");
	is_read(0, "{\"a\":16777216}", "[\"a a\"]");
	is_read(0, "{\"a\":99999999999999999999}", "[\"a a\"]");
	is_read(0, "{\"a\":-1}", "[\"a a\"]");
	is_read(0, "{\"a\":1.0}", "[\"a a\"]");
	is_read(0, "{\"a\":01}", "[\"a a\"]");
	is_read(0, "{\"a\\u0000\":1}", "[\"a a\"]");
	is_read(0, "{\"\\ud800\":1}", "[\"a a\"]");
	is_read(0, "{\"\\ude00\":1}", "[\"a a\"]");
	is_read(0, "{\"a\":0}", "[\"#version: 0.2\", \"a a\"]");
	is_read(0, "{\"a\":0}", "[\"a a a\"]");
	is_read(0, "{\"a\":0}", "[[\"a\"]]");
	is_read(0, "{\"a\":0}", "[]");
	return report("tokenizer_tables");
}
