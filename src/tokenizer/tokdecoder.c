/* tokdecoder.c - reads the decoder of tokenizer.json */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokload.h"

/* Copies from and to, which may be NULL. */
static int
add(struct load *l, const char *place, enum decode_kind kind, const char *from, const char *to,
    struct decode_step **step)
{
	char *f = NULL, *t = NULL;

	if ((from != NULL && (f = strdup(from)) == NULL) ||
	    (to != NULL && (t = strdup(to)) == NULL)) {
		free(f);
		return load_no_memory(l);
	}
	*step = decoder_add(&l->t->decoder, kind, f, t);
	if (*step == NULL)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: more than %d steps", place,
		    DECODER_MOST);
	return 0;
}

static int
read_replace(struct load *l, const char *place, json_t *component)
{
	const char *string, *regex, *content;
	struct decode_step *step;
	int rc;

	if ((rc = load_only(l, place, component, " type pattern content ")) != 0 ||
	    (rc = load_pattern(l, place, component, &string, &regex)) != 0 ||
	    (rc = load_string(l, place, component, "content", &content)) != 0)
		return rc;
	if (regex != NULL || string[0] == '\0')
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "%s.pattern: only a String is supported", place);
	return add(l, place, DECODE_REPLACE, string, content, &step);
}

/* struct text_start in tokenizer.h can represent what Metaspace drops from the first token. */
static int
read_metaspace(struct load *l, const char *place, json_t *component)
{
	struct decode_step *step;
	const char *meta, *scheme;
	json_t *prefix;
	int rc;

	if ((rc = load_only(l, place, component,
		 " type replacement add_prefix_space prepend_scheme split str_rep ")) != 0 ||
	    (rc = load_character(l, place, component, "replacement", &meta)) != 0)
		return rc;
	scheme = json_string_value(json_object_get(component, "prepend_scheme"));
	prefix = json_object_get(component, "add_prefix_space");
	l->t->decoder.drops = !json_is_false(prefix) &&
	    (scheme == NULL || strcmp(scheme, "never") != 0);
	return add(l, place, DECODE_METASPACE, meta, NULL, &step);
}

static int
get_count(struct load *l, const char *place, json_t *component, const char *key, size_t *value)
{
	json_t *v = json_object_get(component, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return load_fail(l, TOKENIZER_EINVALID, "%s.%s is not a count", place, key);
	*value = (size_t)json_integer_value(v);
	return 0;
}

static int
read_strip(struct load *l, const char *place, json_t *component)
{
	struct decoder *d = &l->t->decoder;
	struct decode_step *step;
	const char *content;
	size_t start, stop;
	int rc;

	if ((rc = load_only(l, place, component, " type content start stop ")) != 0 ||
	    (rc = load_character(l, place, component, "content", &content)) != 0 ||
	    (rc = get_count(l, place, component, "start", &start)) != 0 ||
	    (rc = get_count(l, place, component, "stop", &stop)) != 0)
		return rc;
	if (!d->fused) {
		if ((rc = add(l, place, DECODE_STRIP, content, NULL, &step)) != 0)
			return rc;
		step->start = start;
		step->stop = stop;
		return 0;
	}
	if (stop > 0 || d->strip_most > 0)
		return load_fail(l, TOKENIZER_EUNSUPPORTED,
		    "%s: only one Strip, of the beginning, is supported behind Fuse", place);
	snprintf(d->strip, sizeof(d->strip), "%s", content);
	d->strip_most = start;
	return 0;
}

int
load_decoder(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	struct decoder *d = &l->t->decoder;
	struct decode_step *step;
	int rc;

	(void)last;
	if (strcmp(type, "Strip") == 0)
		return read_strip(l, place, component);
	if (strcmp(type, "Fuse") == 0) {
		d->fused = 1;
		return load_only(l, place, component, " type ");
	}
	if (d->fused && (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Replace") == 0 ||
	    strcmp(type, "Metaspace") == 0 || strcmp(type, "ByteFallback") == 0))
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: %s behind Fuse is not supported",
		    place, type);
	if (strcmp(type, "ByteLevel") == 0) {
		if ((rc = load_only(l, place, component, BYTE_LEVEL)) != 0)
			return rc;
		d->fused = 1;
		return add(l, place, DECODE_BYTE_LEVEL, NULL, NULL, &step);
	}
	/* the spelled keys of a byte-level vocabulary are not kept */
	if (l->t->byte_level)
		return load_not_supported(l, place, type);
	if (strcmp(type, "Replace") == 0 && d->drops)
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "%s: Replace behind a Metaspace that "
		    "leaves out a space is not supported", place);
	if (strcmp(type, "Replace") == 0)
		return read_replace(l, place, component);
	if (strcmp(type, "Metaspace") == 0)
		return read_metaspace(l, place, component);
	if (strcmp(type, "ByteFallback") != 0)
		return load_not_supported(l, place, type);
	if ((rc = load_only(l, place, component, " type ")) != 0)
		return rc;
	return add(l, place, DECODE_BYTE_FALLBACK, NULL, NULL, &step);
}
