/* codec_headkeys.c - the keys of a retrieval head: rHDk (4.19) */

#include "codec.h"
#include "layout.h"
#include "reader.h"
#include "writer.h"

int
kv_load_head_keys(struct kv_reader *r, struct kv_head_keys *k)
{
	const void *data;
	const uint8_t *p;
	int code = kv_load_kind(r, KV_RHDK, "kv_load_head_keys", &data);

	*k = (struct kv_head_keys){ .n = 0 };
	if (code != KV_OK)
		return code;
	p = data;
	memcpy(k->id, p + HEAD_KEYS_ID, KV_HEAD_ID);
	k->heads = get32(p + HEAD_KEYS_HEADS);
	k->width = get32(p + HEAD_KEYS_WIDTH);
	k->n = get32(p + HEAD_KEYS_ROWS);
	k->n_feature = get32(p + HEAD_KEYS_FEATURES);
	k->feature = (const void *)(p + HEAD_KEYS_FEATURE);
	k->key = p + head_keys_data(k->n_feature);
	return KV_OK;
}

int
kv_write_head_keys(struct kv_writer *w, const struct kv_head_keys *k)
{
	const size_t element = kv_dtype_size(kv_writer_head(w)->dtype);
	const size_t features = k->n_feature * sizeof *k->feature;
	const uint8_t fill[64] = { 0 };
	uint8_t front[HEAD_KEYS_FEATURE] = { 0 };
	const struct kv_span spans[] = { { front, sizeof front }, { k->feature, features },
	    { fill, (size_t)head_keys_data(k->n_feature) - HEAD_KEYS_FEATURE - features },
	    { k->key, (size_t)k->heads * k->n * k->width * element } };

	if (strlen(k->id) != KV_HEAD_ID)
		return kv_writer_refuse(w, KV_RHDK, KV_NO_LAYER, "the head has no name of its own");
	memcpy(front + HEAD_KEYS_ID, k->id, KV_HEAD_ID);
	put32(front + HEAD_KEYS_HEADS, k->heads);
	put32(front + HEAD_KEYS_WIDTH, k->width);
	put32(front + HEAD_KEYS_ROWS, k->n);
	put32(front + HEAD_KEYS_FEATURES, k->n_feature);
	return kv_write(w, kv_kind_type(KV_RHDK), KV_NO_LAYER, (unsigned)element, spans, 4);
}
