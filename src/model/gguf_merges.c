/* gguf_merges.c - the merges that the scores of a SentencePiece vocabulary stand for
 *
 * SentencePiece's byte pair encoding joins the two neighbours that give the token with the best
 * score. As merges: each way to cut a token into two tokens, by the score of the whole; which is
 * how transformers makes a tokenizer.json (generate_merges in convert_slow_tokenizer.py), with
 * the longer left part first, then the longer right one, where scores are equal. */
#include <stdlib.h>
#include <string.h>

#include "model/gguf_vocabulary.h"

/* No real vocabulary has more, for each token and besides: 2 is usual. */
enum { MOST_OF_TOKEN = 32, MOST_BESIDES = 65536 };

struct merge {
	uint32_t token, cut;            /* bytes of its left part */
	uint32_t left, right;           /* ids of the parts */
	uint32_t left_length, right_length;     /* characters */
	float score;
};

struct list {
	struct merge *merge;
	size_t n, room;
};

static uint32_t
characters(const char *text, size_t len)
{
	uint32_t n = 0;
	size_t i;

	for (i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

/* By rank: greater scores and longer parts first, then in the order of tokens and parts */
static int
by_rank(const void *a, const void *b)
{
	const struct merge *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (x->left_length != y->left_length)
		return x->left_length > y->left_length ? -1 : 1;
	if (x->right_length != y->right_length)
		return x->right_length > y->right_length ? -1 : 1;
	if (x->token != y->token)
		return x->token < y->token ? -1 : 1;
	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	return x->right < y->right ? -1 : x->right > y->right;
}

static int
add_merge(struct list *l, const struct merge *m)
{
	struct merge *grown;

	if (l->n == l->room) {
		l->room = 2 * l->room + 1024;
		if ((grown = reallocarray(l->merge, l->room, sizeof *grown)) == NULL)
			return -1;
		l->merge = grown;
	}
	l->merge[l->n++] = *m;
	return 0;
}

/* All ways to cut a token. left: room for its text */
static int
cut_token(struct list *l, const struct gguf_vocabulary *v, const json_t *vocab, uint32_t id,
    char *left)
{
	const struct gguf_token *t = &v->token[id];
	/* tokens of the user come first, whatever their score (SentencePiece takes them out of the
	 * text before anything is joined) */
	struct merge m = { .token = id, .score = t->type == GGUF_USER_DEFINED ? 0 : t->score };
	const json_t *a, *b;
	uint32_t cut;

	for (cut = 1; cut < t->len; cut++) {
		left[cut - 1] = t->text[cut - 1];
		if (((unsigned char)t->text[cut] & 0xc0) == 0x80)
			continue;
		left[cut] = '\0';
		if ((a = json_object_get(vocab, left)) == NULL ||
		    (b = json_object_get(vocab, t->text + cut)) == NULL)
			continue;
		m.cut = cut;
		m.left = (uint32_t)json_integer_value(a);
		m.right = (uint32_t)json_integer_value(b);
		m.left_length = characters(t->text, cut);
		m.right_length = characters(t->text + cut, t->len - cut);
		if (add_merge(l, &m) != 0)
			return -1;
	}
	return 0;
}

/* "left right"; as two texts where one has a space */
static json_t *
text_of(const struct gguf_vocabulary *v, const struct merge *m, char *both)
{
	const struct gguf_token *t = &v->token[m->token];

	if (memchr(t->text, ' ', t->len) != NULL)
		return json_pack("[s#s]", t->text, (int)m->cut, t->text + m->cut);
	memcpy(both, t->text, m->cut);
	both[m->cut] = ' ';
	memcpy(both + m->cut + 1, t->text + m->cut, t->len - m->cut);
	return json_stringn(both, t->len + 1);
}

static json_t *
as_json(const struct gguf_vocabulary *v, const struct list *l, char *both)
{
	json_t *all = json_array();
	size_t i;

	for (i = 0; i < l->n; i++)
		if (json_array_append_new(all, text_of(v, &l->merge[i], both)) != 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}

/* l <- the merges in order. text: room for a token. Returns as gguf_merges(). */
static int
list_merges(struct list *l, const struct gguf_vocabulary *v, const json_t *vocab, char *text)
{
	uint32_t i;

	for (i = 0; i < v->n; i++) {
		if (v->token[i].type != GGUF_NORMAL && v->token[i].type != GGUF_USER_DEFINED)
			continue;
		if (cut_token(l, v, vocab, i, text) != 0)
			return -1;
		if (l->n > MOST_OF_TOKEN * v->n + MOST_BESIDES)
			return 1;
	}
	if (l->n > 1)
		qsort(l->merge, l->n, sizeof *l->merge, by_rank);
	return 0;
}

int
gguf_merges(const struct gguf_vocabulary *v, const json_t *vocab, json_t **out)
{
	struct list l = { 0 };
	uint32_t i, longest = 0;
	char *text;
	int rc = -1;

	*out = NULL;
	for (i = 0; i < v->n; i++)
		longest = v->token[i].len > longest ? v->token[i].len : longest;
	if ((text = malloc(longest + 2)) != NULL)
		rc = list_merges(&l, v, vocab, text);
	if (rc == 0 && (*out = as_json(v, &l, text)) == NULL)
		rc = -1;
	free(l.merge);
	free(text);
	return rc;
}
