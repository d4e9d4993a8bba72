/* ops_attend.c - attend, attend_mass and window_mass against double precision, over the shapes
 * that go wrong
 *
 * Heads are ragged, one may be empty; positions have holes; some queries see nothing; rows
 * of the cache that are not in use hold NaN, so that reading one shows. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

enum form {
	PACKED = 1,                  /* heads one after the other, instead of cap rows each */
	ONE_LONG = 2,                /* heads but the first have one row or none */
	LATE = 4,                    /* queries that see most rows */
	PROMPT = 8,                  /* the first head has every row up to the last of N queries */
	RISING = 16,                 /* later keys are greater */
};

struct shape {
	uint32_t N, H, G, E, S;      /* S rows of the longest head */
	enum kv_dtype type;
	float scale;                 /* of queries and keys */
	int form;                    /* enum form, together */
};

/* Up to so many query rows every device computes in f32. */
#define DECODE_ROWS 8

/* Keys and values as host arrays */
struct cache {
	float *k, *v;
	uint32_t *pos, *qpos, len[64], cap;
	uint64_t start[64];
	size_t rows;
};

static void
make_cache(struct cache *c, const struct shape *s)
{
	uint32_t g, n, r, at, gaps, step = s->S / s->N + 1;
	size_t i;

	c->cap = s->S + 3;
	for (g = 0, c->rows = 0; g < s->G; g++) {
		c->len[g] = g == 0 ? s->S : g == 2 ? 0 : s->form & ONE_LONG ? g % 2 : draw(s->S + 1);
		c->start[g] = s->form & PACKED ? c->rows : (uint64_t)g * c->cap;
		c->rows = c->start[g] + (s->form & PACKED ? c->len[g] : c->cap);
	}
	c->k = floats(c->rows * s->E, s->scale);
	c->v = floats(c->rows * s->E, 1);
	c->pos = calloc(c->rows + 1, sizeof *c->pos);
	for (i = 0; s->form & RISING && i < c->rows * s->E; i++)
		c->k[i] *= 10 * (float)i / (float)(c->rows * s->E);
	round_to(c->k, s->type, c->rows * s->E);
	round_to(c->v, s->type, c->rows * s->E);
	for (g = 0; g < s->G; g++) {
		gaps = g > 0 || !(s->form & PROMPT);
		for (r = 0, at = 2; r < c->len[g]; r++, at += 1 + (gaps && draw(3) == 0))
			c->pos[c->start[g] + r] = at;
		for (; !(s->form & PACKED) && r < c->cap; r++)
			for (i = 0; i < s->E; i++)
				c->k[(c->start[g] + r) * s->E + i] =
				    c->v[(c->start[g] + r) * s->E + i] = NAN;
	}
	c->qpos = malloc(s->N * sizeof *c->qpos);
	for (n = 0; n < s->N; n++)     /* from one that sees nothing to one that sees all */
		c->qpos[n] = s->N == 1 ? 3 * s->S : s->form & LATE ? s->S + n :
		    s->form & PROMPT ? 2 + s->S - s->N + n : n * step * 2;
}

static void
free_cache(struct cache *c)
{
	free(c->k);
	free(c->v);
	free(c->pos);
	free(c->qpos);
}

static struct ref_rows
reference_rows(const struct cache *c, const struct shape *s)
{
	return (struct ref_rows){ c->k, c->v, c->pos, c->start, c->len, s->G, s->E };
}

static struct layer_rows
device_rows(struct device *d, struct cache *c, const struct shape *s, int values)
{
	return (struct layer_rows){
		.k = to_device_as(d, c->k, s->type, c->rows * s->E),
		.v = values ? to_device_as(d, c->v, s->type, c->rows * s->E) : NULL,
		.pos = to_device(d, c->pos, c->rows * 4),
		.start = c->start, .len = c->len, .heads = s->G, .width = s->E, .dtype = s->type,
	};
}

