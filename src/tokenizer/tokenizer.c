/* tokenizer.c - text to token ids and back
 *
 * The order is that of Hugging Face tokenizers: added tokens that are not normalised are found
 * in the original text; each stretch between them is normalised separately; the other added
 * tokens are found in that; the rest is cut into words, and each word is encoded separately. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokjson.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

void
tokenizer_fingerprint(const struct tokenizer *t, char *hex)
{
	memcpy(hex, t->fingerprint, sizeof(t->fingerprint));
}

/* ---- opening ---- */

/* The tokenizer behind rc of tokjson.c, which is closed where that failed */
static int
opened(struct tokenizer *t, int rc, const char *path, struct tokenizer **out, char *err,
    size_t errlen)
{
	if (rc == 0 && (rc = fingerprint(t)) != 0)
		snprintf(err, errlen, "%s: no memory", path);
	if (rc != 0) {
		tokenizer_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

int
tokenizer_open(const char *dir, struct tokenizer **out, char *err, size_t errlen)
{
	struct tokenizer *t = calloc(1, sizeof(*t));

	*out = NULL;
	if (t == NULL) {
		snprintf(err, errlen, "%s/tokenizer.json: no memory", dir);
		return TOKENIZER_ENOMEM;
	}
	return opened(t, tokjson_read(t, dir, err, errlen), dir, out, err, errlen);
}

int
tokenizer_open_json(const char *path, json_t *json, struct tokenizer **out, char *err,
    size_t errlen)
{
	struct tokenizer *t = calloc(1, sizeof(*t));

	*out = NULL;
	if (t == NULL) {
		snprintf(err, errlen, "%s: no memory", path);
		return TOKENIZER_ENOMEM;
	}
	return opened(t, tokjson_read_object(t, path, json, err, errlen), path, out, err, errlen);
}

void
tokenizer_close(struct tokenizer *t)
{
	if (t == NULL)
		return;
	vocab_free(&t->vocab);
	bpe_free(&t->bpe);
	normalizer_free(&t->normalizer);
	pretok_free(&t->pretok);
	decoder_free(&t->decoder);
	added_free(&t->raw);
	added_free(&t->normal);
	free(t->before.ids);
	free(t->after.ids);
	free(t->joined.ids);
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
	*len = token->shown_len;
	if (special != NULL)
		*special = (token->flags & TOKEN_SPECIAL) != 0;
	return t->vocab.text + token->shown_at;
}

/* Metaspace drops its characters from the first token, whatever follows; Strip drops a number
 * of characters, from as many tokens as needed. */
size_t
tokenizer_begin(const struct tokenizer *t, struct text_start *start, uint32_t id, char *out)
{
	const struct decoder *d = &t->decoder;
	const struct token *token = &t->vocab.token[id];
	size_t n = strlen(d->strip), len = token->shown_len, at = 0;
	char *first;

	memcpy(out, t->vocab.text + token->shown_at, len);
	if (d->drops && !start->begun && decoder_token(d, t->vocab.text + token->at, token->len,
	    1, &first, &len) == 0) {
		if (len <= token->shown_len)    /* else there would be no room for it */
			memcpy(out, first, len);
		else
			len = token->shown_len;
		free(first);
	}
	start->begun = 1;
	while (start->stripped < d->strip_most && len - at >= n &&
	    memcmp(out + at, d->strip, n) == 0) {
		at += n;
		start->stripped++;
	}
	if (at < len)
		start->stripped = SIZE_MAX;     /* another character: the beginning is over */
	memmove(out, out + at, len - at);
	return len - at;
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
	unsigned skip;                  /* added tokens with this flag are plain text */
	struct bpe_work bpe;
	struct pretok_work *pretok;
	char *bytes;                    /* a word that was spelled */
	size_t room;
	size_t lost;                    /* characters without a token */
	/* the stretch at this place loses its white space when it is normalised */
	const char *stripped;
	char *err;
	size_t errlen;
};

static int
encode_bytes(struct encoder *e, const char *word, size_t len)
{
	int rc = bpe_word(&e->t->bpe, &e->t->vocab, &e->bpe, word, len, e->out, &e->lost);

	if (rc == TOKENIZER_EINVALID)
		snprintf(e->err, e->errlen, "a character has no token, and there is no unknown "
		    "token in the vocabulary");
	return rc;
}

static int
compare_points(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Returns whether a merge may join the U+2581 at word + at to the character before it. */
static int
is_joined(const struct tokenizer *t, const char *word, size_t at)
{
	unsigned used;
	uint32_t c = utf8_get_before(word, at, &used);

	return c == 0x2581 || (t->joined.n > 0 &&
	    bsearch(&c, t->joined.ids, t->joined.n, sizeof(c), compare_points) != NULL);
}

/* Encodes words between which there is no merge separately: a text that is one word becomes
 * many short ones. */
static int
encode_cut(struct encoder *e, const char *word, size_t len)
{
	static const char meta[3] = "\xe2\x96\x81"; /* without its zero */
	size_t i, start = 0;
	int rc;

	for (i = 1; i + sizeof(meta) <= len; i++) {
		if (memcmp(word + i, meta, sizeof(meta)) != 0 || is_joined(e->t, word, i))
			continue;
		if ((rc = encode_bytes(e, word + start, i - start)) != 0)
			return rc;
		start = i;
	}
	return encode_bytes(e, word + start, len - start);
}

static int
encode_word(void *arg, const char *word, size_t len)
{
	struct encoder *e = arg;
	uint32_t id;

	if (e->t->spelled) {
		if (len > e->room) {
			free(e->bytes);
			e->room = 2 * len;
			e->bytes = malloc(e->room);
			if (e->bytes == NULL) {
				e->room = 0;
				return TOKENIZER_ENOMEM;
			}
		}
		len = vocab_spell(word, len, e->bytes);
		word = e->bytes;
	}
	if (e->t->ignore_merges && (id = vocab_find(&e->t->vocab, word, len)) != VOCAB_NONE)
		return ids_push(e->out, id);
	return e->t->cuts ? encode_cut(e, word, len) : encode_bytes(e, word, len);
}


/* A stretch of text, the marks of its bytes (added_next()), whether it begins the input
 * (pretok_run()), and whether the normaliser puts something before it */
struct stretch {
	const char *text;
	const unsigned char *mark;
	size_t len;
	int first, prepend;
};

static struct stretch
part(const struct stretch *s, size_t from, size_t to)
{
	return (struct stretch){ s->text + from, s->mark != NULL ? s->mark + from : NULL, to - from,
	    from == 0 ? s->first : 0, from == 0 ? s->prepend : 1 };
}

/* Removes leading white space. */
static void
strip(struct stretch *s)
{
	unsigned used;

	while (s->len > 0 && unicode_is_space(utf8_get(s->text, &used))) {
		s->text += used;
		s->mark = s->mark != NULL ? s->mark + used : NULL;
		s->len -= used;
	}
}

/* Emits the added tokens of one set, and passes every stretch between them to rest(). */
static int
encode_around(struct encoder *e, const struct added *set, const struct stretch *s,
    int (*rest)(struct encoder *, const struct stretch *))
{
	struct added_hit hit = { 0 };
	struct stretch between;
	size_t done = 0;
	int rc = 0;

	while (rc == 0 && added_next(set, s->text, s->mark, s->len, done, e->skip, &hit)) {
		if (hit.start > done) {
			between = part(s, done, hit.start);
			rc = rest(e, &between);
		}
		if (rc == 0)
			rc = ids_push(e->out, hit.id);
		done = hit.end;
	}
	if (rc == 0 && done < s->len) {
		between = part(s, done, s->len);
		rc = rest(e, &between);
	}
	return rc;
}

static int
encode_words(struct encoder *e, const struct stretch *s)
{
	return pretok_run(&e->t->pretok, e->pretok, s->text, s->len, s->first, encode_word, e,
	    e->err,
	    e->errlen);
}

/* Sets the marks of a stretch after it was normalised to normal[len]. Runs of bytes with the
 * same mark are normalised separately for their lengths; if these do not add up, since
 * characters on both sides of a border have combined, all of it counts as contents. */
static int
normal_marks(struct encoder *e, const struct stretch *s, size_t len, unsigned char **mark)
{
	size_t from, to, n, done = 0;
	char *out;
	int rc;

	*mark = malloc(len + 1);
	if (*mark == NULL)
		return TOKENIZER_ENOMEM;
	for (from = 0; from < s->len; from = to) {
		for (to = from + 1; to < s->len && (s->mark[to] != 0) == (s->mark[from] != 0); to++)
			;
		rc = normalizer_run(&e->t->normalizer, pretok_expr(e->pretok), s->text + from,
		    to - from, from == 0 && s->prepend, &out, &n, e->err, e->errlen);
		if (rc != 0) {
			free(*mark);
			return rc;
		}
		free(out);
		if (n > len - done)
			break;
		memset(*mark + done, s->mark[from] != 0, n);
		done += n;
	}
	if (from < s->len || done != len)
		memset(*mark, 1, len);
	return 0;
}

static int
encode_normalized(struct encoder *e, const struct stretch *s)
{
	struct stretch n = *s;
	unsigned char *mark = NULL;
	char *normal;
	int rc;

	rc = normalizer_run(&e->t->normalizer, pretok_expr(e->pretok), s->text, s->len, s->prepend,
	    &normal, &n.len, e->err, e->errlen);
	if (rc != 0)
		return rc;
	if (normal != NULL)
		n.text = normal;
	if (normal != NULL && s->mark != NULL && e->t->normal.n > 0) {
		rc = normal_marks(e, s, n.len, &mark);
		n.mark = mark;
	} else if (normal != NULL) {
		n.mark = NULL;
	}
	if (rc == 0) {
		if (s->text == e->stripped)
			strip(&n);
		rc = encode_around(e, &e->t->normal, &n, encode_words);
		free(mark);
	}
	free(normal);
	return rc;
}

static int
push_all(struct ids *out, const struct ids *ids)
{
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < ids->n; i++)
		rc = ids_push(out, ids->ids[i]);
	return rc;
}

/* Encodes everything between the template's tokens. */
static int
encode_text(const struct tokenizer *t, const struct stretch *s, unsigned flags, struct ids *out,
    char *err, size_t errlen)
{
	struct encoder e = { .t = t, .out = out, .err = err, .errlen = errlen };
	int rc = TOKENIZER_ENOMEM;

	e.skip = flags & TOK_PLAIN ? TOKEN_SPECIAL : 0;
	if ((flags & TOK_STRIPPED) && (flags & TOK_BEHIND_NORMAL))
		e.stripped = s->text;
	e.pretok = pretok_work_new();
	if (e.pretok != NULL)
		rc = encode_around(&e, &t->raw, s, encode_normalized);
	if (rc == 0 && e.lost > 0)
		snprintf(err, errlen, "%zu characters have no token and are left out", e.lost);
	pretok_work_free(e.pretok);
	bpe_work_free(&e.bpe);
	free(e.bytes);
	return rc;
}

/* ---- continuing texts ---- */

static const struct added_token *
find_added(const struct added *set, uint32_t id)
{
	size_t i;

	for (i = 0; i < set->n; i++)
		if (set->token[i].id == id)
			return &set->token[i];
	return NULL;
}

/* A stretch begins anew after an added token: for the normaliser if the token is found before
 * normalisation, for the pre-tokeniser always. The unknown token is part of a text. */
unsigned
tokenizer_behind(const struct tokenizer *t, const uint32_t *ids, size_t n)
{
	const struct added_token *last;
	unsigned flags = TOK_BEHIND_RAW;

	if (n == 0 || (n == t->before.n && memcmp(ids, t->before.ids, n * sizeof(*ids)) == 0))
		return 0;
	if ((last = find_added(&t->raw, ids[n - 1])) == NULL) {
		last = find_added(&t->normal, ids[n - 1]);
		flags = TOK_BEHIND_NORMAL;
	}
	if (last == NULL || last->id == t->bpe.unk)
		return TOK_MIDDLE;
	return flags | (last->flags & TOKEN_RSTRIP ? TOK_STRIPPED : 0);
}

static struct stretch
whole(const char *text, const unsigned char *mark, size_t len, unsigned flags)
{
	const int behind = (flags & (TOK_BEHIND_RAW | TOK_BEHIND_NORMAL)) != 0;
	struct stretch all = { text, mark, len, flags & TOK_MIDDLE ? -1 : !behind,
	    (flags & (TOK_MIDDLE | TOK_BEHIND_NORMAL)) == 0 };

	if ((flags & TOK_STRIPPED) && (flags & TOK_BEHIND_RAW))
		strip(&all);
	return all;
}

/* Warns if the text begins with the token that the template puts before it. */
static void
warn_twice(const struct tokenizer *t, const struct ids *out, size_t before, char *err,
    size_t errlen)
{
	const size_t n = t->before.n;
	size_t len;

	if (n > 0 && out->n > before + n && out->ids[before + n] == t->before.ids[n - 1])
		snprintf(err, errlen,
		    "it begins with %s, and the tokenizer puts another one before it "
		    "(not with --no-template)", tokenizer_bytes(t, t->before.ids[n - 1], &len,
		    NULL));
}

int
tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
    struct ids *out, char *err, size_t errlen)
{
	return tokenizer_encode_marked(t, text, NULL, len, flags, out, err, errlen);
}

int
tokenizer_encode_marked(const struct tokenizer *t, const char *text, const unsigned char *mark,
    size_t len, unsigned flags, struct ids *out, char *err, size_t errlen)
{
	struct stretch all;
	size_t before = out->n, bad;
	int rc = 0;

	if (errlen > 0)
		err[0] = '\0';
	bad = utf8_check(text, len);
	if (bad < len) {
		snprintf(err, errlen, "not UTF-8: byte %02X at offset %zu",
		    (unsigned)(unsigned char)text[bad], bad);
		return TOKENIZER_EINVALID;
	}
	all = whole(text, mark, len, flags);
	if (flags & TOK_TEMPLATE)
		rc = push_all(out, &t->before);
	if (rc == 0)
		rc = encode_text(t, &all, flags, out, err, errlen);
	if (rc == 0 && (flags & TOK_TEMPLATE)) {
		warn_twice(t, out, before, err, errlen);
		rc = push_all(out, &t->after);
	}
	if (rc == TOKENIZER_ENOMEM)
		snprintf(err, errlen, "no memory for the tokens of %zu bytes", len);
	if (rc != 0)
		out->n = before;
	return rc;
}
