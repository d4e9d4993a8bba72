/* tokenizer.c - text to token ids and back
 *
 * The order of things is that of Hugging Face tokenizers: added tokens that are not normalised
 * are found in the text as it is; each stretch between them is normalised on its own; the other
 * added tokens are found in that; what is then left is cut into words, and each word is encoded
 * by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/nfc.h"
#include "tokenizer/tokjson.h"
#include "tokenizer/utf8.h"

/* ---- identity ---- */

static void
hash_u32(XXH3_state_t *h, uint32_t v)
{
	unsigned char b[4] = { (unsigned char)v, (unsigned char)(v >> 8),
		(unsigned char)(v >> 16), (unsigned char)(v >> 24) };

	XXH3_128bits_update(h, b, sizeof(b));
}

/* With its zero byte. */
static void
hash_string(XXH3_state_t *h, const char *s)
{
	XXH3_128bits_update(h, s, strlen(s) + 1);
}

static void
hash_tokens(XXH3_state_t *h, const struct vocab *v)
{
	const struct token *token;
	unsigned char flags;
	uint32_t id;

	for (id = 0; id < v->size; id++) {
		token = &v->token[id];
		if (!(token->flags & TOKEN_USED))
			continue;
		hash_u32(h, id);
		hash_u32(h, token->len);
		XXH3_128bits_update(h, v->text + token->at, token->len);
		flags = (unsigned char)(token->flags >> TOKEN_IDENTITY);
		XXH3_128bits_update(h, &flags, 1);
	}
}

static int
fingerprint(struct tokenizer *t)
{
	XXH3_state_t *h = XXH3_createState();
	XXH128_canonical_t canonical;
	size_t i;

	if (h == NULL)
		return TOKENIZER_ENOMEM;
	XXH3_128bits_reset(h);
	hash_tokens(h, &t->vocab);
	for (i = 0; i < t->bpe.n; i++) {
		hash_u32(h, t->bpe.merge[i].left);
		hash_u32(h, t->bpe.merge[i].right);
	}
	hash_string(h, t->nfc ? "nfc" : "none");
	for (i = 0; i < t->pretok.n; i++)
		hash_string(h, t->pretok.expr[i].text);
	hash_string(h, t->ignore_merges ? "ignore_merges" : "merges");
	for (i = 0; i < t->n_before; i++)
		hash_u32(h, t->before[i]);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(h));
	XXH3_freeState(h);
	for (i = 0; i < sizeof(canonical.digest); i++)
		snprintf(t->fingerprint + 2 * i, 3, "%02x", canonical.digest[i]);
	return 0;
}

void
tokenizer_fingerprint(const struct tokenizer *t, char *hex)
{
	memcpy(hex, t->fingerprint, sizeof(t->fingerprint));
}

/* ---- opening ---- */

