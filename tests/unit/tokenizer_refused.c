/* tokenizer_refused.c - files that tokenizer_open() must refuse, with the code and what the
 * message must name
 *
 * Each case is a small valid tokenizer.json in which one piece of text is replaced by another.
 * All texts here are written with ' for ". */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/tokenizer_check.h"

static const char valid[] =
    "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [{'id': 6,"
    " 'content': '<b>',"
    " 'special': true, 'normalized': false, 'lstrip': false, 'rstrip': false,"
    " 'single_word': false}],"
    " 'normalizer': {'type': 'NFC'}, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
    "{'type': 'Split', 'pattern': {'Regex': '\\\\s+'}, 'behavior': 'Isolated', 'invert': false},"
    "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true,"
    " 'use_regex': false}]},"
    " 'post_processor': {'type': 'TemplateProcessing',"
    " 'single': [{'SpecialToken': {'id': '<b>', 'type_id': 0}},"
    " {'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': [], 'special_tokens':"
    " {'<b>': {'id': '<b>', 'ids': [6], 'tokens': ['<b>']}}},"
    " 'decoder': {'type': 'ByteLevel', 'add_prefix_space': true, 'trim_offsets': true,"
    " 'use_regex': true},"
    " 'model': {'type': 'BPE', 'dropout': null, 'unk_token': null,"
    " 'continuing_subword_prefix': null,"
    " 'end_of_word_suffix': null, 'fuse_unk': false, 'byte_fallback': false,"
    " 'ignore_merges': false,"
    " 'vocab': {'a': 0, 'b': 1, 'c': 2, 'ab': 3, 'abc': 5}, 'merges': ['a b', ['ab', 'c']]}}";

#define SPLIT "'type': 'Split', 'pattern': {'Regex': '\\\\s+'}"
#define EXPR "'\\\\s+'"

