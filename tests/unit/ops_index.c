/* ops_index.c - pack_bits, pack_pages and the scores of rows and pages: bytes against the rules
 * of kv-snapshot(5) as they read, scores against double precision
 *
 * Heads are ragged: one has no whole entry, one no rows. Rows of the cache that are not in
 * use hold NaN, entries that are not there hold a pattern that must stay, and so do the lists
 * of scores behind their ends. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

#define PATTERN 0xa5             /* of bytes that no op may write */
#define UNTOUCHED (-7)           /* of scores */
#define CAP_ERROR 6e-7           /* of c tanh(x / c), relative */

struct shape {
	uint32_t H, G, E, u, S;      /* u rows of an entry; S rows of the longest head */
	enum kv_dtype type;
	int packed;                  /* heads one after the other, instead of with spare capacity */
	float scale;                 /* of queries */
	enum kind { EVEN, UNEVEN, TINY } kind;         /* of keys */
	float softcap;               /* of scores; 0: none */
};

/* Keys as a host array, and where entries stand */
struct cache {
	float *k;
	uint64_t start[16], entry[16];
	uint32_t len[16], capacity[16];
	size_t rows, entries;
};

/* What channel c of row r is when the keys are special: the cases that rules are about */
static float
special_key(uint32_t r, uint32_t c)
{
	static const float huge[] = { -3e38f, 3e38f, 1, 0 }, wide[] = { 7e4f, -7e4f, 0, 65519 },
	    tiny[] = { 1e-45f, 3e-45f, 4e-45f, 6e-45f }, half[] = { 6e-8f, -3e-8f, 1e-7f, -1e-5f },
	    middle[] = { 0, 2, 1, 1.0078125f }, zero[] = { 0, -0.0f, -0.0f, 0 },
	    infinite[] = { INFINITY, 1, -INFINITY, NAN }, above[] = { 1, INFINITY, 2, 3 };

	switch (c % 14) {
	case 0:
		return 0.7f;                           /* all equal */
	case 1:
		return NAN;
	case 2:
		return r % 3 == 0 ? NAN : (float)(r % 7) - 3;
	case 3:
		return huge[r % 4];
	case 4:
		return wide[r % 4];
	case 5:
		return tiny[r % 4];
	case 6:
		return half[r % 4];
	case 7:
		return middle[r % 4];
	case 8:
		return zero[(r + c) % 4];
	case 9:
		return -0.0f;
	case 10:
		return infinite[r % 4];
	case 11:
		return above[r % 4];
	case 12:
		return INFINITY;
	}
	return r % 5 == 0 ? -1e-9f : 0;                /* least and scale below what f16 holds */
}

/* Channel c of a key from x in -1 .. 1. UNEVEN: some channels always have the same key, and some
 * have more than f16 can tell beside the others. TINY: all scales are below what f16 has eleven
 * bits for. */
static float
key(enum kind kind, uint32_t c, float x)
{
	static const float size[] = { 0, 1e-7f, 1e-3f, 1, 30, 4e4f, 0.1f };
	static const float at[] = { 3, 0, -100, 0, 7 };

	switch (kind) {
	case EVEN:
		break;
	case UNEVEN:
		return x * size[c % 7] + at[c % 5];
	case TINY:
		return x * 0x1p-18f;
	}
	return x + (float)(c % 5) - 2;
}

static void
make_cache(struct cache *c, const struct shape *s, int special)
{
	uint32_t g, r, e, gap = s->packed ? 0 : 3;
	float *k;

	c->rows = c->entries = 0;
	for (g = 0; g < s->G; g++) {
		c->len[g] = g == 0 ? s->S : g == 1 ? draw(s->u) : g == 2 ? 0 : draw(s->S + 1);
		c->start[g] = c->rows;
		c->entry[g] = c->entries;
		c->capacity[g] = c->len[g] / s->u + gap;
		c->rows += c->len[g] + gap;
		c->entries += c->capacity[g];
	}
	c->k = floats(c->rows * s->E, 1);
	for (g = 0; g < s->G; g++)
		for (r = 0; r < c->len[g] + gap; r++) {
			k = c->k + (c->start[g] + r) * s->E;
			for (e = 0; e < s->E; e++)
				k[e] = r >= c->len[g] ? NAN
				    : special ? special_key(r, e)
				    : key(s->kind, e, k[e]);
		}
	round_to(c->k, s->type, c->rows * s->E);
}

/* rows of all of them <- those that are in none of have[g] entries, alone: row s is at start[g] + s
 * modulo 2^64. start: [G] */
