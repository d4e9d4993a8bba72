/* gguf_chat.c - the chat templates of a GGUF file, and the tokens that they name */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/model.h"
#include "model/model_files.h"

#define TEMPLATE "tokenizer.chat_template"

struct reading {
	const struct gguf *g;
	json_t *json;
	char *err;
	size_t errlen;
};

#define FAIL(r, code, ...) model_file_fail((r)->err, (r)->errlen, code, (r)->g->path, __VA_ARGS__)

/* *out <- the text of a key; NULL: there is none */
static int
take_text(struct reading *r, const char *key, json_t **out)
{
	const char *text = NULL;
	size_t len;
	int rc = gguf_text(r->g, key, &text, &len, r->err, r->errlen);

	*out = NULL;
	if (rc != MODEL_OK || text == NULL)
		return rc;
	if ((*out = json_stringn(text, len)) == NULL)
		return FAIL(r, MODEL_EINVALID, "key %s is not UTF-8", key);
	return MODEL_OK;
}

/* Appends {"name": name, "template": text}; owns the text. */
static int
add_template(struct reading *r, json_t *list, const char *name, json_t *text)
{
	if (json_array_append_new(list, json_pack("{ss so}", "name", name, "template", text)) == 0)
		return MODEL_OK;
	return FAIL(r, MODEL_ENOMEM, "out of memory");
}

/* One template is a text; several are a list, the one without a name first. */
static int
take_templates(struct reading *r)
{
	const size_t n = sizeof TEMPLATE;
	json_t *list = json_array(), *text;
	const struct gguf_value *v;
	size_t i;
	int rc = take_text(r, TEMPLATE, &text);

	if (rc == MODEL_OK && text != NULL)
		rc = add_template(r, list, "default", text);
	for (i = 0; rc == MODEL_OK && i < r->g->values; i++) {
		v = &r->g->value[i];
		if (strncmp(v->key, TEMPLATE ".", n) == 0 && (rc = take_text(r, v->key, &text)) ==
		    MODEL_OK && text != NULL)
			rc = add_template(r, list, v->key + n, text);
	}
	if (rc == MODEL_OK && json_array_size(list) > 0 &&
	    json_object_set(r->json, "chat_template", list) != 0)
		rc = FAIL(r, MODEL_ENOMEM, "out of memory");
	json_decref(list);
	return rc;
}

/* name <- the text of the token with this task */
static int
take_token(struct reading *r, const struct gguf_value *tokens, const char *task, const char *name)
{
	uint64_t id = UINT64_MAX, i;
	const uint8_t *at = tokens->data;
	const char *text = NULL;
	char key[64];
	size_t len = 0;
	int rc;

	snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", task);
	if ((rc = gguf_whole(r->g, key, &id, r->err, r->errlen)) != MODEL_OK ||
	    id >= tokens->count)
		return rc;
	for (i = 0; i <= id; i++)
		text = gguf_next_text(&at, &len);
	if (memchr(text, '\0', len) == NULL)
		json_object_set_new(r->json, name, json_stringn(text, len));
	return MODEL_OK;
}

static int
take_tokens(struct reading *r)
{
	static const struct { const char *task, *name; } list[] = { { "bos", "bos_token" },
		{ "eos", "eos_token" }, { "unknown", "unk_token" }, { "padding", "pad_token" },
		{ "seperator", "sep_token" }, { "cls", "cls_token" }, { "mask", "mask_token" } };
	const struct gguf_value *tokens;
	size_t i;
	int rc = gguf_array(r->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, r->err, r->errlen);

	for (i = 0; rc == MODEL_OK && tokens != NULL && i < sizeof list / sizeof list[0]; i++)
		rc = take_token(r, tokens, list[i].task, list[i].name);
	return rc;
}

int
gguf_chat(const char *path, json_t **out, char *err, size_t errlen)
{
	struct reading r = { .err = err, .errlen = errlen };
	struct gguf *g;
	int rc = gguf_open_model(path, &g, err, errlen);

	*out = NULL;
	if (rc != MODEL_OK)
		return rc;
	r.g = g;
	r.json = json_object();
	if ((rc = take_templates(&r)) == MODEL_OK && (rc = take_tokens(&r)) == MODEL_OK)
		*out = r.json;
	else
		json_decref(r.json);
	gguf_close(g);
	return rc;
}
