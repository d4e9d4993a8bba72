/* nfc.c - normalisation form C, linear in the length of the text
 *
 * utf8proc decomposes and composes. Its canonical ordering is an insertion sort, quadratic for
 * a text of combining marks only, so that step is done here: a stable counting sort over the
 * 256 combining classes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

/* First byte of U+0300. Below that nothing combines, and every decomposition is composed again. */
#define LEAD_0300 0xcc
#define MOST	  4 /* code points of the longest canonical decomposition (U+1F82 and its like) */

int
nfc_is_plain(const char *text, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((unsigned char)text[i] >= LEAD_0300)
			return 0;
	return 1;
}

static unsigned
combining_class(utf8proc_int32_t c)
{
	return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Orders run[n], all of them non-starters, by combining class; equal ones keep their order.
 * spare[n]. */
static void
sort_run(utf8proc_int32_t *run, size_t n, utf8proc_int32_t *spare)
{
	size_t place[256] = { 0 }, sum = 0, count, i;

	for (i = 0; i < n; i++)
		place[combining_class(run[i])]++;
	for (i = 0; i < 256; i++) {
		count = place[i];
		place[i] = sum;
		sum += count;
	}
	for (i = 0; i < n; i++)
		spare[place[combining_class(run[i])]++] = run[i];
	memcpy(run, spare, n * sizeof(*run));
}

static void
order(utf8proc_int32_t *c, size_t n, utf8proc_int32_t *spare)
{
	size_t i, start = 0;
	unsigned class, before = 0;
	int sorted = 1;

	/* [start, i) is the current run of non-starters */
	for (i = 0; i <= n; i++) {
		class = i < n ? combining_class(c[i]) : 0;
		if (class == 0) {
			if (!sorted)
				sort_run(c + start, i - start, spare);
			start = i + 1;
			sorted = 1;
		} else if (class < before)
			sorted = 0;
		before = class;
	}
}

/* c[] <- canonical decomposition of text[len]; returns the number of code points. c has room for
 * MOST each. */
static size_t
decompose(const char *text, size_t len, utf8proc_int32_t *c)
{
	utf8proc_ssize_t got;
	uint32_t point;
	size_t i, n = 0;
	unsigned used;
	int unused = 0;

	for (i = 0; i < len; i += used) {
		point = utf8_get(text + i, &used);
		got = utf8proc_decompose_char((utf8proc_int32_t)point, c + n, MOST,
		    UTF8PROC_DECOMPOSE, &unused);
		if (got >= 1 && got <= MOST)
			n += (size_t)got;
		else
			c[n++] = (utf8proc_int32_t)point;
	}
	return n;
}

struct nfc_buffers {
	utf8proc_int32_t *c, *spare;    /* both of room code points */
	size_t room;
	char *out;
	size_t n, cap;                  /* bytes of out in use, allocated */
};

static int
reserve(struct nfc_buffers *w, size_t points, size_t bytes)
{
	void *p;
	size_t want;

	if (points > w->room) {
		if (points > SIZE_MAX / (2 * sizeof(*w->c)))
			return TOKENIZER_ENOMEM;
		free(w->c);
		w->room = points;
		w->c = malloc(2 * points * sizeof(*w->c));
		if (w->c == NULL)
			return TOKENIZER_ENOMEM;
		w->spare = w->c + points;
	}
	if (bytes > w->cap - w->n) {
		want = w->n + bytes;
		want += want / 2;
		p = realloc(w->out, want);
		if (p == NULL)
			return TOKENIZER_ENOMEM;
		w->out = p;
		w->cap = want;
	}
	return 0;
}

/* Appends form C of a stretch that neither the text before it nor the text after it can change. */
static int
append_composed(struct nfc_buffers *w, const char *text, size_t len)
{
	utf8proc_ssize_t composed;
	size_t i, n, points = 0;

	for (i = 0; i < len; i++)
		points += ((unsigned char)text[i] & 0xc0) != 0x80;
	if (points > SIZE_MAX / (4 * MOST) || reserve(w, points * MOST, points * MOST * 4) != 0)
		return TOKENIZER_ENOMEM;
	n = decompose(text, len, w->c);
	order(w->c, n, w->spare);
	composed = utf8proc_normalize_utf32(w->c, (utf8proc_ssize_t)n,
	    UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (composed >= 0)
		n = (size_t)composed;
	for (i = 0; i < n; i++)
		w->n += (size_t)utf8proc_encode_char(w->c[i], (utf8proc_uint8_t *)w->out + w->n);
	return 0;
}

static int
append_plain(struct nfc_buffers *w, const char *text, size_t len)
{
	if (reserve(w, 0, len) != 0)
		return TOKENIZER_ENOMEM;
	memcpy(w->out + w->n, text, len);
	w->n += len;
	return 0;
}

/* Characters below U+0300 never change and never combine with the text before them, so the text
 * can be cut before each. One directly before other characters belongs to those: it may combine
 * with them. */
int
nfc(const char *text, size_t len, char **out, size_t *outlen)
{
	struct nfc_buffers w = { 0 };
	size_t i = 0, start, last;
	int rc;

	rc = reserve(&w, 0, len + 1);
	while (rc == 0 && i < len) {
		start = last = i;
		for (; i < len && (unsigned char)text[i] < LEAD_0300; i++)
			if (((unsigned char)text[i] & 0xc0) != 0x80)
				last = i;
		if (i == len)
			last = i;
		rc = append_plain(&w, text + start, last - start);
		while (i < len && ((unsigned char)text[i] >= LEAD_0300 ||
		    ((unsigned char)text[i] & 0xc0) == 0x80))
			i++;
		if (rc == 0 && last < i)
			rc = append_composed(&w, text + last, i - last);
	}
	free(w.c);
	if (rc != 0) {
		free(w.out);
		return rc;
	}
	*out = w.out;
	*outlen = w.n;
	return 0;
}
