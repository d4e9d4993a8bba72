/* probe_mass.c - the attention mass that stored rows get from probe tokens
 *
 * The rows of a layer are in order of position, so a query sees up to three pieces of each KV head:
 * sinks, range, rows of probe tokens. Each piece gives a log-sum-exp; merged they normalise the
 * weights of the range. KV heads may have different rows, so that the range begins at another row
 * in each: the sums are in lists that begin with the range, and are copied to p->mass at the
 * end. */
#include <math.h>
#include <stdlib.h>

#include "cache/value_norms.h"
#include "forward/probe_mass.h"

static size_t
stored_rows(const struct probe_mass *p, const struct cache *c, uint32_t l)
{
	size_t total = 0;
	uint32_t g;

	for (g = 0; g < c->model->id.kv_heads; g++)
		total += p->stored[(size_t)l * c->model->id.kv_heads + g];
	return total;
}

static int
allocate(struct probe_mass *p, const struct cache *c, uint32_t rows)
{
	const struct kv_model *id = &c->model->id;
	size_t heads = (size_t)id->layers * id->kv_heads, R = id->query_heads / id->kv_heads;
	size_t lses = (size_t)rows * id->query_heads;
	uint32_t l, g;

	p->mass = calloc(id->layers, sizeof *p->mass);
	p->range_mass = calloc(id->layers, sizeof *p->range_mass);
	p->first = calloc(heads, sizeof *p->first);
	p->end = calloc(heads, sizeof *p->end);
	p->sinks = calloc(heads, sizeof *p->sinks);
	p->stored = calloc(heads, sizeof *p->stored);
	p->part = c->model->ops->alloc(c->model->dev, lses * sizeof *p->part);
	p->start = calloc(id->kv_heads, sizeof *p->start);
	p->len = calloc(id->kv_heads, sizeof *p->len);
	if (!p->mass || !p->range_mass || !p->first || !p->end || !p->sinks || !p->stored ||
	    !p->part || !p->start || !p->len)
		return MODEL_ENOMEM;
	for (l = 0; l < id->layers; l++) {
		for (g = 0; g < id->kv_heads; g++)
			p->stored[(size_t)l * id->kv_heads + g] = c->layer[l].len[g];
		if ((p->mass[l] = calloc(stored_rows(p, c, l) * R + 1, sizeof **p->mass)) == NULL)
			return MODEL_ENOMEM;
	}
	return 0;
}

struct probe_mass *
probe_mass_new(const struct cache *c, enum over_queries over, uint32_t rows)
{
	struct probe_mass *p = calloc(1, sizeof *p);

	if (p == NULL)
		return NULL;
	p->over = over;
	if (allocate(p, c, rows) != 0) {
		probe_mass_free(p, c);
		return NULL;
	}
	return p;
}

void
probe_mass_free(struct probe_mass *p, const struct cache *c)
{
	uint32_t l;

	if (p == NULL)
		return;
	for (l = 0; p->mass != NULL && l < c->model->id.layers; l++)
		free(p->mass[l]);
	for (l = 0; p->range_mass != NULL && l < c->model->id.layers; l++)
		c->model->ops->free(c->model->dev, p->range_mass[l]);
	free(p->mass);
	free(p->range_mass);
	free(p->first);
	free(p->end);
	free(p->sinks);
	free(p->stored);
	c->model->ops->free(c->model->dev, p->part);
	free(p->start);
	free(p->len);
	free(p->host_x);
	free(p->host_lse);
	free(p->host_w);
	free(p);
}

int
probe_mass_weigh(struct probe_mass *p, const struct cache *c, uint32_t rows)
{
	const struct kv_model *id = &c->model->id;

	p->host_x = malloc((size_t)rows * id->hidden * sizeof *p->host_x);
	p->host_lse = malloc((size_t)rows * id->query_heads * sizeof *p->host_lse);
	p->host_w = malloc((size_t)2 * id->hidden * sizeof *p->host_w);
	return p->host_x != NULL && p->host_lse != NULL && p->host_w != NULL ? 0 : MODEL_ENOMEM;
}

