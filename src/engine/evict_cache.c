/* evict_cache.c - scores and evicts the layers of a cache in process */
#include <stdlib.h>
#include <string.h>

#include "cache/value_norms.h"
#include "engine/evict_cache.h"

void
evict_cache_free(struct cache_evictor *v)
{
	uint32_t i;

	for (i = 0; i < SCORE_AHEAD; i++)
		evict_plan_free(&v->plan[i]);
	scorer_free(&v->scorer);
	evictor_free(&v->evictor);
}

unsigned
evict_cache_needs(const struct cache_evictor *v)
{
	return v->scorer.method != NULL ? scorer_needs(&v->scorer) : 0;
}

int
evict_cache_fit(const struct cache_evictor *v, uint32_t layers, struct engine_error *e)
{
	uint32_t l;

	for (l = 0; v->scorer.method == NULL && l < layers; l++)
		if (evictor_needs_scores(&v->evictor, l))
			return engine_fail(e, ENGINE_EOPTION, "--evict: layer %u cannot be evicted "
			    "without scores: give --score, too", l);
	return ENGINE_OK;
}

int
evict_cache_check_log(const struct cache_evictor *v, const struct cache *c, const char *name,
    struct engine_error *e)
{
	const struct kv_head head = { .model = c->model->id, .next_position = c->next_position };

	return v->scorer.method != NULL && c->logged ?
	    scorer_check_log(&v->scorer, &c->log, &head, name, e) : ENGINE_OK;
}

/* Sets the queries of the job, rounded as in a snapshot: in place if they are on the device, else
 * *host <- a copy, to be freed. */
static int
take_queries(const struct cache *c, const struct observation *obs, struct score_job *job,
    float **host, struct engine_error *e)
{
	const struct model *m = c->model;
	const size_t row = (size_t)m->id.query_heads * m->id.head_width;
	const size_t size = job->in.window * row;
	float *q = obs->q[job->in.layer] + (obs->have - job->in.window) * row;
	void *stored;

	if (obs->on_device) {
		m->ops->round(m->dev, q, size, c->dtype);
		job->device_queries = q;
		return ENGINE_OK;
	}
	if ((stored = engine_alloc(size, kv_dtype_size(c->dtype), e)) == NULL)
		return e->code;
	if ((*host = engine_alloc(size, sizeof *q, e)) != NULL) {
		kv_from_f32(stored, q, c->dtype, size);
		kv_to_f32(*host, stored, c->dtype, size);
	}
	job->queries = *host;
	free(stored);
	return *host != NULL ? ENGINE_OK : e->code;
}

/* Sets the observation window of the job: queries, positions and own keys. */
static int
take_window(const struct scorer *s, const struct cache *c, const struct observation *obs,
    struct score_job *job, float **host, struct engine_error *e)
{
	const uint32_t l = job->in.layer;
	int rc = scorer_window(s, obs->have, l, &job->in.window, e);

	if (rc != ENGINE_OK)
		return rc;
	job->in.window_pos = obs->pos + obs->have - job->in.window;
	if ((job->n_own = obs->n_own) > 0) {
		job->own_keys = obs->own != NULL ? obs->own[l] : NULL;
		job->own_pos = obs->pos + obs->have - obs->n_own;
	}
	return take_queries(c, obs, job, host, e);
}

static struct evict_input
input_of(const struct cache *c, const struct score_job *job)
{
	return (struct evict_input){ .layer = job->in.layer, .layers = c->model->id.layers,
	    .rows = job->in.rows, .next_position = c->next_position,
	    .tokens = (uint32_t)c->n_tokens };
}

/* Has the device start to choose, if it can, or else to score. */
static int
begin_choice(struct cache_evictor *v, const struct cache *c, struct score_job *job,
    struct evict_plan *plan, struct engine_error *e)
{
	const struct evict_input in = input_of(c, job);
	uint32_t *scored = engine_alloc(in.rows->heads, sizeof *scored, e);
	struct list_rule rule;
	int rc;

	if (scored == NULL)
		return e->code;
	if (!evictor_plans(&v->evictor, &in) || !score_rule(&v->scorer, job, &rule, scored))
		rc = score_begin(&v->scorer, job, e);
	else if ((rc = evictor_plan(&v->evictor, &in, scored, plan, e)) == ENGINE_OK)
		rc = score_choice_begin(&v->scorer, job, &rule, scored, plan, e);
	free(scored);
	return rc;
}