static void
keep_last(struct device *d, struct layer_rows *rows, uint64_t *start, const struct cache *c,
    const struct shape *s, const uint32_t *have)
{
	float *k = malloc(c->rows * s->E * sizeof *k + 1);
	size_t at = 0, n, first;
	uint32_t g;

	for (g = 0; g < s->G; at += n, g++) {
		first = have[g] * (size_t)s->u;
		n = c->len[g] - first;
		memcpy(k + at * s->E, c->k + (c->start[g] + first) * s->E, n * s->E * sizeof *k);
		start[g] = at - first;
	}
	d->ops->free(d->dev, rows->k);
	rows->k = to_device_as(d, k, s->type, at * s->E);
	rows->start = start;
	free(k);
}

static void
name_case(char *what, size_t size, const char *op, const struct shape *s)
{
	snprintf(what, size, "%s H %u/%u E %u u %u S %u %s%s softcap %g", op, s->H, s->G, s->E,
	    s->u, s->S, kv_dtype_name(s->type), s->packed ? " packed" : "", s->softcap);
}

/* All entries by the rules: [entries][bytes] */
static unsigned char *
pack_by_rule(const struct cache *c, const struct shape *s, int pages, size_t bytes)
{
	unsigned char *want = malloc(c->entries * bytes + 1), *to;
	const float *k;
	size_t g, i;

	memset(want, PATTERN, c->entries * bytes);
	for (g = 0; g < s->G; g++)
		for (i = 0; i < c->len[g] / s->u; i++) {
			to = want + (c->entry[g] + i) * bytes;
			k = c->k + (c->start[g] + i * s->u) * s->E;
			if (pages)
				ref_pack_page(to, k, s->type, s->u, s->E);
			else
				ref_pack_bits(to, k, s->u, s->E);
		}
	return want;
}

static size_t
entry_bytes(const struct shape *s, int pages)
{
	return pages ? 2 * s->E * kv_dtype_size(s->type) : s->E * (4 + s->u / 8);
}

/* Twice: some rows first, then all; entries of the first time are not made again, and nobody looks
 * at the rows that they have. */
static void
test_pack(const struct shape *s, int pages, int special)
{
	const size_t bytes = entry_bytes(s, pages);
	uint32_t len[16], have[16], g;
	unsigned char *want, *got;
	uint64_t start[16];
	struct cache c;
	char what[80];
	size_t i;
	int k;

	make_cache(&c, s, special);
	name_case(what, sizeof what, pages ? "pack_pages" : "pack_bits", s);
	want = pack_by_rule(&c, s, pages, bytes);
	got = malloc(c.entries * bytes + 1);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		void (*pack)(struct dev *, struct entries *, const struct layer_rows *) =
		    pages ? d->ops->pack_pages : d->ops->pack_bits;
		struct layer_rows rows = { .k = to_device_as(d, c.k, s->type, c.rows * s->E),
			.start = c.start, .len = len, .heads = s->G, .width = s->E,
			.dtype = s->type };
		struct entries e = { .bytes = bytes, .start = c.entry, .len = have,
			.capacity = c.capacity, .heads = s->G, .width = s->E, .rows = s->u };

		memset(got, PATTERN, c.entries * bytes);
		e.data = to_device(d, got, c.entries * bytes);
		for (g = 0; g < s->G; g++) {
			len[g] = c.len[g] / 3;
			have[g] = 0;
		}
		pack(d->dev, &e, &rows);
		for (g = 0; g < s->G; g++) {
			verdict(have[g] == len[g] / s->u, "%s: %u entries of head %u", what,
			    have[g], g);
			len[g] = c.len[g];
		}
		keep_last(d, &rows, start, &c, s, have);
		pack(d->dev, &e, &rows);
		for (g = 0; g < s->G; g++)
			verdict(have[g] == len[g] / s->u, "%s: %u entries of head %u", what,
			    have[g], g);
		d->ops->get(d->dev, got, e.data, c.entries * bytes);
		for (i = 0; i < c.entries * bytes && got[i] == want[i]; i++)
			;
		verdict(i == c.entries * bytes && d->ops->sync(d->dev) == NULL,
		    "%s%s, %s %d threads: byte %zu of entry %zu is %02x, want %02x", what,
		    special ? " special" : "", d->name, d->threads, i % bytes, i / bytes, got[i],
		    want[i]);
		d->ops->free(d->dev, e.data);
		d->ops->free(d->dev, rows.k);
	}
	free(want);
	free(got);
	free(c.k);
}

/* What scores are computed from */
enum source { BITS, PAGES, KEYS };

