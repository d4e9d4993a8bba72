/* toksteps.c - reads the normalizer and the pre_tokenizer of tokenizer.json */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/splitexpr.h"
#include "tokenizer/tokload.h"

/* GPT-2's expression, built into the pre-tokeniser ByteLevel (encoder.py of the GPT-2 release) */
#define GPT2_SPLIT \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- normalizer ---- */

static int
add_normal(struct load *l, const char *place, enum normal_kind kind, const char *from,
    const char *to)
{
	char why[256] = "", *f = NULL, *t = NULL;
	int rc;

	if ((from != NULL && (f = strdup(from)) == NULL) ||
	    (to != NULL && (t = strdup(to)) == NULL)) {
		free(f);
		return load_no_memory(l);
	}
	rc = normalizer_add(&l->t->normalizer, kind, f, t, why, sizeof(why));
	return rc == 0 ? 0 : load_fail(l, rc, "%s: %s", place, why);
}

static int
read_replace(struct load *l, const char *place, json_t *component)
{
	const char *string, *regex, *content;
	int rc;

	if ((rc = load_only(l, place, component, " type pattern content ")) != 0 ||
	    (rc = load_pattern(l, place, component, &string, &regex)) != 0 ||
	    (rc = load_string(l, place, component, "content", &content)) != 0)
		return rc;
	if (regex != NULL)
		return add_normal(l, place, NORMAL_REPLACE_EXPR, regex, content);
	if (string[0] == '\0')
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s.pattern is empty", place);
	return add_normal(l, place, NORMAL_REPLACE, string, content);
}

int
load_normalizer(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	const struct normalizer *n = &l->t->normalizer;
	const char *text;
	int rc;

	(void)last;
	if (strcmp(type, "NFC") == 0) {
		if ((rc = load_only(l, place, component, " type ")) != 0)
			return rc;
		/* a second time changes nothing */
		if (n->n > 0 && n->step[n->n - 1].kind == NORMAL_NFC)
			return 0;
		return add_normal(l, place, NORMAL_NFC, NULL, NULL);
	}
	if (strcmp(type, "Replace") == 0)
		return read_replace(l, place, component);
	if (strcmp(type, "Prepend") != 0)
		return load_not_supported(l, place, type);
	if ((rc = load_only(l, place, component, " type prepend ")) != 0 ||
	    (rc = load_string(l, place, component, "prepend", &text)) != 0)
		return rc;
	return add_normal(l, place, NORMAL_PREPEND, NULL, text);
}

/* ---- pre_tokenizer ---- */

static int
add_step(struct load *l, const char *place, enum pretok_kind kind, struct pretok_step **step)
{
	char why[256] = "";
	int rc = pretok_add(&l->t->pretok, kind, step, why, sizeof(why));

	return rc == 0 ? 0 : load_fail(l, rc, "%s: %s", place, why);
}

/* Owns expr. */
static int
add_expr(struct load *l, const char *place, char *expr, struct pretok_step **step)
{
	char why[256] = "";
	int rc;

	if (expr == NULL)
		return load_no_memory(l);
	rc = pretok_add_expr(&l->t->pretok, expr, step, why, sizeof(why));
	return rc == 0 ? 0 : load_fail(l, rc, "%s: %s", place, why);
}

static int
read_behavior(struct load *l, const char *place, json_t *component, enum pretok_behavior *value)
{
	static const char *const names[] = { [PRETOK_ISOLATED] = "Isolated",
		[PRETOK_REMOVED] = "Removed",
		[PRETOK_CONTIGUOUS] = "Contiguous",
		[PRETOK_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
		[PRETOK_MERGED_WITH_NEXT] = "MergedWithNext" };
	const char *name;
	size_t i;
	int rc;

	if ((rc = load_string(l, place, component, "behavior", &name)) != 0)
		return rc;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0) {
			*value = (enum pretok_behavior)i;
			return 0;
		}
	return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: behavior %s is not supported", place,
	    name);
}

static int
read_split(struct load *l, const char *place, json_t *component)
{
	enum pretok_behavior behavior = PRETOK_ISOLATED;
	const char *string, *regex;
	struct pretok_step *step;
	int rc, invert;

	if ((rc = load_only(l, place, component, " type pattern behavior invert ")) != 0 ||
	    (rc = read_behavior(l, place, component, &behavior)) != 0 ||
	    (rc = load_bool(l, place, component, "invert", &invert)) != 0 ||
	    (rc = load_pattern(l, place, component, &string, &regex)) != 0)
		return rc;
	rc = add_expr(l, place, regex != NULL ? strdup(regex) : splitexpr_quote(string), &step);
	if (rc != 0)
		return rc;
	step->behavior = behavior;
	step->invert = invert;
	return 0;
}