static const struct {
	const char *old, *new;
	int code;               /* 0: accepted */
	const char *message;
} list[] = {
	{ "", "", 0, "" },
	/* not JSON, not an object, cut off, too deep */
	{ "{'version'", "[{'version'", TOKENIZER_EINVALID, "line 1, column" },
	{ "'<b>', 'special'", "'<\xe9>', 'special'", TOKENIZER_EINVALID,
	    "unable to decode byte 0xe9" },
	{ "'version': '1.0',", "'version': '1.0', 'version': '1.0',", TOKENIZER_EINVALID,
	    "duplicate" },
	/* the top */
	{ "'1.0'", "'2.0'", TOKENIZER_EUNSUPPORTED, "version 2.0" },
	{ "'1.0'", "1", TOKENIZER_EINVALID, "version is not a string" },
	/* of training, not of texts */
	{ "'truncation': null", "'truncation': {'max_length': 512}", 0, "" },
	{ "'padding': null", "'padding': {'length': 8}", 0, "" },
	{ "'padding': null", "'': 1", TOKENIZER_EUNSUPPORTED, "the file. is set" },
	{ "'padding': null", "' version': 1", TOKENIZER_EUNSUPPORTED, "the file. version is set" },
	{ "'padding': null", "'novelty': [0]", TOKENIZER_EUNSUPPORTED, "novelty" },
	{ "'padding': null", "'novelty': null", 0, "" },
	/* normaliser, pre-tokeniser, decoder */
	{ "{'type': 'NFC'}", "null", 0, "" },
	{ "{'type': 'NFC'}", "{'type': 'Sequence', 'normalizers': [{'type': 'NFC'}]}", 0, "" },
	{ "{'type': 'NFC'}",
	    "{'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'Lowercase'}]}",
	    TOKENIZER_EUNSUPPORTED, "normalizer.normalizers[1]: Lowercase" },
	{ "'NFC'", "'NFKC'", TOKENIZER_EUNSUPPORTED, "normalizer: NFKC" },
	{ "{'type': 'NFC'}", "'NFC'", TOKENIZER_EINVALID, "normalizer is not an object" },
	{ "{'type': 'NFC'}", "{'type': 'Prepend'}", TOKENIZER_EINVALID,
	    "normalizer.prepend is missing" },
	{ "{'type': 'NFC'}", "{'type': 'Replace', 'pattern': {'String': ''}, 'content': ''}",
	    TOKENIZER_EUNSUPPORTED, "normalizer.pattern is empty" },
	{ "{'type': 'NFC'}", "{'type': 'Replace', 'pattern': {}, 'content': ''}",
	    TOKENIZER_EINVALID, "neither a Regex nor a String" },
	{ "{'type': 'NFC'}", "{'type': 'Replace', 'pattern': {'Regex': '\\\\X'}, 'content': ''}",
	    TOKENIZER_EUNSUPPORTED, "normalizer: an escape" },
	{ "{" SPLIT, "{'type': 'BertPreTokenizer'}, {" SPLIT, TOKENIZER_EUNSUPPORTED,
	    "pre_tokenizer.pretokenizers[0]: BertPreTokenizer" },
	{ "{" SPLIT, "{'type': 'Metaspace', 'replacement': '_'}, {" SPLIT, 0, "" },
	{ "{" SPLIT, "{'type': 'Metaspace', 'replacement': '__'}, {" SPLIT, TOKENIZER_EINVALID,
	    "replacement is not one character" },
	{ "{" SPLIT, "{'type': 'Metaspace', 'replacement': '_', 'prepend_scheme': 'x'}, {" SPLIT,
	    TOKENIZER_EUNSUPPORTED, "prepend_scheme x" },
	{ "{" SPLIT, "{'type': 'ByteLevel', 'add_prefix_space': false},"
	    " {'type': 'Metaspace', 'replacement': '_'}, {" SPLIT, TOKENIZER_EUNSUPPORTED,
	    "Metaspace behind ByteLevel" },
	{ "{" SPLIT, "{'type': 'Punctuation'}, {'type': 'Whitespace'},"
	    " {'type': 'WhitespaceSplit'}, {'type': 'Digits', 'individual_digits': false}, {" SPLIT,
	    0, "" },
	{ "'Isolated'", "'Removed'", 0, "" },
	{ "'Isolated'", "'Torn'", TOKENIZER_EUNSUPPORTED, "behavior Torn" },
	{ "'invert': false", "'invert': true", 0, "" },
	{ "'invert': false", "'invert': 'no'", TOKENIZER_EINVALID, "invert is not true or false" },
	{ "'Regex'", "'String'", 0, "" },
	{ "'Regex'", "'Glob'", TOKENIZER_EINVALID, "neither a Regex nor a String" },
	{ "{" SPLIT, "{'type': 'ByteLevel', 'add_prefix_space': false}, {" SPLIT,
	    TOKENIZER_EUNSUPPORTED,
	    "a second ByteLevel" },
	{ "'add_prefix_space': false", "'add_prefix_space': true", 0, "" },
	{ "'add_prefix_space': false", "'add_prefix_space': 1", TOKENIZER_EINVALID,
	    "add_prefix_space is not true or false" },
	{ "'use_regex': false}]", "'use_regex': 0}]", TOKENIZER_EINVALID,
	    "use_regex is not true or false" },
	{ "'trim_offsets': true, 'use_regex': false", "'trim_offsets': true", 0, "" },
	{ "'pretokenizers'", "'list'", TOKENIZER_EUNSUPPORTED, "pre_tokenizer.list" },
	{ "'decoder': {'type': 'ByteLevel'", "'decoder': {'type': 'Metaspace'",
	    TOKENIZER_EUNSUPPORTED, "decoder: Metaspace" },
	{ "{'type': 'ByteLevel', 'add_prefix_space': true, 'trim_offsets': true,"
	    " 'use_regex': true}",
	    "null", TOKENIZER_EUNSUPPORTED, "decoder is missing" },
	/* expressions that mean something else to PCRE2 */
	{ EXPR, "'\\\\R'", TOKENIZER_EUNSUPPORTED,
	    "an escape that PCRE2 and Oniguruma read differently, offset 0" },
	{ EXPR, "'a\\\\X'", TOKENIZER_EUNSUPPORTED, "offset 1" },
	{ EXPR, "'[\\\\W]'", TOKENIZER_EUNSUPPORTED, "offset 1" },
	{ EXPR, "'^a$|\\\\Ab\\\\z|\\\\w\\\\b\\\\W|[\\\\h]\\\\H'", 0, "" },
	{ EXPR, "'\\\\p{Han}'", TOKENIZER_EUNSUPPORTED, "general category" },
	{ EXPR, "'\\\\pL'", TOKENIZER_EUNSUPPORTED, "braces" },
	{ EXPR, "'[a[b]]'", TOKENIZER_EUNSUPPORTED, "a class within a class" },
	{ EXPR, "'[a&&b]'", TOKENIZER_EUNSUPPORTED, "&& in a class" },
	{ EXPR, "'(?i)a'", TOKENIZER_EUNSUPPORTED, "group" },
	{ EXPR, "'a{1,2}+'", TOKENIZER_EUNSUPPORTED, "after an interval" },
	{ EXPR, "'a{,2}'", TOKENIZER_EUNSUPPORTED, "lower bound" },
	{ EXPR, "'a{x}[\\\\u0041-Z][^\\\\S\\\\n]\\\\x{41}(?<!a)(?>b)c++'", 0, "" },
	{ EXPR, "'(a'", TOKENIZER_EINVALID, "missing closing parenthesis" },
	{ EXPR, "'[a'", TOKENIZER_EINVALID, "missing terminating ]" },
	{ EXPR, "'a\\\\'", TOKENIZER_EUNSUPPORTED, "an escape" },
	/* template */
	{ "'TemplateProcessing'", "'Pairs'", TOKENIZER_EUNSUPPORTED, "post_processor: Pairs" },
	{ "'TemplateProcessing',", "'BertProcessing', 'cls': ['<b>', 6], 'sep': ['x', 4], 'a': [",
	    TOKENIZER_EINVALID, "line 1" },
	{ "'type_id': 0}}], 'pair'", "'type_id': 0}}, {'SpecialToken': {'id': '<b>'}}], 'pair'", 0,
	    "" },
	{ "'id': 'A'", "'id': 'B'", TOKENIZER_EUNSUPPORTED, "post_processor.single" },
	{ "{'Sequence': {'id': 'A', 'type_id': 0}}", "{'SpecialToken': {'id': '<b>'}}",
	    TOKENIZER_EINVALID, "no place for the text" },
	{ "'ids': [6]", "'ids': [4]", TOKENIZER_EINVALID, "not the id of a token" },
	{ "'ids': [6]", "'ids': [4000000000]", TOKENIZER_EINVALID, "not the id of a token" },
	{ "'special_tokens': {'<b>'", "'special_tokens': {'<c>'", TOKENIZER_EINVALID,
	    "no ids for '<b>'" },
	/* model */
	{ "'BPE'", "'Unigram'", TOKENIZER_EUNSUPPORTED, "model.type is Unigram" },
	{ "'dropout': null", "'dropout': 0.1", TOKENIZER_EUNSUPPORTED, "model.dropout" },
	{ "'dropout': null", "'dropout': 0.0", 0, "" },
	{ "'unk_token': null", "'unk_token': 'a'", 0, "" },
	{ "'unk_token': null", "'unk_token': 7", TOKENIZER_EINVALID,
	    "model.unk_token is not a string" },
	{ "'continuing_subword_prefix': null", "'continuing_subword_prefix': '##'",
	    TOKENIZER_EUNSUPPORTED, "continuing_subword_prefix" },
	{ "'continuing_subword_prefix': null", "'continuing_subword_prefix': ''", 0, "" },
	{ "'end_of_word_suffix': null", "'end_of_word_suffix': '</w>'", TOKENIZER_EUNSUPPORTED,
	    "end_of_word_suffix" },
	{ "'byte_fallback': false", "'byte_fallback': true", 0, "" },
	{ "'byte_fallback': false", "'byte_fallback': 1", TOKENIZER_EINVALID,
	    "byte_fallback is not true or false" },
	{ "'byte_fallback': false", "'surprise': true", TOKENIZER_EUNSUPPORTED, "model.surprise" },
	{ "'ignore_merges': false", "'ignore_merges': 1", TOKENIZER_EINVALID,
	    "ignore_merges is not true or false" },
	{ "'vocab'", "'vocab': [], 'v'", TOKENIZER_EUNSUPPORTED, "model.v is set" },
	{ "'vocab': {", "'vocab': [], 'type': {", TOKENIZER_EINVALID, "duplicate" },
	{ "'merges': [", "'merges': {}, 'fuse_unk': [", TOKENIZER_EINVALID, "duplicate" },
	{ ", 'merges': ['a b', ['ab', 'c']]", "", TOKENIZER_EINVALID, "model.merges is missing" },
	{ "['a b', ['ab', 'c']]", "'a b'", TOKENIZER_EINVALID, "model.merges is not an array" },
	/* vocabulary: gaps are no error (4 is one) */
	{ "'c': 2", "'c': 1", TOKENIZER_EINVALID, "id 1" },
	{ "'c': 2", "'c': '2'", TOKENIZER_EINVALID, "not an integer" },
	{ "'c': 2", "'c': -2", TOKENIZER_EINVALID, "id -2" },
	{ "'c': 2", "'c': 2.5", TOKENIZER_EINVALID, "not an integer" },
	{ "'c': 2", "'c': 4000000000", TOKENIZER_EINVALID, "id 4000000000" },
	{ "'c': 2", "'c': 16777216", TOKENIZER_EINVALID, "id 16777216" },
	{ "'c': 2", "'c': 16777215", 0, "" },
	{ "'c': 2", "'c': 99999999999999999999", TOKENIZER_EINVALID, "too big integer" },
	{ "'c': 2", "'c': 2, '\xe4\xbd\xa0': 4", 0, "" },
	/* merges */
	{ "'a b'", "'a x'", TOKENIZER_EINVALID, "model.merges[0]: 'x' is not in the vocabulary" },
	{ "'a b'", "'b a'", TOKENIZER_EINVALID, "'ba' is not in the vocabulary" },
	{ "'a b'", "'ab'", TOKENIZER_EINVALID, "model.merges[0] is neither" },
	{ "'a b'", "'a b c'", TOKENIZER_EINVALID, "model.merges[0] is neither" },
	{ "'a b'", "7", TOKENIZER_EINVALID, "model.merges[0] is neither" },
	{ "['ab', 'c']", "['ab']", TOKENIZER_EINVALID, "model.merges[1] is neither" },
	{ "['ab', 'c']", "['ab', 2]", TOKENIZER_EINVALID, "model.merges[1] is neither" },
	{ "['ab', 'c']", "['a', 'b']", 0, "" },
	{ "'a b'", "'#version: 0.2'", 0, "" },
	/* added tokens */
	{ "'added_tokens': [", "'added_tokens': {}, 'decoder_2': [", TOKENIZER_EUNSUPPORTED,
	    "decoder_2" },
	{ "{'id': 6, ", "{", TOKENIZER_EINVALID, "added_tokens[0]: the id is missing" },
	{ "'id': 6", "'id': 4000000000", TOKENIZER_EINVALID, "added_tokens[0]: id 4000000000" },
	{ "'id': 6", "'id': 5", TOKENIZER_EINVALID, "the vocabulary disagrees" },
	{ "'content': '<b>'", "'content': 'ab'", TOKENIZER_EINVALID, "'ab' has id 6 here" },
	{ "'content': '<b>'", "'content': ''", TOKENIZER_EINVALID, "empty" },
	{ "'content': '<b>'", "'content': 3", TOKENIZER_EINVALID, "content is not a string" },
	{ "'lstrip': false", "'lstrip': null", TOKENIZER_EINVALID, "lstrip is not true or false" },
	{ "'lstrip': false, ", "", TOKENIZER_EINVALID, "lstrip is missing" },
	{ "'lstrip': false", "'lstrip': false, 'regex': true", TOKENIZER_EUNSUPPORTED,
	    "added_tokens[0].regex" },
	{ "[{'id': 6",
	    "[{'id': 7, 'content': '<b>', 'special': true, 'normalized': false,"
	    " 'lstrip': false, 'rstrip': false,"
	    " 'single_word': false}, {'id': 6",
	    TOKENIZER_EINVALID, "a second time" },
	{ "[{'id': 6",
	    "[{'id': 6, 'content': '<c>', 'special': true, 'normalized': false,"
	    " 'lstrip': false, 'rstrip': false,"
	    " 'single_word': false}, {'id': 6",
	    TOKENIZER_EINVALID, "another added token" },
};

