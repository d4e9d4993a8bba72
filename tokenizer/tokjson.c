/* tokjson.c - reads tokenizer.json (Hugging Face tokenizers, version "1.0")
 *
 * What the file asks for and this code does not do is refused by name. A setting that is not
 * known is harmless only when it is null, false or empty. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/splitexpr.h"
#include "tokenizer/tokload.h"

/* GPT-2's, which pre-tokeniser ByteLevel has built in (encoder.py of the GPT-2 release) */
#define GPT2_SPLIT \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* A component, or the components of one whose type is Sequence: each is handed to read() with its
 * type. */
static int
each(struct load *l, const char *place, json_t *component, const char *list,
    int (*read)(struct load *, const char *place, json_t *component, const char *type, int last))
{
	char inner[96];
	const char *type;
	json_t *parts, *part;
	size_t i;
	int rc;

	if (!json_is_object(component))
		return load_fail(l, TOKENIZER_EINVALID, "%s is not an object", place);
	if ((rc = load_string(l, place, component, "type", &type)) != 0)
		return rc;
	if (strcmp(type, "Sequence") != 0)
		return read(l, place, component, type, 1);
	if ((rc = load_only(l, place, component,
		 " type normalizers pretokenizers processors ")) != 0)
		return rc;
	parts = json_object_get(component, list);
	if (!json_is_array(parts))
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is %s", place, list,
		    parts == NULL ? "missing" : "not an array");
	json_array_foreach(parts, i, part) {
		snprintf(inner, sizeof(inner), "%s.%s[%zu]", place, list, i);
		if (!json_is_object(part))
			return load_fail(l, TOKENIZER_EINVALID, "%s is not an object", inner);
		if ((rc = load_string(l, inner, part, "type", &type)) != 0 ||
		    (rc = read(l, inner, part, type, i + 1 == json_array_size(parts))) != 0)
			return rc;
	}
	return 0;
}

static int
not_supported(struct load *l, const char *place, const char *type)
{
	return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: %s is not supported", place, type);
}

/* Settings of ByteLevel, wherever it stands. */
#define BYTE_LEVEL " type add_prefix_space trim_offsets use_regex "

static int
read_normalizer(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	(void)last;
	if (strcmp(type, "NFC") != 0)
		return not_supported(l, place, type);
	l->t->nfc = 1;
	return load_only(l, place, component, " type ");
}

/* ---- pre_tokenizer ---- */

/* Takes expr over. */
static int
add_split(struct load *l, const char *place, char *expr)
{
	char why[256] = "";
	int rc;

	if (expr == NULL)
		return load_no_memory(l);
	rc = pretok_add(&l->t->pretok, expr, why, sizeof(why));
	return rc == 0 ? 0 : load_fail(l, rc, "%s: %s", place, why);
}

static int
read_split(struct load *l, const char *place, json_t *component)
{
	const char *behavior;
	json_t *pattern, *expr;
	char *text;
	int rc, invert;

	if ((rc = load_only(l, place, component, " type pattern behavior invert ")) != 0 ||
	    (rc = load_string(l, place, component, "behavior", &behavior)) != 0 ||
	    (rc = load_bool(l, place, component, "invert", &invert)) != 0)
		return rc;
	/* invert swaps matches and what lies between: no difference when both are kept apart */
	if (strcmp(behavior, "Isolated") != 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: behavior %s is not supported", place,
		    behavior);
	pattern = json_object_get(component, "pattern");
	if ((expr = json_object_get(pattern, "Regex")) != NULL && json_is_string(expr))
		text = strdup(json_string_value(expr));
	else if ((expr = json_object_get(pattern, "String")) != NULL && json_is_string(expr))
		text = splitexpr_quote(json_string_value(expr));
	else
		return load_fail(l, TOKENIZER_EINVALID, "%s.pattern is neither a Regex nor a String",
		    place);
	return add_split(l, place, text);
}

static int
read_byte_level(struct load *l, const char *place, json_t *component, int last)
{
	int rc, prefix, expression = 1;

	if ((rc = load_only(l, place, component, BYTE_LEVEL)) != 0 ||
	    (rc = load_bool(l, place, component, "add_prefix_space", &prefix)) != 0)
		return rc;
	if (prefix)
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "%s.add_prefix_space is set, and not supported", place);
	if (!last)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: ByteLevel is not the last", place);
	/* absent in files from before the setting existed: it was always on */
	if (json_object_get(component, "use_regex") != NULL &&
	    (rc = load_bool(l, place, component, "use_regex", &expression)) != 0)
		return rc;
	return expression ? add_split(l, place, strdup(GPT2_SPLIT)) : 0;
}

static int
read_pretokenizer(struct load *l, const char *place, json_t *component, const char *type,
    int last)
{
	int rc, individual;

	if (last && strcmp(type, "ByteLevel") != 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "%s: %s is the last, only ByteLevel is supported", place, type);
	if (strcmp(type, "ByteLevel") == 0)
		return read_byte_level(l, place, component, last);
	if (strcmp(type, "Split") == 0)
		return read_split(l, place, component);
	if (strcmp(type, "Digits") != 0)
		return not_supported(l, place, type);
	if ((rc = load_only(l, place, component, " type individual_digits ")) != 0 ||
	    (rc = load_bool(l, place, component, "individual_digits", &individual)) != 0)
		return rc;
	return add_split(l, place, strdup(individual ? "\\p{N}" : "\\p{N}+"));
}

/* ---- post_processor ---- */

