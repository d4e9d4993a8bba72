/* observation.c - the observation window, on the host and on the device
 *
 * While tokens run it is on the device: the window of a layer slides through a buffer of twice its
 * size, so that a new query costs one copy, and the others are moved to the beginning of the buffer
 * only once in W tokens. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "cache/observation.h"

static size_t
row_of(const struct model *m)
{
	return (size_t)m->id.query_heads * m->id.head_width;
}

int
observation_init(struct observation *obs, const struct model *m, uint32_t window)
{
	const size_t row = row_of(m);
	uint32_t l;

	memset(obs, 0, sizeof *obs);
	obs->window = window;
	obs->pos = calloc(window, sizeof *obs->pos);
	obs->q = calloc(m->id.layers, sizeof *obs->q);
	if (obs->pos == NULL || obs->q == NULL) {
		observation_free(obs, m);
		return MODEL_ENOMEM;
	}
	for (l = 0; l < m->id.layers; l++)
		if ((obs->q[l] = calloc(window * row, sizeof(float))) == NULL) {
			observation_free(obs, m);
			return MODEL_ENOMEM;
		}
	return 0;
}

void
observation_free(struct observation *obs, const struct model *m)
{
	uint32_t l;

	for (l = 0; obs->q != NULL && !obs->on_device && l < m->id.layers; l++)
		free(obs->q[l]);
	for (l = 0; obs->own != NULL && l < m->id.layers; l++)
		free(obs->own[l]);
	m->ops->free(m->dev, obs->buffer);
	free(obs->q);
	free(obs->own);
	free(obs->pos);
	memset(obs, 0, sizeof *obs);
}

void
observation_expect(struct observation *obs, const struct model *m, uint32_t from, size_t n)
{
	const size_t row = row_of(m);
	uint32_t take = n < obs->window ? (uint32_t)n : obs->window;
	uint32_t keep = obs->window - take, drop, l, i;

	if (obs->have > keep) {
		drop = obs->have - keep;
		if (obs->buffer != NULL)
			observation_slide(obs, m, drop);
		for (l = 0; obs->buffer == NULL && l < m->id.layers; l++)
			memmove(obs->q[l], obs->q[l] + drop * row, keep * row * sizeof(float));
		memmove(obs->pos, obs->pos + drop, keep * sizeof *obs->pos);
		obs->have = keep;
	}
	obs->first = (uint32_t)(from + n - take);
	for (i = 0; i < take; i++)
		obs->pos[obs->have++] = obs->first + i;
}

/* The buffer of layer l */
static float *
base_of(const struct observation *obs, const struct model *m, uint32_t l)
{
	return obs->buffer + 2 * (size_t)l * obs->window * row_of(m);
}

int
observation_to_device(struct observation *obs, const struct model *m)
{
	const size_t row = row_of(m);
	uint32_t l;

	obs->buffer = m->ops->alloc(m->dev, 2 * (size_t)m->id.layers * obs->window * row *
	    sizeof *obs->buffer);
	if (obs->buffer == NULL)
		return MODEL_ENOMEM;
	for (l = 0; l < m->id.layers; l++) {
		m->ops->put(m->dev, base_of(obs, m, l), obs->q[l],
		    obs->have * row * sizeof **obs->q);
		free(obs->q[l]);
		obs->q[l] = base_of(obs, m, l);
	}
	obs->offset = 0;
	obs->on_device = 1;
	return 0;
}

int
observation_to_host(struct observation *obs, const struct model *m)
{
	const size_t row = row_of(m);
	float **q = calloc(m->id.layers, sizeof *q);
	uint32_t l;

	for (l = 0; q != NULL && l < m->id.layers; l++) {
		if ((q[l] = malloc(obs->window * row * sizeof **q)) == NULL)
			break;
		m->ops->get(m->dev, q[l], obs->q[l], obs->have * row * sizeof **q);
	}
	if (q == NULL || l < m->id.layers) {
		while (q != NULL && l > 0)
			free(q[--l]);
		free(q);
		return MODEL_ENOMEM;
	}
	m->ops->free(m->dev, obs->buffer);
	free(obs->q);
	obs->buffer = NULL;
	obs->q = q;
	obs->on_device = 0;
	return 0;
}

void
observation_slide(struct observation *obs, const struct model *m, uint32_t drop)
{
	const size_t row = row_of(m), stay = obs->have - drop;
	uint32_t l;

	obs->offset += drop;
	if (obs->offset <= obs->window) {
		for (l = 0; l < m->id.layers; l++)
			obs->q[l] += drop * row;
		return;
	}
	for (l = 0; l < m->id.layers; l++) {    /* the distance is more than a window: no overlap */
		m->ops->copy(m->dev, base_of(obs, m, l), obs->q[l] + drop * row,
		    stay * row * sizeof **obs->q);
		obs->q[l] = base_of(obs, m, l);
	}
	obs->offset = 0;
}
