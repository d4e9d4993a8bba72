/* policy.c - the table of budget policies, made from policies.h; and the uniform budget */
#include <strings.h>

#include "methods/budgets.h"

const struct policy policies[] = {
#define POLICY(n, for_layers, for_heads, is_global, used, others, text) { \
	.name = (n), .layers = layers_##for_layers, .heads = heads_##for_heads, \
	.global = (is_global), .uses = (used), .aliases = (others), .about = (text) },
#include "methods/policies.h"
#undef POLICY
	{ .name = NULL }
};

const struct policy *
policy_named(const char *name)
{
	const struct policy *p;

	for (p = policies; p->name != NULL; p++)
		if (strcasecmp(p->name, name) == 0 || names_word(p->aliases, name))
			return p;
	return NULL;
}

int
policy_shares(const struct policy *policy)
{
	return policy->global == COMPETE_ROWS || policy->heads != heads_uniform;
}

uint32_t
layers_uniform(const struct layer_share *s)
{
	return s->wanted < s->n ? s->wanted : s->n;
}

int
heads_uniform(uint32_t *count, const struct ranked *r, const struct evict_options *opt, char *why,
    size_t size)
{
	(void)count, (void)r, (void)opt, (void)why, (void)size;
	return EVICT_OK;
}
