/* ops_quantised.c - ops that read or write rows, on rows of quantised types: against double
 * precision, of the numbers that libkvfile's kv_rows_to_f32() gives
 *
 * Keys and values have types of their own. Rows of the cache that are not in use have scales and
 * codes of all ones, NaN, so that reading one shows. */
#include <string.h>

#include "tests/unit/ops_cache.h"

#define FAR_POSITION 4000000000u     /* after the last one */

static const enum kv_row_type blocks[] = { KV_ROW_Q8_0, KV_ROW_Q4_0, KV_ROW_Q4_1, KV_ROW_Q5_0 };

/* ---- attention ---- */

/* With one type, or with two; in each of them and the other */
static void
test_attention_of(const struct shape *s, size_t i, int masses)
{
	cache_types = (struct cache_types){ cache_type_for(s->E, i, 0),
		cache_type_for(s->E, i / 2 * 5 + 1, 1), cache_type_for(s->E, i + 3, 1) };
	if (i % 3 == 0)
		cache_types.v = cache_types.k;
	test_attend(s);
	if (masses) {
		test_window_mass(s, (int)i % 2, i % 3 ? QUERIES_SUM : QUERIES_MAX);
		test_attend_mass(s, i % 2 ? QUERIES_SUM : QUERIES_MAX);
	}
	cache_types = (struct cache_types){ 0 };
}

/* Few query rows and many, widths with and without blocks, every form of the caches */
static void
test_grid(void)
{
	static const uint32_t N[] = { 1, 1, 2, 5, 8, 9, 33, 130 };
	static const uint32_t E[] = { 64, 128, 32, 80, 7, 96, 256, 33, 64, 1, 16 };
	static const uint32_t R[] = { 4, 3, 1, 2, 8, 7 };
	static const int form[] = { LATE, PACKED, LATE | ONE_LONG, PROMPT, EVICTED, RISING | LATE };
	static const float softcap[] = { 0, 0, 0, 1.5f };
	static const uint32_t window[] = { 0, 0, 70, 0, 7 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	struct shape s;
	size_t i;

	for (i = 0; i < 264; i++) {
		s = (struct shape){ N[i % COUNT(N)], 0, 1 + i % 3, E[i % COUNT(E)],
			N[i % COUNT(N)] + draw(i % 8 < 2 ? 1300 : 200), type[i % 3], 1,
			form[i % COUNT(form)], window[i % COUNT(window)],
			softcap[i / 2 % COUNT(softcap)] };
		s.H = R[i / 3 % COUNT(R)] * s.G;
		if (in_sample())
			test_attention_of(&s, draw(1000), i % 2);
	}
}

/* What decoding is: every type of keys with every type of values */
static void
test_decoding(void)
{
	static const uint32_t E[] = { 64, 128, 64, 128, 96, 256 }, R[] = { 1, 3, 4, 5, 8 };
	struct shape s;
	size_t i, j, n = 0;

	for (i = 0; i < 12; i++)
		for (j = 0; j < 13; j++, n++) {
			s = (struct shape){ 1, R[n % 5], 1, E[n % 6], 60 + draw(10), KV_BF16, 1.5f,
				LATE, 0, 0 };
			cache_types = (struct cache_types){ .k = cache_type_for(s.E, i, 0),
				.v = cache_type_for(s.E, j, 1) };
			if (in_sample())
				test_attend(&s);
		}
	for (i = 0; i < 24; i++) {                     /* split-KV, ragged heads, one empty */
		s = (struct shape){ 1, i < 12 ? 9 : 21, 3, E[i % 2], 2000 + draw(99), KV_BF16, 1,
			LATE, 0, 0 };
		cache_types = (struct cache_types){ .k = cache_type_for(s.E, i, 0),
			.v = cache_type_for(s.E, i, 0) };
		if (in_sample())
			test_attend(&s);
	}
	cache_types = (struct cache_types){ 0 };
}

/* Values whose scale is nothing beside the weight of their row, in every block: the first row gets
 * nearly all attention, and its value is 0. The scales of the others grow by the rows. */
static void
test_sink(enum kv_row_type type, uint32_t H)
{
	const struct shape s = { 1, H, 1, 64, 150, KV_BF16, 1, LATE | FIRST, 0, 0 };
	double want[8 * 64], lse[8];
	float q[8 * 64] = { 0 };
	struct query query;
	struct ref_rows ref;
	struct cache c;
	uint32_t i;
	int k;

	cache_types = (struct cache_types){ .k = type, .v = type };
	cache_make(&c, &s);
	for (i = 0; i < s.S * s.E; i++) {
		c.k[i] = i == 0 ? 4 : 0;
		c.v[i] = i < s.E ? 0 : ldexpf(64, (int)(i / s.E / 8 % 12) - 6);
	}
	cache_store(&c, &s);
	for (i = 0; i < s.H; i++)
		q[i * s.E] = 26 + (float)(i % 4);      /* weights of 2^-19 to 2^-24 */
	ref = cache_reference(&c, &s);
	query = cache_query(&s, q, c.qpos);
	ref_attend(want, lse, &query, &ref);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = cache_on_device(d, &c, &s, 1);
		void *dq = to_device(d, q, sizeof q), *dp = to_device(d, c.qpos, 4);
		void *out = d->ops->alloc(d->dev, sizeof q);
		float *o;

		query = cache_query(&s, dq, dp);
		d->ops->attend(d->dev, out, NULL, &query, &rows);
		o = from_device(d, out, H * s.E);
		for (i = 0; i < H * s.E; i++)
			verdict(fabs(o[i] - want[i]) <= 1e-4 * fabs(want[i]), "sink, %s, %s: "
			    "%.9g, want %.9g", kv_row_type_name(type), d->name, o[i], want[i]);
		free(o);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, dp);
		d->ops->free(d->dev, out);
		cache_free_rows(d, &rows);
	}
	cache_free(&c);
	cache_types = (struct cache_types){ 0 };
}