static void
free_rows(struct device *d, struct layer_rows *r)
{
	d->ops->free(d->dev, r->k);
	d->ops->free(d->dev, r->v);
	d->ops->free(d->dev, r->pos);
}

static void
name_case(char *what, size_t size, const char *op, const struct shape *s)
{
	snprintf(what, size, "%s N %u H %u/%u E %u S %u %s%s%s%s%s%s", op, s->N, s->H, s->G, s->E, s->S,
	    kv_dtype_name(s->type), s->form & PACKED ? " packed" : "",
	    s->form & ONE_LONG ? " one long" : "", s->form & LATE ? " late" : "",
	    s->form & PROMPT ? " prompt" : "", s->form & RISING ? " rising" : "");
}

static void
test_attend(const struct shape *s)
{
	const size_t NH = (size_t)s->N * s->H, n = NH * s->E;
	float *q = floats(n, s->scale), *o, *lse;
	double *want = malloc(n * sizeof *want), *want_lse = malloc(NH * sizeof *want_lse);
	struct ref_rows ref;
	const int f32 = s->N <= DECODE_ROWS || s->type == KV_F32;      /* not rounded to 16 bits */
	struct cache c;
	char what[96];
	int k, lses;

	make_cache(&c, s);
	ref = reference_rows(&c, s);
	ref_attend(want, want_lse, q, &ref, c.qpos, s->N, s->H);
	for (lses = 0; lses < 2; lses++) {     /* o on all devices, then lse on all */
		name_case(what, sizeof what, lses ? "lse" : "attend", s);
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];
			struct layer_rows rows = device_rows(d, &c, s, 1);
			void *dq = to_device(d, q, n * 4), *dp = to_device(d, c.qpos, s->N * 4);
			void *out = d->ops->alloc(d->dev, n * 4),
			     *dl = d->ops->alloc(d->dev, NH * 4);
			const struct query query = { .q = dq, .pos = dp, .N = s->N, .H = s->H };

			d->ops->attend(d->dev, lses ? NULL : out, dl, &query, &rows);
			o = from_device(d, out, n);
			lse = from_device(d, dl, NH);
			if (lses) {
				compare(d, f32 ? LSE_DECODE : LSE, what, lse, want_lse, NH);
			} else {
				compare(d, s->scale > 2 ? ATTEND_LARGE : f32 ? ATTEND_DECODE : ATTEND,
				    what, o, want, n);
				free(o);
				d->ops->attend(d->dev, out, NULL, &query, &rows);
				o = from_device(d, out, n);
				again(d, what, o, n);
			}
			free(o);
			free(lse);
			d->ops->free(d->dev, dq);
			d->ops->free(d->dev, dp);
			d->ops->free(d->dev, out);
			d->ops->free(d->dev, dl);
			free_rows(d, &rows);
		}
	}
	free_cache(&c);
	free(q);
	free(want);
	free(want_lse);
}

/* Keys of the queries themselves: W of them, each at the position of its query, in some KV heads
 * fewer, in one perhaps none */
static void
make_own(struct cache *c, const struct shape *s, const uint32_t *qpos)
{
	struct shape own = *s;
	uint32_t g, r;

	own.S = s->N;
	make_cache(c, &own);
	for (g = 0; g < s->G; g++)
		for (r = 0; r < c->len[g]; r++)
			c->pos[c->start[g] + r] = qpos[s->N - c->len[g] + r];
}

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
	uint32_t h, g, n, seeing;
	double sum;
	size_t i;

	for (h = 0; h < s->H; h++) {
		g = h / (s->H / s->G);
		for (n = 0, seeing = 0; n < s->N && c->len[g] > 0; n++)
			seeing += c->pos[c->start[g]] <= c->qpos[n];
		for (i = 0, sum = 0; i < c->len[g]; i++)
			sum += mass[h * stride + i];
		verdict(fabs(sum - seeing) <= 2e-6 * seeing, "%s, %s %d threads: head %u of %u "
		    "queries gives %.9g", what, d->name, d->threads, h, seeing, sum);
	}
}

