/* score_device.c - the device's part of scoring: it sums attention, makes scores if it has an op
 * for the method, and chooses the rows to keep if the method has a rule for lists
 *
 * The device chooses the same rows as the host (score.c, methods/evict.c), which gets the list of
 * rows to keep, instead of a number for each row and query head. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/score_internal.h"

/* ---- rows on the device ---- */

/* lr->k, lr->pos <- copies of the rows on the host */
static int
upload_rows(struct scorer *s, const struct score_input *in, struct layer_rows *lr,
    struct engine_error *e)
{
	const size_t size = kv_rows_total(in->rows) * kv_row_bytes(in->key_type, in->width);

	if (area_share(&s->device, &s->keys, &lr->k, in->keys, size, e) != ENGINE_OK)
		return e->code;
	lr->pos = area_positions(&s->device, &s->pos, in->rows, e);
	return lr->pos != NULL ? ENGINE_OK : e->code;
}

/* *lr <- the rows on the device from --since on, with start and len, [SCORE_HEADS] each. in.stride
 * <- the length of the longest head. */
static int
later_rows(struct scorer *s, struct score_job *job, struct layer_rows *lr, uint64_t *start,
    uint32_t *len, struct engine_error *e)
{
	const struct layer_rows *on_device = job->device_rows;
	struct score_input *in = &job->in;
	const struct kv_rows *rows = in->rows;
	uint64_t total = 0;
	uint32_t g, first;

	*lr = (struct layer_rows){ .heads = rows->heads, .width = in->width, .dtype = job->dtype,
	    .k_type = in->key_type };
	if (on_device != NULL)
		*lr = *on_device;
	for (g = 0; g < rows->heads; total += rows->count[g++]) {
		first = kv_rows_before(rows->pos[g], rows->count[g], s->since);
		start[g] = (on_device != NULL ? on_device->start[g] : total) + first;
		len[g] = rows->count[g] - first;
		in->stride = len[g] > in->stride ? len[g] : in->stride;
	}
	lr->start = start;
	lr->len = len;
	return on_device != NULL ? ENGINE_OK : upload_rows(s, in, lr, e);
}

/* ---- the attention mass from the observation queries ---- */

/* Copies the keys of tokens that are not stored to the device; every KV head has as many. */
static int
upload_own(struct scorer *s, const struct score_job *job, struct layer_rows *own, uint64_t *start,
    uint32_t *len, struct engine_error *e)
{
	const struct score_input *in = &job->in;
	const size_t G = in->rows->heads, n = job->n_own;
	const size_t size = G * n * in->width * kv_dtype_size(job->dtype);
	uint32_t *pos = engine_alloc(G * n, sizeof *pos, e), g;

	if (pos == NULL)
		return e->code;
	*own = (struct layer_rows){ .start = start, .len = len, .heads = in->rows->heads,
	    .width = in->width, .dtype = job->dtype };
	for (g = 0; g < G; g++) {
		start[g] = g * n;
		len[g] = job->n_own;
		memcpy(pos + start[g], job->own_pos, n * sizeof *pos);
	}
	if ((own->k = area_upload(&s->device, &s->own, job->own_keys, size, e)) != NULL)
		own->pos = area_upload(&s->device, &s->own_pos, pos, G * n * sizeof *pos, e);
	free(pos);
	return own->pos != NULL ? ENGINE_OK : e->code;
}

/* *own <- the keys of tokens that are not stored, on the device after the rows. */
static void
own_behind(const struct score_job *job, const struct layer_rows *rows, struct layer_rows *own,
    uint64_t *start, uint32_t *len)
{
	uint32_t g;

	*own = *rows;
	own->start = start;
	own->len = len;
	for (g = 0; g < rows->heads; g++) {
		start[g] = rows->start[g] + rows->len[g];
		len[g] = job->n_own;
	}
}

/* Returns the positions of the window on the device. They are the same in all layers, so only the
 * first copies them. */
static const uint32_t *
upload_positions(struct scorer *s, const struct score_input *in, struct engine_error *e)
{
	const size_t size = in->window * sizeof *s->known_q_pos;

	if (s->n_known == in->window && memcmp(s->known_q_pos, in->window_pos, size) == 0)
		return s->q_pos.at;
	free(s->known_q_pos);
	s->n_known = 0;
	if ((s->known_q_pos = engine_alloc(in->window, sizeof *s->known_q_pos, e)) == NULL)
		return NULL;
	if (area_upload(&s->device, &s->q_pos, in->window_pos, size, e) == NULL)
		return NULL;
	memcpy(s->known_q_pos, in->window_pos, size);
	s->n_known = in->window;
	return s->q_pos.at;
}

