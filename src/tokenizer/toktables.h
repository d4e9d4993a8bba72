/* toktables.h - the two large tables of tokenizer.json: words with their ids, and merges
 *
 * A tree of JSON values for them takes most of the time in which a tokenizer is read. In a file
 * that is written plainly they are read here, and what is left of the file is JSON without them. */
#ifndef KVPIPE_TOKTABLES_H
#define KVPIPE_TOKTABLES_H

#include <stddef.h>
#include <stdint.h>

struct word {
	const char *text;       /* ends with a zero */
	size_t len;
	uint32_t id;
};

struct pair {
	const char *left, *right;
};

struct tables {
	struct word *word;      /* [words] in the file's order */
	size_t words, word_cap;
	uint32_t *slot;         /* [mask + 1] hash table: a word's number + 1, 0 = free */
	size_t mask;
	struct pair *pair;      /* [pairs] the merges, when tables_cut() has read them */
	size_t pairs, pair_cap;
	char *text;             /* what tables_cut() has read; other words are borrowed */
};

void tables_free(struct tables *);

/* The file's text[n] with {} and [] for its model.vocab and model.merges (*left bytes, for the
 * caller to free), and both in t, which must be empty. NULL, with t empty, when the tables are not
 * there, are not what JSON allows, have a value of an unusual form, or memory is missing: a reader
 * of JSON must then see the whole text, and say what is wrong. */
char *tables_cut(struct tables *t, const char *text, size_t n, size_t *left);

/* Adds a word. 0, 1 when it is there already, or -1 without memory. */
int tables_add(struct tables *, const char *text, size_t len, uint32_t id);

/* NULL: there is none */
const struct word *tables_find(const struct tables *, const char *text, size_t len);

#endif