static void
test_window_mass(const struct shape *s, int with_own, enum over_queries over)
{
	const size_t stride = s->S + 5, n = s->H * stride, nq = (size_t)s->N * s->H * s->E;
	float *q = floats(nq, s->scale), *mass = malloc(n * sizeof *mass), *dm;
	double *want = malloc(n * sizeof *want);
	struct ref_rows ref, ref_own;
	struct cache c, o;
	char what[80];
	size_t i;
	int k, run;

	make_cache(&c, s);
	make_own(&o, s, c.qpos);
	ref = reference_rows(&c, s);
	ref_own = reference_rows(&o, s);
	for (i = 0; i < n; i++)
		want[i] = -7;                          /* behind a head's rows nothing is written */
	ref_window_mass(want, stride, q, &ref, with_own ? &ref_own : NULL, c.qpos, s->N, s->H, over);
	name_case(what, sizeof what, with_own ? "window_mass own" : "window_mass", s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = device_rows(d, &c, s, k % 2);
		struct layer_rows own = device_rows(d, &o, s, 0);
		void *dq = to_device(d, q, nq * 4), *dp = to_device(d, c.qpos, s->N * 4);
		const struct query query = { .q = dq, .pos = dp, .N = s->N, .H = s->H };

		for (run = 0; run < runs(d); run++) {
			for (i = 0; i < n; i++)
				mass[i] = -7;
			dm = to_device(d, mass, n * sizeof *mass);
			d->ops->window_mass(d->dev, dm, stride, &query, &rows,
			    with_own ? &own : NULL, over);
			d->ops->get(d->dev, mass, dm, n * sizeof *mass);
			d->ops->free(d->dev, dm);
			if (run == 0)
				compare(d, MASS, what, mass, want, n);
			else
				again(d, what, mass, n);
		}
		if (!with_own && over == QUERIES_SUM)
			all_is_given(d, what, mass, stride, &c, s);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, dp);
		free_rows(d, &rows);
		free_rows(d, &own);
	}
	free_cache(&c);
	free_cache(&o);
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
static void
test_attend_mass(const struct shape *s, enum over_queries over)
{
	const size_t stride = s->S + 2, n = s->H * stride, NH = (size_t)s->N * s->H, nq = NH * s->E;
	float *q = floats(nq, s->scale), *old = floats(n, 1), *mass;
	double *want = malloc(n * sizeof *want);
	struct ref_rows ref;
	struct cache c;
	char what[80];
	size_t i;
	int k, run;

	make_cache(&c, s);
	ref = reference_rows(&c, s);
	for (i = 0; i < n; i++)
		want[i] = old[i] = over == QUERIES_MAX ? fabsf(old[i]) / 9 : old[i];
	ref_attend_mass(want, stride, q, &ref, c.qpos, s->N, s->H, over);
	ref_attend_mass(want, stride, q, &ref, c.qpos, s->N, s->H, over);
	name_case(what, sizeof what, "attend_mass", s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = device_rows(d, &c, s, 1);
		void *dq = to_device(d, q, nq * 4), *dp = to_device(d, c.qpos, s->N * 4);
		float *o = d->ops->alloc(d->dev, nq * 4), *lse = d->ops->alloc(d->dev, NH * 4);
		const struct query query = { .q = dq, .pos = dp, .N = s->N, .H = s->H };

		d->ops->attend(d->dev, o, lse, &query, &rows);
		for (run = 0; run < runs(d); run++) {
			void *dm = to_device(d, old, n * 4);

			for (i = 0; i < 2; i++)
				d->ops->attend_mass(d->dev, dm, stride, &query, lse, &rows, over);
			mass = from_device(d, dm, n);
			if (run == 0)
				compare(d, MASS, what, mass, want, n);
			else
				again(d, what, mass, n);
			free(mass);
			d->ops->free(d->dev, dm);
		}
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, dp);
		d->ops->free(d->dev, o);
		d->ops->free(d->dev, lse);
		free_rows(d, &rows);
	}
	free_cache(&c);
	free(q);
	free(old);
	free(want);
}

