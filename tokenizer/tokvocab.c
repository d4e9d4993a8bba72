/* tokvocab.c - reads the vocabulary, the merges and the added tokens of tokenizer.json */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/nfc.h"
#include "tokenizer/tokload.h"

static int
get_id(struct load *l, const char *place, const json_t *v, uint32_t *id)
{
	if (!json_is_integer(v))
		return load_fail(l, TOKENIZER_EINVALID, "%s: the id is %s", place,
		    v == NULL ? "missing" : "not an integer");
	if (json_integer_value(v) < 0 || json_integer_value(v) >= VOCAB_LIMIT)
		return load_fail(l, TOKENIZER_EINVALID, "%s: id %lld is not in 0 .. %u", place,
		    (long long)json_integer_value(v), VOCAB_LIMIT - 1);
	*id = (uint32_t)json_integer_value(v);
	return 0;
}

/* Ids decide how much memory there must be, so all of them are looked at before any is allocated
 * for. */
static int
count_ids(struct load *l, json_t *added, uint32_t *size)
{
	char place[64];
	const char *key;
	json_t *value;
	uint32_t id;
	size_t i;
	int rc;

	*size = 0;
	json_object_foreach(l->vocab, key, value) {
		if ((rc = get_id(l, "model.vocab", value, &id)) != 0)
			return rc;
		if (id >= *size)
			*size = id + 1;
	}
	json_array_foreach(added, i, value) {
		snprintf(place, sizeof(place), "added_tokens[%zu]", i);
		if ((rc = get_id(l, place, json_object_get(value, "id"), &id)) != 0)
			return rc;
		if (id >= *size)
			*size = id + 1;
	}
	return 0;
}

static int
read_vocab(struct load *l)
{
	struct vocab *v = &l->t->vocab;
	const char *key;
	char *bytes = NULL, *p;
	json_t *value;
	size_t n, len, room = 0;
	uint32_t id;
	int rc = 0;

	json_object_foreach(l->vocab, key, value) {
		id = (uint32_t)json_integer_value(value);
		if (v->token[id].flags & TOKEN_USED) {
			rc = load_fail(l, TOKENIZER_EINVALID,
			    "model.vocab: id %u stands for \"%s\" and another token", id, key);
			break;
		}
		n = strlen(key);
		if (n >= room) {
			room = 2 * n + 64;
			p = realloc(bytes, room);
			if (p == NULL) {
				rc = load_no_memory(l);
				break;
			}
			bytes = p;
		}
		/* a key outside the alphabet can only be decoded, and then as it is written */
		len = vocab_spell(key, n, bytes);
		if (len == SIZE_MAX)
			rc = vocab_set(v, id, key, n, 0);
		else
			rc = vocab_set(v, id, bytes, len, TOKEN_BYTES);
		if (rc != 0) {
			rc = load_no_memory(l);
			break;
		}
		if (len == 1)
			l->t->bpe.byte[(unsigned char)bytes[0]] = id;
	}
	free(bytes);
	return rc;
}

static int
not_a_merge(struct load *l, size_t rank)
{
	return load_fail(l, TOKENIZER_EINVALID,
	    "model.merges[%zu] is neither \"left right\" nor [\"left\", \"right\"]", rank);
}

/* "left right", or ["left", "right"]: -> two strings; the first form is taken apart in *copy,
 * which the caller frees. */
static int
merge_parts(struct load *l, size_t rank, json_t *merge, char **copy, const char **left,
    const char **right)
{
	char *space;

	if (json_is_array(merge) && json_array_size(merge) == 2) {
		*left = json_string_value(json_array_get(merge, 0));
		*right = json_string_value(json_array_get(merge, 1));
		return *left != NULL && *right != NULL ? 0 : not_a_merge(l, rank);
	}
	if (!json_is_string(merge))
		return not_a_merge(l, rank);
	free(*copy);
	if ((*copy = strdup(json_string_value(merge))) == NULL)
		return load_no_memory(l);
	space = strchr(*copy, ' ');
	if (space == NULL || strchr(space + 1, ' ') != NULL)
		return not_a_merge(l, rank);
	*space = '\0';
	*left = *copy;
	*right = space + 1;
	return 0;
}

