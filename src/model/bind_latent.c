/* bind_latent.c - the tensors of multi-head latent attention in a layer */
#include "model/bind_layer.h"
#include "model/safetensors.h"

#define KV_B "self_attn.kv_b_proj"
#define K_B "self_attn.k_b_proj"
#define V_B "self_attn.v_b_proj"
#define LATENT_EPS 1e-6f        /* of its norms, whatever rms_norm_eps says, as in transformers */

/* A bias of the latent vector and of the rotated key, which stand in one tensor */
static int
bind_key_bias(struct loader *ld, uint32_t l, struct latent_attention *a)
{
	const struct kv_model *id = &ld->m->id;
	char full[TENSOR_NAME];
	int rc;

	if (!id->attention_bias)
		return MODEL_OK;
	rc = bind_vector(ld, part_name(ld, l, "self_attn.kv_a_proj_with_mqa", ".bias", full),
	    id->head_width, &a->bc);
	if (rc == MODEL_OK && a->bc != NULL)
		a->br = a->bc + id->latent_rank;
	return rc;
}

static int
bind_latent_norm(struct loader *ld, uint32_t l, const char *name, uint32_t width,
    struct norm *norm)
{
	char full[TENSOR_NAME];
	int rc = bind_norm(ld, part_name(ld, l, name, "", full), width, norm);

	norm->eps = LATENT_EPS;
	return rc;
}

/* The tensor of a part of a layer; NULL: there is none */
static const struct tensor *
find(const struct loader *ld, uint32_t l, const char *part)
{
	char full[TENSOR_NAME];

	return find_part(ld, l, part, ".weight", full);
}

/* W_UK and W_UV in a tensor each, [H][rank][nope] and [H][value][rank], as GGUF files have them:
 * whatever their type, they are computed with as they are. */
static int
bind_apart(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct latent_attention *a = &ld->m->layer[l].latent;
	const struct tensor *k = find(ld, l, K_B), *v = find(ld, l, V_B), *both = find(ld, l, KV_B);
	const uint32_t H = id->query_heads;
	char full[TENSOR_NAME];
	int rc;

	if (k == NULL || v == NULL)
		return FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s",
		    part_name(ld, l, k == NULL ? K_B : V_B, ".weight", full));
	if (both != NULL)
		return FAIL(ld, MODEL_EINVALID, both->file, "%s and %s: the same matrix in two "
		    "forms", both->name, k->name);
	if ((rc = bind_tensor_of_all(ld, k, H, id->latent_rank, id->latent_nope, &a->wkv)) !=
	    MODEL_OK || (rc = bind_tensor_of_all(ld, v, H, id->latent_value, id->latent_rank,
	    &a->wv)) != MODEL_OK)
		return rc;
	a->uk = (struct head_matrices){ &a->wkv, H, id->latent_rank, 0, id->latent_rank };
	a->uv = (struct head_matrices){ &a->wv, H, id->latent_value, 0, id->latent_value };
	a->uk_exchanged = 1;
	return MODEL_OK;
}

static int
bind_key_values(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct latent_attention *a = &ld->m->layer[l].latent;
	const uint32_t H = id->query_heads, pair = id->latent_nope + id->latent_value;
	const struct part part = { KV_B, H * pair, id->latent_rank, &a->wkv, NULL };

	if (find(ld, l, K_B) != NULL || find(ld, l, V_B) != NULL)
		return bind_apart(ld, l);
	a->uk = (struct head_matrices){ &a->wkv, H, pair, 0, id->latent_nope };
	a->uv = (struct head_matrices){ &a->wkv, H, pair, id->latent_nope, id->latent_value };
	return bind_parts(ld, l, &part, 1);
}

int
bind_latent(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct model_layer *y = &ld->m->layer[l];
	struct latent_attention *a = &y->latent;
	const uint32_t D = id->hidden, H = id->query_heads, Q = ld->m->latent_query_rank;
	const uint32_t q = H * (id->latent_nope + id->rope_width);
	const int bias = id->attention_bias;
	const struct part parts[] = {
		{ "self_attn.q_a_proj", Q, D, &a->wq_a, bias ? &a->bq_a : NULL },
		{ Q != 0 ? "self_attn.q_b_proj" : "self_attn.q_proj", q, Q != 0 ? Q : D, &a->wq,
		    NULL },
		{ "self_attn.kv_a_proj_with_mqa", id->latent_rank, D, &a->wc, NULL },
		{ NULL, id->rope_width, D, &a->wr, NULL },
	}, out = { "self_attn.o_proj", D, H * id->latent_value, &y->wo, bias ? &y->bo : NULL };
	const size_t first = Q != 0 ? 0 : 1;
	int rc;

	if ((rc = bind_parts(ld, l, parts + first, 4 - first)) != MODEL_OK ||
	    (rc = bind_key_values(ld, l)) != MODEL_OK ||
	    (rc = bind_parts(ld, l, &out, 1)) != MODEL_OK ||
	    (rc = bind_key_bias(ld, l, a)) != MODEL_OK)
		return rc;
	if (Q != 0 && (rc = bind_latent_norm(ld, l, "self_attn.q_a_layernorm", Q, &a->q_norm)) !=
	    MODEL_OK)
		return rc;
	return bind_latent_norm(ld, l, "self_attn.kv_a_layernorm", id->latent_rank, &a->c_norm);
}
