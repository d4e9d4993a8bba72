/* config_latent.c - multi-head latent attention (DeepSeek-V2, 2024): its widths, and by what
 * logits are divided */
#include <math.h>
#include <string.h>

#include "model/config_internal.h"

/* transformers has numbers of its own for DeepSeek-V3 and its like where these are absent, which no
 * file that was published leaves to it. */
static int
need_router(struct config *c, uint32_t layers)
{
	static const char *const keys[] = { "n_group", "topk_group", "routed_scaling_factor" };
	const json_t *dense = config_get(c->json, "first_k_dense_replace");
	size_t i;

	if (json_integer_value(dense) >= layers ||      /* there are no experts */
	    c->family->experts == NULL || c->family->experts->scores != ROUTER_SIGMOID)
		return MODEL_OK;
	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (config_get(c->json, keys[i]) == NULL)
			return BAD(c, "no \"%s\"", keys[i]);
	return MODEL_OK;
}

/* Files of DeepSeek's own leave to transformers what is as in its first model of the kind. */
static int
is_deepseek(const struct config *c)
{
	return strncmp(c->family->type, "deepseek_", 9) == 0;
}

/* Queries without a narrow vector of their own where q_lora_rank is null (V2-Lite) */
static int
read_query_rank(struct config *c, struct model *m)
{
	const json_t *rank = json_object_get(c->json, "q_lora_rank");

	m->latent_query_rank = 0;
	if (rank != NULL && json_is_null(rank))
		return MODEL_OK;
	return config_count(c, c->json, "q_lora_rank", 1 << 24, is_deepseek(c) ? 1536 : REQUIRED,
	    &m->latent_query_rank);
}

/* Which channels rotary embedding rotates together */
static int
read_order(struct config *c, struct model *m)
{
	const int adjacent = (c->family->flags & FAMILY_ADJACENT) != 0;
	const int either = c->family->experts != NULL &&
	    c->family->experts->scores == ROUTER_SIGMOID;       /* from DeepSeek-V3 on */
	int rc;

	m->latent_adjacent = adjacent;
	if ((rc = config_flag(c, c->json, "rope_interleave", &m->latent_adjacent)) != MODEL_OK)
		return rc;
	if (m->latent_adjacent != adjacent && !either)
		return config_hint(c, "rope_interleave", UNSUPPORTED(c, "rope_interleave %s: "
		    "%s rotates channels that stand side by side%s", adjacent ? "false" : "true",
		    c->family->type, adjacent ? "" : " in two halves"));
	return MODEL_OK;
}

/* The widths of a head */
static int
read_widths(struct config *c, struct kv_model *id)
{
	const int old = is_deepseek(c);
	uint32_t value = old ? 128 : REQUIRED;
	int rc;

	/* MiniCPM3 */
	if (c->family->experts == NULL && id->hidden % id->query_heads == 0)
		value = id->hidden / id->query_heads;
	if ((rc = config_count(c, c->json, "kv_lora_rank", 1022, old ? 512 : REQUIRED,
	    &id->latent_rank)) != MODEL_OK ||
	    (rc = config_count(c, c->json, "qk_nope_head_dim", 1024, old ? 128 : REQUIRED,
	    &id->latent_nope)) != MODEL_OK ||
	    (rc = config_count(c, c->json, "v_head_dim", 1024, value, &id->latent_value)) !=
	    MODEL_OK)
		return rc;
	return config_count(c, c->json, "qk_rope_head_dim", 1022, old ? 64 : REQUIRED,
	    &id->rope_width);
}

int
config_latent(struct config *c, struct model *m)
{
	struct kv_model *id = &m->id;
	int rc;

	if ((rc = read_widths(c, id)) != MODEL_OK || (rc = read_query_rank(c, m)) != MODEL_OK ||
	    (rc = read_order(c, m)) != MODEL_OK)
		return rc;
	id->kv_heads = 1;
	id->head_width = id->latent_rank + id->rope_width;
	if (id->rope_width % 2 != 0)
		return BAD(c, "qk_rope_head_dim %u is odd: rotary embedding rotates pairs",
		    id->rope_width);
	if (id->head_width > 1024 || id->latent_nope + id->rope_width > 1024)
		return UNSUPPORTED(c, "kv_lora_rank %u and qk_rope_head_dim %u make up rows of %u, "
		    "qk_nope_head_dim %u queries of %u: at most 1024", id->latent_rank,
		    id->rope_width, id->head_width, id->latent_nope,
		    id->latent_nope + id->rope_width);
	return need_router(c, id->layers);
}

/* The object that rotary embedding was read from */
static const json_t *
scaling_of(const struct config *c)
{
	const json_t *rope = config_get(c->json, "rope_parameters");

	return rope != NULL ? rope : config_get(c->json, "rope_scaling");
}

/* transformers multiplies the scale by the square of what yarn would lengthen all of a key by. */
int
config_latent_scale(struct config *c, struct model *m)
{
	const struct kv_model *id = &m->id;
	double all = 0, scale = 1 / sqrt(id->latent_nope + id->rope_width), by = 1;
	int rc = MODEL_OK;

	if (id->rope_type == KV_ROPE_YARN &&
	    !config_has(json_object_get(scaling_of(c), "mscale_all_dim"), "0"))
		rc = config_real(c, scaling_of(c), "mscale_all_dim", 1e-6, 1e6, &all);
	if (all != 0 && id->rope_factor > 1)
		by = 0.1 * all * log(id->rope_factor) + 1;
	config_scale_queries(m, scale * by * by);
	return rc;
}