/* ---- chosen rows ---- */

/* at[G][stride] <- entries of `entry` rows, about a third of those of each KV head and the last
 * one; picked[] <- keys, values and number of their rows */
static void
choose(const struct cache *c, const struct shape *s, uint32_t entry, uint32_t *at, size_t stride,
    uint32_t *n, struct cache *picked)
{
	const size_t row = s->E * sizeof *c->k;
	uint32_t g, i, r, entries;

	for (g = 0; g < s->G; g++) {
		entries = (c->len[g] + entry - 1) / entry;
		n[g] = picked->len[g] = 0;
		picked->start[g] = c->start[g];
		for (i = 0; i < entries; i++) {
			if (i + 1 < entries && draw(3) > 0)
				continue;
			at[g * stride + n[g]++] = i;
			for (r = i * entry; r < (i + 1) * entry && r < c->len[g]; r++) {
				const size_t from = c->start[g] + r,
				    to = c->start[g] + picked->len[g]++;

				memcpy(picked->k + to * s->E, c->k + from * s->E, row);
				memcpy(picked->v + to * s->E, c->v + from * s->E, row);
				picked->pos[to] = c->pos[from];
			}
		}
	}
}

/* gather() of the choice: the rows that kv_rows_to_f32() gives are those picked */
static void
check_gather(struct device *d, const struct cache *c, const struct cache *picked,
    const struct shape *s, const struct layer_rows *rows, const struct chosen *choice)
{
	const size_t kb = rows_k_bytes(rows), vb = rows_v_bytes(rows), row = s->E * sizeof(float);
	void *k = cleared(d, c->rows * kb + 1), *v = cleared(d, c->rows * vb + 1);
	void *pos = cleared(d, c->rows * 4 + 4);
	char *got = malloc(c->rows * (kb > vb ? kb : vb) + 1);
	float *x = malloc(row);
	uint32_t len[64] = { 0 }, room[64], g, r;
	struct layer_rows to = *rows;
	int which;

	for (g = 0; g < s->G; g++)
		room[g] = c->cap;
	to.k = k;
	to.v = v;
	to.pos = pos;
	to.len = len;
	to.capacity = room;
	d->ops->gather(d->dev, &to, rows, choice);
	for (which = 0; which < 2; which++) {
		const size_t bytes = which ? vb : kb;
		const float *want = which ? picked->v : picked->k;
		int same = 1;

		d->ops->get(d->dev, got, which ? v : k, c->rows * bytes);
		for (g = 0; g < s->G; g++)
			for (r = 0; r < picked->len[g]; r++) {
				kv_rows_to_f32(x, got + (c->start[g] + r) * bytes,
				    which ? rows_v_type(rows) : rows_k_type(rows), s->E, 1);
				same &= memcmp(x, want + (c->start[g] + r) * s->E, row) == 0;
			}
		verdict(same && memcmp(len, picked->len, s->G * 4) == 0, "gather, %s, %s %s",
		    d->name, which ? "values" : "keys",
		    kv_row_type_name(which ? rows_v_type(rows) : rows_k_type(rows)));
	}
	d->ops->free(d->dev, k);
	d->ops->free(d->dev, v);
	d->ops->free(d->dev, pos);
	free(got);
	free(x);
}