/* A sliding window, and retrieval for more than one query row, are refused by every op that takes
 * queries. */
static void
test_refused_queries(void)
{
	static const char *const name[] = { "attend", "attend of many", "attend_mass", "window_mass",
		"key_scores", "attend_chosen", "attend_chosen of two" };
	uint64_t start[1] = { 0 };
	uint32_t len[1] = { 1 }, n[1] = { 1 };
	char err[80];
	size_t k, i;

	for (k = 0; k < (size_t)devices; k++)
		for (i = 0; i < sizeof name / sizeof name[0]; i++) {
			const struct ops *o = device[k].ops;
			struct dev *d = o->open(emulated() ? device[k].threads : 0, 1, err, sizeof err);
			float *x = o->alloc(d, 4096);
			uint32_t *p = o->alloc(d, 256);
			struct query query = { .q = x, .pos = p, .N = i == 1 ? 20 : 1, .H = 1,
				.window = 7 };
			struct layer_rows rows = { .k = x, .v = x, .pos = p, .start = start,
				.len = len, .heads = 1, .width = 2, .dtype = KV_F32 };
			const struct chosen choice = { .at = p, .stride = 1, .n = n, .rows = 1 };
			const char *said, *want = "sliding-window attention, of 7 positions";

			o->clear(d, x, 4096);
			o->clear(d, p, 256);
			if (i < 2)
				o->attend(d, x, NULL, &query, &rows);
			else if (i == 2)
				o->attend_mass(d, x, 1, &query, x, &rows, QUERIES_SUM);
			else if (i == 3)
				o->window_mass(d, x, 1, &query, &rows, NULL, QUERIES_SUM);
			else if (i == 4)
				o->key_scores(d, x, 1, &query, &rows);
			else if (i == 5)
				o->attend_chosen(d, x, &query, &rows, &choice);
			else {
				query.window = 0;
				query.N = 2;
				o->attend_chosen(d, x, &query, &rows, &choice);
				want = "retrieval for 2 query rows";
			}
			said = o->sync(d);
			verdict(said != NULL && strstr(said, want) != NULL, "%s, %s: \"%s\"", name[i],
			    device[k].name, said == NULL ? "" : said);
			o->free(d, x);
			o->free(d, p);
			o->close(d);
		}
}

