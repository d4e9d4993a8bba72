/* gguf_vocabulary.c - the tokens of a GGUF file: texts, types, scores, and which have a task */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_vocabulary.h"
#include "model/model.h"
#include "model/model_files.h"

#define META "\xe2\x96\x81" /* U+2581, SentencePiece's space */

/* Models have no longer tokens. gguf_merges.c tries all ways to cut one. */
enum { MOST_BYTES = 1024, MOST_TOKENS = 1 << 24 };

/* The three arrays */
struct arrays {
	const struct gguf_value *tokens, *types, *scores;
};

static int
find_arrays(const struct gguf *g, struct arrays *a, char *err, size_t errlen)
{
	int rc;

	if ((rc = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &a->tokens, err, errlen)) !=
	    MODEL_OK || (rc = gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32, &a->types, err,
	    errlen)) != MODEL_OK)
		return rc;
	if ((rc = gguf_array(g, "tokenizer.ggml.scores", GGUF_F32, &a->scores, err, errlen)) !=
	    MODEL_OK)
		return rc;
	if (a->tokens == NULL || a->tokens->count == 0 || a->tokens->count > MOST_TOKENS)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "no tokens, or more "
		    "than %d, in key tokenizer.ggml.tokens", MOST_TOKENS);
	if ((a->types != NULL && a->types->count != a->tokens->count) ||
	    (a->scores != NULL && a->scores->count != a->tokens->count))
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "%" PRIu64 " tokens, "
		    "but %" PRIu64 " %s", a->tokens->count, a->types != NULL &&
		    a->types->count != a->tokens->count ? a->types->count : a->scores->count,
		    a->types != NULL && a->types->count != a->tokens->count ? "types" : "scores");
	return MODEL_OK;
}

/* "[PAD32000]": what the converter puts at an id without a token */
static int
is_padding(const char *text, size_t len, uint64_t id)
{
	char pad[32];
	const int n = snprintf(pad, sizeof pad, "[PAD%" PRIu64 "]", id);

	return (size_t)n == len && memcmp(text, pad, len) == 0;
}

/* Appends the text at *to, with a zero byte. */
static void
copy_text(char **to, const char *text, size_t len, int meta)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (meta && text[i] == ' ')
			*to = stpcpy(*to, META);
		else
			*(*to)++ = text[i];
	*(*to)++ = '\0';
}

/* to: room for the text, thrice where meta */
static int
take_token(const struct gguf *g, const struct arrays *a, uint64_t i, struct gguf_token *t,
    const uint8_t **at, char **to, int meta, char *err, size_t errlen)
{
	const int64_t type = a->types != NULL ? gguf_whole_at(a->types, i) : GGUF_NORMAL;
	const char *text;
	size_t len;

	text = gguf_next_text(at, &len);
	t->type = type >= GGUF_NORMAL && type <= GGUF_BYTE ? (enum gguf_token_type)type :
	    GGUF_NORMAL;
	t->score = a->scores != NULL ? gguf_f32_at(a->scores, i) : 0;
	if (len > MOST_BYTES || memchr(text, '\0', len) != NULL)
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, g->path, "token %" PRIu64
		    " has %zu bytes, or a zero byte: at most %d, and none", i, len, MOST_BYTES);
	if (!isfinite(t->score))
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "the score of token "
		    "%" PRIu64 " is not finite", i);
	if (t->type == GGUF_UNUSED && is_padding(text, len, i))
		len = 0;
	t->text = *to;
	copy_text(to, text, len, meta && t->type == GGUF_USER_DEFINED);
	t->len = (uint32_t)(*to - t->text - 1);
	return MODEL_OK;
}

int
gguf_vocabulary(const struct gguf *g, int meta, struct gguf_vocabulary *v, char *err, size_t errlen)
{
	struct arrays a;
	const uint8_t *at;
	size_t len, room = 0, i;
	char *to;
	int rc;

	*v = (struct gguf_vocabulary){ .token = NULL };
	if ((rc = find_arrays(g, &a, err, errlen)) != MODEL_OK)
		return rc;
	v->n = a.tokens->count;
	v->has_scores = a.scores != NULL;
	for (i = 0, at = a.tokens->data; i < v->n; i++) {
		(void)gguf_next_text(&at, &len);
		room += (meta ? 3 : 1) * len + 1;
	}
	v->token = calloc(v->n, sizeof *v->token);
	v->text = malloc(room);
	if (v->token == NULL || v->text == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, g->path, "out of memory");
	to = v->text;
	for (i = 0, at = a.tokens->data; rc == MODEL_OK && i < v->n; i++)
		rc = take_token(g, &a, i, &v->token[i], &at, &to, meta, err, errlen);
	return rc;
}

void
gguf_vocabulary_free(struct gguf_vocabulary *v)
{
	free(v->token);
	free(v->text);
}

int
gguf_special(const struct gguf *g, const char *task, size_t tokens, uint64_t *id, char *err,
    size_t errlen)
{
	char key[64];
	int rc;

	snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", task);
	if (gguf_find(g, key) == NULL)
		return MODEL_OK;
	if ((rc = gguf_whole(g, key, id, err, errlen)) == MODEL_OK && *id >= tokens)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "key %s is %" PRIu64
		    ", there are %zu tokens", key, *id, tokens);
	return rc;
}
