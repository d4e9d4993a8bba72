/* bind_latent.c - the tensors of multi-head latent attention in a layer */
#include "model/bind_layer.h"

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

int
bind_latent(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct model_layer *y = &ld->m->layer[l];
	struct latent_attention *a = &y->latent;
	const uint32_t D = id->hidden, H = id->query_heads, Q = ld->m->latent_query_rank;
	const uint32_t q = H * (id->latent_nope + id->rope_width);
	const uint32_t pair = id->latent_nope + id->latent_value;
	const int bias = id->attention_bias;
	const struct part parts[] = {
		{ "self_attn.q_a_proj", Q, D, &a->wq_a, bias ? &a->bq_a : NULL },
		{ Q != 0 ? "self_attn.q_b_proj" : "self_attn.q_proj", q, Q != 0 ? Q : D, &a->wq,
		    NULL },
		{ "self_attn.kv_a_proj_with_mqa", id->latent_rank, D, &a->wc, NULL },
		{ NULL, id->rope_width, D, &a->wr, NULL },
		{ "self_attn.kv_b_proj", H * pair, id->latent_rank, &a->wkv, NULL },
		{ "self_attn.o_proj", D, H * id->latent_value, &y->wo, bias ? &y->bo : NULL },
	};
	const size_t first = Q != 0 ? 0 : 1;
	int rc;

	if (ld->m->ops->head_products == NULL)
		return FAIL(ld, MODEL_EUNSUPPORTED, ld->m->dir, "multi-head latent attention: a "
		    "GPU has no kernels for it (--device cpu computes it)");
	if ((rc = bind_parts(ld, l, parts + first, 6 - first)) != MODEL_OK ||
	    (rc = bind_key_bias(ld, l, a)) != MODEL_OK)
		return rc;
	a->uk = (struct head_matrices){ &a->wkv, H, pair, 0, id->latent_nope };
	a->uv = (struct head_matrices){ &a->wkv, H, pair, id->latent_nope, id->latent_value };
	if (Q != 0 && (rc = bind_latent_norm(ld, l, "self_attn.q_a_layernorm", Q, &a->q_norm)) !=
	    MODEL_OK)
		return rc;
	return bind_latent_norm(ld, l, "self_attn.kv_a_layernorm", id->latent_rank, &a->c_norm);
}
