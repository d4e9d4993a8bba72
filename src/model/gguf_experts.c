/* gguf_experts.c - the mixture of experts of a GGUF file, as config.json has it
 *
 * Which keys there are depends on the architecture. What no key says is llama.cpp's rule or, where
 * that is not the model's, what the published models have. */
#include <inttypes.h>
#include <string.h>

#include "model/family.h"
#include "model/gguf_config_internal.h"

/* The network that all rows take: its width by a key of its own, or as many experts wide */
static int
take_shared(struct gguf_reading *c, const struct family_experts *f, uint64_t width)
{
	const char *const name = "expert_shared_feed_forward_length";
	uint64_t shared = 0, count = 0;
	int rc;

	if ((rc = gguf_arch_whole(c, name, &shared)) != MODEL_OK)
		return rc;
	if (!(f->flags & EXPERTS_SHARED)) {
		if (shared > 0 && !(f->flags & EXPERTS_SHARED_WIDTH))
			return UNSUPPORTED(c, "key %s is not supported in this architecture",
			    gguf_key(c, name));
		return shared > 0 ? gguf_set_whole(c, "shared_expert_intermediate_size", shared) :
		    MODEL_OK;
	}
	if ((rc = gguf_arch_whole(c, "expert_shared_count", &count)) != MODEL_OK)
		return rc;
	if (shared > 0 && (count == 0 || shared % count != 0 || shared / count != width))
		return UNSUPPORTED(c, "key %s is %" PRIu64 ", which is not supported: want %" PRIu64
		    " times %" PRIu64, gguf_key(c, name), shared, count, width);
	return gguf_set_whole(c, "n_shared_experts", count);
}

/* Which layers have experts */
static int
take_layers(struct gguf_reading *c, const struct family_experts *f)
{
	const uint64_t layers = gguf_number(c, "num_hidden_layers");
	uint64_t dense = 0, every = 1, more = 0;
	int rc;

	if ((rc = gguf_arch_whole(c, "leading_dense_block_count", &dense)) != MODEL_OK ||
	    (rc = gguf_set_whole(c, f->flags & EXPERTS_RANGE ? "moe_layer_start_index" :
	    "first_k_dense_replace", dense)) != MODEL_OK)
		return rc;
	if ((c->arch->flags & GGUF_EVERY) &&
	    ((rc = gguf_arch_whole(c, "interleave_moe_layer_step", &every)) != MODEL_OK ||
	    (rc = gguf_set_whole(c, "moe_layer_interval", every)) != MODEL_OK))
		return rc;
	if (!(c->arch->flags & GGUF_ROUTED) ||
	    (rc = gguf_arch_whole(c, "nextn_predict_layers", &more)) != MODEL_OK || more == 0)
		return rc;
	/* block_count has layers that guess further tokens, too */
	if (more >= layers)
		return BAD(c, "key %s is %" PRIu64 ", of %" PRIu64 " layers",
		    gguf_key(c, "nextn_predict_layers"), more, layers);
	if ((rc = gguf_set_whole(c, "num_hidden_layers", layers - more)) != MODEL_OK)
		return rc;
	return gguf_set_whole(c, "num_nextn_predict_layers", more);
}

/* Groups of experts. Files that are older than the keys have none, although the large models of
 * DeepSeek do; llama.cpp then looks at all experts. *groups <- how many there are */
static int
take_groups(struct gguf_reading *c, uint64_t *groups)
{
	static const struct { const char *type; uint64_t experts, groups, used; } old[] = {
		{ "deepseek_v2", 160, 8, 3 }, { "deepseek_v3", 256, 8, 4 } };
	const uint64_t experts = gguf_number(c, "num_experts");
	uint64_t used = 0;
	size_t i;
	int rc;

	*groups = 0;
	if ((rc = gguf_arch_whole(c, "expert_group_count", groups)) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "expert_group_used_count", &used)) != MODEL_OK)
		return rc;
	for (i = 0; *groups == 0 && i < sizeof old / sizeof old[0]; i++)
		if (strcmp(c->arch->model_type, old[i].type) == 0 && experts == old[i].experts) {
			*groups = old[i].groups;
			used = old[i].used;
		}
	*groups = *groups > 0 ? *groups : 1;
	if ((rc = gguf_set_whole(c, "n_group", *groups)) != MODEL_OK)
		return rc;
	return gguf_set_whole(c, "topk_group", used > 0 ? used : *groups);
}

