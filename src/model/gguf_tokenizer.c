/* gguf_tokenizer.c - the tokenizer of a GGUF file, as its tokenizer.json would have it
 *
 * So one reader judges both (tokenizer/tokjson.c). What the file does not say: whether an added
 * token takes white space around it along (lstrip, rstrip), and whether one is normalised. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/gguf_vocabulary.h"
#include "model/model.h"
#include "model/model_files.h"

#define META "\xe2\x96\x81" /* U+2581, SentencePiece's space */
#define META_REPLACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, " \
	"\"content\": \"" META "\"}"
#define META_DECODE "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" META "\"}, " \
	"\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"

/* SentencePiece: with a space before each stretch of text, and without */
static const char prefix_normalizer[] = "{\"type\": \"Sequence\", \"normalizers\": "
	"[{\"type\": \"Prepend\", \"prepend\": \"" META "\"}, " META_REPLACE "]}";
static const char prefix_decoder[] = "{\"type\": \"Sequence\", \"decoders\": [" META_DECODE
	", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}";
static const char plain_normalizer[] = META_REPLACE;
static const char plain_decoder[] = "{\"type\": \"Sequence\", \"decoders\": [" META_DECODE "]}";
/* no space is left to split at: Gemma's files have it, and its fingerprint has */
static const char plain_pretokenizer[] = "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
	"\"behavior\": \"MergedWithPrevious\", \"invert\": false}";
static const char bytes_decoder[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
	"\"trim_offsets\": true, \"use_regex\": true}";

struct reading {
	const struct gguf *g;
	struct gguf_vocabulary v;
	json_t *root, *model, *vocab;   /* borrowed: root has the other two */
	int begins, ends;               /* BOS before a text, EOS behind it */
	uint64_t bos, eos;
	char *err;
	size_t errlen;
};

#define FAIL(r, code, ...) model_file_fail((r)->err, (r)->errlen, code, (r)->g->path, __VA_ARGS__)
#define BAD(r, ...) FAIL(r, MODEL_EINVALID, __VA_ARGS__)

static int
set(struct reading *r, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) == 0)
		return MODEL_OK;
	return FAIL(r, MODEL_ENOMEM, "out of memory");
}

static int
set_text(struct reading *r, const char *key, const char *json)
{
	return set(r, r->root, key, json_loads(json, 0, NULL));
}

/* ---- parts that both kinds have ---- */

/* vocab <- text -> id */
static int
make_vocab(struct reading *r)
{
	const struct gguf_token *t;
	const json_t *other;
	size_t i;
	int rc;

	if ((r->vocab = json_object()) == NULL)
		return FAIL(r, MODEL_ENOMEM, "out of memory");
	if ((rc = set(r, r->model, "vocab", r->vocab)) != MODEL_OK)
		return rc;
	for (i = 0; i < r->v.n; i++) {
		t = &r->v.token[i];
		if (t->len == 0)
			continue;
		if ((other = json_object_get(r->vocab, t->text)) != NULL)
			return BAD(r, "tokens %" JSON_INTEGER_FORMAT " and %zu are the same text",
			    json_integer_value(other), i);
		if (json_object_set_new(r->vocab, t->text, json_integer((json_int_t)i)) != 0)
			return BAD(r, "token %zu is not UTF-8", i);
	}
	return MODEL_OK;
}

/* Phi-3's tokens of a conversation take white space behind them along. */
static int
takes_space(const struct reading *r, const struct gguf_token *t)
{
	const char *arch = "";
	size_t len = 0;

	(void)gguf_text(r->g, "general.architecture", &arch, &len, r->err, r->errlen);
	return r->v.has_scores && len == 4 && memcmp(arch, "phi3", len) == 0 &&
	    t->type == GGUF_CONTROL && strcmp(t->text, "<s>") != 0 &&
	    strcmp(t->text, "<|endoftext|>") != 0;
}

/* Tokens that are found before a text is split; special ones only where they are markup */
static int
make_added(struct reading *r)
{
	json_t *list = json_array(), *one;
	const struct gguf_token *t;
	int special;
	size_t i;

	if (set(r, r->root, "added_tokens", list) != MODEL_OK)
		return MODEL_ENOMEM;
	for (i = 0; i < r->v.n; i++) {
		t = &r->v.token[i];
		if (t->len == 0 || (t->type != GGUF_UNKNOWN && t->type != GGUF_CONTROL &&
		    t->type != GGUF_USER_DEFINED))
			continue;
		special = t->type != GGUF_USER_DEFINED;
		one = json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)i, "content", t->text,
		    "special", special, "normalized", 0, "lstrip", 0, "rstrip", takes_space(r, t),
		    "single_word", 0);
		if (json_array_append_new(list, one) != 0)
			return FAIL(r, MODEL_ENOMEM, "out of memory");
	}
	return MODEL_OK;
}

