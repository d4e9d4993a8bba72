/* decode_questions.h - what is asked of one snapshot again and again: lines of text or JSON */
#ifndef KVPIPE_DECODE_QUESTIONS_H
#define KVPIPE_DECODE_QUESTIONS_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

struct decode;
struct decode_text_options;
struct session;

struct question {
	json_t *asked;                  /* the object; of a line, {"question": the line} */
	struct ids ids;
};

struct questions {
	struct question *at;
	size_t n, longest;              /* tokens of the longest one */
};

/* Gets a question, which is its own from now on: an object with a text "question". place is for
 * messages, "asked: line 3". */
typedef void questions_take(void *with, const char *place, json_t *asked);

/* Calls each() for every question of a file ("-" = standard input): a line of text; an object in a
 * line, which begins with '{'; or the elements of a list, texts and objects. Dies, naming the
 * place, also when there is none. */
void questions_each(const char *path, questions_take *each, void *with);

/* Reads them all. flags: those of tokenizer_encode(). Where an object has "ids", they are asked,
 * each below `vocabulary`. Dies, also when one has no token. */
void questions_read(struct questions *, const char *path, const struct tokenizer *, unsigned flags,
    uint32_t vocabulary);
void questions_free(struct questions *);
/* Runs each behind the same rows, and what is generated behind it, and prints: an object, or the
 * text in a line. name and load (seconds): of the snapshot. Frees the questions. Dies. */
void questions_answer(struct questions *, const struct session *, struct decode *,
    const struct decode_text_options *, const char *name, double load);

#endif
