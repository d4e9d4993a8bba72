/* tokvocab.c - reads the vocabulary, the merges and the added tokens of tokenizer.json */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokload.h"
#include "tokenizer/utf8.h"

#define META "\xe2\x96\x81" /* U+2581, SentencePiece's space */

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

/* Reads the words that tables_cut() has not read. */
static int
list_words(struct load *l)
{
	const char *key;
	json_t *value;
	uint32_t id;
	int rc;

	json_object_foreach(l->vocab, key, value) {
		if ((rc = get_id(l, "model.vocab", value, &id)) != 0)
			return rc;
		if (tables_add(&l->tables, key, strlen(key), id) != 0)
			return load_no_memory(l);
	}
	return 0;
}

/* Ids determine the memory, so all are checked before any is allocated. */
static int
count_ids(struct load *l, json_t *added, uint32_t *size)
{
	char place[64];
	json_t *value;
	uint32_t id;
	size_t i;
	int rc;

	*size = 0;
	for (i = 0; i < l->tables.words; i++)
		if (l->tables.word[i].id >= *size)
			*size = l->tables.word[i].id + 1;
	json_array_foreach(added, i, value) {
		snprintf(place, sizeof(place), "added_tokens[%zu]", i);
		if ((rc = get_id(l, place, json_object_get(value, "id"), &id)) != 0)
			return rc;
		if (id >= *size)
			*size = id + 1;
	}
	return load_config_ids(l, size);
}

int
load_token(struct load *l, uint32_t id, const char *text, unsigned flags)
{
	size_t n = strlen(text), len;
	char *bytes;
	int rc;

	if (l->t->byte_level) {
		bytes = malloc(n + 1);
		if (bytes == NULL)
			return load_no_memory(l);
		/* a key outside the alphabet can only be decoded, as written; so can an added
		 * token */
		len = flags & TOKEN_ADDED ? SIZE_MAX : vocab_spell(text, n, bytes);
		rc = len == SIZE_MAX ?
		    vocab_set(&l->t->vocab, id, text, n, flags & ~(unsigned)TOKEN_BYTES) :
		    vocab_set(&l->t->vocab, id, bytes, len, flags);
		if (rc == 0 && len == 1)
			l->t->bpe.byte[(unsigned char)bytes[0]] = id;
		free(bytes);
		return rc == 0 ? 0 : load_no_memory(l);
	}
	if (vocab_set(&l->t->vocab, id, text, n, flags) != 0)
		return load_no_memory(l);
	rc = decoder_token(&l->t->decoder, text, n, 0, &bytes, &len);
	if (rc == TOKENIZER_EUNSUPPORTED)
		return load_fail(l, rc, "the decoder makes a very long text of token %u", id);
	if (rc != 0)
		return load_no_memory(l);
	rc = vocab_show(&l->t->vocab, id, bytes, len);
	free(bytes);
	if ((flags & TOKEN_BYTES) && n == 1)
		l->t->bpe.byte[(unsigned char)text[0]] = id;
	return rc == 0 ? 0 : load_no_memory(l);
}

static int
read_vocab(struct load *l)
{
	const struct word *w;
	size_t i;
	int rc;

	for (i = 0; i < l->tables.words; i++) {
		w = &l->tables.word[i];
		if (l->t->vocab.token[w->id].flags & TOKEN_USED)
			return load_fail(l, TOKENIZER_EINVALID,
			    "model.vocab: id %u stands for \"%s\" and another token", w->id,
			    w->text);
		if ((rc = load_token(l, w->id, w->text, TOKEN_BYTES)) != 0)
			return rc;
	}
	return 0;
}

static int
not_a_merge(struct load *l, size_t rank)
{
	return load_fail(l, TOKENIZER_EINVALID,
	    "model.merges[%zu] is neither \"left right\" nor [\"left\", \"right\"]", rank);
}

/* *left, *right <- the two strings of "left right", or ["left", "right"]; the first form is
 * split in *copy, which the caller frees. */
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

long long
load_id(const struct load *l, const char *key)
{
	const struct word *w = tables_find(&l->tables, key, strlen(key));

	return w == NULL ? -1 : (long long)w->id;
}

/* Handles a merge of `left` with something that begins with U+2581. */
static int
join(struct load *l, const char *left)
{
	struct tokenizer *t = l->t;
	const struct token *unk = t->bpe.unk != VOCAB_NONE ? &t->vocab.token[t->bpe.unk] : NULL;
	size_t n = strlen(left);
	unsigned used;

	/* tokens for characters without a token do not matter here */
	if ((n >= 6 && memcmp(left + n - 6, "<0x", 3) == 0) || n == 0 ||
	    (unk != NULL && n >= unk->len &&
		memcmp(left + n - unk->len, t->vocab.text + unk->at, unk->len) == 0)) {
		t->cuts = 0;
		return 0;
	}
	return ids_push(&t->joined, utf8_get_before(left, n, &used)) == 0 ? 0 : load_no_memory(l);
}

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Sorts the list and removes duplicates. */
static void
sort_points(struct ids *list)
{
	size_t i, n = 0;

	if (list->n == 0)
		return;
	qsort(list->ids, list->n, sizeof(*list->ids), by_number);
	for (i = 0; i < list->n; i++)
		if (n == 0 || list->ids[n - 1] != list->ids[i])
			list->ids[n++] = list->ids[i];
	list->n = n;
}

