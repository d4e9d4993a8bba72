/* decode_questions.h - kv-decode --questions: many questions to one snapshot, from lines of
 * text or JSON */
#ifndef KVPIPE_DECODE_QUESTIONS_H
#define KVPIPE_DECODE_QUESTIONS_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

struct decode;
struct decode_text_options;
struct session;

struct question {
	json_t *asked;                  /* the object; for a line of text {"question": the line} */
	struct ids ids;
};

struct questions {
	struct question *at;
	size_t n, longest;              /* tokens of the longest one */
};

/* Gets one question, an object with a text "question", and owns it. place: for messages,
 * "asked: line 3". */
typedef void questions_take(void *with, const char *place, json_t *asked);

/* Calls each() for every question of a file ("-" = standard input): lines of text, JSON objects
 * one per line (a line that begins with '{'), or a JSON list of texts and objects. Dies and
 * names the place, also when there is no question. */
void questions_each(const char *path, questions_take *each, void *with);

/* Reads all questions. flags: as for tokenizer_encode(). An object's "ids" replace its text,
 * each below `vocabulary`. Dies, also for a question without tokens. */
void questions_read(struct questions *, const char *path, const struct tokenizer *, unsigned flags,
    uint32_t vocabulary);
void questions_free(struct questions *);
/* Answers each question from the same rows of the snapshot, and prints an object or a line of
 * text for each. name, load (seconds): of the snapshot. Frees the questions. Dies. */
void questions_answer(struct questions *, const struct session *, struct decode *,
    const struct decode_text_options *, const char *name, double load);

#endif