/* Returns how many rows with positions pos[n] a query at `at` sees before it, from `since` on. */
static uint32_t
rows_seen_before(const uint32_t *pos, uint32_t n, uint32_t at, uint32_t sees, uint32_t since)
{
	const uint32_t from = sees > 0 && at >= sees ? at - sees + 1 : 0;
	const uint32_t first = from > since ? from : since;

	return first < at ? kv_rows_before(pos, n, at) - kv_rows_before(pos, n, first) : 0;
}

/* Returns the logarithms of the queries' weights on the device, [W][H]. A query without rows before
 * it pays nothing to any, whatever its weight. */
static const float *
upload_weights(struct scorer *s, const struct score_job *job, struct engine_error *e)
{
	const struct score_input *in = &job->in;
	const uint32_t W = in->window, H = in->query_heads, R = H / in->rows->heads;
	float *weight = engine_alloc((size_t)W * H, sizeof *weight, e);
	const void *on_device;
	uint32_t i, h, seen;

	if (weight == NULL)
		return NULL;
	for (i = 0; i < W; i++)
		for (h = 0; h < H; h++) {
			seen = rows_seen_before(in->rows->pos[h / R], in->rows->count[h / R],
			    in->window_pos[i], in->sees, s->since);
			if (job->n_own > 0)
				seen += rows_seen_before(job->own_pos, job->n_own,
				    in->window_pos[i], in->sees, 0);
			weight[(size_t)i * H + h] = (float)log(seen > 1 ? seen : 1);
		}
	on_device = area_upload(&s->device, &s->weights, weight, (size_t)W * H * sizeof *weight, e);
	free(weight);
	return on_device;
}

/* As window_mass(), the attention of each query times its weight w, which is put into the query's
 * log-sum-exp: exp(q.k - (lse - log w)) is w times the attention. */
static int
weighted_mass(struct scorer *s, const struct score_job *job, const struct query *query,
    const struct layer_rows *rows, const struct layer_rows *own, float *mass,
    struct engine_error *e)
{
	const size_t n = (size_t)query->N * query->H, stride = job->in.stride;
	const float *weights = upload_weights(s, job, e);
	const struct ops *o = s->device.ops;
	struct dev *dev = s->device.dev;
	float *lse = area_room(&s->device, &s->lse, 2 * n * sizeof *lse, e);

	if (weights == NULL || lse == NULL)
		return e->code;
	o->clear(dev, mass, query->H * stride * sizeof *mass);
	o->attend(dev, NULL, lse, query, rows);
	if (own != NULL) {
		o->attend(dev, NULL, lse + n, query, own);
		o->lse_merge(dev, lse, lse + n, n);
	}
	o->mix(dev, lse, weights, n, -1, 1);
	o->attend_mass(dev, mass, stride, query, lse, rows, s->options.over_queries);
	return ENGINE_OK;
}

/* mass (device) <- the attention of each query by itself. */
static void
one_query_at_a_time(const struct scorer *s, const struct score_job *job, struct query query,
    const struct layer_rows *rows, const struct layer_rows *own, float *mass)
{
	const struct score_input *in = &job->in;
	uint32_t i;

	query.N = 1;
	for (i = 0; i < in->window; i++, query.pos++, mass += query.H * in->stride) {
		s->device.ops->window_mass(s->device.dev, mass, in->stride, &query, rows, own,
		    QUERIES_SUM);
		query.q += (size_t)query.H * in->width;
	}
}

/* mass (device) <- the attention mass of these rows from the queries, lists in.stride apart; with
 * NEED_EACH_QUERY from one query after another. */
static int
compute_window_mass(struct scorer *s, const struct score_job *job, const struct layer_rows *rows,
    float *mass, struct engine_error *e)
{
	const struct score_input *in = &job->in;
	const size_t n = (size_t)in->window * in->query_heads * in->width;
	struct query query = { .q = job->device_queries, .N = in->window, .H = in->query_heads,
		.window = in->sees, .softcap = job->softcap, .sinks = job->device_sinks };
	uint64_t start[SCORE_HEADS];
	uint32_t len[SCORE_HEADS];
	struct layer_rows own;
	int rc;

	if (job->n_own > 0 && job->own_keys == NULL)
		own_behind(job, rows, &own, start, len);
	else if (job->n_own > 0 && (rc = upload_own(s, job, &own, start, len, e)) != ENGINE_OK)
		return rc;
	if (job->queries != NULL)
		query.q = area_upload(&s->device, &s->q, job->queries, n * sizeof *query.q, e);
	if (query.q == NULL || (query.pos = upload_positions(s, in, e)) == NULL)
		return e->code;
	if (job->sinks != NULL && (query.sinks = area_upload(&s->device, &s->sinks, job->sinks,
	    query.H * sizeof *job->sinks, e)) == NULL)
		return e->code;
	if (s->options.weight != WEIGHT_NONE)
		return weighted_mass(s, job, &query, rows, job->n_own > 0 ? &own : NULL, mass, e);
	if (s->method->needs & NEED_EACH_QUERY)
		one_query_at_a_time(s, job, query, rows, job->n_own > 0 ? &own : NULL, mass);
	else
		s->device.ops->window_mass(s->device.dev, mass, in->stride, &query, rows,
		    job->n_own > 0 ? &own : NULL, s->options.over_queries);
	return ENGINE_OK;
}