int
probe_mass_times_norms(struct probe_mass *p, const struct cache *c)
{
	const uint32_t R = c->model->id.query_heads / c->model->id.kv_heads;
	float *norms;
	size_t i, n;
	uint32_t l;
	int rc = 0;

	for (l = 0; rc == 0 && l < c->model->id.layers; l++) {
		n = stored_rows(p, c, l) * R;
		norms = malloc(n * sizeof *norms + 1);
		rc = norms == NULL ? MODEL_ENOMEM :
		    layer_value_norms(c->model, l, &c->layer[l], 1, norms);
		for (i = 0; rc == 0 && i < n; i++)
			p->mass[l][i] *= norms[i];
		free(norms);
	}
	return rc;
}

/* Finds the rows of the range in each KV head of layer l. */
static void
find_rows(struct probe_mass *p, const struct cache *c, uint32_t l, uint32_t sink, uint32_t from,
    uint32_t to)
{
	const struct kv_rows rows = cache_rows(c, l);
	size_t range;
	uint32_t g, n;

	for (g = 0; g < rows.heads; g++) {
		const uint32_t *pos = rows.pos[g];
		size_t at = (size_t)l * rows.heads + g;

		n = p->stored[at];
		p->sinks[at] = kv_rows_before(pos, n, sink);
		p->first[at] = kv_rows_before(pos, n, from);
		p->end[at] = kv_rows_before(pos, n, to);
		if (p->first[at] < p->sinks[at])
			p->first[at] = p->sinks[at];
		if (p->end[at] < p->first[at])
			p->end[at] = p->first[at];
		range = p->end[at] - p->first[at];
		p->stride = range > p->stride ? range : p->stride;
	}
}

int
probe_mass_begin(struct probe_mass *p, const struct cache *c, uint32_t sink, uint32_t from,
    uint32_t to)
{
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	size_t H = c->model->id.query_heads, bytes;
	uint32_t l;

	p->stride = 0;
	for (l = 0; l < c->model->id.layers; l++)
		find_rows(p, c, l, sink, from, to);
	bytes = (H * p->stride + 1) * sizeof **p->range_mass;
	for (l = 0; l < c->model->id.layers; l++) {
		o->free(d, p->range_mass[l]);
		if ((p->range_mass[l] = o->alloc(d, bytes)) == NULL)
			break;
		o->clear(d, p->range_mass[l], bytes);
	}
	return l == c->model->id.layers ? 0 : MODEL_ENOMEM;
}

/* Returns rows from[g] .. to[g]-1 of each KV head. */
static struct layer_rows
piece(struct probe_mass *p, const struct layer_rows *rows, const uint32_t *from, const uint32_t *to)
{
	struct layer_rows view = *rows;
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		p->start[g] = rows->start[g] + (from != NULL ? from[g] : 0);
		p->len[g] = to[g] - (from != NULL ? from[g] : 0);
	}
	view.start = p->start;
	view.len = p->len;
	view.capacity = NULL;
	return view;
}

/* lse <- log-sum-exp of the pieces so far (had: there are some) and of one more. Returns 1 if lse
 * is set. */
static int
add_piece(struct probe_mass *p, const struct cache *c, const struct layer_rows *view,
    const struct query *query, float *lse, int had)
{
	const struct ops *o = c->model->ops;
	struct dev *d = c->model->dev;
	uint32_t g;

	for (g = 0; g < view->heads && view->len[g] == 0; g++)
		;
	if (g == view->heads)
		return had;
	o->attend(d, NULL, had ? p->part : lse, query, view);
	if (had)
		o->lse_merge(d, lse, p->part, (size_t)query->N * query->H);
	return 1;
}

/* Returns the length of x behind the input norm of attention, which is on the host; w NULL: there
 * is none */
