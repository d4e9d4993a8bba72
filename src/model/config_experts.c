/* config_experts.c - the mixture of experts of a configuration: which layers have one, its shape,
 * and how the router chooses
 *
 * Families that have experts only: in others these keys are unknown ones (config_keys.c). */
#include <string.h>

#include "model/config_internal.h"

/* Keys that are understood, in families that have all of these flags; and those that change
 * nothing here */
static const struct { const char *name; unsigned flags; } keys[] = {
	{ "num_experts", 0 }, { "num_experts_per_tok", 0 },
	{ "moe_intermediate_size", EXPERTS_WIDTH }, { "norm_topk_prob", EXPERTS_NORM },
	{ "decoder_sparse_step", EXPERTS_STEP }, { "mlp_only_layers", EXPERTS_STEP },
	{ "first_k_dense_replace", EXPERTS_FIRST }, { "moe_layer_freq", EXPERTS_FIRST },
	{ "n_group", EXPERTS_GROUPS }, { "topk_group", EXPERTS_GROUPS },
	{ "routed_scaling_factor", EXPERTS_SCALE }, { "n_shared_experts", EXPERTS_SHARED },
	{ "shared_expert_intermediate_size", EXPERTS_SHARED_WIDTH },
	{ "topk_method", EXPERTS_METHOD }, { "scoring_func", EXPERTS_METHOD },
	{ "num_nextn_predict_layers", EXPERTS_METHOD }, { "num_mtp_layers", EXPERTS_METHOD },
	{ "mlp_layer_types", EXPERTS_TYPES },
	{ "swiglu_limit", EXPERTS_CLAMPED }, { "swiglu_alpha", EXPERTS_CLAMPED },
	{ "initial_context_length", EXPERTS_CLAMPED },     /* of training */
	{ "moe_layer_start_index", EXPERTS_RANGE }, { "moe_layer_end_index", EXPERTS_RANGE },
	{ "moe_layer_interval", EXPERTS_RANGE }, { "moe_norm_min", EXPERTS_RANGE },
	/* training, and how it is spread over machines */
	{ "output_router_logits", 0 }, { "router_jitter_noise", 0 }, { "input_jitter_noise", 0 },
	{ "aux_loss_alpha", 0 }, { "seq_aux", 0 }, { "ep_size", 0 },
};

int
config_experts_key(const struct config *c, const char *name)
{
	const struct family_experts *x = c->family->experts;
	size_t i;

	for (i = 0; x != NULL && i < sizeof keys / sizeof keys[0]; i++)
		if (strcmp(keys[i].name, name) == 0)
			return (x->flags & keys[i].flags) == keys[i].flags;
	return 0;
}

/* A whole number that may be 0; fallback where it is absent. */
static int
read_whole(struct config *c, const char *key, uint32_t max, uint32_t fallback, uint32_t *out)
{
	const json_t *v = config_get(c->json, key);

	if (v != NULL && json_is_integer(v) && json_integer_value(v) == 0) {
		*out = 0;
		return MODEL_OK;
	}
	return config_count(c, c->json, key, max, fallback, out);
}

/* ---- which layers ---- */

/* Is l in the list of layers? */
static int
is_listed(const json_t *list, uint32_t l)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		if (json_is_integer(json_array_get(list, i)) &&
		    json_integer_value(json_array_get(list, i)) == l)
			return 1;
	return 0;
}

/* moe_layer_freq is a number, or a list with a number for each layer, 1 where it has experts. */
static int
read_frequency(struct config *c, uint32_t layers, const json_t **list, uint32_t *every)
{
	const json_t *v = config_get(c->json, "moe_layer_freq");

	*every = 1;
	*list = json_is_array(v) ? v : NULL;
	if (*list == NULL)
		return config_count(c, c->json, "moe_layer_freq", layers, 1, every);
	if (json_array_size(v) != layers)
		return config_hint(c, "moe_layer_freq", BAD(c, "moe_layer_freq: %zu layers, not %u",
		    json_array_size(v), layers));
	return MODEL_OK;
}

/* ERNIE's: experts in each so many-th layer from one to another, which -1 or nothing leaves open */
static int
read_range(struct config *c, uint32_t *step, uint32_t *first, uint32_t *last)
{
	const json_t *end = config_get(c->json, "moe_layer_end_index");
	int rc;

	if ((rc = config_count(c, c->json, "moe_layer_interval", UINT32_MAX - 1, 1, step)) !=
	    MODEL_OK || (rc = read_whole(c, "moe_layer_start_index", UINT32_MAX - 1,
	    c->family->experts->first, first)) != MODEL_OK)
		return rc;
	if (json_is_integer(end) && json_integer_value(end) == -1)
		return MODEL_OK;
	return read_whole(c, "moe_layer_end_index", UINT32_MAX - 1, *last, last);
}

/* transformers goes by mlp_layer_types where it is there, published files by the keys of
 * DeepSeek-V3: both must say the same. */
