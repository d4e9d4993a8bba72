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

/* Reads a file ("-" = standard input), each line of which is a question, or, when it begins with
 * '{', an object with a text "question". Names of special tokens mean these, as in kv-prefill.
 * Dies, naming the line, also when there is no question and when one has no token. */
void questions_read(struct questions *, const char *path, const struct tokenizer *);
void questions_free(struct questions *);

#endif
