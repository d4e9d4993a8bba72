/* toktables.h - reads the two large tables of tokenizer.json, words with their ids and merges,
 * without a JSON tree
 *
 * Trees for them take most of the time in which a tokenizer is read. If the file writes them
 * plainly, they are read here, and the rest of the file is JSON without them. */
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
	struct pair *pair;      /* [pairs] the merges, if tables_cut() has read them */
	size_t pairs, pair_cap;
	char *text;             /* text read by tables_cut(); other words are borrowed */
};

void tables_free(struct tables *);

/* Returns the file's text[n] with {} and [] for its model.vocab and model.merges (*left bytes,
 * for free()), and reads both into t, which must be empty. Returns NULL, with t empty, if the
 * tables are missing, invalid, have values of an unusual form, or memory is out: then a JSON
 * reader must read the whole text and report the error. */
char *tables_cut(struct tables *t, const char *text, size_t n, size_t *left);

/* Adds a word. Returns 0, 1 if it exists, or -1 without memory. */
int tables_add(struct tables *, const char *text, size_t len, uint32_t id);

/* NULL: there is none */
const struct word *tables_find(const struct tables *, const char *text, size_t len);

#endif