static void
score(struct device *d, enum source from, float *to, size_t stride, const float *q,
    const struct entries *e, const struct layer_rows *rows, const struct shape *s)
{
	const struct query query = { .q = q, .N = 1, .H = s->H, .softcap = s->softcap };

	switch (from) {
	case BITS:
		d->ops->bits_scores(d->dev, to, stride, &query, e, rows);
		break;
	case PAGES:
		d->ops->page_scores(d->dev, to, stride, &query, e, s->type);
		break;
	case KEYS:
		d->ops->key_scores(d->dev, to, stride, &query, rows);
		break;
	}
}

/* want[H][stride] by the formulas, terms[H][stride] of them; data: entries by the rules */
static void
score_by_formula(double *want, struct ref_terms *terms, size_t stride, enum source from,
    const float *q, const struct cache *c, const unsigned char *data, const struct shape *s)
{
	const unsigned char *entry;
	const float *k;
	const size_t bytes = entry_bytes(s, from == PAGES);
	size_t h, i, g, n;

	for (i = 0; i < s->H * stride; i++)
		want[i] = UNTOUCHED;
	for (h = 0; h < s->H; h++, q += s->E, want += stride, terms += stride) {
		g = h / (s->H / s->G);
		n = c->len[g] / s->u;
		for (i = 0; from == PAGES && i < n; i++) {
			entry = data + (c->entry[g] + i) * bytes;
			want[i] = ref_cap(ref_page_score(q, entry, s->type, s->E), s->softcap);
			terms[i] = ref_page_terms(q, entry, s->type, s->E);
		}
		for (i = 0; from != PAGES && i < c->len[g]; i++) {
			entry = data + (c->entry[g] + i / s->u) * bytes;
			k = c->k + (c->start[g] + i) * s->E;
			if (from == BITS && i < n * s->u) {
				want[i] = ref_cap(ref_bits_score(q, entry, s->u, s->E, i % s->u),
				    s->softcap);
				terms[i] = ref_bits_terms(q, entry, s->u, s->E, i % s->u);
			} else {
				want[i] = ref_cap(ref_key_score(q, k, s->E), s->softcap);
				terms[i] = ref_key_terms(q, k, s->E);
			}
		}
	}
}

/* What large and tiny queries give, as if they were of about 1 */
static void
by_scale(float *got, const double *want, size_t n, float scale)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (want[i] != UNTOUCHED)
			got[i] /= scale;
}

/* bound[n] of the errors of scores / scale on that device. A cap makes none of them larger, and may
 * add CAP_ERROR of what it gives, want. */
static void
bound_scores(double *bound, const double *want, const struct ref_terms *terms, size_t n,
    const struct shape *s, const struct device *d)
{
	const double by = 1 / sqrt((double)s->E) / s->scale;
	const struct ref_terms *t;
	size_t i;

	for (i = 0, t = terms; i < n; i++, t++)
		bound[i] = by * score_bound((double)t->n, t->magnitude, t->most_a * t->b +
		    t->a * t->most_b, d->rounds) + (s->softcap > 0 ? CAP_ERROR * fabs(want[i]) : 0);
}

/* At width 256, and of capped scores, which are small beside their terms, only bounds hold; up to
 * 128 errors were measured, and may not be more. */
static void
compare_scores(struct device *d, enum op op, const char *what, const float *got,
    const double *want, const double *bound, size_t n, const struct shape *s)
{
	compare_each(d, op, what, got, want, bound, n);
	if (s->E != 256 && s->softcap == 0)
		compare(d, op, what, got, want, n);
}

/* n scores that no op has written */
static float *
untouched(size_t n)
{
	float *list = malloc(n * sizeof *list);
	size_t i;

	for (i = 0; i < n; i++)
		list[i] = UNTOUCHED;
	return list;
}