static int
check_types(struct config *c, const struct model *m)
{
	const json_t *types = config_get(c->json, "mlp_layer_types");
	uint32_t l;

	if (types == NULL)
		return MODEL_OK;
	if (json_array_size(types) != m->id.layers)
		return BAD(c, "mlp_layer_types: %zu layers, not %u", json_array_size(types),
		    m->id.layers);
	for (l = 0; l < m->id.layers; l++)
		if (!config_has(json_array_get(types, l), model_layer_has_experts(m, l) ?
		    "\"sparse\"" : "\"dense\""))
			return BAD(c, "mlp_layer_types: layer %u is not as first_k_dense_replace "
			    "has it", l);
	return MODEL_OK;
}

static int
find_layers(struct config *c, struct model *m)
{
	const unsigned flags = c->family->experts->flags;
	const json_t *only = config_get(c->json, "mlp_only_layers"), *list = NULL;
	const uint32_t L = m->id.layers;
	uint32_t step = 1, first = 0, last = L - 1, every = 1, l, n = 0;
	int rc, has;

	if ((flags & EXPERTS_STEP) && (rc = config_count(c, c->json, "decoder_sparse_step",
	    UINT32_MAX - 1, 1, &step)) != MODEL_OK)
		return rc;
	if (only != NULL && !json_is_array(only))
		return config_hint(c, "mlp_only_layers", BAD(c, "\"mlp_only_layers\" is not a "
		    "list"));
	if ((flags & EXPERTS_FIRST) && ((rc = read_whole(c, "first_k_dense_replace",
	    UINT32_MAX - 1, c->family->experts->first, &first)) != MODEL_OK ||
	    (rc = read_frequency(c, L, &list, &every)) != MODEL_OK))
		return rc;
	if ((flags & EXPERTS_RANGE) && (rc = read_range(c, &step, &first, &last)) != MODEL_OK)
		return rc;
	for (l = 0; l < L; l++) {
		has = (l + 1) % step == 0 && !is_listed(only, l) && l >= first && l <= last &&
		    l % every == 0 &&
		    (list == NULL || json_integer_value(json_array_get(list, l)) != 0);
		m->mixture.layers[l / 8] |= (uint8_t)(has << l % 8);
		n += (uint32_t)has;
	}
	m->mixture.everywhere = n == L;
	return config_hint(c, "mlp_layer_types", check_types(c, m));
}

/* ---- the router ---- */

/* scoring_func, and what topk_method says of groups and of corrections */
static int
read_method(struct config *c, struct mixture *x)
{
	const json_t *scores = config_get(c->json, "scoring_func");
	const json_t *method = config_get(c->json, "topk_method");
	char text[64];

	if (config_has(scores, "\"softmax\""))
		x->router.scores = ROUTER_SOFTMAX;
	else if (config_has(scores, "\"sigmoid\"") || config_has(scores, "\"noaux_tc\""))
		x->router.scores = ROUTER_SIGMOID;
	else if (scores != NULL)
		return config_hint(c, "scoring_func", UNSUPPORTED(c, "scoring_func %s is not "
		    "supported", config_show(scores, text, sizeof text)));
	if (config_has(method, "\"noaux_tc\""))
		x->corrected = x->router.two_best = 1;
	else if (config_has(method, "\"greedy\"") || config_has(method, "\"group_limited_greedy\""))
		x->corrected = x->router.two_best = 0;
	else if (method == NULL && !x->router.two_best)         /* DeepSeek-V2: "greedy" */
		x->router.groups = x->router.groups_chosen = 1;
	else if (method != NULL)
		return config_hint(c, "topk_method", UNSUPPORTED(c, "topk_method %s is not "
		    "supported", config_show(method, text, sizeof text)));
	if (config_has(method, "\"greedy\""))
		x->router.groups = x->router.groups_chosen = 1;
	return MODEL_OK;
}

static int
read_groups(struct config *c, struct router *r)
{
	int rc;

	if ((rc = config_count(c, c->json, "n_group", r->experts, 1, &r->groups)) != MODEL_OK ||
	    (rc = config_count(c, c->json, "topk_group", r->groups, 1, &r->groups_chosen)) !=
	    MODEL_OK)
		return rc;
	if (r->experts % r->groups != 0)
		return BAD(c, "%u experts in %u groups (n_group): not a whole number each",
		    r->experts, r->groups);
	return MODEL_OK;
}