/* Appends the ids that special_tokens has for one name of the template. */
static int
put_before(struct load *l, const char *place, json_t *component, const char *name)
{
	struct tokenizer *t = l->t;
	json_t *special, *list, *v;
	uint32_t *p;
	size_t i;

	special = json_object_get(json_object_get(component, "special_tokens"), name);
	list = json_object_get(special, "ids");
	if (!json_is_array(list))
		return load_fail(l, TOKENIZER_EINVALID, "%s.special_tokens has no ids for \"%s\"",
		    place, name);
	json_array_foreach(list, i, v) {
		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    json_integer_value(v) >= t->vocab.size ||
		    !(t->vocab.token[json_integer_value(v)].flags & TOKEN_USED))
			return load_fail(l, TOKENIZER_EINVALID,
			    "%s.special_tokens: \"%s\" is not the id of a token", place, name);
		p = realloc(t->before, (t->n_before + 1) * sizeof(*p));
		if (p == NULL)
			return load_no_memory(l);
		t->before = p;
		p[t->n_before++] = (uint32_t)json_integer_value(v);
	}
	return 0;
}

static int
read_template(struct load *l, const char *place, json_t *component)
{
	json_t *single, *piece, *special, *sequence;
	const char *name;
	size_t i, texts = 0;
	int rc;

	if ((rc = load_only(l, place, component, " type single pair special_tokens ")) != 0)
		return rc;
	if (l->t->n_before > 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: a second template is not supported",
		    place);
	single = json_object_get(component, "single");
	if (!json_is_array(single))
		return load_fail(l, TOKENIZER_EINVALID, "%s.single is not an array", place);
	json_array_foreach(single, i, piece) {
		special = json_object_get(piece, "SpecialToken");
		sequence = json_object_get(piece, "Sequence");
		name = json_string_value(
		    json_object_get(special != NULL ? special : sequence, "id"));
		if (name == NULL)
			return load_fail(l, TOKENIZER_EINVALID,
			    "%s.single[%zu] is not a token or a sequence", place, i);
		if (special == NULL && (strcmp(name, "A") != 0 || texts++ > 0))
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "%s.single: the text stands there twice", place);
		if (special != NULL && texts > 0)
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "%s.single puts %s after the text, which is not supported", place,
			    name);
		if (special != NULL && (rc = put_before(l, place, component, name)) != 0)
			return rc;
	}
	if (texts == 0)
		return load_fail(l, TOKENIZER_EINVALID, "%s.single has no place for the text", place);
	return 0;
}

static int
read_processor(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	(void)last;
	/* ByteLevel only trims offsets, of which there are none here */
	if (strcmp(type, "ByteLevel") == 0)
		return load_only(l, place, component, BYTE_LEVEL);
	if (strcmp(type, "TemplateProcessing") == 0)
		return read_template(l, place, component);
	return not_supported(l, place, type);
}

/* ---- the file ---- */

static int
read_decoder(struct load *l, json_t *decoder)
{
	const char *type = json_string_value(json_object_get(decoder, "type"));

	if (decoder == NULL || json_is_null(decoder))
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "decoder is missing, only ByteLevel is supported");
	if (type == NULL)
		return load_fail(l, TOKENIZER_EINVALID, "decoder.type is missing");
	if (strcmp(type, "ByteLevel") != 0)
		return not_supported(l, "decoder", type);
	return load_only(l, "decoder", decoder, BYTE_LEVEL);
}

static int
read_root(struct load *l, json_t *root)
{
	static const char known[] = " version added_tokens normalizer pre_tokenizer post_processor "
	    "decoder model ";
	const char *version;
	json_t *part;
	int rc;

	if ((rc = load_only(l, "the file", root, known)) != 0 ||
	    (rc = load_string(l, "the file", root, "version", &version)) != 0)
		return rc;
	if (strcmp(version, "1.0") != 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "version %s, only 1.0 is supported",
		    version);
	part = json_object_get(root, "normalizer");
	if (!load_is_off(part) &&
	    (rc = each(l, "normalizer", part, "normalizers", read_normalizer)) != 0)
		return rc;
	part = json_object_get(root, "pre_tokenizer");
	if (load_is_off(part))
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "pre_tokenizer is missing, only ByteLevel is supported");
	if ((rc = each(l, "pre_tokenizer", part, "pretokenizers", read_pretokenizer)) != 0 ||
	    (rc = read_decoder(l, json_object_get(root, "decoder"))) != 0 ||
	    (rc = load_vocabulary(l, json_object_get(root, "model"),
		 json_object_get(root, "added_tokens"))) != 0)
		return rc;
	/* last: the template's ids must be those of tokens */
	part = json_object_get(root, "post_processor");
	if (load_is_off(part))
		return 0;
	return each(l, "post_processor", part, "processors", read_processor);
}

int
tokjson_read(struct tokenizer *t, const char *path, char *err, size_t errlen)
{
	struct load l = { .t = t, .path = path, .err = err, .errlen = errlen };
	json_error_t error;
	json_t *root;
	FILE *f;
	int rc;

	f = fopen(path, "rb");
	if (f == NULL)
		return load_fail(&l, TOKENIZER_EIO, "%s", strerror(errno));
	root = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
	rc = ferror(f);
	fclose(f);
	if (rc != 0) {
		json_decref(root);
		return load_fail(&l, TOKENIZER_EIO, "read error");
	}
	if (root == NULL)
		return load_fail(&l, TOKENIZER_EINVALID, "line %d, column %d: %s", error.line,
		    error.column, error.text);
	l.added = json_object();
	rc = l.added == NULL ? load_no_memory(&l) : read_root(&l, root);
	json_decref(l.added);
	json_decref(root);
	return rc;
}
