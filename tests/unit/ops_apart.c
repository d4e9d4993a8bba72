/* ops_apart.c - attend_apart: query rows that run at once get, to the byte, what attend() gives
 * each of them alone, with the rows before it and its own */
#include <string.h>

#include "ops/compose.h"
#include "tests/unit/ops_cache.h"

/* Few query heads of a KV head and many, widths in whole vectors and not, the lengths at which rows
 * are cut otherwise, windows that begin at the first row and later */
static const struct shape text[] = {
	{ 8, 9, 3, 64, 700, KV_BF16, 1, LATE, 0, 0 },
	{ 8, 9, 3, 64, 515, KV_BF16, 1, LATE | ONE_LONG, 0, 0 },
	{ 2, 32, 8, 128, 33, KV_BF16, 1, LATE, 0, 0 },
	{ 7, 4, 4, 64, 2100, KV_F16, 1, LATE, 0, 0 },
	{ 8, 16, 16, 32, 9219, KV_BF16, 1, LATE | ONE_LONG, 0, 0 },
	{ 5, 32, 2, 64, 1030, KV_BF16, 1, LATE, 0, 0 },
	{ 3, 24, 2, 96, 514, KV_F32, 1, LATE, 0, 0 },
	{ 8, 6, 2, 20, 516, KV_F32, 1, LATE, 0, 0 },
	{ 8, 8, 2, 128, 900, KV_BF16, 1, LATE, 50, 0 },
	{ 6, 8, 2, 32, 1200, KV_BF16, 1, LATE, 1500, 5 },
	{ 7, 64, 8, 64, 1040, KV_BF16, 1, LATE | SINKS, 0, 0 },
	{ 4, 8, 1, 64, 100, KV_F16, 3, LATE, 210, 5 },
	{ 1, 9, 3, 64, 512, KV_BF16, 1, LATE, 0, 0 },
	{ 8, 7, 1, 64, 8, KV_BF16, 1, LATE, 0, 0 },
};

/* Has every KV head end with the rows of the N queries, at positions behind all others. */
static void
end_with_queries(struct cache *c, const struct shape *s)
{
	uint32_t g, n;
	size_t row, i;

	for (n = 0; n < s->N; n++)
		c->qpos[n] = 2 * s->S + 9 + n;
	for (g = 0; g < s->G; g++) {
		c->len[g] = c->len[g] < s->N ? s->N : c->len[g];
		for (n = 0; n < s->N; n++) {
			row = c->start[g] + c->len[g] - s->N + n;
			c->pos[row] = c->qpos[n];
			for (i = row * s->E; i < (row + 1) * s->E; i++) {
				c->k[i] = (float)(i * 7 % 11) / 5 - 1;
				c->v[i] = (float)(i * 5 % 13) / 6 - 1;
			}
		}
	}
	cache_store(c, s);
}

/* o and lse of each query row alone */
static void
alone(struct device *d, struct attention a)
{
	const uint32_t N = a.query.N;
	const size_t H = a.query.H;
	uint32_t n, g;

	a.query.N = 1;
	for (n = 0; n < N; n++, a.query.pos++, a.query.q += H * a.rows->width) {
		for (g = 0; g < a.rows->heads; g++)
			a.rows->len[g] -= N - 1 - n;
		d->ops->attend(d->dev, a.o + n * H * a.rows->width, a.lse + n * H, &a.query,
		    a.rows);
		for (g = 0; g < a.rows->heads; g++)
			a.rows->len[g] += N - 1 - n;
	}
}

static void
test_shape(struct device *d, const struct shape *s)
{
	const size_t lses = (size_t)s->N * s->H, n = lses * s->E;
	struct cache c;
	struct layer_rows rows;
	struct attention a;
	float *q, *got, *got_lse, *want, *want_lse;
	struct query host;
	char what[160];

	cache_make(&c, s);
	end_with_queries(&c, s);
	rows = cache_on_device(d, &c, s, 1);
	q = floats(n, s->scale);
	host = cache_query(s, q, c.qpos);
	a = (struct attention){ .o = d->ops->alloc(d->dev, n * 4),
		.lse = d->ops->alloc(d->dev, lses * 4), .rows = &rows,
		.query = query_on_device(d, s, &host) };
	run_attend_apart(d->ops, d->dev, &a);
	got = from_device(d, a.o, n);
	got_lse = from_device(d, a.lse, lses);
	alone(d, a);
	want = from_device(d, a.o, n);
	want_lse = from_device(d, a.lse, lses);
	cache_name(what, sizeof what, "attend_apart", s);
	verdict(memcmp(got, want, n * 4) == 0, "%s, %s: another output", what, d->name);
	verdict(memcmp(got_lse, want_lse, lses * 4) == 0, "%s, %s: another log-sum-exp", what,
	    d->name);
	d->ops->free(d->dev, a.o);
	d->ops->free(d->dev, a.lse);
	drop_query(d, &a.query);
	cache_free_rows(d, &rows);
	cache_free(&c);
	free(q);
	free(got);
	free(got_lse);
	free(want);
	free(want_lse);
}

void
test_apart(void)
{
	size_t i, t;
	int k;

	for (k = 0; k < devices; k++)
		for (i = 0; i < COUNT(text); i++)
			for (t = 0; t < 8; t++) {
				if (!in_sample() || (t > 0 && text[i].E % 32 != 0))
					continue;
				cache_types = (struct cache_types){ 0 };
				if (t > 0)
					cache_types = (struct cache_types){
						cache_type_for(text[i].E, t + i, 1),
						cache_type_for(text[i].E, 3 * t + i, 1), 0 };
				test_shape(&device[k], &text[i]);
			}
	cache_types = (struct cache_types){ 0 };
}
