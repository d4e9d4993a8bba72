/* codec_values.c - tokens, logits, and values of rows: TOKS, LGTS, mASS, pAID, vNRM,
 * gATE, nCAU, sCOR */

#include "codec.h"
#include "reader.h"
#include "writer.h"

uint64_t
kv_token_count(const struct kv_section *sec)
{
	return sec->raw_size / 4;
}

int
kv_load_tokens(struct kv_reader *r, struct kv_tokens *tokens)
{
	const void *data;
	int code = kv_load_kind(r, KV_TOKS, "kv_load_tokens", &data);

	*tokens = (struct kv_tokens){ 0 };
	if (code == KV_OK)
		*tokens = (struct kv_tokens){ r->h.raw_size / 4, data };
	return code;
}

int
kv_write_tokens(struct kv_writer *w, const struct kv_tokens *tokens)
{
	struct kv_span span = { tokens->id, (size_t)tokens->n * 4 };

	return kv_write(w, kv_kind_type(KV_TOKS), KV_NO_LAYER, 1, &span, 1);
}

int
kv_load_logits(struct kv_reader *r, const float **logits)
{
	const void *data;
	int code = kv_load_kind(r, KV_LGTS, "kv_load_logits", &data);

	*logits = code == KV_OK ? data : NULL;
	return code;
}

int
kv_write_logits(struct kv_writer *w, const float *logits)
{
	struct kv_span span = { logits, kv_writer_head(w)->model.vocabulary * sizeof *logits };

	return kv_write(w, kv_kind_type(KV_LGTS), KV_NO_LAYER, sizeof *logits, &span, 1);
}

/* Returns the bytes before the values. */
static size_t
label_size(enum kv_kind kind)
{
	return kind == KV_MASS ? 0 : KV_SCORE_LABEL;
}

static int
has_values(enum kv_kind kind)
{
	return kv_kind_is(kind, KV_PER_ROW) || kind == KV_SCOR;
}

uint32_t
kv_values_lists(enum kv_kind kind, const struct kv_model *m)
{
	const int one = kind == KV_GATE || kind == KV_NCAU || kind == KV_SCOR;

	return one ? 1 : m->query_heads / m->kv_heads;
}

int
kv_load_values(struct kv_reader *r, struct kv_values *v)
{
	enum kv_kind kind = has_values(r->h.kind) ? r->h.kind : KV_SCOR;
	const size_t label = label_size(kind);
	const void *data;
	int code = kv_load_kind(r, kind, "kv_load_values", &data);

	*v = (struct kv_values){ 0 };
	if (code != KV_OK)
		return code;
	v->label = label > 0 ? data : NULL;
	v->n = (r->h.raw_size - label) / sizeof *v->value;
	if (data != NULL)
		v->value = (const void *)((const char *)data + label);
	return KV_OK;
}

int
kv_write_values(struct kv_writer *w, enum kv_kind kind, uint32_t layer, const struct kv_values *v)
{
	char label[KV_SCORE_LABEL] = "";
	struct kv_span spans[] = { { label, label_size(kind) },
	    { v->value, (size_t)v->n * sizeof *v->value } };

	if (!has_values(kind))
		return kv_writer_refuse(w, kind, layer, "has no values of rows");
	if ((v->label == NULL) != (label_size(kind) == 0))
		return kv_writer_refuse(w, kind, layer, "a label, or none, against the format");
	if (v->label != NULL && strlen(v->label) >= sizeof label)
		return kv_writer_refuse(w, kind, layer, "the label is too long");
	if (v->label != NULL)
		strcpy(label, v->label);
	return kv_write(w, kv_kind_type(kind), layer, sizeof *v->value, spans, 2);
}
