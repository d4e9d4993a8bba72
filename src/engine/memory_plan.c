/* memory_plan.c - computes, before the work begins, whether it fits into the memory of the
 * device */
#include <inttypes.h>

#include "cache/cache.h"
#include "engine/device_memory.h"
#include "engine/memory_plan.h"
#include "forward/forward.h"
#include "retrieval/head_keys.h"

/* The most memory that ops allocate for themselves, besides activations in 16 bits: partial results
 * of split-KV attention, the workspace of matrix products, rows that are moved */
#define OWN_SCRATCH ((uint64_t)64 << 20)

struct unit {
	const char *name;
	double bytes;
};

/* Returns the unit for a sum of this many bytes. */
static struct unit
unit_of(uint64_t sum)
{
	return sum >> 30 > 0 ? (struct unit){ "GiB", 1 << 30 } : (struct unit){ "MiB", 1 << 20 };
}

static uint64_t
weight_bytes(const struct model *m)
{
	return m->matrix_bytes + m->constant_bytes;
}

/* Returns the part of the plan that must be allocated. The CPU uses matrices in the mapped files,
 * but for copies of those in another order and of quantised ones, and its free memory does not
 * include its scratch. */
static struct memory_plan
to_allocate(const struct memory_plan *p, const struct model *m)
{
	struct memory_plan rest = *p;

	if (device_shares_memory(&(struct device){ m->ops, m->dev })) {
		rest.weights = m->constant_bytes + m->copy_bytes + p->adapter;
		rest.scratch = 0;
	}
	return rest;
}

/* *room <- free bytes of the device, SIZE_MAX: unknown; *total <- all its bytes. */
static int
free_memory(const struct model *m, size_t *room, size_t *total, struct engine_error *e)
{
	const struct device d = { m->ops, m->dev };

	m->ops->mem_info(m->dev, room, total);
	return device_synced(&d, e);
}

/* Adds the memory of a retrieval head to *p: weights, keys, and features of all rows that run at
 * once */
static void
add_head(struct memory_plan *p, const struct memory_demand *d)
{
	const uint64_t rows = d->stream > d->at_once ? d->stream : d->at_once;

	p->weights += d->head->bytes;
	p->adapter += d->head->bytes;
	p->cache += d->tokens * head_keys_row_bytes(d->head, d->stored->dtype);
	p->activations += head_keys_feature_bytes(d->head, rows);
}

/* Returns the bytes of the rows, as many in each layer. */
static uint64_t
row_bytes(const struct model *m, const struct memory_demand *d)
{
	uint64_t of_each_layer = 0;
	uint32_t l;

	for (l = 0; l < m->id.layers; l++)
		of_each_layer += cache_row_bytes(d->stored, l, d->mass);
	return d->rows * of_each_layer / m->id.layers;
}

struct memory_plan
memory_plan(const struct model *m, const struct memory_demand *d)
{
	const struct kv_model *id = &m->id;
	const uint64_t width = model_network_width(m);
	const uint64_t widest = width > id->hidden ? width : id->hidden;

	struct memory_plan p = { .tokens = d->tokens, .weights = weight_bytes(m) + d->adapter +
	        d->gate,
	    .adapter = d->adapter,
	    .cache = row_bytes(m, d) + d->query_stats * query_stats_bytes(id),
	    .activations = workspace_bytes(m, d->at_once) + d->stream * id->hidden * sizeof(float) +
	        (uint64_t)d->logits * id->vocabulary * sizeof(float) + d->lists,
	    .lists = d->lists, .scratch = OWN_SCRATCH + d->at_once * widest * 2 };

	if (d->head != NULL)
		add_head(&p, d);
	return p;
}

int
memory_plan_check(const struct memory_plan *plan, const struct model *m, struct engine_error *e)
{
	const struct memory_plan left = to_allocate(plan, m), *p = &left;
	const uint64_t all = p->weights + p->cache + p->activations + p->scratch;
	const struct unit u = unit_of(all);
	size_t room, total;

	if (free_memory(m, &room, &total, e) != ENGINE_OK)
		return e->code;
	if (room == SIZE_MAX || all <= room)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ENOROOM, "%s: needs %.1f %s: weights %.1f, "
	    "cache of %" PRIu64 " tokens %.1f, activations %.1f, scratch %.1f; %.1f %s are free",
	    m->ops->name, (double)all / u.bytes, u.name, (double)p->weights / u.bytes, p->tokens,
	    (double)p->cache / u.bytes, (double)p->activations / u.bytes,
	    (double)p->scratch / u.bytes, (double)room / u.bytes, u.name);
}

int
memory_plan_check_rest(const struct memory_plan *plan, const struct model *m, const char *snapshot,
    struct engine_error *e)
{
	const struct memory_plan left = to_allocate(plan, m), *p = &left;
	const uint64_t rest = p->activations - p->lists + p->scratch;
	const struct unit u = unit_of(rest);
	size_t room, total;

	if (free_memory(m, &room, &total, e) != ENGINE_OK)
		return e->code;
	/* Nothing is free if a device that keeps its own scratch back has too little for that. */
	if (room == SIZE_MAX || rest < room)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ENOROOM, "%s: needs %.1f %s for activations and scratch; "
	    "of %.1f, weights have %.1f, the rows of %s and other programs %.1f, %.1f are free",
	    m->ops->name, (double)rest / u.bytes, u.name, (double)total / u.bytes,
	    (double)p->weights / u.bytes, snapshot,
	    (double)(total - room - p->weights) / u.bytes, (double)room / u.bytes);
}

int
memory_plan_no_room(const struct model *m, const char *what, struct engine_error *e)
{
	size_t room, total;
	struct unit u;

	m->ops->mem_info(m->dev, &room, &total);
	if (room == SIZE_MAX)
		return engine_fail(e, ENGINE_ENOROOM, "no memory for %s", what);
	u = unit_of(total);
	return engine_fail(e, ENGINE_ENOROOM,
	    "%s: no room for %s: of %.1f %s, weights have %.1f, %.1f are free", m->ops->name, what,
	    (double)total / u.bytes, u.name, (double)weight_bytes(m) / u.bytes,
	    (double)room / u.bytes);
}