/* Shapes that both parts of this file go through */
static const uint32_t N[] = { 1, 2, 3, 5, 17, 33, 130 };
static const struct {
	uint32_t H, G;
} heads[] = { { 8, 2 }, { 3, 3 }, { 8, 1 }, { 9, 3 }, { 4, 4 } };
static const uint32_t E[] = { 24, 32, 33, 64, 80, 96, 128 };
static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
static const struct shape more[] = {
	{ 1, 32, 8, 64, 3001, KV_BF16, 1, 0 },     /* decoding: split-KV */
	{ 2, 8, 2, 128, 1700, KV_F16, 1, 1 },
	{ 3, 4, 4, 33, 1111, KV_F32, 1, 1 },
	{ 5, 6, 3, 1, 90, KV_BF16, 1, 1 },         /* the narrowest and the widest head */
	{ 3, 2, 1, 1024, 70, KV_BF16, 1, 0 },
	{ 2, 300, 2, 16, 40, KV_F16, 1, 0 },       /* more heads than a block has rows */
	{ 9, 4, 2, 64, 200, KV_F32, 30, 0 },       /* logits of several hundred */
	{ 1, 4, 2, 64, 2000, KV_F32, 30, 0 },
	{ 5, 4, 2, 64, 0, KV_BF16, 1, 0 },         /* no rows at all */
	{ 4, 4, 2, 64, 1, KV_BF16, 1, 1 },
};
/* Few queries: split-KV */
static const struct shape decoding[] = {
	{ 1, 8, 8, 128, 2000, KV_BF16, 1, ONE_LONG | LATE },
	{ 1, 32, 4, 128, 1001, KV_BF16, 1, PACKED | ONE_LONG | LATE },
	{ 4, 4, 4, 64, 1500, KV_F16, 1, ONE_LONG | LATE },
	{ 1, 64, 64, 64, 9, KV_F16, 1, PACKED | LATE },   /* more KV heads than splits */
	{ 1, 16, 1, 256, 130, KV_BF16, 1, LATE },
	{ 2, 2, 2, 136, 77, KV_F16, 1, LATE },
	{ 1, 150, 1, 64, 90, KV_F16, 1, LATE },
	{ 8, 4, 1, 128, 63, KV_BF16, 1, 0 },       /* about one split, and about one tile */
	{ 8, 4, 1, 128, 64, KV_BF16, 1, LATE },
	{ 8, 4, 1, 128, 65, KV_BF16, 1, LATE },
	{ 1, 4, 1, 128, 31, KV_F32, 1, LATE },
	{ 1, 4, 1, 128, 33, KV_F32, 1, LATE },
	{ 1, 4, 1, 128, 385, KV_BF16, 30, LATE },
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Number i of all of them */
static struct shape
shape_of(size_t i)
{
	return (struct shape){ N[i / COUNT(E)], heads[i % 5].H, heads[i % 5].G, E[i % COUNT(E)],
		1 + draw(300), type[i % 3], 1, i / 2 % 2 };
}

/* Every number of query rows up to DECODE_ROWS, and different numbers of query heads for a KV head */
static void
test_decoding(void)
{
	static const uint32_t R[] = { 1, 4, 7, 8, 16 }, widths[] = { 64, 80, 96, 128 };
	struct shape s;
	size_t i;

	for (i = 0; i < 4 * COUNT(R); i++) {
		s = (struct shape){ 1 + i % DECODE_ROWS, 0, 1 + i % 2, widths[i / 2 % 4], 1 + draw(100),
			type[i % 7 % 3], 1, (i % 2 ? PACKED : 0) | (i % 5 == 4 ? ONE_LONG : 0) |
			(i % 3 < 2 ? LATE : 0) };
		s.H = R[i % COUNT(R)] * s.G;
		test_attend(&s);
	}
	for (i = 0; i < COUNT(decoding); i++)
		test_attend(&decoding[i]);
}

/* Kernels that have 16, 32, 64, 96 or 128 queries or rows at a time: one more, one less. Pieces of
 * a prompt after nothing, or after a past that nearly ends with such a tile; and heads with
 * gaps */
static void
test_tiles(void)
{
	static const uint32_t queries[] = { 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129 };
	static const uint32_t past[] = { 0, 55, 1, 64, 31, 0, 79, 127 };
	static const uint32_t width[] = { 64, 128, 80, 96, 32 };
	static const uint32_t sharing[] = { 4, 1, 8, 3 };
	static const struct shape special[] = {
		{ 9, 2, 1, 64, 1100, KV_BF16, 1, PROMPT },     /* keys in parts */
		{ 20, 4, 2, 128, 1601, KV_F16, 1, 0 },
		{ 9, 5, 5, 128, 1100, KV_BF16, 1, PACKED },    /* two sets of heads */
		{ 70, 2, 1, 64, 300, KV_F16, 1, PROMPT | RISING },
		{ 33, 2, 1, 128, 300, KV_F16, 1, PROMPT | RISING },
		{ 12, 8, 4, 96, 0, KV_F16, 1, 0 },
		{ 65, 2, 1, 128, 129, KV_F32, 1, PROMPT },     /* without tensor cores */
		{ 33, 4, 2, 256, 130, KV_BF16, 1, PACKED },
		{ 63, 3, 3, 64, 127, KV_F32, 1, PROMPT | RISING },
		{ 21, 3, 1, 112, 64, KV_F16, 1, 0 },
		{ 12, 2, 1, 260, 20, KV_F32, 1, 0 },
	};
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(queries); i++) {
		const uint32_t n = queries[i], r = n < 60 ? sharing[i % 4] : 1 + i % 2 * 2;
		const uint32_t g = n > 60 ? 1 : 1 + (uint32_t)i % 3;

		s = (struct shape){ n, r * g, g, width[i % 5], n + past[i % 8],
			i % 2 ? KV_F16 : KV_BF16, 1, i % 5 == 4 ? 0 : PROMPT };
		test_attend(&s);
	}
	for (i = 0; i < COUNT(special); i++)
		test_attend(&special[i]);
}

