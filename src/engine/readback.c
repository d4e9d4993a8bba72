/* readback.c - copies numbers that a device makes for one layer after another to the host */
#include "engine/readback.h"

int
readback_slot(struct readback *b, const struct device *d, size_t n, float **at,
    struct engine_error *e)
{
	int i;

	for (i = 0; i < READBACK_SLOTS && b->slot[i].busy; i++)
		;
	if (i == READBACK_SLOTS)
		return engine_fail(e, ENGINE_ERUN, "more than %d transfers are under way",
		    READBACK_SLOTS);
	*at = area_room(d, &b->slot[i].area, n * sizeof **at, e);
	return *at != NULL ? i : e->code;
}

int
readback_begin(struct readback *b, const struct device *d, int slot, const float *from, size_t n,
    struct engine_error *e)
{
	struct readback_slot *s = &b->slot[slot];

	if (!device_shares_memory(d)) {
		if (s->host == NULL || s->capacity < n) {
			s->capacity = device_growth(s->host, n);
			d->ops->host_free(d->dev, s->host);
			s->host = d->ops->host_alloc(d->dev, s->capacity * sizeof *s->host);
			if (s->host == NULL)
				return engine_fail(e, ENGINE_ERUN, "no memory for %zu numbers", n);
		}
		d->ops->get_async(d->dev, s->host, from, n * sizeof *s->host);
	}
	s->busy = 1;
	s->from = from;
	s->event = d->ops->event_record(d->dev);
	return ENGINE_OK;
}

int
readback_end(struct readback *b, const struct device *d, int slot, const float **host,
    struct engine_error *e)
{
	struct readback_slot *s = &b->slot[slot];

	s->busy = 0;
	*host = device_shares_memory(d) ? s->from : s->host;
	return device_waited(d, s->event, e);
}

void
readback_release(struct readback *b, const struct device *d)
{
	int i;

	for (i = 0; i < READBACK_SLOTS; i++) {
		area_release(d, &b->slot[i].area);
		d->ops->host_free(d->dev, b->slot[i].host);
		b->slot[i] = (struct readback_slot){ .host = NULL };
	}
}