static void
test_scores(const struct shape *s, enum source from)
{
	static const char *const name[] = { "bits_scores", "page_scores", "key_scores" };
	static const enum op op[] = { BITS_SCORES, PAGE_SCORES, KEY_SCORES };
	const size_t stride = s->S + 5, n = s->H * stride, bytes = entry_bytes(s, from == PAGES);
	float *q = floats((size_t)s->H * s->E, s->scale), *list = untouched(n), *got;
	double *want = malloc(n * sizeof *want), *bound = malloc(n * sizeof *bound);
	struct ref_terms *terms = calloc(n, sizeof *terms);
	uint32_t have[16], g;
	unsigned char *data;
	uint64_t start[16];
	struct cache c;
	char what[96];
	size_t i;
	int k;

	make_cache(&c, s, 0);
	data = pack_by_rule(&c, s, from == PAGES, bytes);
	for (g = 0; g < s->G; g++)
		have[g] = c.len[g] / s->u;
	score_by_formula(want, terms, stride, from, q, &c, data, s);
	for (i = 0; i < n; i++)
		if (want[i] != UNTOUCHED)
			want[i] /= s->scale;
	name_case(what, sizeof what, name[from], s);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = { .k = to_device_as(d, c.k, s->type, c.rows * s->E),
			.start = c.start, .len = c.len, .heads = s->G, .width = s->E,
			.dtype = s->type };
		struct entries e = { .data = to_device(d, data, c.entries * bytes), .bytes = bytes,
			.start = c.entry, .len = have, .capacity = c.capacity, .heads = s->G,
			.width = s->E, .rows = s->u };
		void *dq = to_device(d, q, (size_t)s->H * s->E * 4);
		void *to = to_device(d, list, n * 4);

		for (i = 0; i < 2; i++) {
			if (i == 1 && from == BITS)
				keep_last(d, &rows, start, &c, s, have);
			score(d, from, to, stride, dq, &e, &rows, s);
			got = from_device(d, to, n);
			by_scale(got, want, n, s->scale);
			bound_scores(bound, want, terms, n, s, d);
			if (i == 0)
				compare_scores(d, op[from], what, got, want, bound, n, s);
			else
				again(d, what, got, n);
			free(got);
		}
		d->ops->free(d->dev, rows.k);
		d->ops->free(d->dev, e.data);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, to);
	}
	free(q);
	free(list);
	free(want);
	free(bound);
	free(terms);
	free(data);
	free(c.k);
}

/* What cannot be is refused, in words. */
static void
test_refused(void)
{
	float keys[40] = { 0 }, q[8] = { 0 }, list[80];
	unsigned char data[64];
	uint64_t start[1] = { 0 };
	uint32_t len[1] = { 20 }, have[1] = { 0 }, capacity[1] = { 0 };
	struct layer_rows rows = { .k = keys, .start = start, .len = len, .heads = 1, .width = 2,
		.dtype = KV_F32 };
	struct entries e = { .data = data, .bytes = 12, .start = start, .len = have,
		.capacity = capacity, .heads = 1, .width = 2, .rows = 16 };
	static const char *const text[] = { "no room for 1 entries", "2 entries for 20 rows",
		"14 bytes for 16 rows" };
	const struct query query = { .q = q, .N = 1, .H = 2 };
	const char *said;
	int k, i;

	for (k = 0; k < devices; k++)
		for (i = 0; i < 3; i++) {
			char err[80];
			struct dev *d = device[k].ops->open(0, 1, err, sizeof err);

			have[0] = i == 1 ? 2 : 0;
			e.bytes = i == 2 ? 14 : 12;
			if (i == 0)
				device[k].ops->pack_bits(d, &e, &rows);
			else
				device[k].ops->bits_scores(d, list, 40, &query, &e, &rows);
			said = device[k].ops->sync(d);
			verdict(said != NULL && strstr(said, text[i]) != NULL, "%s: \"%s\", want "
			    "\"%s\"", device[k].name, said == NULL ? "" : said, text[i]);
			device[k].ops->close(d);
		}
}

/* Each of n shapes with every index that is scored, pages of three rows among them. */
static void
test_all_scores(const struct shape *shape, size_t n)
{
	struct shape s;
	size_t i;

	for (i = 0; i < n; i++) {
		s = shape[i];
		if (!in_sample())
			continue;
		test_scores(&s, BITS);
		test_scores(&s, KEYS);
		s.u = 3;
		test_scores(&s, PAGES);
	}
}

/* Lengths around the ends of what a GPU's warp scores together, numbers of query heads around
 * those it scores together, and numbers that f16 does not hold */
