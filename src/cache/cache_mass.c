/* cache_mass.c - memory for the attention mass of the rows of a cache */
#include <stdlib.h>

#include "cache/cache_mass.h"

int
cache_want_mass(struct cache *c)
{
	uint32_t l;

	c->mass = calloc(c->model->id.layers, sizeof *c->mass);
	if (c->mass == NULL)
		return MODEL_ENOMEM;
	for (l = 0; l < c->model->id.layers; l++)
		c->mass[l].whole = 1;
	return 0;
}

int
mass_resize(struct cache *c, uint32_t l, const uint32_t *capacity, uint32_t spare_to)
{
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	const struct layer_rows *rows = &c->layer[l];
	uint32_t H = c->model->id.query_heads, R = H / rows->heads, g, h;
	struct attention_mass *old = &c->mass[l], new = { .whole = old->whole };

	for (g = 0; g < rows->heads; g++)
		new.stride = capacity[g] > new.stride ? capacity[g] : new.stride;
	new.sum = o->alloc(d, (new.stride * H + 1) * sizeof *new.sum);
	if (new.sum == NULL)
		return MODEL_ENOMEM;
	o->clear(d, new.sum, new.stride * H * sizeof *new.sum);
	for (h = 0; old->sum != NULL && h < H; h++)
		o->copy(d, new.sum + h * new.stride, old->sum + h * old->stride,
		    rows->len[h / R] * sizeof *new.sum);
	if (spare_to != NO_LAYER) {
		o->clear(d, old->sum, old->stride * H * sizeof *old->sum);
		c->mass[spare_to].sum = old->sum;
		c->mass[spare_to].stride = old->stride;
	} else {
		o->free(d, old->sum);
	}
	*old = new;
	return 0;
}

struct attention_mass
mass_of(const struct cache *c, uint32_t l)
{
	return c->mass != NULL ? c->mass[l] : (struct attention_mass){ .sum = NULL };
}

void
mass_clear(struct cache *c, uint32_t l)
{
	c->model->ops->free(c->model->dev, c->mass[l].sum);
	c->mass[l] = (struct attention_mass){ .whole = 1 };
}

void
mass_free(struct cache *c)
{
	uint32_t l;

	for (l = 0; c->mass != NULL && l < c->model->id.layers; l++)
		c->model->ops->free(c->model->dev, c->mass[l].sum);
	free(c->mass);
	c->mass = NULL;
}
