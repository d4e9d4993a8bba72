/* decoder.c - applies the steps of a decoder to one token */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/decoder.h"
#include "tokenizer/growth.h"
#include "tokenizer/vocab.h"

void
decoder_free(struct decoder *d)
{
	for (; d->n > 0; d->n--) {
		free(d->step[d->n - 1].from);
		free(d->step[d->n - 1].to);
	}
}

struct decode_step *
decoder_add(struct decoder *d, enum decode_kind kind, char *from, char *to)
{
	struct decode_step *s;

	if (d->n == DECODER_MOST) {
		free(from);
		free(to);
		return NULL;
	}
	s = &d->step[d->n++];
	memset(s, 0, sizeof(*s));
	s->kind = kind;
	s->from = from;
	s->to = to;
	return s;
}

/* Replaces from by to in *text, of *len bytes, which grows to at most `most`. */
static int
replace(char **text, size_t *len, size_t most, const char *from, const char *to)
{
	size_t n = strlen(from), m = strlen(to), count = 0, gap, out = 0;
	const char *at, *end = *text + *len, *p;
	char *made;

	for (p = *text; (at = memmem(p, (size_t)(end - p), from, n)) != NULL; p = at + n)
		count++;
	if (count == 0)
		return 0;
	if (count > most / (m + 1))
		return TOKENIZER_EUNSUPPORTED;
	if ((made = malloc(*len - count * n + count * m + 1)) == NULL)
		return TOKENIZER_ENOMEM;
	for (p = *text; (at = memmem(p, (size_t)(end - p), from, n)) != NULL; p = at + n) {
		gap = (size_t)(at - p);
		memcpy(made + out, p, gap);
		memcpy(made + out + gap, to, m);
		out += gap + m;
	}
	memcpy(made + out, p, (size_t)(end - p));
	out += (size_t)(end - p);
	free(*text);
	*text = made;
	*len = out;
	return 0;
}

static int
hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns 1 if the token stands for a byte, and replaces it by that byte. */
static int
one_byte(char *text, size_t *len)
{
	/* Rust's from_str_radix accepts a sign, too */
	int high = *len == 6 ? text[3] == '+' ? 0 : hex(text[3]) : -1;

	if (high < 0 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[4]) < 0)
		return 0;
	text[0] = (char)(high << 4 | hex(text[4]));
	*len = 1;
	return 1;
}

static void
strip(const struct decode_step *s, char *text, size_t *len)
{
	size_t n = strlen(s->from), at = 0, i;

	for (i = 0; i < s->start && *len - at >= n && memcmp(text + at, s->from, n) == 0; i++)
		at += n;
	*len -= at;
	memmove(text, text + at, *len);
	for (i = 0; i < s->stop && *len >= n && memcmp(text + *len - n, s->from, n) == 0; i++)
		*len -= n;
}

static int
byte_level(char **text, size_t *len)
{
	char *p = malloc(*len + 1);
	size_t n;

	if (p == NULL)
		return TOKENIZER_ENOMEM;
	n = vocab_spell(*text, *len, p);
	if (n == SIZE_MAX) {
		free(p);        /* not in the alphabet: it stands for itself */
		return 0;
	}
	free(*text);
	*text = p;
	*len = n;
	return 0;
}

int
decoder_token(const struct decoder *d, const char *key, size_t len, int first, char **out,
    size_t *outlen)
{
	const struct decode_step *s;
	unsigned i;
	int rc = 0;

	*out = malloc(len + 1);
	if (*out == NULL)
		return TOKENIZER_ENOMEM;
	memcpy(*out, key, len);
	*outlen = len;
	for (i = 0; i < d->n && rc == 0; i++) {
		s = &d->step[i];
		switch (s->kind) {
		case DECODE_BYTE_LEVEL:
			rc = byte_level(out, outlen);
			break;
		case DECODE_REPLACE:
			rc = replace(out, outlen, growth_most(len), s->from, s->to);
			break;
		case DECODE_BYTE_FALLBACK:
			if (one_byte(*out, outlen))
				return 0;
			break;
		case DECODE_STRIP:
			strip(s, *out, outlen);
			break;
		case DECODE_METASPACE:
			rc = replace(out, outlen, growth_most(len), s->from,
			    first && d->drops ? "" : " ");
			break;
		}
	}
	if (rc != 0) {
		free(*out);
		*out = NULL;
	}
	return rc;
}
