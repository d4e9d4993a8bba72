/* tokenizer_golden.c - the ids that Hugging Face tokenizers gave for hard strings, and the hashes
 * of an independent program
 *
 * Run in the root of the source tree. tests/oracle/tokenizer_golden.py and
 * tokenizer_fingerprint.py wrote the expectations. */
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "tokenizer/nfc.h"
#include "tests/unit/tokenizer_check.h"

#define FIXTURES "tests/fixtures/tokenizers"

/* How the bytes of the ids are compared: with the text, with its form C, with what the golden file
 * has; not at all where text goes away or comes to it. */
enum back { TEXT, FORM_C, RECORDED, NOT };

static const struct { const char *name, *dir; enum back back; } list[] = {
	{ "llama3", FIXTURES "/llama3", TEXT },
	{ "qwen2", FIXTURES "/qwen2", FORM_C },
	{ "gpt2", FIXTURES "/gpt2", TEXT },
	{ "smollm", FIXTURES "/smollm", TEXT },
	{ "mixed", FIXTURES "/mixed", FORM_C },
	{ "falcon", FIXTURES "/falcon", TEXT },
	{ "behaviors", FIXTURES "/behaviors", NOT },
	{ "whitespace", FIXTURES "/whitespace", NOT },
	{ "llama2", FIXTURES "/llama2", RECORDED },
	{ "metaspace", FIXTURES "/metaspace", RECORDED },
	{ "first", FIXTURES "/first", RECORDED },
	{ "gemma", FIXTURES "/gemma", RECORDED },
	{ "demo", "examples/demo-model", TEXT },
};

static void
encode(const char *name, const struct tokenizer *t, json_t *c, const char *key, unsigned flags,
    struct ids *got)
{
	const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, key);
	char err[300] = "";
	size_t i;
	int rc, same;

	got->n = 0;
	rc = tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, got,
	    err, sizeof(err));
	same = rc == 0 && got->n == json_array_size(want);
	for (i = 0; same && i < got->n; i++)
		same = json_integer_value(json_array_get(want, i)) == got->ids[i];
	check(same, "%s: %s of \"%s\" differ: %zu ids, want %zu (%s)", name, key,
	    json_string_value(text), got->n, json_array_size(want), err);
}

/* The bytes of the ids, one after the other, are the text again; form C of it where the tokenizer
 * normalises. */
static void
round_trip(const char *name, const struct tokenizer *t, json_t *c, int normalised,
    const struct ids *ids)
{
	const char *text = json_string_value(json_object_get(c, "text")), *bytes;
	size_t len = json_string_length(json_object_get(c, "text")), n = 0, part, i;
	char *want = NULL, out[4096];

	for (i = 0; i < ids->n; i++) {
		bytes = tokenizer_bytes(t, ids->ids[i], &part, NULL);
		if (bytes == NULL || part > sizeof(out) - n) {
			check(0, "%s: id %u has no bytes", name, ids->ids[i]);
			return;
		}
		memcpy(out + n, bytes, part);
		n += part;
	}
	if (normalised) {
		if (nfc(text, len, &want, &len) != 0)
			abort();
		text = want;
	}
	check(n == len && memcmp(out, text, n) == 0, "%s: \"%s\" comes back as \"%.*s\"", name,
	    text, (int)n, out);
	free(want);
}

/* Added tokens that swallow white space do not give it back, nor do those found in another form
 * than their own; and an added token that is also a key of the vocabulary ("\u00c4" in mixed) is
 * decoded as the byte that this key spells. */
static int
comes_back(const char *name, const char *text)
{
	return strstr(text, "<mask>") == NULL && strstr(text, "<lr>") == NULL &&
	    strstr(text, "<sp ace>") == NULL &&
	    (strcmp(name, "qwen2") != 0 || strstr(text, "caf") == NULL) &&
	    (strcmp(name, "mixed") != 0 || strstr(text, "\xc3\x84") == NULL);
}

/* What is recorded is all of the text from its beginning, once with and once without special
 * tokens. */
static void
recorded(const char *name, const struct tokenizer *t, json_t *c, const char *key, int no_special,
    const struct ids *ids)
{
	const char *want = json_string_value(json_object_get(c, key)), *bytes;
	size_t wanted = json_string_length(json_object_get(c, key));
	struct text_start start = { 0 };
	struct utf8_stream stream = { 0 };
	char part[1000], out[9000];
	size_t n = 0, len, i;
	int special;

	for (i = 0; i < ids->n; i++) {
		bytes = tokenizer_bytes(t, ids->ids[i], &len, &special);
		if (bytes == NULL || len > sizeof(part) || 3 * (len + 4) > sizeof(out) - n) {
			check(0, "%s: id %u has no bytes", name, ids->ids[i]);
			return;
		}
		if (special && no_special)
			continue;
		len = tokenizer_begin(t, &start, ids->ids[i], part);
		n += utf8_push(&stream, part, len, out + n);
	}
	n += utf8_flush(&stream, out + n);
	check(n == wanted && memcmp(out, want, n) == 0,
	    "%s: %s of \"%s\" is \"%.*s\", want \"%s\"", name, key,
	    json_string_value(json_object_get(c, "text")), (int)n, out, want);
}