static double
normed_length(const float *x, const struct norm *norm, uint32_t D)
{
	double squared = 0, all = 0, mean = 0, scale, y;
	uint32_t i;

	for (i = 0; norm->centred && i < D; i++)
		mean += (double)x[i] / D;
	for (i = 0; i < D; i++)
		all += (x[i] - mean) * (x[i] - mean);
	scale = norm->w != NULL ? 1 / sqrt(all / D + norm->eps) : 1;
	for (i = 0; i < D; i++) {
		y = (x[i] - mean) * scale * (norm->w != NULL ? norm->w[i] : 1);
		y += norm->bias != NULL ? norm->bias[i] : 0;
		squared += y * y;
	}
	return sqrt(squared);
}

/* Adds the log of each query token's length to its log-sum-exps lse[N][H], which divides its
 * attention by that. x: device [N][D], the residual stream before the layer */
static void
divide_by_length(const struct probe_mass *p, const struct model *m, uint32_t l,
    const struct query *query, float *lse, const float *x)
{
	struct norm norm = m->layer[l].norm;
	const size_t D = m->id.hidden, H = query->H;
	float *host = p->host_lse;
	double length;
	uint32_t n;
	size_t h;

	if (norm.w != NULL) {
		m->ops->get(m->dev, p->host_w, norm.w, D * sizeof *p->host_w);
		norm.w = p->host_w;
	}
	if (norm.bias != NULL) {
		m->ops->get(m->dev, p->host_w + D, norm.bias, D * sizeof *p->host_w);
		norm.bias = p->host_w + D;
	}
	m->ops->get(m->dev, p->host_x, x, query->N * D * sizeof *x);
	m->ops->get(m->dev, host, lse, query->N * H * sizeof *lse);
	for (n = 0; n < query->N; n++) {
		length = normed_length(p->host_x + n * D, &norm, (uint32_t)D);
		for (h = 0; h < H; h++)
			host[n * H + h] += (float)log(length);
	}
	m->ops->put(m->dev, lse, host, query->N * H * sizeof *lse);
}

void
probe_mass_add(struct probe_mass *p, const struct cache *c, uint32_t l, const struct query *query,
    float *lse, const float *x)
{
	const struct layer_rows *rows = &c->layer[l];
	const size_t at = (size_t)l * rows->heads;
	struct layer_rows view;
	int had;

	view = piece(p, rows, NULL, p->sinks + at);
	had = add_piece(p, c, &view, query, lse, 0);
	/* the probe tokens' own rows: never empty */
	view = piece(p, rows, p->stored + at, rows->len);
	had = add_piece(p, c, &view, query, lse, had);
	view = piece(p, rows, p->first + at, p->end + at);
	add_piece(p, c, &view, query, lse, had);
	if (p->host_x != NULL)
		divide_by_length(p, c->model, l, query, lse, x);
	c->model->ops->attend_mass(c->model->dev, p->range_mass[l], p->stride, query, lse, &view,
	    p->over);
}

void
probe_mass_end(struct probe_mass *p, const struct cache *c)
{
	uint32_t H = c->model->id.query_heads, G = c->model->id.kv_heads, R = H / G, l, h;
	float *to;

	for (l = 0; l < c->model->id.layers; l++)
		for (h = 0, to = p->mass[l]; h < H; h++) {
			size_t at = (size_t)l * G + h / R, n = p->end[at] - p->first[at];

			c->model->ops->get(c->model->dev, to + p->first[at],
			    p->range_mass[l] + h * p->stride, n * sizeof *to);
			to += p->stored[at];
		}
}

void
probe_mass_keep_sinks(struct probe_mass *p, const struct cache *c)
{
	uint32_t H = c->model->id.query_heads, G = c->model->id.kv_heads, R = H / G, l, h, s;
	float *to;

	for (l = 0; l < c->model->id.layers; l++)
		for (h = 0, to = p->mass[l]; h < H; h++) {
			size_t at = (size_t)l * G + h / R;

			for (s = 0; s < p->sinks[at]; s++)
				to[s] = INFINITY;
			to += p->stored[at];
		}
}