static char dir[] = "/tmp/tokenizer-refused.XXXXXX";

static void
write_file(const char *text, size_t len)
{
	char path[100];
	FILE *f;
	size_t i;

	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	f = fopen(path, "w");
	if (f == NULL)
		abort();
	for (i = 0; i < len; i++)
		fputc(text[i] == '\'' ? '"' : text[i], f);
	if (ferror(f) || fclose(f) != 0)
		abort();
}

/* Does err contain part, which has ' for "? */
static int
names(const char *err, const char *part)
{
	char want[200];
	size_t i;

	snprintf(want, sizeof(want), "%s", part);
	for (i = 0; want[i] != '\0'; i++)
		if (want[i] == '\'')
			want[i] = '"';
	return strstr(err, want) != NULL;
}

/* Opens what was written; the message must have the name of the file and `part`. */
static void
open_file(const char *what, int code, const char *part)
{
	struct tokenizer *t = (void *)1;
	char err[400] = "";
	int rc = tokenizer_open(dir, &t, err, sizeof(err));

	check(rc == code, "%s: code %d, want %d (%s)", what, rc, code, err);
	check((rc == 0) == (t != NULL), "%s: code %d and %s tokenizer", what, rc,
	    t == NULL ? "no" : "a");
	if (rc != 0)
		check(strstr(err, "/tokenizer.json: ") != NULL && names(err, part),
		    "%s: the message is \"%s\", want \"%s\"", what, err, part);
	tokenizer_close(t);
}

