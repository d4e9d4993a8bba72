/* tokpost.c - reads the post_processor of tokenizer.json: the tokens before and after a text
 *
 * Each processor works on the output of the previous one, so a later one's tokens are further
 * out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokload.h"

/* Most tokens before or after a text: a file may repeat a list. */
#define TEMPLATE_MOST 256

/* Returns whether v is the id of a token. */
static int
is_token(const struct load *l, const json_t *v)
{
	const struct vocab *vocab = &l->t->vocab;

	return json_is_integer(v) && json_integer_value(v) >= 0 &&
	    json_integer_value(v) < vocab->size &&
	    (vocab->token[json_integer_value(v)].flags & TOKEN_USED);
}

/* Appends the ids in special_tokens for one name of the template. */
static int
put_special(struct load *l, const char *place, json_t *component, const char *name,
    struct ids *out)
{
	json_t *special, *list, *v;
	size_t i;

	special = json_object_get(json_object_get(component, "special_tokens"), name);
	list = json_object_get(special, "ids");
	if (!json_is_array(list))
		return load_fail(l, TOKENIZER_EINVALID, "%s.special_tokens has no ids for \"%s\"",
		    place, name);
	json_array_foreach(list, i, v) {
		if (!is_token(l, v))
			return load_fail(l, TOKENIZER_EINVALID,
			    "%s.special_tokens: \"%s\" is not the id of a token", place, name);
		if (out->n == TEMPLATE_MOST)
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "%s: more than %d tokens around a text", place, TEMPLATE_MOST);
		if (ids_push(out, (uint32_t)json_integer_value(v)) != 0)
			return load_no_memory(l);
	}
	return 0;
}

static int
read_pieces(struct load *l, const char *place, json_t *component, struct ids *before,
    struct ids *after)
{
	json_t *single = json_object_get(component, "single"), *piece, *special;
	const char *name;
	size_t i, texts = 0;
	int rc;

	if (!json_is_array(single))
		return load_fail(l, TOKENIZER_EINVALID, "%s.single is not an array", place);
	json_array_foreach(single, i, piece) {
		special = json_object_get(piece, "SpecialToken");
		name = json_string_value(json_object_get(
		    special != NULL ? special : json_object_get(piece, "Sequence"), "id"));
		if (name == NULL)
			return load_fail(l, TOKENIZER_EINVALID,
			    "%s.single[%zu] is not a token or a sequence", place, i);
		if (special == NULL && (strcmp(name, "A") != 0 || texts++ > 0))
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "%s.single: the text stands there twice", place);
		if (special != NULL && (rc = put_special(l, place, component, name,
		    texts == 0 ? before : after)) != 0)
			return rc;
	}
	if (texts == 0)
		return load_fail(l, TOKENIZER_EINVALID, "%s.single has no place for the text",
		    place);
	return 0;
}

/* a <- a, then b; b is freed. */
static int
append_ids(struct load *l, struct ids *a, struct ids *b)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < b->n && rc == 0; i++)
		rc = ids_push(a, b->ids[i]);
	free(b->ids);
	return rc == 0 ? 0 : load_no_memory(l);
}

/* Puts tokens around the output of the processors so far; owns both lists. */
static int
put_around(struct load *l, struct ids before, struct ids after)
{
	struct tokenizer *t = l->t;
	int rc = append_ids(l, &before, &t->before);

	t->before = before;
	if (rc != 0) {
		free(after.ids);
		return rc;
	}
	return append_ids(l, &t->after, &after);
}

static int
read_template(struct load *l, const char *place, json_t *component)
{
	struct ids before = { 0 }, after = { 0 };
	int rc = load_only(l, place, component, " type single pair special_tokens ");

	if (rc == 0)
		rc = read_pieces(l, place, component, &before, &after);
	if (rc != 0) {
		free(before.ids);
		free(after.ids);
		return rc;
	}
	return put_around(l, before, after);
}

/* BertProcessing and RobertaProcessing: cls before, sep after, each ["name", id]. */
static int
read_pair(struct load *l, const char *place, json_t *component)
{
	static const char *const keys[] = { "cls", "sep" };
	struct ids ids[2] = { { 0 } };
	json_t *id;
	size_t i;
	int rc;

	rc = load_only(l, place, component, " type sep cls trim_offsets add_prefix_space ");
	for (i = 0; rc == 0 && i < 2; i++) {
		id = json_array_get(json_object_get(component, keys[i]), 1);
		if (!is_token(l, id))
			rc = load_fail(l, TOKENIZER_EINVALID, "%s.%s is not the id of a token",
			    place, keys[i]);
		else if (ids_push(&ids[i], (uint32_t)json_integer_value(id)) != 0)
			rc = load_no_memory(l);
	}
	if (rc != 0) {
		free(ids[0].ids);
		free(ids[1].ids);
		return rc;
	}
	return put_around(l, ids[0], ids[1]);
}

int
load_processor(struct load *l, const char *place, json_t *component, const char *type, int last)
{
	(void)last;
	/* ByteLevel only trims offsets, which are not used here */
	if (strcmp(type, "ByteLevel") == 0)
		return load_only(l, place, component, BYTE_LEVEL);
	if (strcmp(type, "TemplateProcessing") == 0)
		return read_template(l, place, component);
	if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
		return read_pair(l, place, component);
	return load_not_supported(l, place, type);
}