static int
read_flags(struct reading *r)
{
	int rc;

	r->bos = r->eos = UINT64_MAX;
	if (r->v.has_scores) {          /* SentencePiece's numbers */
		r->bos = 1;
		r->eos = 2;
	}
	if ((rc = gguf_flag(r->g, "tokenizer.ggml.add_bos_token", &r->begins, r->err, r->errlen)) !=
	    MODEL_OK || (rc = gguf_flag(r->g, "tokenizer.ggml.add_eos_token", &r->ends, r->err,
	    r->errlen)) != MODEL_OK ||
	    (rc = gguf_special(r->g, "bos", r->v.n, &r->bos, r->err, r->errlen)) != MODEL_OK ||
	    (rc = gguf_special(r->g, "eos", r->v.n, &r->eos, r->err, r->errlen)) != MODEL_OK)
		return rc;
	if ((r->begins && r->bos >= r->v.n) || (r->ends && r->eos >= r->v.n))
		return BAD(r, "key tokenizer.ggml.add_%s_token is set, and there is no such token",
		    r->begins && r->bos >= r->v.n ? "bos" : "eos");
	return MODEL_OK;
}

static json_t *
special_piece(const char *name)
{
	return json_pack("{s{ss si}}", "SpecialToken", "id", name, "type_id", 0);
}

/* post_processor: the tokens around a text */
static int
make_template(struct reading *r)
{
	json_t *single, *special;
	int rc = read_flags(r);

	if (rc != MODEL_OK || (!r->begins && !r->ends))
		return rc;
	single = json_array();
	special = json_object();
	if (r->begins && json_array_append_new(single, special_piece("bos")) != 0)
		rc = MODEL_ENOMEM;
	if (json_array_append_new(single, json_pack("{s{ss si}}", "Sequence", "id", "A", "type_id",
	    0)) != 0 || (r->ends && json_array_append_new(single, special_piece("eos")) != 0))
		rc = MODEL_ENOMEM;
	if ((r->begins && json_object_set_new(special, "bos", json_pack("{s[I]}", "ids",
	    (json_int_t)r->bos)) != 0) || (r->ends && json_object_set_new(special, "eos",
	    json_pack("{s[I]}", "ids", (json_int_t)r->eos)) != 0))
		rc = MODEL_ENOMEM;
	if (rc == MODEL_OK)
		return set(r, r->root, "post_processor", json_pack("{ss so so}", "type",
		    "TemplateProcessing", "single", single, "special_tokens", special));
	json_decref(single);
	json_decref(special);
	return FAIL(r, rc, "out of memory");
}

/* ---- byte pair encoding of bytes ---- */

static int
make_listed_merges(struct reading *r)
{
	const struct gguf_value *v;
	json_t *list;
	const uint8_t *at;
	const char *text;
	uint64_t i;
	size_t len;
	int rc = gguf_array(r->g, "tokenizer.ggml.merges", GGUF_STRING, &v, r->err, r->errlen);

	if (rc != MODEL_OK)
		return rc;
	if (v == NULL)
		return BAD(r, "no key tokenizer.ggml.merges");
	list = json_array();
	if ((rc = set(r, r->model, "merges", list)) != MODEL_OK)
		return rc;
	for (i = 0, at = v->data; i < v->count; i++) {
		text = gguf_next_text(&at, &len);
		if (memchr(text, '\0', len) != NULL ||
		    json_array_append_new(list, json_stringn(text, len)) != 0)
			return BAD(r, "merge %" PRIu64 " is not UTF-8, or has a zero byte", i);
	}
	return MODEL_OK;
}

static int
make_bytes(struct reading *r)
{
	const char *name = "default";
	size_t len = strlen(name);
	int nfc, ignore_merges, rc;
	char pre[64] = "";
	json_t *steps;

	if ((rc = gguf_text(r->g, "tokenizer.ggml.pre", &name, &len, r->err, r->errlen)) !=
	    MODEL_OK)
		return rc;
	if (len < sizeof pre)
		memcpy(pre, name, len);
	if ((steps = gguf_pretokenizer(pre, &nfc, &ignore_merges, &r->begins)) == NULL)
		return FAIL(r, MODEL_EUNSUPPORTED, "tokenizer.ggml.pre \"%.*s\" is not supported: "
		    "how it splits texts is not known here", len < 64 ? (int)len : 64, name);
	if ((rc = set(r, r->root, "pre_tokenizer", steps)) != MODEL_OK ||
	    (nfc && (rc = set_text(r, "normalizer", "{\"type\": \"NFC\"}")) != MODEL_OK) ||
	    (rc = set_text(r, "decoder", bytes_decoder)) != MODEL_OK ||
	    (rc = set(r, r->model, "ignore_merges", json_boolean(ignore_merges))) != MODEL_OK)
		return rc;
	return make_listed_merges(r);
}

