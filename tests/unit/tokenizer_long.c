/* tokenizer_long.c - a long text of one thing: what must not cost the square of its length, nor
 * run into a limit of PCRE2
 *
 * Nothing is timed. Quadratic work on these takes minutes: that is noticed. Run in the root of
 * the source tree. */
#include "tokenizer/nfc.h"
#include "tests/unit/tokenizer_check.h"

#define SIZE ((size_t)1 << 18)

/* text[SIZE] <- pattern again and again, cut where a character ends; returns the length */
static size_t
fill(char *text, const char *pattern)
{
	size_t step = strlen(pattern), n;

	for (n = 0; n + step <= SIZE; n += step)
		memcpy(text + n, pattern, step);
	return n;
}

static void
there_and_back(const char *name, const struct tokenizer *t, const char *what, const char *text,
    size_t len)
{
	struct ids ids = { 0 };
	struct text_start start = { 0 };
	char err[300] = "", bytes[2000];
	size_t i, n = 0, part;
	int same = 1;

	if (tokenizer_encode(t, text, len, 0, &ids, err, sizeof(err)) != 0) {
		check(0, "%s: a long text of \"%s\": %s", name, what, err);
		return;
	}
	for (i = 0; i < ids.n && same; i++) {
		if (tokenizer_bytes(t, ids.ids[i], &part, NULL) == NULL || part > sizeof(bytes))
			abort();
		part = tokenizer_begin(t, &start, ids.ids[i], bytes);
		same = part <= len - n && memcmp(bytes, text + n, part) == 0;
		n += part;
	}
	/* these two have unknown tokens, and spaces that they leave out */
	if (strcmp(name, "metaspace") == 0 || strcmp(name, "first") == 0)
		same = ids.n > 0 && (n = len) > 0;
	check(same && n == len, "%s: a long text of \"%s\" does not come back", name, what);
	free(ids.ids);
}

static void
marks(char *text)
{
	char *out;
	size_t len, n, i, low = 0;

	/* acute (class 230) and dot below (220) in turn: all dots go to the front */
	len = fill(text, "\xcc\x81\xcc\xa3");
	if (nfc(text, len, &out, &n) != 0)
		abort();
	while (low + 1 < n && memcmp(out + low, "\xcc\xa3", 2) == 0)
		low += 2;
	for (i = low; i + 1 < n && memcmp(out + i, "\xcc\x81", 2) == 0; i += 2)
		;
	check(n == len && low == len / 2 && i == n, "marks are not in order: %zu of %zu", low, n);
	free(out);
}

int
main(void)
{
	static const char *const names[] = { "llama3", "qwen2", "gpt2", "mixed", "falcon",
		"llama2", "metaspace", "first", "gemma" };
	static const char *const patterns[] = { "a", " ", "\n", " \n", "\r\n", "1", "!", "'s",
		"a ", "<", "<|im_", "\xe4\xbd\xa0",
		"The quick brown fox doesn't jump over 12 dogs.\n" };
	static char text[SIZE + 1];
	struct tokenizer *t;
	char dir[100], err[300];
	size_t i, k, len;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(dir, sizeof(dir), "tests/fixtures/tokenizers/%s", names[i]);
		if (tokenizer_open(dir, &t, err, sizeof(err)) != 0) {
			check(0, "%s", err);
			continue;
		}
		for (k = 0; k < sizeof(patterns) / sizeof(patterns[0]); k++) {
			len = fill(text, patterns[k]);
			there_and_back(names[i], t, patterns[k], text, len);
			text[len - 1] = text[len - 1] == ' ' ? 'x' : text[len - 1]; /* "   x":
										       (?!\S)
										       gives one
										       back */
			there_and_back(names[i], t, patterns[k], text, len);
		}
		tokenizer_close(t);
	}
	marks(text);
	return report("tokenizer_long");
}
