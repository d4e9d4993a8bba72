/* open_sequence.c - loads a snapshot, to continue its text, and checks it */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/residual_check.h"
#include "engine/open_sequence.h"
#include "engine/retrieval_check.h"
#include "engine/row_bytes.h"

/* Makes an empty sequence with members for all that will be loaded besides rows: queries, attention
 * mass, indexes, and a retrieval head. */
static int
make_empty(struct open_sequence *s, const struct sequence_options *o, const struct kv_head *stored,
    struct engine_error *e)
{
	const uint32_t most = o->window > o->observe ? o->window : o->observe;
	struct cache *c = s->sequence.cache = cache_new(s->model, stored->dtype);

	if (c == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the cache");
	cache_set_row_types(c, stored);
	c->spare = o->spare;
	if (most > 0 && observation_init(&s->obs, s->model, most) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for %u observation queries", most);
	if (o->mass && cache_want_mass(c) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for attention mass");
	if (o->query_stats && (c->query_stats = query_stats_new(s->model)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for query statistics");
	if (o->gate != NULL && cache_want_gate(c, o->gate) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the scores of a gate");
	if (o->noncausal && cache_want_noncausal(c, o->noncausal_first) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for non-causal attention");
	if (o->indexes != 0 && cache_want_indexes(c, o->indexes) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for indexes");
	if (o->head != NULL && (s->sequence.head = head_keys_new(o->head, stored->dtype)) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for a retrieval head");
	return ENGINE_OK;
}

/* Returns how many rows of a KV head a step reads at most, by its budget. */
static uint32_t
most_rows(const struct retrieval_options *o, const struct model *m)
{
	const uint64_t n = retrieval_slots(o, NULL, m->id.query_heads);

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Sets up the offloaded layers: their keys and values stay in the file, or are loaded to host
 * memory that the device reads. */
static int
leave_on_host(struct open_sequence *s, const struct sequence_options *o,
    const struct kv_reader *r, struct engine_error *e)
{
	const struct model *m = s->model;
	const int device_reads_host = m->ops->fetch_chosen != NULL;
	struct offload_store *store = offload_store_new(r,
	    device_reads_host || o->stream ? NULL : o->mapper);

	if (store != NULL && device_reads_host)
		offload_store_use_host_memory(store, m->ops, m->dev);
	if (store != NULL)
		s->sequence.offload = offload_new(m->ops, m->dev, store, m->id.layers,
		    m->id.kv_heads, !o->stream && o->retrieve->method == RETRIEVE_SPECONTEXT);
	if (s->sequence.offload == NULL) {
		offload_store_free(store);
		return engine_fail(e, ENGINE_ERUN, "no memory for the rows of a step");
	}
	s->sequence.offload_from = o->stream ? 0 : o->retrieve->dense;
	if (o->stream || o->device_memory == 0)
		return ENGINE_OK;
	if ((s->row_bytes = row_bytes_of_layers(kv_reader_head(r))) == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory");
	s->plan = offload_plan_of(m, o->head, o->device_memory, o->requests,
	    most_rows(o->retrieve, m), s->sequence.cache->dtype, s->row_bytes);
	return offload_first_layer(&s->plan, o->retrieve->dense, kv_reader_head(r)->next_position,
	    &s->sequence.offload_from, e);
}

static struct offload_store *
store_of(const struct open_sequence *s)
{
	return s->sequence.offload != NULL ? s->sequence.offload->store : NULL;
}

static int
load_rows(struct open_sequence *s, const struct sequence_options *o, struct kv_reader *r,
    struct engine_error *e)
{
	const int rc = sequence_load(r, &s->sequence, s->obs.window > 0 ? &s->obs : NULL,
	    o->section);
	struct offload_store *store = store_of(s);

	if (store != NULL && store->error[0] != '\0')
		return engine_fail(e, ENGINE_ERUN, "%s", store->error);
	if (rc == KV_ENOMEM)
		return memory_plan_no_room(s->model, kv_reader_name(r), e);
	if (rc >= 0 && store != NULL)
		offload_store_loaded(store, r);
	return rc < 0 ? engine_fail_reader(e, r, rc) : ENGINE_OK;
}

/* Checks the window. As in other programs, a window that the options do not set is at most the
 * stored one; it grows with the generated tokens. */
static int
check_window(const struct open_sequence *s, const struct sequence_options *o, const char *name,
    struct engine_error *e)
{
	const uint32_t have = s->obs.have;

	if (have >= o->window)
		return ENGINE_OK;
	if (have == 0 || o->evict->scorer.options.window != 0)
		return engine_fail(e, ENGINE_ERUN,
		    "%s: %u observation queries, and the method "
		    "looks at %u: make the snapshot with kv-prefill --observe",
		    name, have, o->window);
	notice(&o->notice, "%s: %u observation queries: the method uses these and later ones, up "
	    "to %u", name, have, o->window);
	return ENGINE_OK;
}

static int
check_mass(const struct cache *c, const char *name, struct engine_error *e)
{
	uint32_t l;

	for (l = 0; c->mass != NULL && l < c->model->id.layers; l++)
		if (!c->mass[l].whole)
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has rows without "
			    "attention mass: make the snapshot with kv-prefill --mass from its "
			    "first token",
			    name, l);
	return ENGINE_OK;
}

static int
check_query_stats(const struct cache *c, const char *name, struct engine_error *e)
{
	uint32_t l;

	for (l = 0; c->query_stats != NULL && l < c->model->id.layers; l++)
		if (!c->query_stats->whole[l])
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no query statistics "
			    "of its tokens: make the snapshot with kv-prefill --query-stats from "
			    "its first token", name, l);
	return ENGINE_OK;
}

static int
check_lists(const struct cache *c, const char *name, struct engine_error *e)
{
	const uint32_t L = c->model->id.layers;
	uint32_t l;

	if ((l = row_lists_missing(c->lists[ROW_GATE], L)) < L)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no scores of this gate, %s: "
		    "make the snapshot with kv-prefill --gate from its first token", name, l,
		    c->gate->label);
	if ((l = row_lists_missing(c->lists[ROW_NONCAUSAL], L)) < L)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no non-causal attention (%s): "
		    "make the snapshot with kv-prefill --noncausal from its first token", name, l,
		    c->noncausal->label);
	return ENGINE_OK;
}

static int
check_retrieval(struct open_sequence *s, const struct sequence_options *o, const char *name,
    struct engine_error *e)
{
	const struct kv_model *id = &s->model->id;
	uint32_t l;
	int rc = ENGINE_OK;

	for (l = 0; o->retrieve != NULL && rc == ENGINE_OK && l < id->layers; l++)
		rc = retrieval_check(o->retrieve, name, id, l, &s->sequence.cache->layer[l],
		    cache_index(s->sequence.cache, l), e);
	if (rc == ENGINE_OK && s->sequence.head != NULL)
		rc = head_check(&s->sequence, name, &o->notice, e);
	return rc;
}

/* Refuses a snapshot that lacks what cannot be made later. */
static int
check_loaded(struct open_sequence *s, const struct sequence_options *o, const char *name,
    struct engine_error *e)
{
	struct cache *c = s->sequence.cache;
	int rc;

	if (c->logits == NULL && o->answers)
		return engine_fail(e, ENGINE_ERUN, "%s holds no logits to start from: continue it "
		    "with kv-prefill --resume", name);
	if ((rc = check_mass(c, name, e)) != ENGINE_OK ||
	    (rc = check_query_stats(c, name, e)) != ENGINE_OK ||
	    (rc = check_lists(c, name, e)) != ENGINE_OK ||
	    (rc = check_retrieval(s, o, name, e)) != ENGINE_OK || o->evict == NULL)
		return rc;
	if ((rc = evict_cache_fit(o->evict, s->model->id.layers, e)) != ENGINE_OK ||
	    (rc = evict_cache_check_log(o->evict, c, name, e)) != ENGINE_OK)
		return rc;
	return check_window(s, o, name, e);
}

/* o NULL: each step reads the layers whole. */
static int
open_offloaded(struct sequence *q, const struct retrieval_options *o, struct engine_error *e)
{
	if (sequence_open_offloaded(q, o) == 0)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_ERUN, "%s", q->offload->store->error[0] != '\0' ?
	    q->offload->store->error : "no memory for the rows of a step");
}

/* Checks that the lists of retrieval, whose rows are known now, and all that the plan has besides
 * fit in addition to what has been allocated. */
static int
check_room(const struct open_sequence *s, const struct retrieval_options *o,
    const struct memory_plan *plan, const char *name, struct engine_error *e)
{
	const struct model *m = s->model;
	const struct head_keys *head = s->sequence.head;
	struct memory_plan with = *plan;
	uint64_t most = 0, rows;
	uint32_t l;

	for (l = 0; l < m->id.layers; l++)
		if ((rows = retrieval_most(&s->sequence.cache->layer[l])) > most)
			most = rows;
	with.activations += retrieval_demand(o, m, head != NULL ? head->head : NULL, most,
	    head != NULL ? head->keys.capacity[0] : 0) - with.lists;
	with.lists = 0;
	return memory_plan_check_rest(&with, m, name, e);
}

/* Has single tokens attend by retrieval. */
static int
start_retrieval(struct open_sequence *s, const struct retrieval_options *o,
    const struct memory_plan *plan, const char *name, struct engine_error *e)
{
	const struct model *m = s->model;
	struct sequence *q = &s->sequence;

	if (plan != NULL && check_room(s, o, plan, name, e) != ENGINE_OK)
		return e->code;
	q->retrieval = retrieval_new(m->ops, m->dev, o, m->id.layers, m->id.query_heads,
	    m->id.kv_heads, m->id.head_width, q->cache->dtype, m->rope.freq);
	if (q->retrieval == NULL ||
	    (q->offload != NULL && retrieval_use_offload(q->retrieval, q->offload) != KV_OK) ||
	    sequence_retrieve(q, q->retrieval) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for retrieval");
	return q->offload != NULL ? open_offloaded(q, o, e) : ENGINE_OK;
}

/* Loads and checks a snapshot, and prepares the steps after it. */
static int
open_snapshot(struct open_sequence *s, const struct sequence_options *o, struct kv_reader *r,
    const struct memory_plan *plan, struct engine_error *e)
{
	const struct model *m = s->model;
	const char *name = kv_reader_name(r);
	int rc = ENGINE_OK;

	if (o->stream || (o->retrieve != NULL && o->retrieve->offload))
		rc = leave_on_host(s, o, r, e);
	if (rc == ENGINE_OK)
		rc = load_rows(s, o, r, e);
	if (rc == ENGINE_OK)
		rc = check_loaded(s, o, name, e);
	if (rc == ENGINE_OK && o->queries_on_device && s->obs.window > 0 && m->ops->runs_ahead &&
	    observation_to_device(&s->obs, m) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "no memory for %u observation queries",
		    s->obs.window);
	if (rc == ENGINE_OK && o->retrieve != NULL)
		rc = start_retrieval(s, o->retrieve, plan, name, e);
	else if (rc == ENGINE_OK && o->stream)
		rc = open_offloaded(&s->sequence, NULL, e);
	if (rc == ENGINE_OK && plan != NULL)
		rc = memory_plan_check_rest(plan, m, name, e);
	return rc;
}

int
open_sequence(struct open_sequence *s, const struct model *m, const struct sequence_options *o,
    struct kv_reader *r, const struct memory_plan *plan, struct engine_error *e)
{
	const struct kv_head *stored = r != NULL ? kv_reader_head(r) : o->stored;
	struct sequence_options with = *o;
	struct retrieval_options retrieve;
	int rc;

	*s = (struct open_sequence){ .model = m };
	rc = residual_check(m, stored, o, r != NULL ? kv_reader_name(r) : "the text", e);
	if (rc == ENGINE_OK && o->retrieve != NULL) {
		retrieve = *o->retrieve;
		with.retrieve = &retrieve;
		rc = retrieval_resolve(&retrieve, &m->id, o->head, e);
	}
	if (rc == ENGINE_OK)
		rc = make_empty(s, &with, stored, e);
	if (rc == ENGINE_OK && r != NULL)
		rc = open_snapshot(s, &with, r, plan, e);
	if (rc != ENGINE_OK)
		close_sequence(s);
	return rc;
}

const struct offload_plan *
sequence_plan(const struct open_sequence *s)
{
	return s->plan.limit != 0 ? &s->plan : NULL;
}

const char *
sequence_offloaded_to(const struct open_sequence *s)
{
	if (s->sequence.offload == NULL || s->sequence.offload_from >= s->model->id.layers)
		return NULL;
	return offload_store_describe(store_of(s));
}

void
close_sequence(struct open_sequence *s)
{
	if (s->model == NULL)
		return;
	observation_free(&s->obs, s->model);
	sequence_free(&s->sequence);
	free(s->row_bytes);
	memset(s, 0, sizeof *s);
}
