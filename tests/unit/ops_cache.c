/* ops_cache.c - random caches and queries for the tests of attention, and the shapes that they
 * share */
#include "tests/unit/ops_cache.h"

struct cache_types cache_types;

#define FAR_AWAY 4294000000u
#define DISTANT 300              /* more rows than any kernel takes at once */

/* Positions of KV head g, ascending with holes */
static void
place_rows(struct cache *c, const struct shape *s, uint32_t g)
{
	const int gaps = g > 0 || !(s->form & PROMPT);
	uint32_t r, at = s->form & FAR ? FAR_AWAY + 2 : s->form & FIRST ? 0 : 2;

	for (r = 0; r < c->len[g]; r++) {
		c->pos[c->start[g] + r] = at;
		at += 1 + (gaps && draw(3) == 0);
		if (gaps && s->form & EVICTED && draw(8) == 0)
			at += draw(60);
	}
}

/* From one that sees nothing to one that sees all, unless the form says otherwise */
static void
place_queries(struct cache *c, const struct shape *s)
{
	const uint32_t step = (s->S / s->N + 1) * (s->form & EVICTED ? 6 : 2);
	const uint32_t late = s->form & EVICTED ? 3 * s->S : s->S;
	uint32_t n;

	c->qpos = malloc(s->N * sizeof *c->qpos);
	for (n = 0; n < s->N; n++) {
		c->qpos[n] = s->N == 1 ? (s->window > 0 ? late : 3 * s->S) : s->form & LATE ?
		    late + n : s->form & PROMPT ? 2 + s->S - s->N + n : n * step;
		if (s->form & FAR)
			c->qpos[n] += FAR_AWAY;
	}
}

static void
forget_row(struct cache *c, const struct shape *s, size_t row)
{
	size_t i;

	for (i = row * s->E; i < (row + 1) * s->E; i++)
		c->k[i] = c->v[i] = NAN;
}

/* NaN where no row is, and more than DISTANT rows before the window of the first query */
static void
forget_rows(struct cache *c, const struct shape *s, uint32_t g)
{
	const uint32_t *pos = c->pos + c->start[g];
	uint32_t r;

	for (r = c->len[g]; !(s->form & PACKED) && r < c->cap; r++)
		forget_row(c, s, c->start[g] + r);
	for (r = 0; s->window > 0 && r + DISTANT < c->len[g] &&
	    (uint64_t)pos[r + DISTANT] + s->window <= c->qpos[0]; r++)
		forget_row(c, s, c->start[g] + r);
}

enum kv_row_type
cache_type_for(uint32_t E, size_t i, int elements)
{
	static const enum kv_row_type all[] = { KV_ROW_INT8, KV_ROW_FP8, KV_ROW_Q8_0, KV_ROW_Q4_0,
		KV_ROW_Q4_1, KV_ROW_Q5_0 };
	const size_t n = E % 32 == 0 ? COUNT(all) : 2, choices = n + (elements != 0);
	const enum kv_row_type type = i % choices < n ? all[i % choices] : (enum kv_row_type)0;

	return type != 0 && (E & (E - 1)) == 0 && i / choices % 2 ? type | KV_ROW_HADAMARD : type;
}

static void *
store(float *x, enum kv_row_type type, size_t E, size_t n)
{
	const size_t bytes = kv_row_bytes(type, E);
	unsigned char *rows = malloc(n * bytes + 1);
	size_t i;

	for (i = 0; i < n; i++)
		if (kv_rows_from_f32(rows + i * bytes, x + i * E, type, E, 1) == 0)
			memset(rows + i * bytes, 0xff, bytes);
		else
			kv_rows_to_f32(x + i * E, rows + i * bytes, type, E, 1);
	return rows;
}

void
cache_store(struct cache *c, const struct shape *s)
{
	free(c->k_rows);
	free(c->v_rows);
	c->k_rows = store(c->k, c->k_type, s->E, c->rows);
	c->v_rows = store(c->v, c->v_type, s->E, c->rows);
}

void
cache_make(struct cache *c, const struct shape *s)
{
	uint32_t g;
	size_t i;

	c->cap = s->S + 3;
	for (g = 0, c->rows = 0; g < s->G; g++) {
		c->len[g] = g == 0 ? s->S : g == 2 ? 0 : s->form & ONE_LONG ? g % 2 :
		    draw(s->S + 1);
		c->start[g] = s->form & PACKED ? c->rows : (uint64_t)g * c->cap;
		c->rows = c->start[g] + (s->form & PACKED ? c->len[g] : c->cap);
	}
	c->k = floats(c->rows * s->E, s->scale);
	c->v = floats(c->rows * s->E, 1);
	c->pos = calloc(c->rows + 1, sizeof *c->pos);
	for (i = 0; s->form & RISING && i < c->rows * s->E; i++)
		c->k[i] *= 10 * (float)i / (float)(c->rows * s->E);
	place_queries(c, s);
	for (g = 0; g < s->G; g++) {
		place_rows(c, s, g);
		forget_rows(c, s, g);
	}
	c->k_type = cache_types.k != 0 ? cache_types.k : (enum kv_row_type)s->type;
	c->v_type = cache_types.v != 0 ? cache_types.v : (enum kv_row_type)s->type;
	c->k_rows = c->v_rows = NULL;
	cache_store(c, s);
}

void
cache_make_own(struct cache *c, const struct shape *s, const uint32_t *qpos)
{
	const struct cache_types types = cache_types;
	struct shape own = *s;
	uint32_t g, r;

	own.S = s->N;
	own.window = 0;
	cache_types.k = types.own;
	cache_make(c, &own);
	cache_types = types;
	for (g = 0; g < s->G; g++)
		for (r = 0; r < c->len[g]; r++)
			c->pos[c->start[g] + r] = qpos[s->N - c->len[g] + r];
}