static int
begin_layer(struct cache_evictor *v, const struct cache *c, uint32_t l,
    const struct observation *obs, struct engine_error *e)
{
	const struct model *m = c->model;
	struct score_job *job = &v->begun[l % SCORE_AHEAD];
	struct kv_rows *rows = &v->begun_rows[l % SCORE_AHEAD];
	float *queries = NULL;
	int rc = ENGINE_OK;

	evict_plan_free(&v->plan[l % SCORE_AHEAD]);     /* from a layer that failed */
	*rows = cache_rows(c, l);
	*job = (struct score_job){ .in = { .layer = l, .layers = m->id.layers,
	    .query_heads = m->id.query_heads,
	    .width = m->id.head_width, .rows = rows, .key_type = rows_k_type(&c->layer[l]),
	    .value_type = rows_v_type(&c->layer[l]),
	    .next_position = c->next_position, .sees = m->layer[l].window },
	    .model = &m->id, .dtype = c->dtype, .softcap = (float)m->id.attention_softcap,
	    .device_sinks = m->layer[l].sinks, .device_rows = &c->layer[l] };
	if (v->scorer.method == NULL)
		return ENGINE_OK;
	if (v->scorer.device.ops == NULL)
		v->scorer.device = (struct device){ m->ops, m->dev };
	if (evict_cache_needs(v) & NEED_MASS) {
		job->device_mass = c->mass[l].sum;
		job->mass_stride = c->mass[l].stride;
	}
	if (evict_cache_needs(v) & NEED_QUERY_STATS)
		job->query_stats = c->query_stats;
	if (evict_cache_needs(v) & NEED_GATE)
		job->gates = c->lists[ROW_GATE];
	if (evict_cache_needs(v) & NEED_NONCAUSAL)
		job->noncausal = c->lists[ROW_NONCAUSAL];
	if (evict_cache_needs(v) & NEED_WINDOW)
		rc = take_window(&v->scorer, c, obs, job, &queries, e);
	if (rc == ENGINE_OK)
		rc = begin_choice(v, c, job, &v->plan[l % SCORE_AHEAD], e);
	free(queries);
	return rc;
}

int
evict_cache_begin(struct cache_evictor *v, const struct cache *c, uint32_t l,
    const struct observation *obs, struct engine_error *e)
{
	int rc;

	evict_hook_begin(&v->hook);
	rc = begin_layer(v, c, l, obs, e);
	evict_hook_end(&v->hook);
	return rc;
}

/* Keeps the rows that the device has chosen. */
static int
finish_choice(struct cache_evictor *v, struct cache *c, struct score_job *job,
    struct evict_plan *plan, struct engine_error *e)
{
	const uint32_t *listed;
	int rc = score_choice_finish(&v->scorer, job, &listed, e);

	if (rc == ENGINE_OK && job->chosen.stride > 0)
		cache_keep_listed(c, job->in.layer, &job->chosen, listed);
	evict_plan_free(plan);
	return rc;
}

/* *mean <- with first_stage the norms of the layer's rows, to be freed; else NULL. */
static int
make_norms(const struct cache_evictor *v, const struct cache *c, const struct evict_input *in,
    float **mean, struct engine_error *e)
{
	const struct model *m = c->model;
	const uint32_t R = m->id.query_heads / m->id.kv_heads;
	const struct device d = { m->ops, m->dev };
	float *lists;
	int rc = ENGINE_OK;

	*mean = NULL;
	if (v->evictor.options.first_stage == 0 || in->score == NULL)
		return ENGINE_OK;
	lists = engine_alloc(kv_rows_total(in->rows) * R, sizeof *lists, e);
	*mean = engine_alloc(kv_rows_total(in->rows), sizeof **mean, e);
	if (lists == NULL || *mean == NULL)
		rc = e->code;
	else if (layer_value_norms(m, in->layer, &c->layer[in->layer], 0, lists) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "layer %u: no memory for norms of value outputs",
		    in->layer);
	else if ((rc = device_synced(&d, e)) == ENGINE_OK)
		mean_norms(*mean, lists, in->rows, R);
	free(lists);
	return rc;
}

static int
finish_layer(struct cache_evictor *v, struct cache *c, uint32_t l, struct engine_error *e)
{
	struct score_job *job = &v->begun[l % SCORE_AHEAD];
	struct evict_plan *plan = &v->plan[l % SCORE_AHEAD];
	struct evict_input in = input_of(c, job);
	struct kept kept;
	float *score = NULL, *norms = NULL;
	int rc = ENGINE_OK;

	if (plan->first != NULL)
		return finish_choice(v, c, job, plan, e);
	if (v->scorer.method != NULL) {
		score = engine_alloc(kv_rows_total(in.rows), sizeof *score, e);
		rc = score != NULL ? score_finish(&v->scorer, job, score, e) : e->code;
	}
	in.score = score;
	if (rc == ENGINE_OK)
		rc = make_norms(v, c, &in, &norms, e);
	in.norms = norms;
	if (rc == ENGINE_OK && (rc = evictor_choose(&v->evictor, &in, &kept, e)) == ENGINE_OK) {
		cache_keep(c, l, kept.count, kept.keep);
		kept_free(&kept);
	}
	free(norms);
	free(score);
	return rc;
}

int
evict_cache_finish(struct cache_evictor *v, struct cache *c, uint32_t l, struct engine_error *e)
{
	int rc;

	evict_hook_begin(&v->hook);
	rc = finish_layer(v, c, l, e);
	evict_hook_end(&v->hook);
	return rc;
}

int
evict_cache_all(struct cache_evictor *v, struct cache *c, const struct observation *obs,
    struct engine_error *e)
{
	const uint32_t L = c->model->id.layers;
	const uint32_t behind = c->model->ops->runs_ahead ? SCORE_AHEAD - 1 : 0;
	uint32_t l;
	int rc = ENGINE_OK;

	for (l = 0; rc == ENGINE_OK && l < L + behind; l++) {
		if (l < L)
			rc = evict_cache_begin(v, c, l, obs, e);
		if (rc == ENGINE_OK && l >= behind && l - behind < L)
			rc = evict_cache_finish(v, c, l - behind, e);
	}
	return rc;
}