int
tokenizer_open(const char *dir, struct tokenizer **out, char *err, size_t errlen)
{
	struct tokenizer *t;
	size_t n = strlen(dir) + sizeof("/tokenizer.json");
	char *path;
	int rc;

	*out = NULL;
	t = calloc(1, sizeof(*t));
	path = malloc(n);
	if (t == NULL || path == NULL) {
		snprintf(err, errlen, "%s/tokenizer.json: no memory", dir);
		free(path);
		free(t);
		return TOKENIZER_ENOMEM;
	}
	snprintf(path, n, "%s/tokenizer.json", dir);
	rc = tokjson_read(t, path, err, errlen);
	if (rc == 0 && (rc = fingerprint(t)) != 0)
		snprintf(err, errlen, "%s: no memory", path);
	free(path);
	if (rc != 0) {
		tokenizer_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

void
tokenizer_close(struct tokenizer *t)
{
	if (t == NULL)
		return;
	vocab_free(&t->vocab);
	bpe_free(&t->bpe);
	pretok_free(&t->pretok);
	added_free(&t->raw);
	added_free(&t->normal);
	free(t->before);
	free(t);
}

/* ---- ids and texts ---- */

uint32_t
tokenizer_size(const struct tokenizer *t)
{
	return t->vocab.size;
}

const char *
tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *len, int *special)
{
	const struct token *token;

	if (id >= t->vocab.size || !(t->vocab.token[id].flags & TOKEN_USED))
		return NULL;
	token = &t->vocab.token[id];
	*len = token->len;
	if (special != NULL)
		*special = (token->flags & TOKEN_SPECIAL) != 0;
	return t->vocab.text + token->at;
}

uint32_t
tokenizer_id(const struct tokenizer *t, const char *text)
{
	const struct token *token;
	uint32_t id;

	for (id = 0; id < t->vocab.size; id++) {
		token = &t->vocab.token[id];
		if ((token->flags & TOKEN_ADDED) && strcmp(t->vocab.text + token->at, text) == 0)
			return id;
	}
	return vocab_find(&t->vocab, text, strlen(text));
}

/* ---- encoding ---- */

struct encoder {
	const struct tokenizer *t;
	struct ids *out;
	unsigned skip;                  /* added tokens with this flag are spelled out */
	struct bpe_work bpe;
	struct pretok_work *pretok;
	char *err;
	size_t errlen;
};

static int
encode_word(void *arg, const char *word, size_t len)
{
	struct encoder *e = arg;
	uint32_t id;
	size_t bad = 0;
	int rc;

	if (e->t->ignore_merges && (id = vocab_find(&e->t->vocab, word, len)) != VOCAB_NONE)
		rc = ids_push(e->out, id);
	else
		rc = bpe_word(&e->t->bpe, &e->bpe, word, len, e->out, &bad);
	if (rc == TOKENIZER_EUNSUPPORTED)
		snprintf(e->err, e->errlen, "the vocabulary has no token for byte %02X",
		    (unsigned)(unsigned char)word[bad]);
	return rc;
}

static int
encode_words(struct encoder *e, const char *text, size_t len)
{
	return pretok_run(&e->t->pretok, e->pretok, text, len, encode_word, e, e->err, e->errlen);
}

/* Emits the added tokens of one set, and hands every stretch between them to rest(). */
static int
encode_around(struct encoder *e, const struct added *set, const char *text, size_t len,
    int (*rest)(struct encoder *, const char *text, size_t len))
{
	struct added_hit hit = { 0 };
	size_t done = 0;
	int rc = 0;

	while (rc == 0 && added_next(set, text, len, done, e->skip, &hit)) {
		if (hit.start > done)
			rc = rest(e, text + done, hit.start - done);
		if (rc == 0)
			rc = ids_push(e->out, hit.id);
		done = hit.end;
	}
	if (rc == 0 && done < len)
		rc = rest(e, text + done, len - done);
	return rc;
}

static int
encode_normalized(struct encoder *e, const char *text, size_t len)
{
	char *normal;
	int rc;

	if (!e->t->nfc || nfc_is_plain(text, len))
		return encode_around(e, &e->t->normal, text, len, encode_words);
	if ((rc = nfc(text, len, &normal, &len)) != 0)
		return rc;
	rc = encode_around(e, &e->t->normal, normal, len, encode_words);
	free(normal);
	return rc;
}

int
tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
    struct ids *out, char *err, size_t errlen)
{
	struct encoder e = { .t = t, .out = out, .err = err, .errlen = errlen };
	size_t before = out->n, bad, i;
	int rc = 0;

	bad = utf8_check(text, len);
	if (bad < len) {
		snprintf(err, errlen, "not UTF-8: byte %02X at offset %zu",
		    (unsigned)(unsigned char)text[bad], bad);
		return TOKENIZER_EINVALID;
	}
	e.skip = flags & TOK_PLAIN ? TOKEN_SPECIAL : 0;
	e.pretok = pretok_work_new();
	if (e.pretok == NULL)
		rc = TOKENIZER_ENOMEM;
	for (i = 0; rc == 0 && (flags & TOK_TEMPLATE) && i < t->n_before; i++)
		rc = ids_push(out, t->before[i]);
	if (rc == 0)
		rc = encode_around(&e, &t->raw, text, len, encode_normalized);
	if (rc == TOKENIZER_ENOMEM)
		snprintf(err, errlen, "no memory for the tokens of %zu bytes", len);
	if (rc != 0)
		out->n = before;
	pretok_work_free(e.pretok);
	bpe_work_free(&e.bpe);
	return rc;
}
