/* retrieval_trial.c - measures what retrieval with a snapshot's index reads, and its error
 *
 * A stored query at position p saw the rows up to p when it ran. The trial restores that state: it
 * cuts the lengths of the KV heads, and the index to these rows; both grow again from query to
 * query as in decoding. Clusters and factors do not grow: rows after p are removed from clusters,
 * but not from factors, so with factors a query that does not see all their rows is not tried. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/retrieval_check.h"
#include "engine/retrieval_trial.h"
#include "model/model.h"

/* ---- a layer ---- */

/* Sets the lengths of the layer to the rows that a query at this position sees. */
static void
show_rows(struct retrieval_trial *t, uint32_t position)
{
	struct layer_reader *s = &t->s;
	uint32_t g;

	for (g = 0; g < t->G; g++) {
		s->on_device.len[g] = kv_rows_before(s->rows->pos[g], s->rows->count[g],
		    (uint64_t)position + 1);
		s->index.end[g] = t->end[g] < s->on_device.len[g] ? t->end[g] : s->on_device.len[g];
	}
}

/* Removes entries and labels of rows that the query does not see; labels after the last are 0
 * (index.h). */
static void
take_index_back(struct retrieval_trial *t)
{
	struct layer_index *x = &t->s.index;
	struct labels *l = &x->page_label;
	uint32_t g, n, pages;

	for (g = 0; g < t->G; g++) {
		n = t->s.on_device.len[g];
		if (index_has(x, KV_BITS) && x->bits.len[g] > n / x->bits.rows)
			x->bits.len[g] = n / x->bits.rows;
		if (!index_has(x, KV_PAGE))
			continue;
		pages = n > 0 ? (n - 1) / x->pages.rows : 0;
		if (x->pages.len[g] > n / x->pages.rows)
			x->pages.len[g] = n / x->pages.rows;
		if (l->n[g] <= pages)
			continue;
		t->d->ops->clear(t->d->dev, l->at + g * l->stride + pages,
		    (l->n[g] - pages) * sizeof *l->at);
		l->n[g] = pages;
	}
}

/* Adds the output error of the query for each query head. */
static void
compare_outputs(struct retrieval_trial *t, struct attention_compared *lost)
{
	struct attention_compared one;
	uint32_t h, e;
	double x, y;

	for (h = 0; h < t->H; h++) {
		if (t->s.on_device.len[h / t->R] == 0)
			continue;
		one = (struct attention_compared){ .seen = 1 };
		for (e = h * t->E; e < (h + 1) * t->E; e++) {
			x = t->full[e];
			y = x - t->read[e];
			one.whole += x * x;
			one.lost += y * y;
		}
		attention_add(&lost[h], &one);
	}
}

static int
try_query(struct retrieval_trial *t, uint32_t l, uint32_t n, struct engine_error *e)
{
	const struct ops *ops = t->d->ops;
	struct layer_rows *rows = &t->s.on_device;
	const struct query query = { .q = (float *)t->q.at + (size_t)n * t->H * t->E,
		.pos = (uint32_t *)t->qpos.at + n, .N = 1, .H = t->H,
		.window = kv_layer_window(&t->s.head->model, l),
		.softcap = (float)t->s.head->model.attention_softcap,
		.sinks = t->s.queries.sinks != NULL ? t->sinks.at : NULL };
	size_t size = (size_t)t->H * t->E * sizeof *t->full;

	ops->attend(t->d->dev, t->o.at, NULL, &query, rows);
	ops->get(t->d->dev, t->full, t->o.at, size);
	if (l >= t->options.dense)
		index_extend(&t->s.index, rows);
	retrieve(t->retrieval, l, t->o.at, &query, rows, &t->s.index);
	ops->get(t->d->dev, t->read, t->o.at, size);
	if (device_synced(t->d, e) != ENGINE_OK)
		return e->code;
	compare_outputs(t, t->lost + (size_t)l * t->H);
	t->queries[l]++;
	return ENGINE_OK;
}

/* Does the query see all rows that are rebuilt from factors? */
static int
sees_enough(const struct retrieval_trial *t, uint32_t l)
{
	const struct layer_index *x = &t->s.index;

	return l < t->options.dense || !index_has(x, KV_LOWR) ||
	    t->s.on_device.len[0] >= x->low.n;
}

