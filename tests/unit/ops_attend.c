/* ops_attend.c - attend against double precision, over the shapes that go wrong */
#include "tests/unit/ops_cache.h"

/* Such queries to such a cache */
static void
attend_to(const struct shape *s, struct cache *c, const float *q)
{
	const size_t NH = (size_t)s->N * s->H, n = NH * s->E;
	float *o, *lse;
	double *want = malloc(n * sizeof *want), *want_lse = malloc(NH * sizeof *want_lse);
	struct ref_rows ref;
	const struct query host = cache_query(s, q, c->qpos);
	const int f32 = s->N <= DECODE_ROWS || s->type == KV_F32;      /* not rounded to 16 bits */
	const int quantised = cache_types.k != 0 || cache_types.v != 0;
	char what[128];
	int k, lses;

	ref = cache_reference(c, s);
	ref_attend(want, want_lse, &host, &ref);
	for (lses = 0; lses < 2; lses++) {     /* o on all devices, then lse on all */
		cache_name(what, sizeof what, lses ? "lse" : "attend", s);
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];
			struct layer_rows rows = cache_on_device(d, c, s, 1);
			struct query query = query_on_device(d, s, &host);
			void *out = d->ops->alloc(d->dev, n * 4),
			     *dl = d->ops->alloc(d->dev, NH * 4);

			/* a GPU rounds widened rows as it rounds elements */
			const int apart = quantised && (f32 || !d->ops->runs_ahead);

			d->ops->attend(d->dev, lses ? NULL : out, dl, &query, &rows);
			o = from_device(d, out, n);
			lse = from_device(d, dl, NH);
			if (lses) {
				compare(d, apart ? LSE_ROWS : f32 ? LSE_DECODE : LSE, what,
				    lse, want_lse, NH);
			} else {
				compare(d, apart ? ATTEND_ROWS : s->scale > 2 ? ATTEND_LARGE :
				    f32 ? ATTEND_DECODE : ATTEND, what, o, want, n);
				free(o);
				d->ops->attend(d->dev, out, NULL, &query, &rows);
				o = from_device(d, out, n);
				again(d, what, o, n);
			}
			free(o);
			free(lse);
			drop_query(d, &query);
			d->ops->free(d->dev, out);
			d->ops->free(d->dev, dl);
			cache_free_rows(d, &rows);
		}
	}
	free(want);
	free(want_lse);
}

void
test_attend(const struct shape *s)
{
	float *q = floats((size_t)s->N * s->H * s->E, s->scale);
	struct cache c;

	cache_make(&c, s);
	attend_to(s, &c, q);
	cache_free(&c);
	free(q);
}

/* One row gets nearly all attention, and its value is 0; what the others get, each so little that
 * it is below the least number of f16, is the output. */
static void
test_sink(void)
{
	static const enum kv_dtype type[] = { KV_F16, KV_BF16, KV_F32 };
	struct cache c;
	size_t i, k;

	for (k = 0; k < COUNT(type); k++) {
		const struct shape s = { 1, 8, 1, 64, 150, type[k], 1, LATE | FIRST, 0, 0 };
		const size_t channels = (size_t)s.S * s.E;
		float *q = floats((size_t)s.H * s.E, 0);

		cache_make(&c, &s);
		for (i = 0; i < channels; i++) {
			c.k[i] = i == 0 ? 4 : 0;
			c.v[i] = i < s.E ? 0 : 64;
		}
		cache_store(&c, &s);
		for (i = 0; i < s.H; i++)
			q[i * s.E] = 26 + (float)i;    /* weights of 2^-19 to 2^-24 */
		attend_to(&s, &c, q);
		cache_free(&c);
		free(q);
	}
}

/* A sliding window, and more than one query row, are refused by the ops of retrieval. */
static void
test_refused_queries(void)
{
	static const char *const name[] = { "key_scores", "attend_chosen", "attend_chosen of two" };
	uint64_t start[1] = { 0 };
	uint32_t len[1] = { 1 }, n[1] = { 1 };
	char err[80];
	size_t k, i;

	for (k = 0; k < (size_t)devices; k++)
		for (i = 0; i < sizeof name / sizeof name[0]; i++) {
			const struct ops *o = device[k].ops;
			struct dev *d = o->open(emulated() ? device[k].threads : 0, 1, err,
			    sizeof err);
			float *x = o->alloc(d, 4096);
			uint32_t *p = o->alloc(d, 256);
			struct query query = { .q = x, .pos = p, .N = 1, .H = 1, .window = 7 };
			struct layer_rows rows = { .k = x, .v = x, .pos = p, .start = start,
				.len = len, .heads = 1, .width = 2, .dtype = KV_F32 };
			const struct chosen choice = { .at = p, .stride = 1, .n = n, .rows = 1 };
			const char *said, *want = "retrieval in sliding-window attention, of 7 "
			    "positions";

			o->clear(d, x, 4096);
			o->clear(d, p, 256);
			if (i == 0)
				o->key_scores(d, x, 1, &query, &rows);
			else if (i == 1)
				o->attend_chosen(d, x, &query, &rows, &choice);
			else {
				query.window = 0;
				query.N = 2;
				o->attend_chosen(d, x, &query, &rows, &choice);
				want = "retrieval for 2 query rows";
			}
			said = o->sync(d);
			verdict(said != NULL && strstr(said, want) != NULL, "%s, %s: \"%s\"",
			    name[i], device[k].name, said == NULL ? "" : said);
			o->free(d, x);
			o->free(d, p);
			o->close(d);
		}
}

