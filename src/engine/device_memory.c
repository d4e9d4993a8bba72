/* device_memory.c - memory on a device that is reused for one layer after another */
#include <stdlib.h>
#include <string.h>

#include "engine/device_memory.h"

int
device_shares_memory(const struct device *d)
{
	return d->ops->shares_memory;
}

int
device_synced(const struct device *d, struct engine_error *e)
{
	const char *failure = d->ops->sync(d->dev);

	if (failure != NULL)
		return engine_fail(e, ENGINE_ERUN, "%s: %s", d->ops->name, failure);
	return ENGINE_OK;
}

int
device_waited(const struct device *d, uint64_t event, struct engine_error *e)
{
	const char *failure = d->ops->event_wait(d->dev, event);

	if (failure != NULL)
		return engine_fail(e, ENGINE_ERUN, "%s: %s", d->ops->name, failure);
	return ENGINE_OK;
}

static void
no_room(const struct device *d, size_t size, struct engine_error *e)
{
	size_t free, total;

	d->ops->mem_info(d->dev, &free, &total);
	if (free == SIZE_MAX)
		engine_fail(e, ENGINE_ENOROOM, "no memory for %zu bytes", size);
	else
		engine_fail(e, ENGINE_ENOROOM,
		    "%s: no room for %.1f MiB, of %.1f MiB %.1f are free", d->ops->name,
		    (double)size / (1 << 20), (double)total / (1 << 20), (double)free / (1 << 20));
}

void *
area_room(const struct device *d, struct area *a, size_t size, struct engine_error *e)
{
	if (a->size >= size && a->at != NULL)
		return a->at;
	a->size = device_growth(a->at, size);
	d->ops->free(d->dev, a->at);
	a->at = d->ops->alloc(d->dev, a->size != 0 ? a->size : 1);
	if (a->at == NULL && a->size > size) {
		a->size = size;
		a->at = d->ops->alloc(d->dev, size != 0 ? size : 1);
	}
	if (a->at == NULL)
		no_room(d, size, e);
	return a->at;
}

void *
area_upload(const struct device *d, struct area *a, const void *data, size_t size,
    struct engine_error *e)
{
	void *at = area_room(d, a, size, e);

	if (at != NULL)
		d->ops->put(d->dev, at, data, size);
	return at;
}

int
area_share(const struct device *d, struct area *a, void **at, const void *data, size_t size,
    struct engine_error *e)
{
	if (device_shares_memory(d)) {
		*at = (void *)(uintptr_t)data;  /* ops only read it */
		return ENGINE_OK;
	}
	return (*at = area_upload(d, a, data, size, e)) != NULL ? ENGINE_OK : e->code;
}

void *
area_positions(const struct device *d, struct area *a, const struct kv_rows *rows,
    struct engine_error *e)
{
	uint64_t total = kv_rows_total(rows);
	uint32_t *pos = engine_alloc(total, sizeof *pos, e), *p = pos, g;
	void *at;

	if (pos == NULL)
		return NULL;
	for (g = 0; g < rows->heads; p += rows->count[g++])
		if (rows->count[g] > 0)
			memcpy(p, rows->pos[g], rows->count[g] * sizeof *p);
	at = area_upload(d, a, pos, total * sizeof *pos, e);
	free(pos);
	return at;
}

void
area_release(const struct device *d, struct area *a)
{
	d->ops->free(d->dev, a->at);
	*a = (struct area){ 0 };
}