static int
read_router(struct config *c, struct mixture *x)
{
	const struct family_experts *f = c->family->experts;
	struct router *r = &x->router;
	double scale = 1;
	int rc;

	r->scores = f->scores;
	r->renormalise = f->renormalise;
	r->groups = r->groups_chosen = 1;
	r->two_best = (f->flags & EXPERTS_TWO_BEST) != 0;
	x->corrected = (f->flags & EXPERTS_CORRECTED) != 0;
	if ((rc = config_count(c, c->json, "num_experts", EXPERTS_MOST, f->count != 0 ? f->count :
	    REQUIRED, &r->experts)) != MODEL_OK ||
	    (rc = config_count(c, c->json, "num_experts_per_tok", EXPERTS_CHOSEN_MOST,
	    f->chosen != 0 ? f->chosen : REQUIRED, &r->chosen)) != MODEL_OK)
		return rc;
	if ((f->flags & EXPERTS_NORM) && (rc = config_flag(c, c->json, "norm_topk_prob",
	    &r->renormalise)) != MODEL_OK)
		return rc;
	if ((f->flags & EXPERTS_SCALE) && (rc = config_real(c, c->json, "routed_scaling_factor",
	    1e-6, 1e6, &scale)) != MODEL_OK)
		return rc;
	r->scale = (float)scale;
	if ((f->flags & EXPERTS_GROUPS) && (rc = read_groups(c, r)) != MODEL_OK)
		return rc;
	if ((f->flags & EXPERTS_METHOD) && (rc = read_method(c, x)) != MODEL_OK)
		return rc;
	if (r->chosen > r->experts / r->groups * r->groups_chosen)
		return BAD(c, "num_experts_per_tok is %u, of %u experts%s", r->chosen,
		    r->experts / r->groups * r->groups_chosen,
		    r->groups > 1 ? " in the groups that are looked at (topk_group)" : "");
	return MODEL_OK;
}

/* ---- the whole ---- */

/* The width of what all rows take beside experts */
static int
read_shared(struct config *c, struct mixture *x)
{
	const struct family_experts *f = c->family->experts;
	uint32_t n;
	int rc = MODEL_OK;

	if (f->flags & EXPERTS_SHARED_WIDTH)
		return read_whole(c, "shared_expert_intermediate_size", 1 << 24, REQUIRED,
		    &x->shared);
	if (!(f->flags & EXPERTS_SHARED))
		return MODEL_OK;
	n = f->shared;
	if (config_get(c->json, "n_shared_experts") != NULL)
		rc = read_whole(c, "n_shared_experts", 1 << 10, REQUIRED, &n);
	if (rc == MODEL_OK && n > (1 << 24) / x->width)
		return BAD(c, "n_shared_experts is %u, each %u wide", n, x->width);
	x->shared = n * x->width;
	return rc;
}

/* Logits within twice the noise of training count as near (SparseMixer), which is made for two
 * experts. */
static int
read_jitter(struct config *c, struct router *r)
{
	const char *const key = "router_jitter_noise";
	double noise = 0.01;
	int rc;

	if (!(c->family->experts->flags & EXPERTS_JITTER))
		return MODEL_OK;
	if (r->chosen != 2)
		return UNSUPPORTED(c, "num_experts_per_tok is %u: models of type %s take two",
		    r->chosen, c->family->type);
	if (config_has(config_get(c->json, key), "0"))
		noise = 0;
	else if ((rc = config_real(c, c->json, key, 1e-6, 1, &noise)) != MODEL_OK)
		return rc;
	r->margin = (float)(2 * noise);
	return MODEL_OK;
}

/* The clamped activation of gpt-oss, which ops have with the published factor */
static int
read_clamps(struct config *c, struct mixture *x)
{
	double limit = 7, alpha = 1.702;
	int rc;

	if (!(c->family->experts->flags & EXPERTS_CLAMPED))
		return MODEL_OK;
	if ((rc = config_real(c, c->json, "swiglu_limit", 1e-3, 1e6, &limit)) != MODEL_OK ||
	    (rc = config_real(c, c->json, "swiglu_alpha", 1e-3, 1e6, &alpha)) != MODEL_OK)
		return rc;
	if (alpha != 1.702)
		return config_hint(c, "swiglu_alpha", UNSUPPORTED(c, "swiglu_alpha %g is not "
		    "supported: want 1.702", alpha));
	x->limit = (float)limit;
	return MODEL_OK;
}

int
config_experts(struct config *c, struct model *m)
{
	struct mixture *x = &m->mixture;
	int rc;

	*x = (struct mixture){ .width = m->id.ffn };
	x->predicts = json_integer_value(config_get(c->json, "num_nextn_predict_layers")) > 0 ||
	    json_integer_value(config_get(c->json, "num_mtp_layers")) > 0 ||
	    json_is_true(config_get(c->json, "use_mtp"));
	if (c->family->experts == NULL)
		return MODEL_OK;
	if ((c->family->experts->flags & EXPERTS_WIDTH) && (rc = config_count(c, c->json,
	    "moe_intermediate_size", 1 << 24, REQUIRED, &x->width)) != MODEL_OK)
		return rc;
	if ((rc = read_router(c, x)) != MODEL_OK || (rc = read_shared(c, x)) != MODEL_OK ||
	    (rc = read_clamps(c, x)) != MODEL_OK ||
	    (rc = read_jitter(c, &x->router)) != MODEL_OK)
		return rc;
	m->id.experts = x->router.experts;
	m->id.experts_chosen = x->router.chosen;
	return find_layers(c, m);
}
