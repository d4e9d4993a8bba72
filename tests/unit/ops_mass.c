/* ops_mass.c - attend_mass, window_mass and lse_merge against double precision, over the shapes
 * that go wrong */
#include "tests/unit/ops_cache.h"

/* Of one device of each kind a second run must give the same bytes. */
static int
runs(const struct device *d)
{
	return d->threads % 3 == 0 ? 2 : 1;
}

/* What a query gives to all rows together is 1: the mass of each head is the number of queries that
 * see any of its rows, to some roundings of f32 whatever products are rounded to. */
static void
all_is_given(struct device *d, const char *what, const float *mass, size_t stride,
    const struct cache *c, const struct shape *s)
{
	const struct query query = cache_query(s, NULL, c->qpos);
	uint32_t h, g, n, r, seeing;
	double sum;
	size_t i;

	for (h = 0; h < s->H; h++) {
		g = h / (s->H / s->G);
		for (n = 0, seeing = 0; n < s->N; n++) {
			for (r = 0; r < c->len[g] &&
			    !ref_sees(&query, c->qpos[n], c->pos[c->start[g] + r]); r++)
				;
			seeing += r < c->len[g];
		}
		for (i = 0, sum = 0; i < c->len[g]; i++)
			sum += mass[h * stride + i];
		verdict(fabs(sum - seeing) <= (s->scale > 2 ? 1e-4 : 2e-6) * seeing, "%s, %s %d "
		    "threads: head %u of %u queries gives %.9g", what, d->name, d->threads, h,
		    seeing, sum);
	}
}

static enum op
mass_op(const struct device *d, const struct shape *s)
{
	/* a GPU rounds widened rows as it rounds elements */
	const int apart = s->type == KV_F32 || !d->ops->runs_ahead;

	return cache_types.k != 0 && apart ? MASS_ROWS : s->scale > 2 ? MASS_LARGE : MASS;
}

void
test_window_mass(const struct shape *s, int with_own, enum over_queries over)
{
	const size_t stride = s->S + 5, n = s->H * stride, nq = (size_t)s->N * s->H * s->E;
	float *q = floats(nq, s->scale), *mass = malloc(n * sizeof *mass), *dm;
	double *want = malloc(n * sizeof *want);
	struct ref_rows ref, ref_own;
	struct query host;
	struct cache c, o;
	char what[128];
	size_t i;
	int k, run;

	cache_make(&c, s);
	cache_make_own(&o, s, c.qpos);
	ref = cache_reference(&c, s);
	ref_own = cache_reference(&o, s);
	for (i = 0; i < n; i++)
		want[i] = -7;                          /* behind a head's rows nothing is written */
	host = cache_query(s, q, c.qpos);
	ref_window_mass(want, stride, &host, &ref, with_own ? &ref_own : NULL, over);
	cache_name(what, sizeof what, with_own ? "window_mass own" : "window_mass", s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = cache_on_device(d, &c, s, k % 2);
		struct layer_rows own = cache_on_device(d, &o, s, 0);
		struct query query = query_on_device(d, s, &host);

		for (run = 0; run < runs(d); run++) {
			for (i = 0; i < n; i++)
				mass[i] = -7;
			dm = to_device(d, mass, n * sizeof *mass);
			d->ops->window_mass(d->dev, dm, stride, &query, &rows,
			    with_own ? &own : NULL, over);
			d->ops->get(d->dev, mass, dm, n * sizeof *mass);
			d->ops->free(d->dev, dm);
			if (run == 0)
				compare(d, mass_op(d, s), what, mass, want, n);
			else
				again(d, what, mass, n);
		}
		if (!with_own && over == QUERIES_SUM && !(s->form & SINKS))
			all_is_given(d, what, mass, stride, &c, s);
		drop_query(d, &query);
		cache_free_rows(d, &rows);
		cache_free_rows(d, &own);
	}
	cache_free(&c);
	cache_free(&o);
	free(q);
	free(mass);
	free(want);
}

/* The rows of both, of one, of none; a NaN stays. */
static void
test_merge(void)
{
	static const float a[] = { 1, -2, 30, -INFINITY, 0.5f, -INFINITY, NAN, 1, 88, -88, 0.25f };
	static const float b[] = { 1, 3, -30, 2, -INFINITY, -INFINITY, 1, NAN, 88.5f, -87, 0.125f };
	enum { n = sizeof a / sizeof a[0] };
	float *got;
	double want;
	int k, i;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *da = to_device(d, a, sizeof a), *db = to_device(d, b, sizeof b);

		d->ops->lse_merge(d->dev, da, db, n);
		got = from_device(d, da, n);
		for (i = 0; i < n; i++) {
			want = a[i] == b[i] && isinf(a[i]) ? -INFINITY :
			    (a[i] > b[i] ? a[i] : b[i]) + log1p(exp(-fabs((double)a[i] - b[i])));
			verdict(isnan(a[i]) || isnan(b[i]) ? isnan(got[i]) :
			    got[i] == want || fabs(got[i] - want) <= 2e-7 * (fabs(want) + 0.1),
			    "%s: merge %g, %g gives %.9g, must be %.9g", d->name, a[i], b[i],
			    got[i], want);
		}
		d->ops->free(d->dev, da);
		d->ops->free(d->dev, db);
		free(got);
	}
}

/* Two calls, on top of what was there: what is behind a head's rows stays, and an lse that
 * attend() gave */
