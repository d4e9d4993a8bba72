/* diff_rows.c - collects the comparison of two snapshots */
#include <math.h>
#include <stdlib.h>

#include "cli/diff_rows.h"
#include "cli/tool.h"

void
diff_rows_init(struct diff_rows *c, const struct kv_model *m, int heads)
{
	c->L = m->layers;
	c->G = m->kv_heads;
	c->R = m->query_heads / m->kv_heads;
	c->layer = must_alloc(c->L, sizeof *c->layer);
	if (heads)
		c->heads.size = sizeof *c->head + c->R * sizeof *c->head->query;
	c->head = must_alloc(1, sizeof *c->head + c->R * sizeof *c->head->query);
}

void
diff_rows_free(struct diff_rows *c)
{
	free(c->layer);
	free(c->head);
	spool_free(&c->heads);
}

static void
add_head(struct diff_rows *c, const struct head_compared *head)
{
	struct attention_compared sum = { 0 };
	uint32_t r;

	for (r = 0; r < c->R; r++) {
		attention_add(&sum, &head->query[r]);
		c->head->query[r].mass = mass_recall(&head->query[r]);
		c->head->query[r].error = output_error(&head->query[r]);
	}
	c->head->share = (struct share){ head->rows, mass_recall(&sum), output_error(&sum) };
	spool_add(&c->heads, c->head);
}

void
diff_rows_add(struct diff_rows *c, const struct layer_compared *layer)
{
	struct layer_share *to = &c->layer[c->layers++];
	struct attention_compared sum = { 0 };
	uint32_t g, r;

	to->queries = layer->queries;
	to->queries_of_b = layer->queries_of_b;
	for (g = 0; g < c->G; g++) {
		rows_add(&to->share.rows, &layer->head[g].rows);
		for (r = 0; r < c->R; r++)
			attention_add(&sum, &layer->head[g].query[r]);
		if (c->heads.size > 0)
			add_head(c, &layer->head[g]);
	}
	to->share.mass = mass_recall(&sum);
	to->share.error = output_error(&sum);
	attention_add(&c->sum, &sum);
}

struct share
diff_rows_all(const struct diff_rows *c)
{
	struct share all = { 0 };
	uint32_t l, n = 0;

	for (l = 0; l < c->layers; l++) {
		rows_add(&all.rows, &c->layer[l].share.rows);
		if (!isnan(c->layer[l].share.error)) {
			all.error += c->layer[l].share.error;
			n++;
		}
	}
	all.mass = mass_recall(&c->sum);
	all.error = n > 0 ? all.error / n : NAN;
	return all;
}
