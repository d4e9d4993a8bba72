/* tokenizer_work.c - a tokenizer.json that would take hours or gigabytes of a small text
 *
 * Nothing is timed: what is not bounded here takes so long that it is noticed. */
#include <unistd.h>

#include "tests/unit/tokenizer_check.h"

#define SIZE 300000
#define FUSE "{'type': 'Fuse'}"

static char dir[] = "/tmp/tokenizer-work.XXXXXX";
static char text[SIZE];

/* A tokenizer of the letters a and b and of U+2581, with these parts; ' stands for " */
static int
open_parts(const char *normalizer, const char *pretok, const char *decoder, const char *added,
    const char *single, struct tokenizer **t, char err[400])
{
	char path[100];
	const char *const part[] = { "{'version': '1.0', 'added_tokens': [", added, "], "
		"'normalizer': ", normalizer, ", 'pre_tokenizer': ", pretok, ", 'post_processor': ",
		single, ", 'decoder': ", decoder, ", 'model': {'type': 'BPE', 'unk_token': null, "
		    "'byte_fallback': false, 'vocab': "
		"{'a': 0, 'b': 1, 'a\xe2\x96\x81" "b': 2}, 'merges': []}}" };
	const char *p;
	FILE *f;
	size_t i;

	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	if ((f = fopen(path, "w")) == NULL)
		abort();
	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++)
		for (p = part[i]; *p != '\0'; p++)
			fputc(*p == '\'' ? '"' : *p, f);
	if (fclose(f) != 0)
		abort();
	*t = NULL;
	err[0] = '\0';
	return tokenizer_open(dir, t, err, 400);
}

static struct tokenizer *
must_open(const char *normalizer, const char *pretok, const char *decoder, const char *added,
    const char *single)
{
	struct tokenizer *t;
	char err[400];

	if (open_parts(normalizer, pretok, decoder, added, single, &t, err) != 0) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	return t;
}

/* The text of all a is encoded, or refused with `want` in the message. */
static void
encode_all(const char *what, struct tokenizer *t, const char *want)
{
	struct ids ids = { 0 };
	char err[400] = "";
	int rc = tokenizer_encode(t, text, SIZE, 0, &ids, err, sizeof(err));

	if (want == NULL)
		check(rc == 0 && ids.n > 0, "%s: %d: %s", what, rc, err);
	else
		check(rc == TOKENIZER_EINVALID || rc == TOKENIZER_EUNSUPPORTED ?
		    strstr(err, want) != NULL && ids.n == 0 : 0, "%s: %d: %s", what, rc, err);
	free(ids.ids);
}

/* Quadratic, cubic and exponential ones, where a word is cut and where a text is normalised; some
 * that PCRE2 makes possessive, so that it goes forward in them and never back */
static void
expressions(void)
{
	static const char *const list[] = { "a*a*b", "a*[bc]", "(?:a|a)*b", "(?:a*)*b", "a+a+a+$x",
		"(?=(?:a|aa)+b)a", "a*?b|a*?c", "[^bx]*[cd]" };
	struct tokenizer *t;
	char split[200], replace[200];
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		snprintf(split, sizeof(split), "{'type': 'Split', 'pattern': {'Regex': '%s'}, "
		    "'behavior': 'Isolated', 'invert': false}", list[i]);
		snprintf(replace, sizeof(replace), "{'type': 'Replace', 'pattern': {'Regex': "
		    "'%s'}, 'content': 'b'}", list[i]);
		t = must_open("null", split, FUSE, "", "null");
		encode_all(list[i], t, "steps for each byte");
		tokenizer_close(t);
		t = must_open(replace, "null", FUSE, "", "null");
		encode_all(list[i], t, "steps for each byte");
		tokenizer_close(t);
	}
}

/* Doubled sixteen times */
static void
growth(void)
{
	static const char one[] = "{'type': 'Replace', 'pattern': {'String': 'a'}, 'content': "
	    "'aa'}";
	char all[16 * sizeof(one) + 100] = "{'type': 'Sequence', 'normalizers': [";
	struct tokenizer *t;
	int i;

	for (i = 0; i < 16; i++) {
		strcat(all, i > 0 ? ", " : "");
		strcat(all, one);
	}
	strcat(all, "]}");
	t = must_open(all, "null", FUSE, "", "null");
	encode_all("doubled again and again", t, "the normaliser makes more than");
	tokenizer_close(t);
}

/* Added tokens: one that each place of the text is the beginning of, and white space that swallows
 * white space */
static void
added(void)
{
	static char token[70000];
	struct tokenizer *t;
	char err[400];
	int n;

	n = snprintf(token, sizeof(token), "{'id': 9, 'content': '");
	memset(token + n, 'a', 60000);
	strcpy(token + n + 60000, "b', 'special': false, 'normalized': false, 'lstrip': false, "
	    "'rstrip': false, 'single_word': false}");
	check(open_parts("null", "null", FUSE, token, "null", &t, err) == TOKENIZER_EUNSUPPORTED &&
	    strstr(err, "an added token of 60001 bytes: at most 1024") != NULL, "long: %s", err);
	tokenizer_close(t);
	snprintf(token, sizeof(token), "{'id': 9, 'content': ' ', 'special': false, 'normalized': "
	    "false, 'lstrip': true, 'rstrip': true, 'single_word': false}");
	memset(text, ' ', SIZE);
	t = must_open("null", "null", FUSE, token, "null");
	encode_all("white space", t, NULL);
	tokenizer_close(t);
	memset(text, 'a', SIZE);
}

/* What a decoder and a template make of a short file */
static void
made(void)
{
	static char long_list[20000];
	char decoder[400], err[400];
	struct tokenizer *t;
	int i;

	snprintf(decoder, sizeof(decoder), "{'type': 'Sequence', 'decoders': [{'type': "
	    "'Metaspace', 'replacement': '\xe2\x96\x81', 'prepend_scheme': 'always'}, {'type': "
	    "'Replace', 'pattern': {'String': 'ab'}, 'content': '%0200d'}]}", 0);
	check(open_parts("null", "null", decoder, "", "null", &t, err) == TOKENIZER_EUNSUPPORTED &&
	    strstr(err, "Replace behind a Metaspace") != NULL, "longer in front than behind: %s",
	    err);
	tokenizer_close(t);
	strcpy(long_list, "{'type': 'TemplateProcessing', 'single': [{'Sequence': {'id': 'A', "
	    "'type_id': 0}}");
	for (i = 0; i < 257; i++)
		strcat(long_list, ", {'SpecialToken': {'id': 'a', 'type_id': 0}}");
	strcat(long_list, "], 'pair': [], 'special_tokens': {'a': {'id': 'a', 'ids': [0], "
	    "'tokens': ['a']}}}");
	check(open_parts("null", "null", FUSE, "", long_list, &t, err) == TOKENIZER_EUNSUPPORTED &&
	    strstr(err, "more than 256 tokens around a text") != NULL, "a long template: %s", err);
	tokenizer_close(t);
}

int
main(void)
{
	char path[100];

	if (mkdtemp(dir) == NULL)
		abort();
	memset(text, 'a', SIZE);
	memcpy(text + SIZE - 3, " bx", 3);      /* what PCRE2 looks for first is there */
	expressions();
	memset(text, 'a', SIZE);
	growth();
	added();
	made();
	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	unlink(path);
	rmdir(dir);
	return report("tokenizer_work");
}
