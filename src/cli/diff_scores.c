/* diff_scores.c - collects the comparison of two snapshots' scores */
#include <stdlib.h>

#include "cli/diff_scores.h"
#include "cli/tool.h"

void
diff_scores_init(struct diff_scores *c, const struct kv_model *m, int heads)
{
	c->L = c->negative = m->layers;
	c->G = m->kv_heads;
	c->layer = must_alloc(c->L, sizeof *c->layer);
	if (heads)
		c->heads.size = sizeof *c->layer;
}

void
diff_scores_free(struct diff_scores *c)
{
	free(c->layer);
	spool_free(&c->heads);
}

void
diff_scores_add(struct diff_scores *c, const struct layer_agreement *layer)
{
	uint32_t g;

	if (layer->negative && c->negative == c->L)
		c->negative = c->layers;
	c->layer[c->layers++] = layer->all;
	agreement_add(&c->all, &layer->all);
	c->a_rows += layer->all.both + layer->all.only_a;
	c->b_rows += layer->all.both + layer->all.only_b;
	for (g = 0; c->heads.size > 0 && g < c->G; g++)
		spool_add(&c->heads, &layer->head[g]);
}