static void
golden(const char *name, const struct tokenizer *t, enum back back)
{
	char path[200];
	json_t *doc, *cases, *c;
	struct ids ids = { 0 };
	size_t i;

	snprintf(path, sizeof(path), FIXTURES "/%s/golden.json", name);
	doc = json_load_file(path, JSON_ALLOW_NUL, NULL);
	cases = json_object_get(doc, "cases");
	check(json_array_size(cases) >= 60, "%s holds %zu cases", path, json_array_size(cases));
	check(tokenizer_size(t) == json_integer_value(json_object_get(doc, "size")),
	    "%s: size %u", name, tokenizer_size(t));
	json_array_foreach(cases, i, c) {
		encode(name, t, c, "template", TOK_TEMPLATE, &ids);
		if (back == RECORDED)
			recorded(name, t, c, "shown", 1, &ids);
		encode(name, t, c, "plain", TOK_PLAIN, &ids);
		encode(name, t, c, "ids", 0, &ids);
		if (back == RECORDED)
			recorded(name, t, c, "decoded", 0, &ids);
		else if (back != NOT &&
		    comes_back(name, json_string_value(json_object_get(c, "text"))))
			round_trip(name, t, c, back == FORM_C, &ids);
	}
	free(ids.ids);
	json_decref(doc);
}

static void
fingerprint(const char *name, const struct tokenizer *t)
{
	char line[100], want[64], who[32], hex[33];
	FILE *f = fopen(FIXTURES "/fingerprints.txt", "r");

	tokenizer_fingerprint(t, hex);
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%31s %63s", who, want) == 2 && strcmp(who, name) == 0) {
			check(strcmp(hex, want) == 0, "%s: fingerprint %s, want %s", name, hex,
			    want);
			fclose(f);
			return;
		}
	check(0, "fingerprints.txt has nothing for %s", name);
	if (f != NULL)
		fclose(f);
}

static void
lookups(void)
{
	struct tokenizer *t;
	char err[300];
	size_t len;
	int special = 0;

	if (tokenizer_open(FIXTURES "/llama3", &t, err, sizeof(err)) != 0) {
		check(0, "%s", err);
		return;
	}
	check(tokenizer_id(t, "<|begin_of_text|>") == 956, "id of an added token");
	check(tokenizer_id(t, "!") == 0, "id of an ordinary token");
	check(tokenizer_id(t, " the") != UINT32_MAX, "id of an ordinary token, by its bytes");
	check(tokenizer_id(t, "no such token") == UINT32_MAX, "id of nothing");
	check(tokenizer_bytes(t, 956, &len, &special) != NULL && len == 17 && special == 1,
	    "bytes of a special token");
	check(tokenizer_bytes(t, 0, &len, &special) != NULL && len == 1 && special == 0,
	    "bytes of an ordinary token");
	check(tokenizer_bytes(t, tokenizer_size(t), &len, NULL) == NULL,
	    "bytes of an id that is too great");
	check(tokenizer_bytes(t, UINT32_MAX, &len, NULL) == NULL, "bytes of the greatest id");
	tokenizer_close(t);
	tokenizer_close(NULL);
}

/* A text that is no UTF-8 is refused, says where, and leaves the list as it was. */
static void
not_utf8(const struct tokenizer *t)
{
	struct ids ids = { 0 };
	char err[300] = "";
	size_t n;

	if (tokenizer_encode(t, "ab", 2, TOK_TEMPLATE, &ids, err, sizeof(err)) != 0)
		abort();
	n = ids.n;
	check(tokenizer_encode(t, "abc\xed\xa0\x80", 6, TOK_TEMPLATE, &ids, err, sizeof(err)) ==
		    TOKENIZER_EINVALID &&
		strstr(err, "offset 3") != NULL && strstr(err, "ED") != NULL,
	    "a surrogate: %s", err);
	check(ids.n == n, "a refused text left %zu ids of %zu", ids.n, n);
	free(ids.ids);
}

/* Four threads share one tokenizer. */
static void *
work(void *arg)
{
	static const char text[] = "It's   a caf\xc3\xa9 \n\n with 12345 tables";
	struct ids ids = { 0 };
	size_t n = 0;
	int i;

	for (i = 0; i < 200; i++) {
		ids.n = 0;
		if (tokenizer_encode(arg, text, sizeof(text) - 1, 0, &ids, NULL, 0) != 0)
			abort();
		n = i == 0 || n == ids.n ? ids.n : SIZE_MAX;
	}
	free(ids.ids);
	return (void *)n;
}

static void
threads(struct tokenizer *t)
{
	pthread_t id[4];
	void *n[4];
	int i;

	for (i = 0; i < 4; i++)
		if (pthread_create(&id[i], NULL, work, t) != 0)
			abort();
	for (i = 0; i < 4; i++)
		pthread_join(id[i], &n[i]);
	check(n[0] == n[1] && n[0] == n[2] && n[0] == n[3] && (size_t)n[0] > 5,
	    "threads disagree");
}

int
main(void)
{
	struct tokenizer *t;
	char err[300];
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (tokenizer_open(list[i].dir, &t, err, sizeof(err)) != 0) {
			check(0, "%s", err);
			continue;
		}
		golden(list[i].name, t, list[i].back);
		fingerprint(list[i].name, t);
		not_utf8(t);
		threads(t);
		tokenizer_close(t);
	}
	lookups();
	return report("tokenizer_golden");
}
