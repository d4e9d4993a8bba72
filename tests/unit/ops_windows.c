/* ops_windows.c - attention within a sliding window and of softcapped logits, against double
 * precision
 *
 * The rows that a query sees then have a first one, too. Windows are about as long as what kernels
 * take at once, or one row, or longer than the text; of KV heads that have lost rows they hold
 * fewer rows than positions, or none. */
#include "tests/unit/ops_cache.h"

static void
test_both_masses(const struct shape *s, size_t i)
{
	test_window_mass(s, 0, i % 3 ? QUERIES_SUM : QUERIES_MAX);
	test_window_mass(s, 1, i % 4 ? QUERIES_SUM : QUERIES_MAX);
	test_attend_mass(s, i % 2 ? QUERIES_SUM : QUERIES_MAX);
}

static void
test_grid(void)
{
	static const uint32_t N[] = { 1, 2, 8, 9, 20, 300 };
	static const uint32_t window[] = { 1, 7, 32, 63, 64, 65, 1000000 };
	static const uint32_t E[] = { 64, 80, 96, 128, 256, 33, 24, 128 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	static const int form[] = { EVICTED, PROMPT, EVICTED | LATE, PACKED, EVICTED | PACKED,
		LATE | ONE_LONG, FAR | EVICTED };
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(N) * COUNT(window); i++) {
		s = (struct shape){ N[i / 7], 0, 1 + i % 3, E[i % 8], N[i / 7] + draw(300),
			type[i % 3], 1, form[(i + i / 7) % 7], window[i % 7], 0 };
		if (s.N == 300)
			s.G = 1;
		s.H = (1 + (uint32_t)i % (s.N == 300 ? 3 : 8)) * s.G;
		if (!in_sample())
			continue;
		test_attend(&s);
		s.scale = 1.75f;
		test_both_masses(&s, i);
	}
}

/* Windows that begin and end at the edges of tiles, and far from the first row: of KV heads without
 * holes, with a past that is longer or shorter than the window, and where decoding is split. In
 * FAR a window that is larger than the text reaches beyond position 0 and is not beyond
 * the greatest number. */
static void
test_edges(void)
{
	static const struct shape shape[] = {
		{ 1, 4, 2, 64, 3001, KV_BF16, 1, LATE, 700, 0 },
		{ 1, 8, 1, 128, 2500, KV_F16, 1, LATE | EVICTED, 2100, 0 },
		{ 1, 3, 3, 80, 1300, KV_F32, 1, LATE | PACKED, 65, 0 },
		{ 1, 32, 4, 128, 1500, KV_BF16, 1, LATE | ONE_LONG, 1100, 0 },
		{ 2, 8, 2, 128, 1700, KV_F16, 1, PACKED, 600, 0 },
		{ 8, 4, 1, 96, 1500, KV_BF16, 1, EVICTED, 128, 0 },
		{ 8, 7, 1, 64, 900, KV_BF16, 1, PROMPT, 127, 0 },
		{ 9, 6, 2, 64, 1100, KV_F32, 1, EVICTED, 129, 0 },
		{ 20, 4, 2, 128, 1601, KV_F16, 1, LATE, 512, 0 },
		{ 64, 2, 1, 64, 1024, KV_BF16, 1, PROMPT, 64, 0 },
		{ 65, 2, 1, 128, 640, KV_F16, 1, PROMPT, 63, 0 },
		{ 128, 1, 1, 64, 512, KV_BF16, 1, PROMPT, 128, 0 },
		{ 129, 2, 2, 80, 600, KV_F32, 1, PROMPT, 1, 0 },
		{ 300, 2, 1, 64, 1300, KV_BF16, 1, PROMPT, 100, 0 },
		{ 300, 1, 1, 24, 2000, KV_F32, 1, EVICTED, 700, 0 },
		{ 20, 5, 1, 96, 400, KV_BF16, 1, FAR, UINT32_MAX, 0 },
		{ 3, 2, 2, 64, 100, KV_F16, 1, FAR | EVICTED, 4294000002u, 0 },
		{ 40, 2, 1, 32, 90, KV_BF16, 1, PROMPT, 20, 0 },
		{ 40, 2, 1, 32, 90, KV_F16, 1, PROMPT, 20, 0 },
		/* rows that are no whole pieces of 16 bytes, or too wide */
		{ 12, 4, 2, 100, 60, KV_BF16, 1, PROMPT, 20, 0 },
		{ 12, 4, 2, 100, 60, KV_F16, 1, PROMPT, 20, 0 },
		{ 12, 2, 1, 200, 60, KV_F32, 1, EVICTED, 20, 0 },
		/* more heads than a block has rows */
		{ 5, 300, 2, 16, 90, KV_F16, 1, 0, 20, 0 },
		/* the narrowest and the widest head */
		{ 5, 6, 3, 1, 90, KV_BF16, 1, PACKED, 33, 0 },
		{ 3, 2, 1, 1024, 70, KV_BF16, 1, EVICTED, 40, 0 },
		/* ends before position 0 */
		{ 33, 2, 1, 64, 16, KV_F32, 1, LATE | FIRST, 20, 0 },
		{ 5, 4, 2, 64, 0, KV_BF16, 1, 0, 9, 0 },         /* no rows at all */
	};
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(shape); i++) {
		s = shape[i];
		if (!in_sample())
			continue;
		test_attend(&s);
		s.scale = 1.75f;
		test_both_masses(&s, i);
	}
}