static void
replaced(const char *old, const char *new, int code, const char *message)
{
	static char text[sizeof(valid) + 500];
	const char *at = strstr(valid, old);

	if (at == NULL || strlen(new) > 400)
		abort();
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - valid), valid, new, at + strlen(old));
	write_file(text, strlen(text));
	open_file(new, code, message);
}

static void
deep(void)
{
	static char text[200000];

	memset(text, '[', sizeof(text));
	write_file(text, sizeof(text));
	open_file("200000 brackets", TOKENIZER_EINVALID, "depth");
}

/* Cut anywhere, the file is refused; and never read past its end (a sanitiser would say). */
static void
truncated(void)
{
	size_t n;

	for (n = 0; n < sizeof(valid) - 1; n += 7) {
		write_file(valid, n);
		open_file("a file cut off", TOKENIZER_EINVALID, "line");
	}
}

/* Without a token, an unknown one or bytes a character is left out, and there is a warning. */
static void
missing_byte(void)
{
	struct tokenizer *t;
	struct ids ids = { 0 };
	char err[300] = "";

	write_file(valid, sizeof(valid) - 1);
	if (tokenizer_open(dir, &t, err, sizeof(err)) != 0)
		abort();
	check(tokenizer_encode(t, "xabcabx", 7, 0, &ids, err, sizeof(err)) == 0 &&
		strstr(err, "2 characters have no token") != NULL && ids.n == 2 &&
		ids.ids[0] == 5 && ids.ids[1] == 3,
	    "bytes without token: %s", err);
	ids.n = 0;
	check(tokenizer_encode(t, "abcab<b>", 8, TOK_TEMPLATE, &ids, err, sizeof(err)) == 0 &&
		err[0] == '\0' && ids.n == 4 && ids.ids[0] == 6 && ids.ids[1] == 5 &&
		ids.ids[2] == 3 && ids.ids[3] == 6,
	    "the valid file: %s", err);
	free(ids.ids);
	tokenizer_close(t);
}

