/* headtable.h - text with a line for each layer and an item for each KV head
 *
 * Private to methods/. */
#ifndef KVPIPE_HEADTABLE_H
#define KVPIPE_HEADTABLE_H

#include "methods/methods.h"

struct head_table {
	/* given: bytes of an item; reads one, returns 0 if the word is none; what such a word is:
	 * "not a number" */
	size_t size;
	int (*read)(void *item, const char *word);
	const char *wanted;
	/* made */
	uint32_t layers, heads;
	void *item;             /* [layers][heads], to be freed */
};

/* Reads text[len], where text[len] is zero. Returns a TABLE_* code. TABLE_ETEXT: why is "line 3
 * column 2: ...", and item NULL. */
int head_table_parse(struct head_table *table, const char *text, size_t len, char *why,
    size_t size);

#endif