void
cache_free(struct cache *c)
{
	free(c->k);
	free(c->v);
	free(c->k_rows);
	free(c->v_rows);
	free(c->pos);
	free(c->qpos);
}

struct ref_rows
cache_reference(const struct cache *c, const struct shape *s)
{
	return (struct ref_rows){ c->k, c->v, c->pos, c->start, c->len, s->G, s->E };
}

/* Of a head with most of the attention, with some, and with hardly any */
static const float *
sinks_of(const struct shape *s)
{
	static float logit[1024];
	uint32_t h;

	for (h = 0; h < s->H; h++)
		logit[h] = (float)(h * 7 % 11) - 3 + (float)h / 64;
	return s->form & SINKS ? logit : NULL;
}

struct query
cache_query(const struct shape *s, const float *q, const uint32_t *pos)
{
	return (struct query){ .q = q, .pos = pos, .N = s->N, .H = s->H, .window = s->window,
		.softcap = s->softcap, .sinks = sinks_of(s) };
}

struct query
query_on_device(struct device *d, const struct shape *s, const struct query *host)
{
	struct query q = *host;

	q.q = to_device(d, host->q, (size_t)s->N * s->H * s->E * 4);
	q.pos = to_device(d, host->pos, s->N * 4);
	if (host->sinks != NULL)
		q.sinks = to_device(d, host->sinks, s->H * 4);
	return q;
}

void
drop_query(struct device *d, struct query *q)
{
	d->ops->free(d->dev, (void *)(uintptr_t)q->q);
	d->ops->free(d->dev, (void *)(uintptr_t)q->pos);
	d->ops->free(d->dev, (void *)(uintptr_t)q->sinks);
}

struct layer_rows
cache_on_device(struct device *d, struct cache *c, const struct shape *s, int values)
{
	const size_t k = kv_row_bytes(c->k_type, s->E), v = kv_row_bytes(c->v_type, s->E);

	return (struct layer_rows){
		.k = to_device(d, c->k_rows, c->rows * k),
		.v = values ? to_device(d, c->v_rows, c->rows * v) : NULL,
		.k_type = c->k_type, .v_type = c->v_type,
		.pos = to_device(d, c->pos, c->rows * 4),
		.start = c->start, .len = c->len, .heads = s->G, .width = s->E, .dtype = s->type,
	};
}

void
cache_free_rows(struct device *d, struct layer_rows *r)
{
	d->ops->free(d->dev, r->k);
	d->ops->free(d->dev, r->v);
	d->ops->free(d->dev, r->pos);
}

void
cache_name(char *what, size_t size, const char *op, const struct shape *s)
{
	static const char *const name[] = { " packed", " one long", " late", " prompt", " rising",
		" evicted", " far", " first", " sinks" };
	size_t i, n;

	n = (size_t)snprintf(what, size, "%s N %u H %u/%u E %u S %u %s", op, s->N, s->H, s->G, s->E,
	    s->S, kv_dtype_name(s->type));
	for (i = 0; i < COUNT(name); i++)
		if (s->form & 1 << i && n < size)
			n += (size_t)snprintf(what + n, size - n, "%s", name[i]);
	if (s->window > 0 && n < size)
		n += (size_t)snprintf(what + n, size - n, " window %u", s->window);
	if (s->softcap > 0 && n < size)
		n += (size_t)snprintf(what + n, size - n, " softcap %g", s->softcap);
	if (cache_types.k != 0 && n < size)
		n += (size_t)snprintf(what + n, size - n, " keys %s",
		    kv_row_type_name(cache_types.k));
	if (cache_types.v != 0 && n < size)
		snprintf(what + n, size - n, " values %s", kv_row_type_name(cache_types.v));
}

static const uint32_t N[] = { 1, 2, 3, 5, 17, 33, 130 };
static const struct {
	uint32_t H, G;
} heads[] = { { 8, 2 }, { 3, 3 }, { 8, 1 }, { 9, 3 }, { 4, 4 } };
static const uint32_t E[] = { 24, 32, 33, 64, 80, 96, 128 };
static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
const struct shape odd_shape[ODD_SHAPES] = {
	{ 1, 32, 8, 64, 3001, KV_BF16, 1, 0, 0, 0 },     /* decoding: split-KV */
	{ 2, 8, 2, 128, 1700, KV_F16, 1, 1, 0, 0 },
	{ 3, 4, 4, 33, 1111, KV_F32, 1, 1, 0, 0 },
	{ 5, 6, 3, 1, 90, KV_BF16, 1, 1, 0, 0 },         /* the narrowest and the widest head */
	{ 3, 2, 1, 1024, 70, KV_BF16, 1, 0, 0, 0 },
	{ 2, 300, 2, 16, 40, KV_F16, 1, 0, 0, 0 },       /* more heads than a block has rows */
	{ 9, 4, 2, 64, 200, KV_F32, 30, 0, 0, 0 },       /* logits of several hundred */
	{ 1, 4, 2, 64, 2000, KV_F32, 30, 0, 0, 0 },
	{ 5, 4, 2, 64, 0, KV_BF16, 1, 0, 0, 0 },         /* no rows at all */
	{ 4, 4, 2, 64, 1, KV_BF16, 1, 1, 0, 0 },
};

struct shape
shape_of(size_t i)
{
	return (struct shape){ N[i / COUNT(E)], heads[i % 5].H, heads[i % 5].G, E[i % COUNT(E)],
		1 + draw(300), type[i % 3], 1, i / 2 % 2, 0, 0 };
}