static int
read_merge(struct load *l, size_t rank, const char *left, const char *right, char **joined)
{
	const char *unknown;
	long long l_id, r_id, id;
	size_t n;
	char *p;

	n = strlen(left) + strlen(right) + 1;
	p = realloc(*joined, n);
	if (p == NULL)
		return load_no_memory(l);
	*joined = p;
	snprintf(p, n, "%s%s", left, right);
	l_id = load_id(l, left);
	r_id = load_id(l, right);
	id = load_id(l, *joined);
	unknown = l_id < 0 ? left : r_id < 0 ? right : id < 0 ? *joined : NULL;
	if (unknown != NULL)
		return load_fail(l, TOKENIZER_EINVALID,
		    "model.merges[%zu]: \"%s\" is not in the vocabulary", rank, unknown);
	bpe_add(&l->t->bpe, (uint32_t)l_id, (uint32_t)r_id, (uint32_t)id);
	return l->t->cuts && strncmp(right, META, strlen(META)) == 0 ?
	    join(l, left) : 0;
}

int
load_is_bpe(struct load *l, const json_t *model)
{
	const json_t *v = json_object_get(model, "type");

	if (!json_is_object(model))
		return load_fail(l, TOKENIZER_EINVALID, "model is %s",
		    model == NULL ? "missing" : "not an object");
	/* older files (before 2021) name no type */
	if (v != NULL && (!json_is_string(v) || strcmp(json_string_value(v), "BPE") != 0))
		return load_fail(l, TOKENIZER_EUNSUPPORTED, "model.type is %s, only BPE is "
		    "supported", json_is_string(v) ? json_string_value(v) : "not a string");
	return 0;
}

/* Reads the settings of the model; its two big tables go into l. */
static int
read_model(struct load *l, json_t *model, json_t **merges)
{
	static const char *const off[] = { "dropout", "continuing_subword_prefix",
	    "end_of_word_suffix" };
	size_t i;
	int rc;

	for (i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		if (!load_is_off(json_object_get(model, off[i])))
			return load_fail(l, TOKENIZER_EUNSUPPORTED,
			    "model.%s is set, and not supported", off[i]);
	}
	rc = load_only(l, "model", model,
	    " type fuse_unk unk_token byte_fallback ignore_merges vocab merges ");
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
flag(struct load *l, json_t *model, const char *key, int *value)
{
	*value = 0;
	if (load_is_off(json_object_get(model, key)))
		return 0;
	return load_bool(l, "model", model, key, value);
}

/* Reads the treatment of characters without a token. */
static int
read_missing(struct load *l, json_t *model)
{
	struct bpe *b = &l->t->bpe;
	char name[8];
	const char *unk = NULL;
	json_t *v = json_object_get(model, "unk_token");
	int rc, fallback;
	unsigned i;

	if ((rc = flag(l, model, "byte_fallback", &fallback)) != 0 ||
	    (rc = flag(l, model, "fuse_unk", &b->fuse_unk)) != 0 ||
	    (v != NULL && !json_is_null(v) &&
		(rc = load_string(l, "model", model, "unk_token", &unk)) != 0))
		return rc;
	for (i = 0; fallback && i < 256; i++) {
		snprintf(name, sizeof(name), "<0x%02X>", i);
		if (load_id(l, name) >= 0)
			b->fallback[i] = (uint32_t)load_id(l, name);
	}
	if (unk != NULL && load_id(l, unk) >= 0)
		b->unk = (uint32_t)load_id(l, unk);
	else if (unk != NULL)
		b->unk_missing = 1;
	return 0;
}

/* Adds the merges that tables_cut() has read. */
static int
read_pairs(struct load *l)
{
	const struct tables *t = &l->tables;
	char *joined = NULL;
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < t->pairs; i++)
		rc = read_merge(l, i, t->pair[i].left, t->pair[i].right, &joined);
	free(joined);
	return rc;
}

/* Older files, with merges as texts, may begin like merges.txt, with "#version: 0.2". */
static int
is_comment(const json_t *merge)
{
	return json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0;
}

/* Adds the merges that tables_cut() has not read. */
static int
read_merges(struct load *l, json_t *merges)
{
	const char *left = NULL, *right = NULL;
	char *copy = NULL, *joined = NULL;
	json_t *merge;
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < json_array_size(merges); i++) {
		merge = json_array_get(merges, i);
		if (!is_comment(merge) &&
		    (rc = merge_parts(l, i, merge, &copy, &left, &right)) == 0)
			rc = read_merge(l, i, left, right, &joined);
	}
	free(copy);
	free(joined);
	return rc;
}

static int
read_tables(struct load *l, json_t *model, json_t *merges, json_t *added)
{
	uint32_t size;
	int rc;

	if ((rc = list_words(l)) != 0 || (rc = count_ids(l, added, &size)) != 0)
		return rc;
	if (vocab_init(&l->t->vocab, size, l->tables.words) != 0 ||
	    bpe_init(&l->t->bpe, json_array_size(merges) + l->tables.pairs) != 0)
		return load_no_memory(l);
	l->t->bpe.characters = !l->t->byte_level;
	l->t->cuts = !l->t->byte_level && load_id(l, META) >= 0;
	if ((rc = read_vocab(l)) == 0 && (rc = read_missing(l, model)) == 0 &&
	    (rc = read_pairs(l)) == 0)
		rc = read_merges(l, merges);
	sort_points(&l->t->joined);
	return rc;
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
	if ((rc = read_tables(l, model, merges, added)) != 0)
		return rc;
	return load_added(l, added);
}
