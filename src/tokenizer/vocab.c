/* vocab.c - maps token ids to bytes and back */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"

int
vocab_init(struct vocab *v, uint32_t size, size_t words)
{
	size_t slots = 16;

	memset(v, 0, sizeof(*v));
	while (slots < 2 * words)
		slots *= 2;
	v->token = calloc((size_t)size + 1, sizeof(*v->token));
	v->slot = calloc(slots, sizeof(*v->slot));
	if (v->token == NULL || v->slot == NULL) {
		vocab_free(v);
		return TOKENIZER_ENOMEM;
	}
	v->size = size;
	v->mask = slots - 1;
	return 0;
}

void
vocab_free(struct vocab *v)
{
	free(v->token);
	free(v->slot);
	free(v->text);
	memset(v, 0, sizeof(*v));
}

static int
same(const struct vocab *v, uint32_t id, const char *bytes, size_t len)
{
	const struct token *t = &v->token[id];

	return t->len == len && memcmp(v->text + t->at, bytes, len) == 0;
}

/* Returns the slot with these bytes, or the free one for them. */
static uint32_t *
probe(const struct vocab *v, const char *bytes, size_t len)
{
	size_t i = (size_t)XXH3_64bits(bytes, len) & v->mask;

	while (v->slot[i] != 0 && !same(v, v->slot[i] - 1, bytes, len))
		i = (i + 1) & v->mask;
	return &v->slot[i];
}

/* *at <- the offset of bytes[len] and a zero, appended to the text. */
static int
keep(struct vocab *v, const char *bytes, size_t len, size_t *at)
{
	size_t cap;
	char *p;

	if (len >= UINT32_MAX || v->used > SIZE_MAX / 4)
		return TOKENIZER_ENOMEM;
	if (v->cap - v->used < len + 1) {
		cap = 2 * v->cap + len + 4096;
		p = realloc(v->text, cap);
		if (p == NULL)
			return TOKENIZER_ENOMEM;
		v->text = p;
		v->cap = cap;
	}
	*at = v->used;
	memcpy(v->text + v->used, bytes, len);
	v->text[v->used + len] = '\0';
	v->used += len + 1;
	return 0;
}

int
vocab_set(struct vocab *v, uint32_t id, const char *bytes, size_t len, unsigned flags)
{
	struct token *t = &v->token[id];

	if (keep(v, bytes, len, &t->at) != 0)
		return TOKENIZER_ENOMEM;
	t->len = (uint32_t)len;
	t->shown_at = t->at;
	t->shown_len = t->len;
	t->flags |= TOKEN_USED | flags;
	if (flags & TOKEN_BYTES)
		*probe(v, bytes, len) = id + 1;
	return 0;
}

int
vocab_show(struct vocab *v, uint32_t id, const char *bytes, size_t len)
{
	struct token *t = &v->token[id];

	if (t->len == len && memcmp(v->text + t->at, bytes, len) == 0)
		return 0;
	if (keep(v, bytes, len, &t->shown_at) != 0)
		return TOKENIZER_ENOMEM;
	t->shown_len = (uint32_t)len;
	return 0;
}

uint32_t
vocab_find(const struct vocab *v, const char *bytes, size_t len)
{
	uint32_t found = *probe(v, bytes, len);

	return found == 0 ? VOCAB_NONE : found - 1;
}

/* Printable Latin-1 stands for itself; the other bytes, in ascending order (00-20, 7F-A0, AD),
 * are U+0100, U+0101, ... */
static int
byte_of(uint32_t c)
{
	if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad))
		return (int)c;
	if (c < 0x100)
		return -1;
	c -= 0x100;
	if (c <= 0x20)
		return (int)c;
	c -= 0x21;
	if (c <= 0xa0 - 0x7f)
		return (int)(0x7f + c);
	return c == 0xa0 - 0x7f + 1 ? 0xad : -1;
}

size_t
vocab_spell(const char *key, size_t len, char *out)
{
	size_t i, n = 0;
	unsigned used;
	int byte;

	for (i = 0; i < len; i += used) {
		byte = byte_of(utf8_get(key + i, &used));
		if (byte < 0)
			return SIZE_MAX;
		out[n++] = (char)byte;
	}
	return n;
}

static uint32_t
character_of(unsigned char byte)
{
	if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
		return byte;
	return 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 0x21u + 0x22u : 0x21u + byte - 0x7fu);
}

size_t
vocab_unspell(const char *bytes, size_t len, char *out)
{
	uint32_t c;
	size_t i, n = 0;

	for (i = 0; i < len; i++) {
		c = character_of((unsigned char)bytes[i]);
		if (c >= 0x80)
			out[n++] = (char)(0xc0 | c >> 6);
		out[n++] = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
	}
	return n;
}

int
ids_push(struct ids *list, uint32_t id)
{
	uint32_t *p;
	size_t cap;

	if (list->n == list->cap) {
		cap = list->cap + list->cap / 2 + 64;
		if (cap > SIZE_MAX / sizeof(*p))
			return TOKENIZER_ENOMEM;
		p = realloc(list->ids, cap * sizeof(*p));
		if (p == NULL)
			return TOKENIZER_ENOMEM;
		list->ids = p;
		list->cap = cap;
	}
	list->ids[list->n++] = id;
	return 0;
}