/* ---- SentencePiece ---- */

static int
make_scored_merges(struct reading *r)
{
	json_t *merges;
	const int rc = gguf_merges(&r->v, r->vocab, &merges);

	if (rc > 0)
		return FAIL(r, MODEL_EUNSUPPORTED, "%zu tokens have more ways to be cut in two "
		    "tokens than those of models", r->v.n);
	if (rc < 0)
		return FAIL(r, MODEL_ENOMEM, "out of memory");
	return set(r, r->model, "merges", merges);
}

static int
make_pieces(struct reading *r)
{
	int prefix = 1, rc;
	size_t i;

	r->begins = 1;
	if (!r->v.has_scores)
		return BAD(r, "no key tokenizer.ggml.scores");
	if ((rc = gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &prefix, r->err,
	    r->errlen)) != MODEL_OK ||
	    (rc = set_text(r, "normalizer", prefix ? prefix_normalizer : plain_normalizer)) !=
	    MODEL_OK || (rc = set_text(r, "decoder", prefix ? prefix_decoder : plain_decoder)) !=
	    MODEL_OK || (!prefix &&
	    (rc = set_text(r, "pre_tokenizer", plain_pretokenizer)) != MODEL_OK) ||
	    (rc = set(r, r->model, "byte_fallback", json_true())) != MODEL_OK ||
	    (rc = set(r, r->model, "fuse_unk", json_true())) != MODEL_OK)
		return rc;
	for (i = 0; i < r->v.n; i++)
		if (r->v.token[i].type == GGUF_UNKNOWN && r->v.token[i].len > 0)
			return (rc = set(r, r->model, "unk_token",
			    json_string(r->v.token[i].text))) != MODEL_OK ? rc :
			    make_scored_merges(r);
	return make_scored_merges(r);
}

/* ---- all ---- */

/* *pieces <- SentencePiece's kind of vocabulary */
static int
read_kind(struct reading *r, int *pieces)
{
	const char *name = NULL;
	size_t len = 0;
	int rc = gguf_text(r->g, "tokenizer.ggml.model", &name, &len, r->err, r->errlen);

	if (rc != MODEL_OK)
		return rc;
	if (name == NULL || (len == 4 && memcmp(name, "none", len) == 0) ||
	    (len == 8 && memcmp(name, "no_vocab", len) == 0))
		return FAIL(r, MODEL_EIO, "no tokenizer in this file (tokenizer.ggml.model)");
	*pieces = len == 5 && memcmp(name, "llama", len) == 0;
	if (!*pieces && (len != 4 || memcmp(name, "gpt2", len) != 0))
		return FAIL(r, MODEL_EUNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not "
		    "supported: want \"gpt2\" or \"llama\"", len < 64 ? (int)len : 64, name);
	return MODEL_OK;
}

static int
read_all(struct reading *r)
{
	int pieces = 0, rc;

	if ((rc = read_kind(r, &pieces)) != MODEL_OK ||
	    (rc = gguf_vocabulary(r->g, pieces, &r->v, r->err, r->errlen)) != MODEL_OK ||
	    (rc = set(r, r->root, "version", json_string("1.0"))) != MODEL_OK)
		return rc;
	r->v.has_scores = pieces && r->v.has_scores;
	r->model = json_pack("{ss}", "type", "BPE");
	if ((rc = set(r, r->root, "model", r->model)) != MODEL_OK || (rc = make_vocab(r)) !=
	    MODEL_OK || (rc = make_added(r)) != MODEL_OK ||
	    (rc = pieces ? make_pieces(r) : make_bytes(r)) != MODEL_OK)
		return rc;
	return make_template(r);
}

int
gguf_tokenizer(const char *path, json_t **out, char *err, size_t errlen)
{
	struct reading r = { .err = err, .errlen = errlen };
	struct gguf *g;
	int rc = gguf_open_model(path, &g, err, errlen);

	*out = NULL;
	if (rc != MODEL_OK)
		return rc;
	r.g = g;
	r.root = json_object();
	rc = r.root != NULL ? read_all(&r) : FAIL(&r, MODEL_ENOMEM, "out of memory");
	gguf_vocabulary_free(&r.v);
	gguf_close(g);
	if (rc == MODEL_OK)
		*out = r.root;
	else
		json_decref(r.root);
	return rc;
}