/* ---- scores that the device makes ---- */

/* score[g][s] (device, G lists at g*stride) <- the scores of the rows */
typedef void score_op(struct dev *, float *score, size_t stride, const struct layer_rows *);

/* Returns the op of a method (methods/list.h); NULL: there is none, or not in this backend. */
static score_op *
score_op_of(const struct method *method, const struct ops *ops)
{
	score_op *const op[] = {
#define OP(name) ops->name
#define LISTS(name) NULL
#define NO_OP NULL
#define METHOD(name, needs, uses, op, ...) op,
#include "methods/list.h"
#undef METHOD
#undef NO_OP
#undef LISTS
#undef OP
	};
	const size_t n = sizeof op / sizeof *op;
	size_t i;

	for (i = 0; i < n && method != &methods[i]; i++)
		;
	return i < n ? op[i] : NULL;
}

/* Has the device make the rows' mass from the window, or, by the op, their scores. */
static int
begin_rows(struct scorer *s, struct score_job *job, score_op *op, struct engine_error *e)
{
	struct score_input *in = &job->in;
	const size_t lists = op != NULL ? in->rows->heads : (size_t)in->query_heads *
	    (s->method->needs & NEED_EACH_QUERY ? in->window : 1);
	uint64_t start[SCORE_HEADS];
	uint32_t len[SCORE_HEADS];
	struct layer_rows rows;
	float *made;
	int rc, slot;

	if ((rc = later_rows(s, job, &rows, start, len, e)) != ENGINE_OK)
		return rc;
	if ((slot = readback_slot(&s->readback, &s->device, lists * in->stride, &made, e)) < 0)
		return slot;
	if (op != NULL)
		op(s->device.dev, made, in->stride, &rows);
	else if ((rc = compute_window_mass(s, job, &rows, made, e)) != ENGINE_OK)
		return rc;
	job->made_slot = slot;
	return readback_begin(&s->readback, &s->device, slot, made, lists * in->stride, e);
}

/* Has the host get the queries of the window, from where they are. */
static int
begin_queries(struct scorer *s, struct score_job *job, struct engine_error *e)
{
	const struct device *d = &s->device;
	const size_t n = (size_t)job->in.window * job->in.query_heads * job->in.width;
	float *room;
	const int slot = readback_slot(&s->readback, d, n, &room, e);

	if (slot < 0)
		return slot;
	if (job->queries != NULL)
		d->ops->put(d->dev, room, job->queries, n * sizeof *room);
	else
		d->ops->copy(d->dev, room, job->device_queries, n * sizeof *room);
	job->made_slot = slot;
	return readback_begin(&s->readback, d, slot, room, n, e);
}

static int
begin_mass(struct scorer *s, struct score_job *job, struct engine_error *e)
{
	float *none;
	int slot = readback_slot(&s->readback, &s->device, 0, &none, e);

	if (slot < 0)
		return slot;
	job->mass_slot = slot;
	return readback_begin(&s->readback, &s->device, slot, job->device_mass,
	    job->in.query_heads * job->mass_stride, e);
}

int
score_begin(struct scorer *s, struct score_job *job, struct engine_error *e)
{
	score_op *op = job->device_rows != NULL ? score_op_of(s->method, s->device.ops) : NULL;
	int rc = score_filter(s, &job->in, e);

	job->in.value_width = job->model->latent_rank;
	job->by_op = op != NULL;
	job->made_slot = job->mass_slot = -1;
	if (rc != ENGINE_OK)
		return rc;
	if (s->method->needs & NEED_QUERIES)
		rc = begin_queries(s, job, e);
	else if (op != NULL || (s->method->needs & NEED_WINDOW))
		rc = begin_rows(s, job, op, e);
	if (rc == ENGINE_OK && job->device_rows != NULL && (s->method->needs & NEED_MASS))
		rc = begin_mass(s, job, e);
	return rc;
}