/* Few queries: split-KV */
static const struct shape decoding[] = {
	{ 1, 8, 8, 128, 2000, KV_BF16, 1, ONE_LONG | LATE, 0, 0 },
	{ 1, 32, 4, 128, 1001, KV_BF16, 1, PACKED | ONE_LONG | LATE, 0, 0 },
	{ 4, 4, 4, 64, 1500, KV_F16, 1, ONE_LONG | LATE, 0, 0 },
	{ 1, 64, 64, 64, 9, KV_F16, 1, PACKED | LATE, 0, 0 },   /* more KV heads than splits */
	{ 1, 16, 1, 256, 130, KV_BF16, 1, LATE, 0, 0 },
	{ 2, 2, 2, 136, 77, KV_F16, 1, LATE, 0, 0 },
	{ 1, 150, 1, 64, 90, KV_F16, 1, LATE, 0, 0 },
	{ 8, 4, 1, 128, 63, KV_BF16, 1, 0, 0, 0 },       /* about one split, and about one tile */
	{ 8, 4, 1, 128, 64, KV_BF16, 1, LATE, 0, 0 },
	{ 8, 4, 1, 128, 65, KV_BF16, 1, LATE, 0, 0 },
	{ 1, 4, 1, 128, 31, KV_F32, 1, LATE, 0, 0 },
	{ 1, 4, 1, 128, 33, KV_F32, 1, LATE, 0, 0 },
	{ 1, 4, 1, 128, 385, KV_BF16, 30, LATE, 0, 0 },
	{ 1, 8, 1, 128, 385, KV_BF16, 30, LATE, 0, 0 },
	{ 1, 5, 1, 128, 2100, KV_F16, 1, LATE, 0, 0 },
	{ 3, 2, 1, 40, 200, KV_F16, 1, 0, 0, 0 },        /* widths with pieces that no lane has */
	{ 1, 7, 1, 8, 70, KV_BF16, 1, LATE, 0, 0 },
	{ 2, 6, 2, 104, 130, KV_BF16, 1, PACKED | LATE, 0, 0 },
	{ 2, 8, 1, 120, 90, KV_F16, 1, RISING | LATE, 0, 0 },
};

/* Every number of query rows up to DECODE_ROWS, and different numbers of query heads for a KV
 * head */
static void
test_decoding(void)
{
	static const uint32_t R[] = { 1, 4, 7, 8, 16 }, widths[] = { 64, 80, 96, 128 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	struct shape s;
	size_t i;

	for (i = 0; i < 4 * COUNT(R); i++) {
		s = (struct shape){ 1 + i % DECODE_ROWS, 0, 1 + i % 2, widths[i / 2 % 4],
			1 + draw(100), type[i % 7 % 3], 1, (i % 2 ? PACKED : 0) | (i % 5 == 4 ?
			    ONE_LONG : 0) |
			(i % 3 < 2 ? LATE : 0), 0, 0 };
		s.H = R[i % COUNT(R)] * s.G;
		if (in_sample())
			test_attend(&s);
	}
	for (i = 0; i < COUNT(decoding); i++)
		if (in_sample())
			test_attend(&decoding[i]);
	test_sink();
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
		{ 9, 2, 1, 64, 1100, KV_BF16, 1, PROMPT, 0, 0 },     /* keys in parts */
		{ 20, 4, 2, 128, 1601, KV_F16, 1, 0, 0, 0 },
		{ 9, 5, 5, 128, 1100, KV_BF16, 1, PACKED, 0, 0 },    /* two sets of heads */
		{ 70, 2, 1, 64, 300, KV_F16, 1, PROMPT | RISING, 0, 0 },
		{ 33, 2, 1, 128, 300, KV_F16, 1, PROMPT | RISING, 0, 0 },
		{ 12, 8, 4, 96, 0, KV_F16, 1, 0, 0, 0 },
		{ 140, 2, 2, 128, 1000, KV_BF16, 1, 0, 0, 0 },       /* tiles around a ring */
		{ 200, 1, 1, 64, 1300, KV_F16, 1, PROMPT, 0, 0 },
		{ 65, 2, 1, 128, 129, KV_F32, 1, PROMPT, 0, 0 },     /* without tensor cores */
		{ 33, 4, 2, 256, 130, KV_BF16, 1, PACKED, 0, 0 },
		{ 63, 3, 3, 64, 127, KV_F32, 1, PROMPT | RISING, 0, 0 },
		{ 21, 3, 1, 112, 64, KV_F16, 1, 0, 0, 0 },
		{ 12, 2, 1, 260, 20, KV_F32, 1, 0, 0, 0 },
		/* rows that are no whole pieces of 16 bytes, or too wide */
		{ 12, 4, 2, 100, 60, KV_BF16, 1, PROMPT, 0, 0 },
		{ 12, 2, 1, 132, 60, KV_F16, 1, PROMPT, 0, 0 },
		{ 12, 2, 1, 200, 20, KV_F32, 1, PROMPT, 0, 0 },
	};
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(queries); i++) {
		const uint32_t n = queries[i], r = n < 60 ? sharing[i % 4] : 1 + i % 2 * 2;
		const uint32_t g = n > 60 ? 1 : 1 + (uint32_t)i % 3;

		s = (struct shape){ n, r * g, g, width[i % 5], n + past[i % 8],
			i % 2 ? KV_F16 : KV_BF16, 1, i % 5 == 4 ? 0 : PROMPT, 0, 0 };
		if (in_sample())
			test_attend(&s);
	}
	for (i = 0; i < COUNT(special); i++)
		if (in_sample())
			test_attend(&special[i]);
}

void
test_attention(void)
{
	struct shape s;
	size_t i;

	for (i = 0; i < SHAPES; i++) {
		s = shape_of(i);
		if (in_sample())
			test_attend(&s);
	}
	for (i = 0; i < ODD_SHAPES; i++)
		if (in_sample())
			test_attend(&odd_shape[i]);
	test_refused_queries();
	test_decoding();
	test_tiles();
}
