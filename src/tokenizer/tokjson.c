/* tokjson.c - reads tokenizer.json (Hugging Face tokenizers, version "1.0")
 *
 * Anything in the file that this code does not support is refused by name. An unknown setting
 * is harmless only if it is null, false or empty. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer/tokload.h"
#ifdef FUZZ
#include "tokenizer/utf8.h"
#endif

static int
read_root(struct load *l, json_t *root)
{
	/* truncation and padding are for training */
	static const char known[] = " version truncation padding added_tokens normalizer "
	    "pre_tokenizer post_processor decoder model ";
	const char *version;
	json_t *part;
	int rc;

	if ((rc = load_only(l, "the file", root, known)) != 0 ||
	    (rc = load_string(l, "the file", root, "version", &version)) != 0)
		return rc;
	if (strcmp(version, "1.0") != 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "version %s, only 1.0 is supported",
		    version);
	if ((rc = load_is_bpe(l, json_object_get(root, "model"))) != 0)
		return rc;
	part = json_object_get(root, "normalizer");
	if (!load_is_off(part) &&
	    (rc = load_each(l, "normalizer", part, "normalizers", load_normalizer)) != 0)
		return rc;
	part = json_object_get(root, "pre_tokenizer");
	if (!load_is_off(part) &&
	    (rc = load_each(l, "pre_tokenizer", part, "pretokenizers", load_pretokenizer)) != 0)
		return rc;
	part = json_object_get(root, "decoder");
	if (load_is_off(part))
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "decoder is missing, and without one the text of tokens is not known");
	if ((rc = load_each(l, "decoder", part, "decoders", load_decoder)) != 0 ||
	    (rc = load_vocabulary(l, json_object_get(root, "model"),
		 json_object_get(root, "added_tokens"))) != 0)
		return rc;
	/* last: the template's ids must be those of tokens */
	part = json_object_get(root, "post_processor");
	if (load_is_off(part))
		return 0;
	return load_each(l, "post_processor", part, "processors", load_processor);
}

/* Parses tokenizer.json, without its tables if these can be read separately. Messages name
 * places of the whole text. */
static json_t *
parse(struct load *l, const char *text, size_t n, json_error_t *error)
{
	json_t *root;
	size_t left;
	char *rest = tables_cut(&l->tables, text, n, &left);

	if (rest != NULL) {
		root = json_loadb(rest, left, JSON_REJECT_DUPLICATES, error);
		free(rest);
		if (root != NULL)
			return root;
		tables_free(&l->tables);
	}
	return json_loadb(text, n, JSON_REJECT_DUPLICATES, error);
}

/* Parses the JSON in f; tables: of tokenizer.json. Input that is not a regular file, and may be
 * endless, is read only as far as it is JSON. */
static json_t *
parse_file(struct load *l, FILE *f, int tables, json_error_t *error)
{
	/* In tokenizer_config.json numbers do not matter, and one is as large as Python's "no
	 * limit" */
	const size_t flags = JSON_REJECT_DUPLICATES | (tables ? 0 : JSON_DECODE_INT_AS_REAL);
	struct stat st;
	json_t *root = NULL;
	char *text;
	size_t n;

	if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
	    (text = malloc((size_t)st.st_size)) == NULL)
		return json_loadf(f, flags, error);
	n = fread(text, 1, (size_t)st.st_size, f);
	if (!ferror(f))
		root = tables ? parse(l, text, n, error) : json_loadb(text, n, flags, error);
	free(text);
	return root;
}

/* jansson's message, except those that only programmers understand */
static const char *
words_of(const json_error_t *e)
{
	const enum json_error_code code = json_error_code(e);

	if (code == json_error_null_character || code == json_error_null_byte_in_key)
		return "a zero character (\\u0000), which is not supported";
	return e->text;
}

/* Parses the JSON in a file; *there <- 0 if the file does not exist. */
static int
read_file(struct load *l, const char *path, int tables, json_t **root, int *there)
{
	json_error_t error;
	struct stat st;
	FILE *f;
	int rc;

	*root = NULL;
	*there = 1;
	l->path = path;
	f = fopen(path, "rb");
	if (f == NULL) {
		rc = errno;
		/* a link to nothing is there */
		*there = rc != ENOENT || lstat(path, &st) == 0;
		return load_fail(l, TOKENIZER_EIO, "%s", strerror(rc));
	}
	*root = parse_file(l, f, tables, &error);
	rc = ferror(f);
	fclose(f);
	if (rc == 0 && *root == NULL)
		return load_fail(l, TOKENIZER_EINVALID, "line %d, column %d: %s", error.line,
		    error.column, words_of(&error));
	if (rc != 0) {
		json_decref(*root);
		*root = NULL;
		return load_fail(l, TOKENIZER_EIO, "read error");
	}
	return 0;
}