void
test_attention(void)
{
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(N) * COUNT(E); i++) {
		s = shape_of(i);
		test_attend(&s);
	}
	for (i = 0; i < COUNT(more); i++)
		test_attend(&more[i]);
	test_refused_queries();
	test_decoding();
	test_tiles();
}

/* Shapes at the edges of what kernels take at once: 16 queries, 64, 32 rows, 256; logits that differ
 * so much that a row which gets another's mass shows */
static const struct shape edges[] = {
	{ 1, 4, 4, 64, 31, KV_BF16, 1.75f, 0 },
	{ 8, 8, 2, 128, 32, KV_BF16, 1.75f, 0 },
	{ 15, 3, 1, 96, 33, KV_F16, 1.75f, 1 },
	{ 16, 8, 1, 80, 127, KV_BF16, 1.75f, 0 },
	{ 17, 4, 1, 128, 128, KV_F16, 1.75f, 1 },
	{ 32, 9, 3, 64, 129, KV_F16, 1.75f, 0 },
	{ 9, 4, 2, 80, 130, KV_F16, 1.75f, 1 },
	{ 33, 3, 3, 128, 255, KV_BF16, 1.75f, 1 },
	{ 8, 8, 2, 96, 256, KV_BF16, 1.75f, 0 },
	{ 32, 4, 1, 64, 257, KV_BF16, 1.75f, 0 },
	{ 63, 3, 1, 64, 95, KV_BF16, 1.75f, 0 },
	{ 64, 2, 2, 96, 224, KV_F16, 1.75f, 1 },
	{ 65, 2, 1, 80, 289, KV_F16, 1.75f, 0 },
	{ 1, 4, 1, 128, 513, KV_BF16, 1.75f, 0 },
	{ 130, 1, 1, 128, 257, KV_BF16, 1.75f, 0 },
};

void
test_mass(void)
{
	struct shape s;
	size_t i;

	test_merge();
	for (i = 0; i < COUNT(N) * COUNT(E); i++) {
		s = shape_of(i);
		if (i / COUNT(E) % 2 == 0)
			test_window_mass(&s, i % 2, i % 3 ? QUERIES_SUM : QUERIES_MAX);
		else
			test_attend_mass(&s, i % 2 ? QUERIES_SUM : QUERIES_MAX);
	}
	for (i = 0; i < COUNT(edges); i++) {
		test_window_mass(&edges[i], 0, QUERIES_SUM);
		test_window_mass(&edges[i], 1, i % 2 ? QUERIES_SUM : QUERIES_MAX);
		test_attend_mass(&edges[i], i % 3 ? QUERIES_SUM : QUERIES_MAX);
	}
	for (i = 0; i < COUNT(more); i++)
		if (more[i].scale < 2) {
			test_window_mass(&more[i], 0, QUERIES_MAX);
			test_window_mass(&more[i], 1, QUERIES_SUM);
			test_attend_mass(&more[i], QUERIES_SUM);
		}
}
