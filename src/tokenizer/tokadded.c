/* tokadded.c - reads the added tokens, of tokenizer.json and of tokenizer_config.json
 *
 * As in transformers, the entry of a token in tokenizer_config.json's added_tokens_decoder
 * replaces that of tokenizer.json, and tokens that only the former has are appended. The rest
 * of tokenizer_config.json is ignored: if there is a tokenizer.json, transformers (5.2) ignores
 * add_bos_token and add_eos_token too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokload.h"

static json_t *
config_tokens(const struct load *l)
{
	return json_object_get(l->config, "added_tokens_decoder");
}

/* "32000" -> 32000. */
static int
config_id(struct load *l, const char *key, uint32_t *id)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(key, &end, 10);
	if (key[0] < '0' || key[0] > '9' || *end != '\0' || errno != 0 || n >= VOCAB_LIMIT)
		return load_fail(l, TOKENIZER_EINVALID,
		    "tokenizer_config.json: added_tokens_decoder: \"%s\" is not an id in 0 .. %u",
		    key, VOCAB_LIMIT - 1);
	*id = (uint32_t)n;
	return 0;
}

int
load_config_ids(struct load *l, uint32_t *size)
{
	json_t *value;
	const char *key;
	uint32_t id;
	int rc;

	json_object_foreach(config_tokens(l), key, value) {
		if ((rc = config_id(l, key, &id)) != 0)
			return rc;
		if (id >= *size)
			*size = id + 1;
	}
	return 0;
}

/* Reads the flags by which an added token is found. In tokenizer.json all are given; in
 * tokenizer_config.json they have defaults. */
static int
read_flags(struct load *l, const char *place, json_t *object, int must, unsigned *flags)
{
	static const struct {
		const char *key;
		unsigned flag;
	} list[] = {
		{ "special", TOKEN_SPECIAL },
		{ "normalized", TOKEN_NORMALIZED },
		{ "lstrip", TOKEN_LSTRIP },
		{ "rstrip", TOKEN_RSTRIP },
		{ "single_word", TOKEN_SINGLE_WORD },
	};
	size_t i;
	int rc, value;

	*flags = 0;
	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		value = list[i].flag == TOKEN_NORMALIZED && !(*flags & TOKEN_SPECIAL);
		if ((must || json_object_get(object, list[i].key) != NULL) &&
		    (rc = load_bool(l, place, object, list[i].key, &value)) != 0)
			return rc;
		if (value)
			*flags |= list[i].flag;
	}
	return 0;
}

/* Adds the token to the raw tokens as it is, or to the normalised ones in normalised form. */
static int
look_for(struct load *l, const char *content, uint32_t id, unsigned flags)
{
	struct added *set = flags & TOKEN_NORMALIZED ? &l->t->normal : &l->t->raw;
	size_t len = strlen(content);
	char *text = NULL, why[256] = "";
	int rc;

	if (flags & TOKEN_NORMALIZED) {
		if (l->expr == NULL && (l->expr = expr_work_new()) == NULL)
			return load_no_memory(l);
		rc = normalizer_run(&l->t->normalizer, l->expr, content, len, 1, &text, &len, why,
		    sizeof(why));
		if (rc != 0)
			return load_fail(l, rc, "\"%.100s\": %s", content, why);
	}
	if (len > ADDED_MOST) {
		free(text);
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "an added token of %zu bytes: at most "
		    "%d", len, ADDED_MOST);
	}
	if (text == NULL && (text = strdup(content)) == NULL)
		return load_no_memory(l);
	if (len == 0) {
		free(text);     /* nothing is never found */
		return 0;
	}
	return added_add(set, text, len, id, flags) == 0 ? 0 : load_no_memory(l);
}

/* l->by_content <- the entries of added_tokens_decoder by their text. */
static int
index_config(struct load *l)
{
	const char *key, *text;
	json_t *object;

	json_object_foreach(config_tokens(l), key, object) {
		text = json_string_value(json_object_get(object, "content"));
		if (text != NULL && json_object_set(l->by_content, text, object) != 0)
			return load_no_memory(l);
	}
	return 0;
}