/* Copies rows and queries to the device, and makes room for retrieval. */
static int
upload_layer(struct retrieval_trial *t, struct engine_error *e)
{
	struct layer_reader *s = &t->s;
	const struct queries *q = &s->queries;

	if (layer_reader_upload(s, t->d, e) != ENGINE_OK ||
	    area_upload(t->d, &t->q, q->q, (size_t)q->n * t->H * t->E * sizeof *q->q, e) == NULL ||
	    area_upload(t->d, &t->qpos, q->pos, q->n * sizeof *q->pos, e) == NULL ||
	    (q->sinks != NULL && area_upload(t->d, &t->sinks, q->sinks,
	    t->H * sizeof *q->sinks, e) == NULL))
		return layer_reader_place(s, e);
	if (retrieval_reserve(t->retrieval, &s->on_device, &s->index) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for retrieval");
	return ENGINE_OK;
}

/* Tries the queries of layer l, which is on the device. */
static int
try_queries(struct retrieval_trial *t, uint32_t l, struct engine_error *e)
{
	const struct queries *q = &t->s.queries;
	uint32_t n;

	memcpy(t->end, t->s.index.end, t->G * sizeof *t->end);
	for (n = 0; n < q->n; n++) {
		show_rows(t, q->pos[n]);
		if (n == 0)
			take_index_back(t);
		if (sees_enough(t, l) && try_query(t, l, n, e) != ENGINE_OK)
			return e->code;
	}
	if (q->n - t->queries[l] > t->left_out)
		t->left_out = q->n - t->queries[l];
	return ENGINE_OK;
}

int
retrieval_trial_layer(struct retrieval_trial *t, uint32_t l, struct engine_error *e)
{
	struct layer_reader *s = &t->s;
	const char *name = kv_reader_name(s->r);
	int rc;

	if ((rc = layer_reader_next(s, l, e)) != ENGINE_OK)
		return rc;
	if (s->queries.n == 0)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no observation "
		    "queries to try retrieval with: make the snapshot with kv-prefill --observe",
		    name, l);
	if ((rc = retrieval_check(&t->options, name, &s->head->model, l, &s->on_device, &s->index,
	    e)) == ENGINE_OK &&
	    (rc = upload_layer(t, e)) == ENGINE_OK)
		rc = try_queries(t, l, e);
	return rc;
}

int
retrieval_trial_finish(struct retrieval_trial *t, struct engine_error *e)
{
	return layer_reader_finish(&t->s, e);
}

/* ---- all of it ---- */

static int
upload_frequencies(struct retrieval_trial *t, struct engine_error *e)
{
	double *freq = engine_alloc(t->E / 2, sizeof *freq, e);
	void *at = NULL;

	if (freq != NULL) {
		model_rope_frequencies(&t->s.head->model, freq);
		at = area_upload(t->d, &t->freq, freq, t->E / 2 * sizeof *freq, e);
	}
	free(freq);
	return at != NULL ? ENGINE_OK : e->code;
}

static int
alloc_results(struct retrieval_trial *t, struct engine_error *e)
{
	const size_t HE = (size_t)t->H * t->E;

	if ((t->queries = engine_alloc(t->L, sizeof *t->queries, e)) == NULL ||
	    (t->lost = engine_alloc((size_t)t->L * t->H, sizeof *t->lost, e)) == NULL ||
	    (t->full = engine_alloc(HE, sizeof *t->full, e)) == NULL ||
	    (t->read = engine_alloc(HE, sizeof *t->read, e)) == NULL ||
	    (t->end = engine_alloc(t->G, sizeof *t->end, e)) == NULL ||
	    area_room(t->d, &t->o, HE * sizeof *t->full, e) == NULL)
		return e->code;
	return ENGINE_OK;
}

int
retrieval_trial_init(struct retrieval_trial *t, const struct device *d, struct kv_reader *r,
    const struct retrieval_options *options, struct engine_error *e)
{
	const struct kv_model *m = &kv_reader_head(r)->model;

	*t = (struct retrieval_trial){ .d = d, .options = *options, .L = m->layers,
	    .H = m->query_heads, .G = m->kv_heads, .R = m->query_heads / m->kv_heads,
	    .E = m->head_width };
	t->options.audit = 1;
	if (layer_reader_init(&t->s, r, e) != ENGINE_OK ||
	    layer_reader_want_index(&t->s, d, retrieve_needs(options->method), e) != ENGINE_OK ||
	    upload_frequencies(t, e) != ENGINE_OK)
		return e->code;
	t->retrieval = retrieval_new(d->ops, d->dev, &t->options, t->L, t->H, t->G, t->E,
	    t->s.head->dtype, t->freq.at);
	if (t->retrieval == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for retrieval");
	return alloc_results(t, e);
}

void
retrieval_trial_free(struct retrieval_trial *t)
{
	retrieval_free(t->retrieval);
	area_release(t->d, &t->q);
	area_release(t->d, &t->qpos);
	area_release(t->d, &t->sinks);
	area_release(t->d, &t->o);
	area_release(t->d, &t->freq);
	layer_reader_free(&t->s, t->d);
	free(t->queries);
	free(t->lost);
	free(t->full);
	free(t->read);
	free(t->end);
}

/* ---- sums ---- */

struct trial_sum
retrieval_trial_heads(const struct retrieval_trial *t, uint32_t l, uint32_t g0, uint32_t g1)
{
	const struct retrieval_stats *stats = retrieval_stats(t->retrieval);
	struct attention_compared lost = { 0 };
	struct trial_sum sum = { 0 };
	uint32_t h;

	for (h = g0 * t->R; h < g1 * t->R; h++)
		attention_add(&lost, &t->lost[(size_t)l * t->H + h]);
	for (; g0 < g1; g0++)
		retrieval_stats_add(&sum.read, &stats[(size_t)l * t->G + g0]);
	sum.output_error = output_error(&lost);
	return sum;
}

struct trial_sum
retrieval_trial_layers(const struct retrieval_trial *t, uint32_t l0)
{
	struct trial_sum sum = { 0 }, one;
	uint32_t l, n = 0;

	for (l = l0; l < t->L; l++) {
		one = retrieval_trial_heads(t, l, 0, t->G);
		retrieval_stats_add(&sum.read, &one.read);
		if (!isnan(one.output_error)) {
			sum.output_error += one.output_error;
			n++;
		}
	}
	sum.output_error = n > 0 ? sum.output_error / n : NAN;
	return sum;
}
