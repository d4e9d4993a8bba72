/* config_scale.c - numbers that a family multiplies by, or that bound what it computes */
#include <math.h>

#include "model/config_internal.h"

/* A multiplier of the family; *id stays 0 where it is 1. */
static int
read_multiplier(struct config *c, const char *key, double *id, float *scale)
{
	double v = 1;
	int rc = config_real(c, c->json, key, 1e-6, 1e6, &v);

	*id = v == 1 ? 0 : v;
	*scale = (float)v;
	return rc;
}

/* Attention takes q.k/sqrt(E): another factor is multiplied into the queries. */
void
config_scale_queries(struct model *m, double attention)
{
	m->query_scale = (float)(attention * sqrt(m->id.head_width));
	if (m->query_scale != 1)
		m->id.attention_multiplier = attention;
}

static int
read_granite(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	double attention = 1;
	int rc;

	if ((rc = read_multiplier(c, "embedding_multiplier", &id->embedding_multiplier,
	    &m->embedding_scale)) != MODEL_OK ||
	    (rc = read_multiplier(c, "residual_multiplier", &id->residual_multiplier,
	    &m->residual_scale)) != MODEL_OK ||
	    (rc = read_multiplier(c, "logits_scaling", &id->logits_scaling, &m->logits_scale)) !=
	    MODEL_OK || (rc = config_real(c, c->json, "attention_multiplier", 1e-6, 1e6,
	    &attention)) != MODEL_OK)
		return rc;
	m->logits_scale = 1 / m->logits_scale;
	config_scale_queries(m, attention);
	return MODEL_OK;
}

/* MiniCPM's, whose files have all three: of embeddings; of what layers add, by the number of
 * layers; and of logits, by the width. */
static int
read_depth_scales(struct config *c, struct model *m)
{
	static const char *const keys[] = { "scale_emb", "scale_depth", "dim_model_base" };
	struct kv_model *id = &m->id;
	double embedding = 1, depth = 1, base = 1;
	size_t i;
	int rc;

	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (config_get(c->json, keys[i]) == NULL)
			return BAD(c, "no \"%s\"", keys[i]);
	if ((rc = config_real(c, c->json, keys[0], 1e-6, 1e6, &embedding)) != MODEL_OK ||
	    (rc = config_real(c, c->json, keys[1], 1e-6, 1e6, &depth)) != MODEL_OK ||
	    (rc = config_real(c, c->json, keys[2], 1, 1 << 24, &base)) != MODEL_OK)
		return rc;
	depth /= sqrt(id->layers);
	m->embedding_scale = (float)embedding;
	m->residual_scale = (float)depth;
	m->logits_scale = (float)(base / id->hidden);
	id->embedding_multiplier = embedding == 1 ? 0 : embedding;
	id->residual_multiplier = depth == 1 ? 0 : depth;
	id->logits_scaling = base == id->hidden ? 0 : id->hidden / base;
	return MODEL_OK;
}

/* Queries are divided by the root of a number of their own (Gemma 2). */
static int
read_query_scalar(struct config *c, struct model *m)
{
	double scalar = 256;
	int rc = config_real(c, c->json, "query_pre_attn_scalar", 1e-6, 1e6, &scalar);

	config_scale_queries(m, 1 / sqrt(scalar));
	return rc;
}

/* Logits are multiplied by it (Command R); the identity has what they are divided by. */
static int
read_logit_scale(struct config *c, struct model *m)
{
	double scale = 0.0625;
	int rc = config_real(c, c->json, "logit_scale", 1e-6, 1e6, &scale);

	m->logits_scale = (float)scale;
	m->id.logits_scaling = scale == 1 ? 0 : 1 / scale;
	return rc;
}

/* Where the key is absent the family's; null: none */
static int
read_softcap(struct config *c, const char *key, double otherwise, double *cap)
{
	*cap = json_object_get(c->json, key) == NULL ? otherwise : 0;
	return config_real(c, c->json, key, 1e-3, 1e6, cap);
}

int
config_multipliers(struct config *c, struct model *m)
{
	const unsigned flags = c->family->flags;
	double clip = 0;
	int rc;

	m->embedding_scale = m->query_scale = m->residual_scale = m->logits_scale = 1;
	m->id.attention_sinks = c->family->names->sinks != NULL;
	if ((flags & FAMILY_CLIP) &&
	    (rc = config_real(c, c->json, "clip_qkv", 1e-6, 1e6, &clip)) != MODEL_OK)
		return rc;
	m->clip = (float)clip;
	if (flags & FAMILY_MULTIPLIERS)
		return read_granite(c, m);
	if (flags & FAMILY_DEPTH_SCALES)
		return read_depth_scales(c, m);
	if ((flags & FAMILY_LOGIT_SCALE) && (rc = read_logit_scale(c, m)) != MODEL_OK)
		return rc;
	if ((flags & FAMILY_QUERY_SCALAR) && (rc = read_query_scalar(c, m)) != MODEL_OK)
		return rc;
	if (!(flags & FAMILY_SOFTCAPS))
		return MODEL_OK;
	if ((rc = read_softcap(c, "attn_logit_softcapping", c->family->attention_softcap,
	    &m->id.attention_softcap)) != MODEL_OK)
		return rc;
	return read_softcap(c, "final_logit_softcapping", c->family->logits_softcap,
	    &m->id.logits_softcap);
}