static int
read_byte_level(struct load *l, const char *place, json_t *component, int last)
{
	int rc, prefix, expression = 1;
	struct pretok_step *step;

	if ((rc = load_only(l, place, component, BYTE_LEVEL)) != 0 ||
	    (rc = load_bool(l, place, component, "add_prefix_space", &prefix)) != 0)
		return rc;
	/* absent in older files, where it was always on */
	if (json_object_get(component, "use_regex") != NULL &&
	    (rc = load_bool(l, place, component, "use_regex", &expression)) != 0)
		return rc;
	if (l->t->byte_level)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: a second ByteLevel", place);
	l->t->byte_level = 1;
	if ((prefix && (rc = add_step(l, place, PRETOK_PREFIX_SPACE, &step)) != 0) ||
	    (expression && (rc = add_expr(l, place, strdup(GPT2_SPLIT), &step)) != 0))
		return rc;
	/* only the following steps see spelled bytes */
	if (last)
		return 0;
	l->t->spelled = 1;
	return add_step(l, place, PRETOK_SPELL, &step);
}

static int
read_metaspace(struct load *l, const char *place, json_t *component)
{
	const char *meta, *scheme = "always";
	struct pretok_step *step;
	int rc, splits = 1, prefix = 1;

	if ((rc = load_only(l, place, component,
		 " type replacement add_prefix_space prepend_scheme split str_rep ")) != 0 ||
	    (rc = load_character(l, place, component, "replacement", &meta)) != 0 ||
	    (json_object_get(component, "split") != NULL &&
		(rc = load_bool(l, place, component, "split", &splits)) != 0) ||
	    (json_object_get(component, "prepend_scheme") != NULL &&
		(rc = load_string(l, place, component, "prepend_scheme", &scheme)) != 0) ||
	    (json_object_get(component, "add_prefix_space") != NULL &&
		(rc = load_bool(l, place, component, "add_prefix_space", &prefix)) != 0))
		return rc;
	/* older files, without prepend_scheme, have add_prefix_space only */
	if (!prefix && json_object_get(component, "prepend_scheme") != NULL &&
	    strcmp(scheme, "never") != 0)
		return load_fail(l, TOKENIZER_EINVALID,
		    "%s: add_prefix_space and prepend_scheme disagree", place);
	if ((rc = add_step(l, place, PRETOK_METASPACE, &step)) != 0)
		return rc;
	snprintf(step->meta, sizeof(step->meta), "%s", meta);
	step->splits = splits;
	step->prepend = !prefix || strcmp(scheme, "never") == 0 ? PRETOK_NEVER :
	    strcmp(scheme, "first") == 0 ? PRETOK_FIRST : PRETOK_ALWAYS;
	if (step->prepend == PRETOK_ALWAYS && strcmp(scheme, "always") != 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: prepend_scheme %s is not "
		    "supported", place, scheme);
	return 0;
}

static int
read_digits(struct load *l, const char *place, json_t *component)
{
	struct pretok_step *step;
	int rc, individual;

	if ((rc = load_only(l, place, component, " type individual_digits ")) != 0 ||
	    (rc = load_bool(l, place, component, "individual_digits", &individual)) != 0 ||
	    (rc = add_step(l, place, PRETOK_NUMERIC, &step)) != 0)
		return rc;
	step->behavior = individual ? PRETOK_ISOLATED : PRETOK_CONTIGUOUS;
	return 0;
}

static int
read_punctuation(struct load *l, const char *place, json_t *component)
{
	enum pretok_behavior behavior = PRETOK_ISOLATED;
	struct pretok_step *step;
	int rc;

	if ((rc = load_only(l, place, component, " type behavior ")) != 0 ||
	    (json_object_get(component, "behavior") != NULL &&
		(rc = read_behavior(l, place, component, &behavior)) != 0) ||
	    (rc = add_step(l, place, PRETOK_PUNCTUATION, &step)) != 0)
		return rc;
	step->behavior = behavior;
	return 0;
}

/* Whitespace and WhitespaceSplit drop white space. */
static int
read_whitespace(struct load *l, const char *place, json_t *component, const char *type)
{
	struct pretok_step *step;
	int rc, words = strcmp(type, "Whitespace") == 0;

	if ((rc = load_only(l, place, component, " type ")) != 0 ||
	    (rc = add_step(l, place, words ? PRETOK_WORDS : PRETOK_SPACE, &step)) != 0)
		return rc;
	step->behavior = PRETOK_REMOVED;
	step->invert = words;
	return 0;
}

int
load_pretokenizer(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	if (strcmp(type, "ByteLevel") == 0)
		return read_byte_level(l, place, component, last);
	if (strcmp(type, "Split") == 0)
		return read_split(l, place, component);
	if (strcmp(type, "Digits") == 0)
		return read_digits(l, place, component);
	if (strcmp(type, "Punctuation") == 0)
		return read_punctuation(l, place, component);
	if (strcmp(type, "Whitespace") == 0 || strcmp(type, "WhitespaceSplit") == 0)
		return read_whitespace(l, place, component, type);
	if (strcmp(type, "Metaspace") != 0)
		return load_not_supported(l, place, type);
	if (l->t->byte_level)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: Metaspace behind ByteLevel",
		    place);
	return read_metaspace(l, place, component);
}