static void
test_chosen_rows(const struct shape *s, uint32_t entry)
{
	const size_t n = (size_t)s->H * s->E, stride = s->S + 3;
	const uint32_t far = FAR_POSITION;
	float *q = floats(n, s->scale), *o;
	uint32_t *at = calloc(s->G * stride, 4), many[64];
	double *want = malloc(n * sizeof *want), *lse = malloc(s->H * sizeof *lse);
	struct cache c, picked;
	struct ref_rows ref;
	struct query query = { .q = q, .pos = &far, .N = 1, .H = s->H, .softcap = s->softcap };
	char what[160];
	int k;

	cache_make(&c, s);
	picked = c;
	picked.k = floats(c.rows * s->E, 0);
	picked.v = floats(c.rows * s->E, 0);
	picked.pos = calloc(c.rows + 1, 4);
	choose(&c, s, entry, at, stride, many, &picked);
	ref = cache_reference(&picked, s);
	ref_attend(want, lse, &query, &ref);
	cache_name(what, sizeof what, "attend_chosen", s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = cache_on_device(d, &c, s, 1);
		struct chosen choice = { to_device(d, at, s->G * stride * 4), stride, many, entry };
		void *dq = to_device(d, q, n * 4), *out = d->ops->alloc(d->dev, n * 4);

		query.q = dq;
		query.pos = NULL;
		d->ops->attend_chosen(d->dev, out, &query, &rows, &choice);
		o = from_device(d, out, n);
		compare(d, ATTEND_ROWS, what, o, want, n);
		check_gather(d, &c, &picked, s, &rows, &choice);
		free(o);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, out);
		d->ops->free(d->dev, choice.at);
		cache_free_rows(d, &rows);
	}
	free(picked.k);
	free(picked.v);
	free(picked.pos);
	cache_free(&c);
	free(q);
	free(at);
	free(want);
	free(lse);
}

static void
test_choices(void)
{
	static const uint32_t E[] = { 64, 128, 80, 96, 7 }, entry[] = { 1, 16, 1, 5 };
	static const uint32_t R[] = { 4, 3, 1, 9, 5, 8 };
	struct shape s;
	size_t i;

	for (i = 0; i < 60; i++) {
		s = (struct shape){ 1, 0, 3, E[i % 5], 1 + draw(i % 7 == 0 ? 1500 : 300), KV_BF16,
			1, 0, 0, i % 6 == 5 ? 1.5f : 0 };
		s.H = R[i % 6] * s.G;
		cache_types = (struct cache_types){ .k = cache_type_for(s.E, i, 0),
			.v = cache_type_for(s.E, i / 3, 1) };
		if (in_sample())
			test_chosen_rows(&s, entry[i % 4]);
	}
	cache_types = (struct cache_types){ 0 };
}

/* ---- scores and indexes ---- */

/* want[H][stride], of the KV heads' rows from `first` entries of u rows on */
static void
score_by_formula(double *want, size_t stride, const float *q, const struct cache *c,
    const struct shape *s, const unsigned char *bits, size_t bytes, uint32_t u)
{
	size_t h, i, g;

	for (h = 0; h < s->H; h++, q += s->E, want += stride) {
		g = h / (s->H / s->G);
		for (i = 0; i < c->len[g]; i++)
			want[i] = ref_cap(bits != NULL && i / u < c->len[g] / u ?
			    ref_bits_score(q, bits + (c->start[g] + i / u) * bytes, u, s->E, i % u)
			    : ref_key_score(q, c->k + (c->start[g] + i) * s->E, s->E), s->softcap);
		for (; i < stride; i++)
			want[i] = -7;
	}
}

/* entries[c->rows][bytes] by the rules: those of KV head g from start[g] on */
static unsigned char *
pack_by_rule(const struct cache *c, const struct shape *s, int pages, size_t bytes, uint32_t u)
{
	unsigned char *want = calloc(c->rows + 1, bytes);
	size_t g, i;

	for (g = 0; g < s->G; g++)
		for (i = 0; i < c->len[g] / u; i++) {
			unsigned char *to = want + (c->start[g] + i) * bytes;
			const float *k = c->k + (c->start[g] + i * u) * s->E;

			if (pages)
				ref_pack_page(to, k, s->type, u, s->E);
			else
				ref_pack_bits(to, k, u, s->E);
		}
	return want;
}