static int
add_token(struct load *l, const char *place, const char *content, uint32_t id, unsigned flags)
{
	struct vocab *v = &l->t->vocab;
	int rc;

	if (content[0] == '\0')
		return load_fail(l, TOKENIZER_EINVALID, "%s: the token is empty", place);
	if (v->token[id].flags & TOKEN_ADDED)
		return load_fail(l, TOKENIZER_EINVALID, "%s: id %u is that of another added token",
		    place, id);
	if (json_object_get(l->added, content) != NULL)
		return load_fail(l, TOKENIZER_EINVALID, "%s: \"%s\" is there a second time", place,
		    content);
	if (load_id(l, content) != (long long)id &&
	    (load_id(l, content) >= 0 || (v->token[id].flags & TOKEN_USED)))
		return load_fail(l, TOKENIZER_EINVALID,
		    "%s: \"%s\" has id %u here, the vocabulary disagrees", place, content, id);
	/* a token that the vocabulary can spell is still built from words too, and means those
	 * bytes */
	if (v->token[id].flags & TOKEN_BYTES)
		v->token[id].flags |= TOKEN_ADDED | flags;
	else if ((rc = load_token(l, id, content, TOKEN_ADDED | flags)) != 0)
		return rc;
	if (json_object_set_new(l->added, content, json_integer(id)) != 0)
		return load_no_memory(l);
	return look_for(l, content, id, flags);
}

static int
read_added_token(struct load *l, const char *place, json_t *object)
{
	const char *content;
	json_t *other;
	unsigned flags, theirs;
	int rc;

	if ((rc = load_only(l, place, object,
		 " id content special normalized lstrip rstrip single_word ")) != 0 ||
	    (rc = load_string(l, place, object, "content", &content)) != 0 ||
	    (rc = read_flags(l, place, object, 1, &flags)) != 0)
		return rc;
	other = json_object_get(l->by_content, content);
	if (other != NULL) {
		if ((rc = read_flags(l, "tokenizer_config.json: added_tokens_decoder", other, 0,
		    &theirs)) != 0)
			return rc;
		/* once special, always special, and found as before */
		if (flags & TOKEN_SPECIAL)
			theirs = (theirs & ~(unsigned)TOKEN_NORMALIZED) | TOKEN_SPECIAL |
			    (flags & TOKEN_NORMALIZED);
		flags = theirs;
	}
	return add_token(l, place, content,
	    (uint32_t)json_integer_value(json_object_get(object, "id")), flags);
}

/* Reads the tokens that only tokenizer_config.json has. */
static int
read_config_tokens(struct load *l)
{
	static const char place[] = "tokenizer_config.json: added_tokens_decoder";
	const char *key, *content;
	json_t *object;
	unsigned flags;
	uint32_t id;
	int rc;

	json_object_foreach(config_tokens(l), key, object) {
		if ((rc = load_string(l, place, object, "content", &content)) != 0)
			return rc;
		if (json_object_get(l->added, content) != NULL)
			continue;
		if ((rc = config_id(l, key, &id)) != 0 ||
		    (rc = read_flags(l, place, object, 0, &flags)) != 0 ||
		    (rc = add_token(l, place, content, id, flags)) != 0)
			return rc;
	}
	return 0;
}

int
load_added(struct load *l, json_t *list)
{
	char place[64];
	json_t *object;
	size_t i;
	int rc;

	if ((rc = index_config(l)) != 0)
		return rc;
	json_array_foreach(list, i, object) {
		snprintf(place, sizeof(place), "added_tokens[%zu]", i);
		if ((rc = read_added_token(l, place, object)) != 0)
			return rc;
	}
	if ((rc = read_config_tokens(l)) != 0)
		return rc;
	added_ready(&l->t->raw);
	added_ready(&l->t->normal);
	return 0;
}
