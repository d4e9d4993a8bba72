/* tokenizer_utf8.c - tests of tokenizer/utf8.c: what is well-formed, and streams cut anywhere
 *
 * The expected replacements are what Python's bytes.decode(errors="replace") gives. */
#include "tokenizer/utf8.h"
#include "tests/unit/tokenizer_check.h"

#define R "\xef\xbf\xbd"

static const struct {
	const char *in, *out;
	size_t bad;             /* offset of the first ill-formed sequence; SIZE_MAX: none */
} list[] = {
	{ "", "", SIZE_MAX },
	{ "plain ascii, more than eight bytes", "plain ascii, more than eight bytes", SIZE_MAX },
	{ "\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
	    "\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
	    SIZE_MAX },
	{ "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80", SIZE_MAX },
	{ "a\x80z", "a" R "z", 1 }, { "a\xbf\xbfz", "a" R R "z", 1 },
	{ "\xc0\x80", R R, 0 },					     /* overlong zero */
	{ "\xc1\xbf", R R, 0 }, { "ok\xe0\x80\x80", "ok" R R R, 2 }, /* overlong, three bytes */
	{ "\xe0\x9f\xbf", R R R, 0 }, { "\xf0\x8f\xbf\xbf", R R R R, 0 }, /* overlong, four bytes
									   */
	{ "\xed\xa0\x80\xed\xbf\xbf", R R R R R R, 0 },			  /* surrogates */
	{ "\xf4\x90\x80\x80", R R R R, 0 },				  /* U+110000 */
	{ "\xf5\x80\x80\x80\xff\xfe", R R R R R R, 0 }, { "x\xe2\x82", "x" R, 1 }, /* cut off: one
										      for all that
										      was well so
										      far */
	{ "x\xf0\x9f\x91", "x" R, 1 }, { "12345678\xe2", "12345678" R, 8 },
	{ "\xe2\x82"
	  "a",
	    R "a", 0 },
	{ "\xe2\x82\xe2\x82\xac", R "\xe2\x82\xac", 0 }, /* what breaks a sequence can start one
							  */
	{ "\xf0\x9f\x91\xc3\xa9", R "\xc3\xa9", 0 },
	{ "\xf1\x80\x80\x41\xf1\x80\x41\xf1\x41", R "A" R "A" R "A", 0 },
	{ "\xc3\xc3\xa9\xc3", R "\xc3\xa9" R, 0 }, { "\xe9t\xe9", R "t" R, 0 }, /* Latin-1 */
};

static void
stream(const char *in, size_t len, size_t first, const char *want)
{
	struct utf8_stream s = { 0 };
	char out[300];
	size_t n, i;

	/* cut in two at `first`; SIZE_MAX: byte by byte */
	if (first != SIZE_MAX) {
		n = utf8_push(&s, in, first, out);
		n += utf8_push(&s, in + first, len - first, out + n);
	} else {
		for (i = n = 0; i < len; i++)
			n += utf8_push(&s, in + i, 1, out + n);
	}
	n += utf8_flush(&s, out + n);
	check(n == strlen(want) && memcmp(out, want, n) == 0,
	    "stream \"%s\" cut at %zu gives \"%.*s\"", in, first, (int)n, out);
	check(utf8_flush(&s, out) == 0, "\"%s\": something is left after the flush", in);
}

/* Every code point there is, written by this file's own arithmetic. */
static void
every_point(void)
{
	unsigned char b[4];
	uint32_t c, wrong = 0;
	unsigned n, used;

	for (c = 0x80; c < 0x110000; c++) {
		n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		b[0] = (unsigned char)((0xf00u >> n & 0xff) | c >> 6 * (n - 1));
		b[1] = (unsigned char)(0x80 | (c >> 6 * (n - 2) & 0x3f));
		b[2] = (unsigned char)(0x80 | (n > 2 ? c >> 6 * (n - 3) & 0x3f : 0));
		b[3] = (unsigned char)(0x80 | (c & 0x3f));
		if (c >= 0xd800 && c < 0xe000)
			wrong += utf8_check((char *)b, n) != 0;
		else
			wrong += utf8_check((char *)b, n) != n ||
			    utf8_get((char *)b, &used) != c || used != n ||
			    utf8_get_before((char *)b, n, &used) != c ||
			    utf8_check((char *)b, n - 1) != 0;
	}
	check(wrong == 0, "%u code points are read wrongly", wrong);
}

int
main(void)
{
	size_t i, k, len;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		len = strlen(list[i].in);
		check(utf8_check(list[i].in, len) ==
			(list[i].bad == SIZE_MAX ? len : list[i].bad),
		    "case %zu: the first bad byte is said to be at %zu", i,
		    utf8_check(list[i].in, len));
		for (k = 0; k <= len; k++)
			stream(list[i].in, len, k, list[i].out);
		stream(list[i].in, len, SIZE_MAX, list[i].out);
	}
	every_point();
	return report("tokenizer_utf8");
}