/* Adds to the message of a folder without tokenizer.json if it has a tokenizer of another kind. */
static int
explain(struct load *l, const char *dir)
{
	static const char *const others[] = { "tokenizer.model", "tokenizer.model.v3",
		"tekken.json", "vocab.json", "spiece.model", "vocab.txt" };
	char path[4096];
	size_t i;

	/* Kimi K2: with code of its own, which makes no tokenizer.json of it */
	snprintf(path, sizeof(path), "%s/tiktoken.model", dir);
	if (access(path, F_OK) == 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "No such file or directory; "
		    "tiktoken.model is there, which is not read: with --ids programs take token "
		    "ids, which the code beside it makes");
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, others[i]);
		if (access(path, F_OK) == 0)
			return load_fail(l, TOKENIZER_EUNSUPPORTED, "No such file or directory; %s "
			    "is there, which is not read. Python's transformers makes one of the "
			    "other: AutoTokenizer.from_pretrained(\"%s\").save_pretrained(\"%s\")",
			    others[i], dir, dir);
	}
	return TOKENIZER_EIO;
}

/* The tokenizer of parsed files; l->config: that of the second, or NULL */
static int
read_parsed(struct load *l, json_t *root)
{
	int rc;

	l->added = json_object();
	l->by_content = json_object();
	rc = l->added == NULL || l->by_content == NULL ? load_no_memory(l) : read_root(l, root);
	json_decref(l->added);
	json_decref(l->by_content);
	expr_work_free(l->expr);
	return rc;
}

static int
read_files(struct load *l, const char *dir, const char *path, const char *config_path)
{
	json_t *root, *config = NULL;
	int rc, there;

	if ((rc = read_file(l, path, 1, &root, &there)) != 0)
		return there ? rc : explain(l, dir);
	rc = read_file(l, config_path, 0, &config, &there);
	if (rc != 0 && there) {
		json_decref(root);
		return rc;
	}
	l->path = path;
	l->config = config;
	rc = read_parsed(l, root);
	json_decref(config);
	json_decref(root);
	return rc;
}

int
tokjson_read(struct tokenizer *t, const char *dir, char *err, size_t errlen)
{
	static const char name[] = "tokenizer.json", config[] = "tokenizer_config.json";
	struct load l = { .t = t, .path = dir, .err = err, .errlen = errlen };
	size_t n = strlen(dir) + sizeof(config) + 1;
	char *path = malloc(n), *config_path = malloc(n);
	int rc = TOKENIZER_ENOMEM;

	if (path == NULL || config_path == NULL) {
		load_no_memory(&l);
	} else {
		snprintf(path, n, "%s/%s", dir, name);
		snprintf(config_path, n, "%s/%s", dir, config);
		rc = read_files(&l, dir, path, config_path);
	}
	free(path);
	free(config_path);
	tables_free(&l.tables);
	return rc;
}

int
tokjson_read_object(struct tokenizer *t, const char *path, json_t *root, char *err, size_t errlen)
{
	struct load l = { .t = t, .path = path, .err = err, .errlen = errlen };
	const int rc = read_parsed(&l, root);

	tables_free(&l.tables);
	return rc;
}

#ifdef FUZZ
/* make fuzz-tokenizer: up to the last '}' any bytes as tokenizer.json, the rest as a text, with
 * spaces for invalid bytes. An accepted file must encode the text, and decode the ids. */
int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
fuzz_text(const struct tokenizer *t, const char *text, size_t len)
{
	struct text_start start = { 0 };
	struct ids ids = { 0 };
	char err[256], out[4096];
	size_t i, n;

	if (tokenizer_encode(t, text, len, TOK_TEMPLATE, &ids, err, sizeof(err)) != 0 &&
	    err[0] == '\0')
		abort();
	for (i = 0; i < ids.n; i++) {
		if (tokenizer_bytes(t, ids.ids[i], &n, NULL) == NULL)
			abort();
		if (n <= sizeof(out))
			tokenizer_begin(t, &start, ids.ids[i], out);
	}
	free(ids.ids);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tokenizer *t = calloc(1, sizeof(*t));
	char err[256] = "", *text = malloc(size + 1);
	struct load l = { .t = t, .path = "fuzz", .err = err, .errlen = sizeof(err) };
	size_t json = size, bad, len;
	json_t *root, *config;
	json_error_t error;

	while (json > 0 && data[json - 1] != '}')
		json--;
	len = size - json;
	memcpy(text, data + json, len);
	while ((bad = utf8_check(text, len)) < len)
		text[bad] = ' ';
	root = parse(&l, (const char *)data, json, &error);
	l.added = json_object();
	l.by_content = json_object();
	config = json_incref(json_object_get(root, "config"));
	json_object_del(root, "config");
	l.config = config;
	if (root != NULL && read_root(&l, root) == 0 && fingerprint(t) == 0)
		fuzz_text(t, text, len);
	json_decref(root);
	json_decref(config);
	json_decref(l.added);
	json_decref(l.by_content);
	expr_work_free(l.expr);
	tables_free(&l.tables);
	tokenizer_close(t);
	free(text);
	return 0;
}
#endif
