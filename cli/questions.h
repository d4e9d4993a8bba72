/* questions.h - what is asked of one snapshot again and again: lines of text, or JSON objects */
#ifndef KVPIPE_QUESTIONS_H
#define KVPIPE_QUESTIONS_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

struct question {
	json_t *asked;                  /* the object; of a line, {"question": the line} */
	struct ids ids;
};

struct questions {
	struct question *at;
	size_t n, longest;              /* tokens of the longest one */
};

/* Calls each() for every line of a file ("-" = standard input), which is a question, or, when
 * it begins with '{', an object with a text "question". name and line are for messages; the
 * object is the function's. Dies, naming the line, also when there is none. */
void questions_each(const char *path, void (*each)(void *with, const char *name, size_t line,
    json_t *asked), void *with);

/* Reads them all. flags: what tokenizer_behind() says of the snapshot. Names of special tokens in a
 * question mean these, as in kv-prefill; where an object has "ids", they are asked, each below
 * `vocabulary`. Dies, also when one has no token. */
void questions_read(struct questions *, const char *path, const struct tokenizer *, unsigned flags,
    uint32_t vocabulary);
void questions_free(struct questions *);

#endif