/* The id of a key of the vocabulary, or -1. */
static long long
id_of(const struct load *l, const char *key)
{
	const json_t *v = json_object_get(l->vocab, key);

	return v == NULL ? -1 : (long long)json_integer_value(v);
}

static int
read_merge(struct load *l, size_t rank, json_t *merge, char **copy, char **joined)
{
	const char *left = NULL, *right = NULL, *unknown;
	long long l_id, r_id, id;
	size_t n;
	char *p;
	int rc;

	if ((rc = merge_parts(l, rank, merge, copy, &left, &right)) != 0)
		return rc;
	n = strlen(left) + strlen(right) + 1;
	p = realloc(*joined, n);
	if (p == NULL)
		return load_no_memory(l);
	*joined = p;
	snprintf(p, n, "%s%s", left, right);
	l_id = id_of(l, left);
	r_id = id_of(l, right);
	id = id_of(l, *joined);
	unknown = l_id < 0 ? left : r_id < 0 ? right : id < 0 ? *joined : NULL;
	if (unknown != NULL)
		return load_fail(l, TOKENIZER_EINVALID,
		    "model.merges[%zu]: \"%s\" is not in the vocabulary", rank, unknown);
	if (bpe_add(&l->t->bpe, (uint32_t)l_id, (uint32_t)r_id, (uint32_t)id) != 0)
		return load_fail(l, TOKENIZER_EINVALID,
		    "model.merges[%zu]: \"%s\" and \"%s\" have a merge already", rank, left,
		    right);
	return 0;
}

/* The settings of the model, and its two big tables into l. */
static int
read_model(struct load *l, json_t *model, json_t **merges)
{
	static const char *const off[] = { "dropout", "unk_token", "continuing_subword_prefix",
	    "end_of_word_suffix", "byte_fallback" };
	json_t *v;
	size_t i;
	int rc;

	if (!json_is_object(model))
		return load_fail(l, TOKENIZER_EINVALID, "model is %s",
		    model == NULL ? "missing" : "not an object");
	/* files from before 2021 name no type */
	v = json_object_get(model, "type");
	if (v != NULL && (!json_is_string(v) || strcmp(json_string_value(v), "BPE") != 0))
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "model.type is %s, only BPE is supported",
		    json_is_string(v) ? json_string_value(v) : "not a string");
	for (i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		if (!load_is_off(json_object_get(model, off[i])))
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "model.%s is set, and not supported", off[i]);
	}
	rc = load_only(l, "model", model, " type fuse_unk ignore_merges vocab merges ");
	if (rc != 0)
		return rc;
	if (json_object_get(model, "ignore_merges") != NULL &&
	    (rc = load_bool(l, "model", model, "ignore_merges", &l->t->ignore_merges)) != 0)
		return rc;
	l->vocab = json_object_get(model, "vocab");
	*merges = json_object_get(model, "merges");
	if (!json_is_object(l->vocab))
		return load_fail(l, TOKENIZER_EINVALID, "model.vocab is %s",
		    l->vocab == NULL ? "missing" : "not an object");
	if (!json_is_array(*merges))
		return load_fail(l, TOKENIZER_EINVALID, "model.merges is %s",
		    *merges == NULL ? "missing" : "not an array");
	return 0;
}

static int
read_tables(struct load *l, json_t *merges, json_t *added)
{
	char *copy = NULL, *joined = NULL;
	json_t *merge;
	uint32_t size;
	size_t i;
	int rc;

	if ((rc = count_ids(l, added, &size)) != 0)
		return rc;
	if (vocab_init(&l->t->vocab, size, json_object_size(l->vocab)) != 0 ||
	    bpe_init(&l->t->bpe, json_array_size(merges)) != 0)
		return load_no_memory(l);
	rc = read_vocab(l);
	for (i = 0; rc == 0 && i < json_array_size(merges); i++) {
		merge = json_array_get(merges, i);
		rc = read_merge(l, i, merge, &copy, &joined);
	}
	free(copy);
	free(joined);
	return rc;
}