/* Caps that logits of about 1 feel, which devices may compute of numbers rounded to 16 bits; those
 * of Gemma 2, 50, and of others, 30, with logits that are larger and in f32 */
static void
test_caps(void)
{
	static const struct shape shape[] = {
		{ 1, 8, 2, 128, 2000, KV_BF16, 1.75f, LATE, 0, 1 },
		{ 2, 6, 2, 64, 333, KV_F16, 1.75f, EVICTED, 50, 0.75f },
		{ 8, 4, 4, 80, 300, KV_BF16, 1.5f, PACKED, 0, 1.5f },
		{ 9, 8, 1, 96, 200, KV_F16, 1.75f, PROMPT, 65, 1 },
		{ 20, 3, 1, 128, 257, KV_BF16, 1.75f, EVICTED | LATE, 300, 0.5f },
		{ 300, 2, 1, 64, 330, KV_BF16, 1.5f, PROMPT, 64, 1 },
		{ 70, 2, 2, 256, 129, KV_F16, 1.5f, 0, 0, 2 },
		{ 33, 5, 1, 24, 90, KV_F32, 1.75f, PROMPT, 32, 0.25f },
		{ 5, 7, 1, 33, 150, KV_F16, 1, 0, 0, 50 },
		{ 20, 4, 2, 256, 180, KV_BF16, 1, PROMPT, 100, 30 },
		/* large logits */
		{ 1, 4, 2, 64, 1800, KV_BF16, 12, LATE, 0, 50 },
		{ 1, 8, 1, 128, 900, KV_F16, 10, LATE, 700, 30 },
		{ 8, 6, 3, 96, 200, KV_BF16, 12, EVICTED, 64, 50 },
		{ 9, 4, 2, 64, 200, KV_F32, 12, 0, 0, 50 },
		{ 20, 3, 3, 80, 300, KV_F32, 30, PROMPT, 129, 50 },
		{ 130, 2, 1, 33, 200, KV_F32, 8, PROMPT, 0, 30 },
	};
	size_t i;

	for (i = 0; i < COUNT(shape); i++) {
		if (!in_sample())
			continue;
		test_attend(&shape[i]);
		if (shape[i].scale < 2 || shape[i].type == KV_F32)
			test_both_masses(&shape[i], i);
	}
}