static void
test_tiles(void)
{
	static const struct shape shape[] = {
		{ 1, 1, 64, 16, 127, KV_BF16, 0, 1, EVEN, 0 },
		{ 4, 1, 128, 32, 128, KV_BF16, 1, 1, UNEVEN, 0 },
		{ 5, 1, 80, 64, 129, KV_F16, 0, 1, UNEVEN, 0 },
		{ 7, 1, 64, 128, 256, KV_BF16, 1, 1e20f, UNEVEN, 0 },
		{ 9, 1, 64, 32, 255, KV_F16, 0, 1e-20f, EVEN, 0 },
		{ 17, 1, 96, 16, 145, KV_F32, 0, 1e-36f, EVEN, 0 },
		{ 4, 4, 48, 16, 257, KV_F16, 1, 1e5f, TINY, 0 },
		{ 16, 2, 128, 64, 383, KV_BF16, 0, 1e6f, TINY, 0 },
		{ 8, 1, 16, 32, 1100, KV_BF16, 0, 1, UNEVEN, 0 },
		{ 3, 1, 160, 128, 260, KV_BF16, 0, 1, EVEN, 0 },
		/* all the shared memory that need not be asked for; all that there is */
		{ 8, 1, 384, 64, 70, KV_BF16, 0, 1, EVEN, 0 },
		{ 2, 1, 560, 16, 40, KV_BF16, 0, 1, EVEN, 0 },
		{ 8, 2, 256, 32, 200, KV_BF16, 0, 1, EVEN, 0 },
		{ 5, 1, 256, 16, 130, KV_F16, 1, 1, UNEVEN, 0 },
		{ 4, 2, 256, 64, 150, KV_F32, 0, 1e-20f, EVEN, 0 },
		{ 2, 2, 128, 32, 700, KV_BF16, 0, 1e-36f, UNEVEN, 0 },
		{ 3, 3, 112, 64, 333, KV_F16, 1, 1, EVEN, 0 },
		{ 2, 2, 80, 128, 500, KV_BF16, 1, 1e20f, UNEVEN, 0 },
		{ 1, 1, 496, 16, 140, KV_F32, 0, 1, EVEN, 0 },
		{ 7, 1, 128, 32, 280, KV_F16, 0, 1, TINY, 0 },
		{ 12, 4, 128, 32, 350, KV_BF16, 0, 1, TINY, 0 },
		{ 6, 1, 256, 128, 256, KV_BF16, 1, 1e6f, TINY, 0 },
	};

	test_all_scores(shape, sizeof shape / sizeof shape[0]);
}

/* Scores far below the cap, about as large, and so much larger that all are the cap or minus it */
static void
test_caps(void)
{
	static const struct shape shape[] = {
		{ 8, 2, 64, 32, 500, KV_BF16, 0, 1, EVEN, 50 },
		{ 5, 1, 128, 64, 333, KV_F16, 1, 30, EVEN, 50 },
		{ 4, 4, 80, 16, 129, KV_F32, 0, 12, EVEN, 30 },
		{ 7, 1, 96, 128, 385, KV_BF16, 1, 4, UNEVEN, 30 },
		{ 6, 3, 33, 32, 200, KV_F32, 0, 1, EVEN, 0.5f },
		{ 9, 1, 256, 16, 257, KV_BF16, 0, 1e-3f, EVEN, 50 },
		{ 16, 2, 20, 64, 300, KV_F16, 1, 1e4f, TINY, 0.03f },
		{ 1, 1, 64, 32, 2100, KV_BF16, 0, 1e20f, UNEVEN, 30 },
		/* one product: the error is that of the cap */
		{ 4, 2, 1, 32, 700, KV_F32, 0, 1, EVEN, 50 },
		{ 6, 1, 1, 16, 900, KV_F16, 0, 1, EVEN, 1 },
	};

	test_all_scores(shape, sizeof shape / sizeof shape[0]);
}

void
test_indexes(void)
{
	static const struct {
		uint32_t H, G;
	} heads[] = { { 8, 2 }, { 3, 3 }, { 8, 1 }, { 12, 4 }, { 4, 4 }, { 14, 2 } };
	static const uint32_t E[] = { 20, 32, 33, 64, 80, 96, 128 };
	static const uint32_t u[] = { 16, 32, 64, 128 }, page[] = { 16, 5, 2, 37 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	struct shape s;
	size_t e, b, i = 0;

	for (e = 0; e < sizeof E / sizeof E[0]; e++)
		for (b = 0; b < 4; b++, i++) {
			s = (struct shape){ heads[i % 6].H, heads[i % 6].G, E[e], u[b],
				3 * u[b] + draw(300), type[(e + b) % 3], i % 2, 1, EVEN, 0 };
			if (!in_sample())
				continue;
			test_pack(&s, 0, 0);
			test_pack(&s, 0, 1);
			test_scores(&s, BITS);
			test_scores(&s, KEYS);
			s.u = page[b];
			test_pack(&s, 1, 0);
			test_pack(&s, 1, 1);
			test_scores(&s, PAGES);
		}
	for (i = 0; i < 3; i++) {                      /* enough for all threads */
		s = (struct shape){ 8, i == 1 ? 8 : 1, 64, 32, 3000, type[i], 0, 30, EVEN, 0 };
		if (!in_sample())
			continue;
		test_scores(&s, BITS);
		test_scores(&s, KEYS);
		s.u = 2;
		test_scores(&s, PAGES);
		test_pack(&s, 1, 0);
	}
	test_tiles();
	test_caps();
	test_refused();
}