static void
check_scores(struct device *d, struct cache *c, const struct shape *s,
    const struct layer_rows *rows, const struct entries *bits, const float *q, const double *want)
{
	const size_t stride = s->S + 5, n = s->H * stride;
	float *list = floats(n, 0), *got;
	void *dq = to_device(d, q, (size_t)s->H * s->E * 4), *to;
	const struct query query = { .q = dq, .N = 1, .H = s->H, .softcap = s->softcap };
	char what[160];
	size_t i;

	(void)c;
	for (i = 0; i < n; i++)
		list[i] = -7;
	to = to_device(d, list, n * 4);
	if (bits != NULL)
		d->ops->bits_scores(d->dev, to, stride, &query, bits, rows);
	else
		d->ops->key_scores(d->dev, to, stride, &query, rows);
	got = from_device(d, to, n);
	cache_name(what, sizeof what, bits != NULL ? "bits_scores" : "key_scores", s);
	compare(d, SCORES_ROWS, what, got, want, n);
	d->ops->free(d->dev, to);
	d->ops->free(d->dev, dq);
	free(list);
	free(got);
}

/* Entries by the op are those by the rules, and, of bits, what scores are computed from */
static void
test_index(const struct shape *s, uint32_t u, int pages)
{
	const size_t bytes = pages ? 2 * s->E * kv_dtype_size(s->type) : s->E * (4 + u / 8);
	const size_t stride = s->S + 5;
	float *q = floats((size_t)s->H * s->E, s->scale);
	double *keys = malloc(s->H * stride * sizeof *keys),
	    *both = malloc(s->H * stride * sizeof *both);
	unsigned char *want, *got;
	uint32_t have[64], room[64], g;
	struct cache c;
	char what[160];
	int k, part;

	cache_make(&c, s);
	want = pack_by_rule(&c, s, pages, bytes, u);
	got = malloc((c.rows + 1) * bytes);
	score_by_formula(keys, stride, q, &c, s, NULL, bytes, u);
	score_by_formula(both, stride, q, &c, s, pages ? NULL : want, bytes, u);
	cache_name(what, sizeof what, pages ? "pack_pages" : "pack_bits", s);
	for (part = 0; part < 2; part++) {
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];
			struct layer_rows rows = cache_on_device(d, &c, s, 0);
			struct entries e = { .data = cleared(d, (c.rows + 1) * bytes),
				.bytes = bytes, .start = c.start, .len = have, .capacity = room,
				.heads = s->G, .width = s->E, .rows = u };

			for (g = 0; g < s->G; g++) {
				have[g] = 0;
				room[g] = c.cap;
			}
			(pages ? d->ops->pack_pages : d->ops->pack_bits)(d->dev, &e, &rows);
			d->ops->get(d->dev, got, e.data, (c.rows + 1) * bytes);
			verdict(memcmp(got, want, (c.rows + 1) * bytes) == 0, "%s, %s %d threads: "
			    "other bytes than the rules give", what, d->name, d->threads);
			check_scores(d, &c, s, &rows, part && !pages ? &e : NULL, q,
			    part ? both : keys);
			d->ops->free(d->dev, e.data);
			cache_free_rows(d, &rows);
		}
	}
	cache_free(&c);
	free(q);
	free(keys);
	free(both);
	free(want);
	free(got);
}

static void
test_all_indexes(void)
{
	static const uint32_t E[] = { 64, 128, 33, 96, 80, 1, 160 }, u[] = { 16, 32, 64, 128 };
	static const uint32_t page[] = { 16, 5, 300, 129 }, R[] = { 4, 3, 1, 9 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	struct shape s;
	size_t i;

	for (i = 0; i < 56; i++) {
		s = (struct shape){ 1, 0, 3, E[i % COUNT(E)], 1 + draw(700), type[i % 3], 1, 0, 0,
			i % 5 == 4 ? 30 : 0 };
		s.H = R[i % 4] * s.G;
		cache_types.k = cache_type_for(s.E, i, 0);
		if (!in_sample())
			continue;
		test_index(&s, u[i % 4], 0);
		test_index(&s, page[i % 4], 1);
	}
	cache_types = (struct cache_types){ 0 };
}

void
test_quantised(void)
{
	size_t i;

	test_grid();
	test_decoding();
	test_choices();
	test_all_indexes();
	test_stored();
	for (i = 0; i < COUNT(blocks); i++) {
		test_sink(blocks[i], 4);
		test_sink(blocks[i], 8);
		test_sink(blocks[i] | KV_ROW_HADAMARD, 4);
	}
	test_sink(KV_ROW_INT8, 4);
	test_sink(KV_ROW_FP8, 8);
	cache_types = (struct cache_types){ KV_ROW_INT8, KV_ROW_FP8, 0 };
	test_each();
	cache_types = (struct cache_types){ KV_ROW_FP8 | KV_ROW_HADAMARD,
		KV_ROW_INT8 | KV_ROW_HADAMARD, 0 };
	test_each();
	cache_types = (struct cache_types){ 0 };
}