/* Results of a device for one window */
struct result {
	float *o, *lse, *mass, *window_mass;
};

static struct result
results(struct device *d, const struct shape *s, const struct query *query,
    const struct layer_rows *rows)
{
	const size_t NH = (size_t)s->N * s->H, stride = s->S + 5, n = s->H * stride;
	float *o = d->ops->alloc(d->dev, NH * s->E * 4), *lse = d->ops->alloc(d->dev, NH * 4);
	float *zero = calloc(n, 4), *mass = to_device(d, zero, n * 4);
	struct result r;

	d->ops->attend(d->dev, o, lse, query, rows);
	d->ops->attend_mass(d->dev, mass, stride, query, lse, rows, QUERIES_SUM);
	r.mass = from_device(d, mass, n);
	d->ops->put(d->dev, mass, zero, n * 4);
	d->ops->window_mass(d->dev, mass, stride, query, rows, NULL, QUERIES_MAX);
	r.window_mass = from_device(d, mass, n);
	r.o = from_device(d, o, NH * s->E);
	r.lse = from_device(d, lse, NH);
	d->ops->free(d->dev, o);
	d->ops->free(d->dev, lse);
	d->ops->free(d->dev, mass);
	free(zero);
	return r;
}

static void
free_result(struct result *r)
{
	free(r->o);
	free(r->lse);
	free(r->mass);
	free(r->window_mass);
}

/* Without a window, and in windows that hold the whole text, just so and by far: the same bytes */
static void
test_whole_text(const struct shape *s)
{
	const size_t NH = (size_t)s->N * s->H, mass = s->H * (s->S + 5) * sizeof(float);
	float *q = floats(NH * s->E, s->scale);
	struct result r[3];
	struct query host;
	struct cache c;
	char what[128];
	int k, i;

	cache_make(&c, s);
	host = cache_query(s, q, c.qpos);
	cache_name(what, sizeof what, "whole text", s);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = cache_on_device(d, &c, s, 1);
		struct query query = query_on_device(d, s, &host);
		const uint32_t window[] = { 0, c.qpos[s->N - 1] - 1, UINT32_MAX };

		for (i = 0; i < 3; i++) {
			query.window = window[i];      /* no row stands before position 2 */
			r[i] = results(d, s, &query, &rows);
			verdict(memcmp(r[i].o, r[0].o, NH * s->E * 4) == 0 &&
			    memcmp(r[i].lse, r[0].lse, NH * 4) == 0, "%s, %s: attend in a window "
			    "of %u", what, d->name, window[i]);
			verdict(memcmp(r[i].mass, r[0].mass, mass) == 0 &&
			    memcmp(r[i].window_mass, r[0].window_mass, mass) == 0,
			    "%s, %s: mass in a window of %u", what, d->name, window[i]);
		}
		for (i = 0; i < 3; i++)
			free_result(&r[i]);
		drop_query(d, &query);
		cache_free_rows(d, &rows);
	}
	cache_free(&c);
	free(q);
}

void
test_windows(void)
{
	static const struct shape whole[] = {
		{ 1, 8, 2, 128, 3000, KV_BF16, 1, 0, 0, 0 },
		{ 2, 3, 1, 64, 700, KV_F16, 1, LATE, 0, 0 },
		{ 8, 4, 4, 80, 600, KV_F32, 1, EVICTED, 0, 0 },
		{ 33, 8, 2, 96, 300, KV_BF16, 1, PROMPT, 0, 0 },
		{ 130, 2, 1, 128, 257, KV_F16, 1, PROMPT, 0, 20 },
		{ 300, 1, 1, 64, 1300, KV_BF16, 1, EVICTED, 0, 0 },
	};
	size_t i;

	test_grid();
	test_edges();
	test_caps();
	for (i = 0; i < COUNT(whole); i++)
		if (in_sample())
			test_whole_text(&whole[i]);
}