/* One that should be there for characters without a token, and is not. */
static void
missing_unknown(void)
{
	struct tokenizer *t;
	struct ids ids = { 0 };
	char err[300] = "";

	replaced("'unk_token': null", "'unk_token': '<unk>'", 0, "");
	if (tokenizer_open(dir, &t, err, sizeof(err)) != 0)
		abort();
	check(tokenizer_encode(t, "abx", 3, 0, &ids, err, sizeof(err)) == TOKENIZER_EINVALID &&
		strstr(err, "there is no unknown token") != NULL && ids.n == 0,
	    "an unknown token that is missing: %s", err);
	check(tokenizer_encode(t, "ab", 2, 0, &ids, err, sizeof(err)) == 0 && ids.n == 1,
	    "the same without the need for it: %s", err);
	free(ids.ids);
	tokenizer_close(t);
}

/* A normaliser may leave nothing of a text. */
static void
nothing_left(void)
{
	struct tokenizer *t;
	struct ids ids = { 0 };
	char err[300] = "";

	replaced("{'type': 'NFC'}", "{'type': 'Replace', 'pattern': {'String': 'ab'}, 'content': "
	    "''}", 0, "");
	if (tokenizer_open(dir, &t, err, sizeof(err)) != 0)
		abort();
	check(tokenizer_encode(t, "abab", 4, 0, &ids, err, sizeof(err)) == 0 && ids.n == 0,
	    "nothing is left, %zu ids: %s", ids.n, err);
	check(tokenizer_encode(t, "abc", 3, 0, &ids, err, sizeof(err)) == 0 && ids.n == 1 &&
		ids.ids[0] == 2,
	    "one character is left, %zu ids: %s", ids.n, err);
	free(ids.ids);
	tokenizer_close(t);
}

int
main(void)
{
	char path[100];
	size_t i;

	if (mkdtemp(dir) == NULL)
		abort();
	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	open_file("no file", TOKENIZER_EIO, "No such file");
	if (mkdir(path, 0777) != 0)
		abort();
	open_file("a folder", TOKENIZER_EIO, "");
	rmdir(path);
	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		replaced(list[i].old, list[i].new, list[i].code, list[i].message);
	deep();
	truncated();
	missing_byte();
	missing_unknown();
	nothing_left();
	unlink(path);
	rmdir(dir);
	return report("tokenizer_refused");
}