/* scoring_func and topk_method. Without the key for it the family's scores are meant. */
static int
take_scores(struct gguf_reading *c, const struct family_experts *f, uint64_t groups)
{
	const char *method = f->flags & EXPERTS_CORRECTED ? "noaux_tc" :
	    groups > 1 ? "group_limited_greedy" : "greedy";
	uint64_t function = 0;
	int rc = gguf_arch_whole(c, "expert_gating_func", &function);

	if (rc != MODEL_OK)
		return rc;
	if (function > GGUF_SIGMOID)
		return UNSUPPORTED(c, "key %s is %" PRIu64 ", which is not supported: want %d "
		    "(softmax) or %d (sigmoid)", gguf_key(c, "expert_gating_func"), function,
		    GGUF_SOFTMAX, GGUF_SIGMOID);
	if (function != 0 && (rc = gguf_set(c, c->json, "scoring_func",
	    json_string(function == GGUF_SIGMOID ? "sigmoid" : "softmax"))) != MODEL_OK)
		return rc;
	return gguf_set(c, c->json, "topk_method", json_string(method));
}

/* Are the weights of the chosen experts divided by their sum, and by what are they multiplied? */
static int
take_weights(struct gguf_reading *c, const struct family_experts *f)
{
	int normed = 0, rc = MODEL_OK;
	double scale = 1;

	if (!gguf_passed_over(c, "expert_weights_norm"))
		rc = gguf_flag(c->g, gguf_key(c, "expert_weights_norm"), &normed, c->err,
		    c->errlen);
	if (rc != MODEL_OK ||
	    (rc = gguf_arch_real(c, "expert_weights_scale", &scale)) != MODEL_OK)
		return rc;
	if (normed && !(f->flags & EXPERTS_NORM))
		return UNSUPPORTED(c, "key %s is true, which is not supported with scores that are "
		    "a softmax", gguf_key(c, "expert_weights_norm"));
	if ((f->flags & EXPERTS_NORM) && (rc = gguf_set(c, c->json, "norm_topk_prob",
	    json_boolean(normed))) != MODEL_OK)
		return rc;
	return gguf_set(c, c->json, "routed_scaling_factor", json_real(scale == 0 ? 1 : scale));
}

static int
take_router(struct gguf_reading *c, const struct family_experts *f)
{
	uint64_t groups;
	int rc;

	if (!(c->arch->flags & GGUF_ROUTED))
		return f->flags & EXPERTS_NORM ? gguf_set(c, c->json, "norm_topk_prob",
		    json_boolean(c->arch->flags & GGUF_RENORMALISED)) : MODEL_OK;
	if ((rc = take_groups(c, &groups)) != MODEL_OK ||
	    (rc = take_scores(c, f, groups)) != MODEL_OK)
		return rc;
	return take_weights(c, f);
}

/* Architectures whose experts are as wide as the network would be may say so twice. */
int
gguf_experts(struct gguf_reading *c)
{
	const struct family_experts *f = family_find(c->arch->model_type)->experts;
	uint64_t width = 0;
	int rc;

	if (!(c->arch->flags & GGUF_EXPERTS))
		return MODEL_OK;
	if ((rc = gguf_arch_whole(c, "expert_feed_forward_length", &width)) != MODEL_OK)
		return rc;
	if (width > 0 && (rc = gguf_set_whole(c, f->flags & EXPERTS_WIDTH ?
	    "moe_intermediate_size" : "intermediate_size", width)) != MODEL_OK)
		return rc;
	if ((rc = take_shared(c, f, width)) != MODEL_OK)
		return rc;
	if ((c->arch->flags & GGUF_DENSE_FIRST) && (rc = take_layers(c, f)) != MODEL_OK)
		return rc;
	return take_router(c, f);
}