/* ---- added_tokens ---- */

static int
added_flags(struct load *l, const char *place, json_t *object, unsigned *flags)
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
		if ((rc = load_bool(l, place, object, list[i].key, &value)) != 0)
			return rc;
		if (value)
			*flags |= list[i].flag;
	}
	return 0;
}

/* Puts the token where its text is looked for: among the raw ones as it is, among the normalised
 * ones in form C. */
static int
look_for(struct load *l, const char *content, uint32_t id, unsigned flags)
{
	struct added *set = flags & TOKEN_NORMALIZED ? &l->t->normal : &l->t->raw;
	size_t len = strlen(content);
	char *text;

	if ((flags & TOKEN_NORMALIZED) && l->t->nfc) {
		if (nfc(content, len, &text, &len) != 0)
			return load_no_memory(l);
	} else if ((text = strdup(content)) == NULL)
		return load_no_memory(l);
	return added_add(set, text, len, id, flags) == 0 ? 0 : load_no_memory(l);
}

static int
read_added_token(struct load *l, const char *place, json_t *object)
{
	struct vocab *v = &l->t->vocab;
	const char *content;
	unsigned flags;
	long long id;
	int rc;

	if ((rc = load_only(l, place, object,
		 " id content special normalized lstrip rstrip single_word ")) != 0 ||
	    (rc = load_string(l, place, object, "content", &content)) != 0 ||
	    (rc = added_flags(l, place, object, &flags)) != 0)
		return rc;
	if (content[0] == '\0')
		return load_fail(l, TOKENIZER_EINVALID, "%s: the token is empty", place);
	id = (long long)json_integer_value(json_object_get(object, "id"));
	if (v->token[id].flags & TOKEN_ADDED)
		return load_fail(l, TOKENIZER_EINVALID, "%s: id %lld is that of another added token",
		    place, id);
	if (json_object_get(l->added, content) != NULL)
		return load_fail(l, TOKENIZER_EINVALID, "%s: \"%s\" is there a second time", place,
		    content);
	if (id_of(l, content) != id &&
	    (id_of(l, content) >= 0 || (v->token[id].flags & TOKEN_USED)))
		return load_fail(l, TOKENIZER_EINVALID,
		    "%s: \"%s\" has id %lld here, the vocabulary disagrees", place, content, id);
	/* one that the vocabulary spells is still made of words too, and means those bytes */
	if (v->token[id].flags & TOKEN_BYTES)
		v->token[id].flags |= TOKEN_ADDED | flags;
	else if (vocab_set(v, (uint32_t)id, content, strlen(content), TOKEN_ADDED | flags) != 0)
		return load_no_memory(l);
	if (json_object_set_new(l->added, content, json_integer(id)) != 0)
		return load_no_memory(l);
	return look_for(l, content, (uint32_t)id, flags);
}

static int
read_added(struct load *l, json_t *list)
{
	char place[64];
	json_t *object;
	size_t i;
	int rc;

	json_array_foreach(list, i, object) {
		snprintf(place, sizeof(place), "added_tokens[%zu]", i);
		if ((rc = read_added_token(l, place, object)) != 0)
			return rc;
	}
	added_ready(&l->t->raw);
	added_ready(&l->t->normal);
	return 0;
}

int
load_vocabulary(struct load *l, json_t *model, json_t *added)
{
	json_t *merges = NULL;
	int rc;

	if ((rc = read_model(l, model, &merges)) != 0)
		return rc;
	if (added != NULL && !json_is_array(added))
		return load_fail(l, TOKENIZER_EINVALID, "added_tokens is not an array");
	if ((rc = read_tables(l, merges, added)) != 0)
		return rc;
	return read_added(l, added);
}
