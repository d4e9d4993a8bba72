/* utf8.c - UTF-8: checks, walks, and completes streams
 *
 * Well-formed means table 3-7 of the Unicode standard: no overlong forms, no surrogates,
 * nothing above U+10FFFF. An ill-formed stretch is replaced by one U+FFFD for each maximal
 * subpart (section 3.9), as Python's errors="replace" does. */
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

enum sequence { BROKEN, INCOMPLETE, WHOLE };

static const char replacement[3] = "\xef\xbf\xbd"; /* U+FFFD, deliberately without its zero */

/* Classifies the sequence that starts at s[n], n > 0. *used: its bytes for WHOLE, the bytes of
 * the maximal subpart for BROKEN, n for INCOMPLETE. */
static enum sequence
scan(const unsigned char *s, size_t n, unsigned *used)
{
	unsigned low = 0x80, high = 0xbf, need, i;

	*used = 1;
	if (s[0] < 0x80)
		return WHOLE;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return BROKEN;
	need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	/* only the second byte has narrower bounds */
	if (s[0] == 0xe0)
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	for (i = 1; i < need && i < n; i++) {
		*used = i;
		if (s[i] < low || s[i] > high)
			return BROKEN;
		low = 0x80;
		high = 0xbf;
	}
	*used = i;
	return i == need ? WHOLE : INCOMPLETE;
}

size_t
utf8_check(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint64_t eight;
	size_t i = 0;
	unsigned used;

	while (i < len) {
		if (len - i >= sizeof(eight)) {
			memcpy(&eight, p + i, sizeof(eight));
			if ((eight & 0x8080808080808080u) == 0) {
				i += sizeof(eight);
				continue;
			}
		}
		if (scan(p + i, len - i, &used) != WHOLE)
			return i;
		i += used;
	}
	return len;
}

uint32_t
utf8_get(const char *s, unsigned *used)
{
	const unsigned char *p = (const unsigned char *)s;

	if (p[0] < 0x80) {
		*used = 1;
		return p[0];
	}
	if (p[0] < 0xe0) {
		*used = 2;
		return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
	}
	if (p[0] < 0xf0) {
		*used = 3;
		return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
	}
	*used = 4;
	return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

uint32_t
utf8_get_before(const char *s, size_t end, unsigned *used)
{
	size_t start = end - 1;

	while (start > 0 && ((unsigned char)s[start] & 0xc0) == 0x80)
		start--;
	return utf8_get(s + start, used);
}

size_t
utf8_push(struct utf8_stream *stream, const char *bytes, size_t len, char *out)
{
	size_t i = 0, n = 0;
	unsigned used;

	while (i < len) {
		stream->part[stream->n++] = bytes[i++];
		switch (scan((const unsigned char *)stream->part, stream->n, &used)) {
		case INCOMPLETE:
			break;
		case WHOLE:
			memcpy(out + n, stream->part, used);
			n += used;
			stream->n = 0;
			break;
		case BROKEN:
			memcpy(out + n, replacement, sizeof(replacement));
			n += sizeof(replacement);
			/* the byte that broke a sequence may start the next one: read it again */
			if (stream->n > 1)
				i--;
			stream->n = 0;
			break;
		}
	}
	return n;
}

size_t
utf8_flush(struct utf8_stream *stream, char *out)
{
	if (stream->n == 0)
		return 0;
	stream->n = 0;
	memcpy(out, replacement, sizeof(replacement));
	return sizeof(replacement);
}