/* ---- the choice of a device ---- */

int
score_rule(const struct scorer *s, const struct score_job *job, struct list_rule *rule,
    uint32_t *scored)
{
	const struct kv_rows *rows = job->in.rows;

	if (job->device_rows == NULL || s->device.ops->rank_rows == NULL || s->since > 0)
		return 0;
	if (score_op_of(s->method, s->device.ops) != NULL) {
		*rule = (struct list_rule){ .kernel = 1 };
		memcpy(scored, rows->count, rows->heads * sizeof *scored);
		return 1;
	}
	return s->method->lists != NULL && s->method->lists(&job->in, &s->options, rule, scored);
}

/* r->lists, stride, H <- the lists by which the rows are ranked, on the device. */
static int
make_lists(struct scorer *s, struct score_job *job, const struct layer_rows *rows,
    struct ranking *r, struct engine_error *e)
{
	score_op *op = score_op_of(s->method, s->device.ops);
	const uint32_t H = op != NULL ? rows->heads : job->in.query_heads;
	const size_t stride = job->in.stride;
	float *made;
	int rc;

	if (op == NULL && (s->method->needs & NEED_MASS)) {
		*r = (struct ranking){ .lists = job->device_mass, .stride = job->mass_stride,
		    .H = H };
		return ENGINE_OK;
	}
	made = area_room(&s->device, &s->lists, H * stride * sizeof *made, e);
	if (made == NULL)
		return e->code;
	if (op != NULL)
		op(s->device.dev, made, stride, rows);
	else if ((rc = compute_window_mass(s, job, rows, made, e)) != ENGINE_OK)
		return rc;
	*r = (struct ranking){ .lists = made, .stride = stride, .H = H };
	return ENGINE_OK;
}

/* Returns the longest list of a KV head; 0 when all rows are kept, and nothing is listed. */
static size_t
list_length(const struct evict_plan *plan, const struct kv_rows *rows)
{
	uint32_t g, longest = 0;
	int dropped = 0;

	for (g = 0; g < rows->heads; g++) {
		dropped |= plan->kept.count[g] < rows->count[g];
		longest = plan->kept.count[g] > longest ? plan->kept.count[g] : longest;
	}
	return dropped ? longest : 0;
}

int
score_choice_begin(struct scorer *s, struct score_job *job, const struct list_rule *rule,
    const uint32_t *scored, const struct evict_plan *plan, struct engine_error *e)
{
	const struct device *d = &s->device;
	const uint32_t G = job->in.rows->heads;
	const size_t length = list_length(plan, job->in.rows), n = G * (length + 1);
	uint64_t start[SCORE_HEADS];
	uint32_t len[SCORE_HEADS];
	struct layer_rows rows;
	struct ranking r;
	float *rank, *room;
	int rc;

	if ((rc = later_rows(s, job, &rows, start, len, e)) != ENGINE_OK ||
	    (rc = make_lists(s, job, &rows, &r, e)) != ENGINE_OK)
		return rc;
	r.rule = *rule;
	r.scored = scored;
	r.first = plan->first;
	r.last = plan->last;
	rank = area_room(d, &s->ranks, G * job->in.stride * sizeof *rank, e);
	if (rank == NULL)
		return e->code;
	if ((job->made_slot = readback_slot(&s->readback, d, n, &room, e)) < 0)
		return job->made_slot;
	job->chosen = (struct chosen){ .at = (uint32_t *)(void *)room, .stride = length,
	    .n = plan->kept.count, .rows = 1 };
	d->ops->rank_rows(d->dev, rank, job->in.stride, job->chosen.at + G * length, &r, &rows);
	if (length > 0)
		d->ops->topk(d->dev, &job->chosen, rank, job->in.stride,
		    (struct counts){ len, 0 }, G);
	return readback_begin(&s->readback, d, job->made_slot, room, n, e);
}

int
score_choice_finish(struct scorer *s, struct score_job *job, const uint32_t **listed,
    struct engine_error *e)
{
	const uint32_t G = job->in.rows->heads, *nan;
	const float *host;
	uint32_t g;
	int rc = readback_end(&s->readback, &s->device, job->made_slot, &host, e);

	if (rc != ENGINE_OK)
		return rc;
	*listed = (const uint32_t *)(const void *)host;
	nan = *listed + G * job->chosen.stride;
	for (g = 0; g < G; g++)
		if (nan[g] != UINT32_MAX)
			return score_refuse_nan(job->in.layer, g, nan[g], e);
	return ENGINE_OK;
}
