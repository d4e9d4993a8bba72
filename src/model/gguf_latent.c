/* gguf_latent.c - multi-head latent attention of a GGUF file, as config.json of DeepSeek V2 and V3
 * has it
 *
 * Files have it in two forms. The old one has widths of a head in key_length and value_length, and
 * one matrix for keys and values (attn_kv_b). The new one has rows of the cache there, as llama.cpp
 * computes with them, the widths of a head in key_length_mla and value_length_mla, and two matrices
 * (attn_k_b, attn_v_b), of which bind_latent.c knows. */
#include <inttypes.h>

#include "model/gguf_config_internal.h"

struct widths {
	uint64_t rank, query_rank, rope, key, value;    /* of the latent vectors and of a head */
};

/* A width that must be there */
static int
need(struct gguf_reading *c, const char *name, uint64_t *out)
{
	int rc = gguf_arch_whole(c, name, out);

	if (rc == MODEL_OK && *out == 0)
		return BAD(c, "no key %s", gguf_key(c, name));
	return rc;
}

/* A row of the cache is what this key says that it is. */
static int
check_row(struct gguf_reading *c, const char *name, uint64_t is, uint64_t want)
{
	if (is == want)
		return MODEL_OK;
	return BAD(c, "key %s is %" PRIu64 ", and rows of the cache have %" PRIu64 " channels "
	    "there", gguf_key(c, name), is, want);
}

static int
read_widths(struct gguf_reading *c, struct widths *w)
{
	uint64_t key = 0, value = 0, key_mla = 0, value_mla = 0;
	int rc;

	*w = (struct widths){ 0 };
	if ((rc = need(c, "attention.kv_lora_rank", &w->rank)) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "attention.q_lora_rank", &w->query_rank)) != MODEL_OK ||
	    (rc = need(c, "rope.dimension_count", &w->rope)) != MODEL_OK ||
	    (rc = need(c, "attention.key_length", &key)) != MODEL_OK ||
	    (rc = need(c, "attention.value_length", &value)) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "attention.key_length_mla", &key_mla)) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "attention.value_length_mla", &value_mla)) != MODEL_OK)
		return rc;
	if (key_mla == 0 && value_mla == 0) {
		w->key = key;
		w->value = value;
		return MODEL_OK;
	}
	if ((rc = need(c, "attention.key_length_mla", &w->key)) != MODEL_OK ||
	    (rc = need(c, "attention.value_length_mla", &w->value)) != MODEL_OK ||
	    (rc = check_row(c, "attention.key_length", key, w->rank + w->rope)) != MODEL_OK)
		return rc;
	return check_row(c, "attention.value_length", value, w->rank);
}

int
gguf_latent(struct gguf_reading *c, uint64_t *rope)
{
	struct widths w;
	int rc = read_widths(c, &w);

	if (rc != MODEL_OK)
		return rc;
	if (w.key <= w.rope)
		return BAD(c, "key %s is %" PRIu64 ", of which %" PRIu64 " channels are rotated: "
		    "others have to be left", gguf_key(c, gguf_find(c->g, gguf_key(c,
		    "attention.key_length_mla")) != NULL ? "attention.key_length_mla" :
		    "attention.key_length"), w.key, w.rope);
	*rope = w.rope;
	if ((rc = gguf_set_whole(c, "kv_lora_rank", w.rank)) != MODEL_OK ||
	    (rc = gguf_set_whole(c, "qk_rope_head_dim", w.rope)) != MODEL_OK ||
	    (rc = gguf_set_whole(c, "qk_nope_head_dim", w.key - w.rope)) != MODEL_OK ||
	    (rc = gguf_set_whole(c, "v_head_dim", w.value)) != MODEL_OK)
		return rc;
	return w.query_rank > 0 ? gguf_set_whole(c, "q_lora_rank", w.query_rank) :
	    gguf_set(c, c->json, "q_lora_rank", json_null());
}
