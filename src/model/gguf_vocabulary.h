/* gguf_vocabulary.h - the tokens of a GGUF file: texts, types, scores, and which have a task
 *
 * Internal to the readers of a GGUF file's tokenizer. Errors are MODEL_* codes. */
#ifndef KVPIPE_GGUF_VOCABULARY_H
#define KVPIPE_GGUF_VOCABULARY_H

#include <jansson.h>

#include "model/gguf.h"

enum gguf_token_type {
	GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER_DEFINED, GGUF_UNUSED, GGUF_BYTE
};

/* A token has its length, and a zero byte behind it. */
struct gguf_token {
	const char *text;               /* "": the id is not in use */
	uint32_t len;
	enum gguf_token_type type;
	float score;
};

struct gguf_vocabulary {
	struct gguf_token *token;       /* [n] */
	size_t n;
	char *text;                     /* owns the texts */
	int has_scores;
};

/* Reads the tokens. meta: spaces in tokens that are not the model's own (user defined) become
 * U+2581, as SentencePiece has them. */
int gguf_vocabulary(const struct gguf *, int meta, struct gguf_vocabulary *, char *err,
    size_t errlen);
void gguf_vocabulary_free(struct gguf_vocabulary *);

/* *id <- a token with a task, "bos"; unchanged where the file does not name one */
int gguf_special(const struct gguf *, const char *task, size_t tokens, uint64_t *id, char *err,
    size_t errlen);

/* Steps of splitting: pre_tokenizer of tokenizer.json; NULL: not known. *nfc, *ignore_merges,
 * *begins <- what goes with it: a normaliser, words that are tokens, BOS by default */
json_t *gguf_pretokenizer(const char *pre, int *nfc, int *ignore_merges, int *begins);

/* *out <- the merges that SentencePiece's scores stand for, best first, as tokenizer.json has them.
 * vocab: texts -> ids. Returns 0, -1 without memory, 1 where there are more than a vocabulary of so
 * many tokens has. */
int gguf_merges(const struct gguf_vocabulary *, const json_t *vocab, json_t **out);

#endif