void
test_attend_mass(const struct shape *s, enum over_queries over)
{
	const size_t stride = s->S + 2, n = s->H * stride, NH = (size_t)s->N * s->H, nq = NH * s->E;
	float *q = floats(nq, s->scale), *old = floats(n, 1), *mass;
	double *want = malloc(n * sizeof *want);
	struct ref_rows ref;
	struct query host;
	struct cache c;
	char what[128];
	size_t i;
	int k, run;

	cache_make(&c, s);
	ref = cache_reference(&c, s);
	for (i = 0; i < n; i++)
		want[i] = old[i] = over == QUERIES_MAX ? fabsf(old[i]) / 9 : old[i];
	host = cache_query(s, q, c.qpos);
	for (i = 0; i < 2; i++)
		ref_attend_mass(want, stride, &host, &ref, over);
	cache_name(what, sizeof what, "attend_mass", s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = cache_on_device(d, &c, s, 1);
		struct query query = query_on_device(d, s, &host);
		float *o = d->ops->alloc(d->dev, nq * 4), *lse = d->ops->alloc(d->dev, NH * 4);

		d->ops->attend(d->dev, o, lse, &query, &rows);
		for (run = 0; run < runs(d); run++) {
			void *dm = to_device(d, old, n * 4);

			for (i = 0; i < 2; i++)
				d->ops->attend_mass(d->dev, dm, stride, &query, lse, &rows, over);
			mass = from_device(d, dm, n);
			if (run == 0)
				compare(d, mass_op(d, s), what, mass, want, n);
			else
				again(d, what, mass, n);
			free(mass);
			d->ops->free(d->dev, dm);
		}
		drop_query(d, &query);
		d->ops->free(d->dev, o);
		d->ops->free(d->dev, lse);
		cache_free_rows(d, &rows);
	}
	cache_free(&c);
	free(q);
	free(old);
	free(want);
}

/* Shapes at the edges of what kernels take at once: 16 queries, 64, 128, 32 rows, 64, 192, 256;
 * logits that differ so much that a row which gets another's mass shows */
static const struct shape edges[] = {
	{ 1, 4, 4, 64, 31, KV_BF16, 1.75f, 0, 0, 0 },
	{ 8, 8, 2, 128, 32, KV_BF16, 1.75f, 0, 0, 0 },
	{ 15, 3, 1, 96, 33, KV_F16, 1.75f, 1, 0, 0 },
	{ 16, 8, 1, 80, 127, KV_BF16, 1.75f, 0, 0, 0 },
	{ 17, 4, 1, 128, 128, KV_F16, 1.75f, 1, 0, 0 },
	{ 32, 9, 3, 64, 129, KV_F16, 1.75f, 0, 0, 0 },
	{ 9, 4, 2, 80, 130, KV_F16, 1.75f, 1, 0, 0 },
	{ 33, 3, 3, 128, 255, KV_BF16, 1.75f, 1, 0, 0 },
	{ 8, 8, 2, 96, 256, KV_BF16, 1.75f, 0, 0, 0 },
	{ 32, 4, 1, 64, 257, KV_BF16, 1.75f, 0, 0, 0 },
	{ 63, 3, 1, 64, 95, KV_BF16, 1.75f, 0, 0, 0 },
	{ 64, 2, 2, 96, 224, KV_F16, 1.75f, 1, 0, 0 },
	{ 65, 2, 1, 80, 289, KV_F16, 1.75f, 0, 0, 0 },
	{ 1, 4, 1, 128, 513, KV_BF16, 1.75f, 0, 0, 0 },
	{ 130, 1, 1, 128, 257, KV_BF16, 1.75f, 0, 0, 0 },
	{ 127, 6, 3, 64, 191, KV_BF16, 1.75f, 0, 0, 0 },
	{ 128, 3, 1, 128, 192, KV_F16, 1.75f, PACKED, 0, 0 },
	{ 129, 2, 2, 64, 193, KV_F16, 1.75f, PACKED | EVICTED, 0, 0 },
	{ 256, 5, 1, 128, 385, KV_BF16, 1.75f, PROMPT, 0, 0 },
	{ 40, 8, 1, 64, 449, KV_BF16, 1.75f, LATE | EVICTED, 0, 0 },
	{ 257, 2, 1, 64, 320, KV_F16, 1.75f, PROMPT | ONE_LONG, 0, 0 },
};

/* Not left out of any sample: a block has more tiles than places for them. */
static const struct shape many_tiles = { 260, 5, 1, 64, 300, KV_F16, 1.75f, PROMPT, 0, 0 };

void
test_mass(void)
{
	struct shape s;
	size_t i;

	test_merge();
	test_attend_mass(&many_tiles, QUERIES_SUM);
	for (i = 0; i < SHAPES; i++) {
		s = shape_of(i);
		if (!in_sample())
			continue;
		if (i / 7 % 2 == 0)
			test_window_mass(&s, i % 2, i % 3 ? QUERIES_SUM : QUERIES_MAX);
		else
			test_attend_mass(&s, i % 2 ? QUERIES_SUM : QUERIES_MAX);
	}
	for (i = 0; i < COUNT(edges); i++) {
		if (!in_sample())
			continue;
		test_window_mass(&edges[i], 0, QUERIES_SUM);
		test_window_mass(&edges[i], 1, i % 2 ? QUERIES_SUM : QUERIES_MAX);
		test_attend_mass(&edges[i], i % 3 ? QUERIES_SUM : QUERIES_MAX);
	}
	for (i = 0; i < ODD_SHAPES; i++)
		if (odd_shape[i].scale < 2 && in_sample()) {
			test_window_mass(&odd_shape[i], 0, QUERIES_MAX);
			test_window_mass(&odd_shape[i], 1, QUERIES_SUM);
			test_attend_mass(&odd_shape[i], QUERIES_SUM);
		}
}
