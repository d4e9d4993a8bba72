/* sequence.c - a snapshot that is to be decoded, on a device */
#include <stdio.h>
#include <string.h>

#include "cache/cache_sections.h"
#include "engine/retrieval_check.h"
#include "engine/sequence.h"

/* Queries, attention and indexes that scoring, retrieval, or the snapshot asks for: they are loaded
 * with the rows. */
static int
expect(struct sequence *s, const struct sequence_options *o, struct engine_error *e)
{
	const uint32_t most = o->window > o->observe ? o->window : o->observe;

	s->cache->spare = o->spare;
	if (most > 0 && observation_init(&s->obs, s->model, most) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for %u observation queries", most);
	if (o->mass && cache_want_mass(s->cache) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for attention mass");
	if (o->indexes != 0 && cache_want_indexes(s->cache, o->indexes) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for indexes");
	if (o->head != NULL &&
	    (s->head = s->cache->head = head_keys_new(o->head, s->cache->dtype)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for a retrieval head");
	return ENGINE_OK;
}

/* Keys and values of the layers that retrieve do not go to the device: they stay in the file, or go
 * to host memory where the device reads that. */
static int
leave_on_host(struct sequence *s, const struct sequence_options *o, const struct kv_reader *r,
    struct engine_error *e)
{
	const struct model *m = s->model;

	/* few layers are read from the file where the device reads host memory, if any */
	s->store = offload_store_new(r, m->ops->fetch_chosen == NULL ? o->mapper : NULL);
	if (s->store != NULL && m->ops->fetch_chosen != NULL)
		offload_store_use_host_memory(s->store, m->ops, m->dev);
	if (s->store != NULL)
		s->offload = offload_new(m->ops, m->dev, s->store, m->id.layers, m->id.kv_heads,
		    m->id.head_width, s->cache->dtype, o->retrieve->method == RETRIEVE_SPECONTEXT);
	if (s->offload == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the rows of a step");
	s->cache->offload = s->offload;
	s->cache->offload_from = o->retrieve->dense;
	if (o->device_memory == 0)
		return ENGINE_OK;
	s->plan = offload_plan_of(m, o->head, o->device_memory, o->requests, o->retrieve->budget,
	    s->cache->dtype);
	return offload_first_layer(&s->plan, o->retrieve->dense, kv_reader_head(r)->next_position,
	    &s->cache->offload_from, e);
}

static int
load(struct sequence *s, struct kv_reader *r, struct engine_error *e)
{
	const int rc = snapshot_load(r, s->cache, s->obs.window > 0 ? &s->obs : NULL);

	if (s->store != NULL && s->store->error[0] != '\0')
		return engine_fail(e, ENGINE_ERUN, "%s", s->store->error);
	if (rc == KV_ENOMEM)
		return memory_plan_no_room(s->model, kv_reader_name(r), e);
	if (rc >= 0 && s->store != NULL)
		offload_store_loaded(s->store, r);
	return rc < 0 ? engine_fail_reader(e, r, rc) : ENGINE_OK;
}

/* As in the other programs a window that nobody asked for is at most what there is: it grows
 * with the tokens that are generated. */
static int
check_window(const struct sequence *s, const struct sequence_options *o, const char *name,
    struct engine_error *e)
{
	const uint32_t have = s->obs.have;

	if (have >= o->window)
		return ENGINE_OK;
	if (have == 0 || o->evict->scorer.options.window != 0)
		return engine_fail(e, ENGINE_ERUN, "%s: %u observation queries, and the method "
		    "looks at %u: make the snapshot with kv-prefill --observe", name, have, o->window);
	notice(&o->notice, "%s: %u observation queries: the method looks at these and at "
	    "those to come, up to %u of them", name, have, o->window);
	return ENGINE_OK;
}

/* What cannot be found out later has to be there already. */
static int
check(const struct sequence *s, const struct sequence_options *o, const char *name,
    struct engine_error *e)
{
	struct cache *c = s->cache;
	const struct kv_model *id = &s->model->id;
	uint32_t l;
	int rc = ENGINE_OK;

	if (c->logits == NULL && o->answers)
		return engine_fail(e, ENGINE_ERUN, "%s holds no logits to start from: continue it "
		    "with kv-prefill --resume", name);
	for (l = 0; o->mass && l < id->layers; l++)
		if (!c->mass[l].whole)
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no attention mass: make "
			    "the snapshot with kv-prefill --mass", name, l);
	for (l = 0; o->retrieve != NULL && rc == ENGINE_OK && l < id->layers; l++)
		rc = retrieval_check(o->retrieve, name, id, l, cache_index(c, l), e);
	if (rc == ENGINE_OK && s->head != NULL)
		rc = head_check(c, name, &o->notice, e);
	if (rc == ENGINE_OK && o->evict != NULL)
		rc = evict_cache_fit(o->evict, id->layers, e);
	if (rc == ENGINE_OK && o->evict != NULL)
		rc = evict_cache_check_log(o->evict, c, name, e);
	return rc == ENGINE_OK && o->evict != NULL ? check_window(s, o, name, e) : rc;
}

/* From now on tokens attend to what they retrieve. */
static int
start_retrieval(struct sequence *s, const struct retrieval_options *o, struct engine_error *e)
{
	const struct model *m = s->model;

	s->retrieval = retrieval_new(m->ops, m->dev, o, m->id.layers, m->id.query_heads,
	    m->id.kv_heads, m->id.head_width, s->cache->dtype, m->rope.freq);
	if (s->retrieval == NULL ||
	    (s->offload != NULL && retrieval_use_offload(s->retrieval, s->offload) != KV_OK) ||
	    cache_retrieve(s->cache, s->retrieval) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for retrieval");
	if (s->offload == NULL || cache_open_offloaded(s->cache, o) == 0)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ERUN, "%s", s->store->error[0] != '\0' ? s->store->error :
	    "no memory for the rows of a step");
}

int
sequence_open(struct sequence *s, const struct model *m, const struct sequence_options *o,
    struct kv_reader *r, const struct memory_plan *plan, struct engine_error *e)
{
	int rc;

	*s = (struct sequence){ .model = m, .cache = cache_new(m, kv_reader_head(r)->dtype) };
	rc = s->cache != NULL ? expect(s, o, e) :
	    engine_fail(e, ENGINE_ERUN, "no memory for the cache");
	if (rc == ENGINE_OK && o->retrieve != NULL && o->retrieve->offload)
		rc = leave_on_host(s, o, r, e);
	if (rc == ENGINE_OK)
		rc = load(s, r, e);
	if (rc == ENGINE_OK)
		rc = check(s, o, kv_reader_name(r), e);
	if (rc == ENGINE_OK && s->obs.window > 0 && m->ops->runs_ahead &&
	    observation_to_device(&s->obs, m) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for %u observation queries",
		    s->obs.window);
	if (rc == ENGINE_OK && o->retrieve != NULL)
		rc = start_retrieval(s, o->retrieve, e);
	if (rc == ENGINE_OK && plan != NULL)
		rc = memory_plan_check_rest(plan, m, kv_reader_name(r), e);
	if (rc != ENGINE_OK)
		sequence_close(s);
	return rc;
}

const struct offload_plan *
sequence_plan(const struct sequence *s)
{
	return s->plan.limit != 0 ? &s->plan : NULL;
}

void
sequence_close(struct sequence *s)
{
	if (s->model == NULL)
		return;
	retrieval_free(s->retrieval);
	head_keys_free(s->head);
	offload_free(s->offload);
	offload_store_free(s->store);
	observation_free(&s->obs, s->model);
	cache_free(s->cache);
	memset(s, 0, sizeof *s);
}
