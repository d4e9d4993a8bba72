/* ops_chosen.c - attend_chosen, gather and rebuild: only the rows that were chosen
 *
 * Heads are ragged, and lists too; one is empty. Rows of the cache that are not in use hold
 * NaN, and so does everything behind the rows that gather() writes. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

#define BEHIND 3                     /* rows behind the longest head, entries behind a list */
#define FAR 4000000000u              /* behind the last position */

/* ONE_LONG: some, and KV heads but the first have one row or none. SHARED: some, of rows that all
 * KV heads share */
enum which { SOME, NONE, ALL, ONE_LONG, SHARED };

struct shape {
	uint32_t H, G, E, S;         /* S rows of the longest head */
	uint32_t entry;              /* rows of an entry */
	enum which which;
	enum kv_dtype type;
	float scale;                 /* of queries and keys */
	float softcap;               /* of logits; 0: none */
	int sinks;                   /* 1: heads have sinks */
};

/* A cache, what was chosen of it, and these rows one after the other (row g * cap + i) */
struct sample {
	float *q, *k, *v, *picked_k, *picked_v;
	uint32_t *pos, *picked_pos, *number;        /* number: of the row in its KV head */
	uint32_t len[64], picked[64], cap;
	uint64_t start[64], own[64];
	uint32_t *at, n[64];
	size_t stride, rows;
};

static void
make_cache(struct sample *c, const struct shape *s)
{
	const size_t E = s->E;
	size_t g, r, i, row;

	c->cap = s->S + BEHIND;
	c->rows = (size_t)s->G * c->cap;
	c->q = floats(s->H * E, s->scale);
	c->k = floats(c->rows * E, s->scale);
	c->v = floats(c->rows * E, 1);
	round_to(c->k, s->type, c->rows * E);
	round_to(c->v, s->type, c->rows * E);
	c->pos = malloc((c->rows + 1) * 4);
	for (g = 0; g < s->G; g++) {
		c->own[g] = g * c->cap;
		c->start[g] = s->which == SHARED ? 0 : c->own[g];
		c->len[g] = g == 0 || s->which == SHARED ? s->S :
		    s->which == ONE_LONG ? g % 2 : draw(s->S + 1);
		if (s->which == SHARED && g > 0)
			continue;
		for (r = 0; r < c->cap; r++) {
			row = c->start[g] + r;
			c->pos[row] = (uint32_t)(r == 0 ? 5 : c->pos[row - 1] + 1 + draw(3));
			for (i = row * E; r >= c->len[g] && i < (row + 1) * E; i++)
				c->k[i] = c->v[i] = NAN;
		}
	}
}

/* Of every KV head about a third of its entries, but of head 2 none; none or all. The last one is
 * cut where the rows end within it. */
static void
make_choice(struct sample *c, const struct shape *s)
{
	const size_t E = s->E;
	size_t g, i, r, entries, from, to;

	c->stride = s->S / s->entry + 1 + BEHIND;
	c->at = malloc(s->G * c->stride * 4);
	c->picked_k = floats(c->rows * E, 0);
	c->picked_v = floats(c->rows * E, 0);
	c->picked_pos = calloc(c->rows + 1, 4);
	c->number = calloc(c->rows + 1, 4);
	for (i = 0; i < c->rows * E; i++)
		c->picked_k[i] = c->picked_v[i] = NAN;
	for (g = 0; g < s->G; g++) {
		entries = (c->len[g] + s->entry - 1) / s->entry;
		c->n[g] = c->picked[g] = 0;
		for (i = 0; i < entries; i++) {
			if (s->which == NONE || (s->which != ALL &&
			    (g == 2 || (i + 1 < entries && draw(3) > 0))))
				continue;
			c->at[g * c->stride + c->n[g]++] = (uint32_t)i;
			for (r = i * s->entry; r < (i + 1) * s->entry && r < c->len[g]; r++) {
				from = c->start[g] + r;
				to = c->own[g] + c->picked[g]++;
				memcpy(c->picked_k + to * E, c->k + from * E, E * 4);
				memcpy(c->picked_v + to * E, c->v + from * E, E * 4);
				c->picked_pos[to] = c->pos[from];
				c->number[to] = (uint32_t)r;
			}
		}
		for (i = c->n[g]; i < c->stride; i++)
			c->at[g * c->stride + i] = 0x7fffffff;
	}
}

static void
make_sample(struct sample *c, const struct shape *s)
{
	make_cache(c, s);
	make_choice(c, s);
}

static void
free_sample(struct sample *c)
{
	free(c->q);
	free(c->k);
	free(c->v);
	free(c->picked_k);
	free(c->picked_v);
	free(c->pos);
	free(c->picked_pos);
	free(c->number);
	free(c->at);
}

static struct layer_rows
device_rows(struct device *d, struct sample *c, const struct shape *s)
{
	return (struct layer_rows){
		.k = to_device_as(d, c->k, s->type, c->rows * s->E),
		.v = to_device_as(d, c->v, s->type, c->rows * s->E),
		.pos = to_device(d, c->pos, c->rows * 4),
		.start = c->start, .len = c->len, .heads = s->G, .width = s->E, .dtype = s->type,
	};
}

static struct chosen
device_choice(struct device *d, struct sample *c, const struct shape *s)
{
	return (struct chosen){ .at = to_device(d, c->at, s->G * c->stride * 4),
		.stride = c->stride, .n = c->n, .rows = s->entry };
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
	static const char *const which[] = { "some", "none", "all", "one long", "shared" };

	snprintf(what, size, "%s H %u/%u E %u S %u entry %u %s %s softcap %g%s", op, s->H, s->G,
	    s->E, s->S, s->entry, which[s->which], kv_dtype_name(s->type), s->softcap,
	    s->sinks ? " sinks" : "");
}

/* ---- attention ---- */

/* All rows of a cache: the bytes of attend() */
static void
compare_with_attend(struct device *d, const char *what, const float *got,
    const struct query *chosen, const struct layer_rows *rows, const struct shape *s)
{
	const size_t n = (size_t)s->H * s->E;
	const uint32_t far = FAR;
	void *o = d->ops->alloc(d->dev, n * 4), *pos = to_device(d, &far, 4);
	struct query query = *chosen;
	float *all;

	query.pos = pos;
	d->ops->attend(d->dev, o, NULL, &query, rows);
	all = from_device(d, o, n);
	verdict(memcmp(all, got, n * 4) == 0, "%s, %s: not what attend() gives", what, d->name);
	free(all);
	d->ops->free(d->dev, o);
	d->ops->free(d->dev, pos);
}

static void
test_attend_chosen(const struct shape *s)
{
	const size_t n = (size_t)s->H * s->E;
	float *o, behind[16], *sinks = floats(s->H, 3);
	double *want = malloc(n * sizeof *want), *lse = malloc(s->H * sizeof *lse);
	const uint32_t far = FAR;
	struct ref_rows ref;
	struct query host;
	struct sample c;
	char what[96];
	size_t i;
	int k;

	make_sample(&c, s);
	name_case(what, sizeof what, "attend_chosen", s);
	ref = (struct ref_rows){ c.picked_k, c.picked_v, c.picked_pos, c.own, c.picked, s->G,
		s->E };
	host = (struct query){ .q = c.q, .pos = &far, .N = 1, .H = s->H, .softcap = s->softcap,
		.sinks = s->sinks ? sinks : NULL };
	ref_attend(want, lse, &host, &ref);
	for (i = 0; i < 16; i++)
		behind[i] = 777;
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows rows = device_rows(d, &c, s);
		struct chosen choice = device_choice(d, &c, s);
		float *dq = to_device(d, c.q, n * 4), *out = d->ops->alloc(d->dev, n * 4 + 64);
		float *at = to_device(d, sinks, s->H * 4);
		const struct query query = { .q = dq, .N = 1, .H = s->H, .softcap = s->softcap,
			.sinks = s->sinks ? at : NULL };

		d->ops->put(d->dev, out + n, behind, sizeof behind);
		if (d->ops->attend_chosen != NULL) {
			d->ops->attend_chosen(d->dev, out, &query, &rows, &choice);
			o = from_device(d, out, n + 16);
			compare(d, s->scale > 2 ? ATTEND_CHOSEN_LARGE : ATTEND_CHOSEN, what, o,
			    want, n);
			verdict(memcmp(o + n, behind, sizeof behind) == 0, "%s, %s: behind the end",
			    what, d->name);
			if (s->which == ALL)
				compare_with_attend(d, what, o, &query, &rows, s);
			free(o);
		}
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, at);
		d->ops->free(d->dev, out);
		d->ops->free(d->dev, choice.at);
		free_rows(d, &rows);
	}
	free_sample(&c);
	free(sinks);
	free(want);
	free(lse);
}

/* ---- gather, rebuild ---- */

/* Room for what is gathered, filled with NaN */
static struct layer_rows
make_room(struct device *d, const struct sample *c, const struct shape *s, uint64_t *start,
    uint32_t *len, uint32_t *room, int values)
{
	const size_t n = c->rows * s->E;
	float *nothing = floats(n, 0);
	struct layer_rows to = { .start = start, .len = len, .capacity = room, .heads = s->G,
		.width = s->E, .dtype = s->type };
	size_t i;

	for (i = 0; i < n; i++)
		nothing[i] = NAN;
	to.k = to_device_as(d, nothing, s->type, n);
	to.v = values ? to_device_as(d, nothing, s->type, n) : NULL;
	memset(nothing, 0, c->rows * 4);
	to.pos = to_device(d, nothing, c->rows * 4);
	for (i = 0; i < s->G; i++) {
		start[i] = c->start[i];
		len[i] = 0;
		room[i] = c->cap;
	}
	free(nothing);
	return to;
}

static float *
wide(struct device *d, const void *p, enum kv_dtype type, size_t n)
{
	void *narrow = malloc(n * 4 + 1);
	float *x = malloc(n * 4 + 1);

	d->ops->get(d->dev, narrow, p, n * kv_dtype_size(type));
	kv_to_f32(x, narrow, type, n);
	free(narrow);
	return x;
}

/* NaN and NaN are the same here. */
static void
same_rows(struct device *d, const char *what, const float *got, const float *want, size_t n)
{
	size_t i;

	for (i = 0; i < n && (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))); i++)
		;
	verdict(i == n, "%s, %s %d threads: %g at %zu of %zu, want %g", what, d->name, d->threads,
	    i < n ? got[i] : 0, i, n, i < n ? want[i] : 0);
}

static void
test_gather(const struct shape *s, int values)
{
	uint32_t len[64], room[64], *pos, g;
	uint64_t start[64];
	struct sample c;
	char what[96];
	float *got;
	int k;

	make_sample(&c, s);
	name_case(what, sizeof what, "gather", s);
	pos = malloc(c.rows * 4);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows from = device_rows(d, &c, s);
		struct layer_rows to = make_room(d, &c, s, start, len, room, values);
		struct chosen choice = device_choice(d, &c, s);

		if (d->ops->gather != NULL) {
			d->ops->gather(d->dev, &to, &from, &choice);
			for (g = 0; g < s->G; g++)
				verdict(len[g] == c.picked[g], "%s, %s: KV head %u has %u rows",
				    what, d->name, g, len[g]);
			got = wide(d, to.k, s->type, c.rows * s->E);
			same_rows(d, what, got, c.picked_k, c.rows * s->E);
			free(got);
			if (values) {
				got = wide(d, to.v, s->type, c.rows * s->E);
				same_rows(d, what, got, c.picked_v, c.rows * s->E);
				free(got);
			}
			d->ops->get(d->dev, pos, to.pos, c.rows * 4);
			verdict(memcmp(pos, c.picked_pos, c.rows * 4) == 0, "%s, %s: positions",
			    what, d->name);
		}
		d->ops->free(d->dev, choice.at);
		free_rows(d, &to);
		free_rows(d, &from);
	}
	free(pos);
	free_sample(&c);
}

/* Factors for the first n rows; in each KV head some chunks are exact. */
struct factors {
	float *left, *right;
	uint8_t *exact;
	double *freq;
	uint32_t n, rank, chunk;
};

static void
make_factors(struct factors *f, const struct shape *s, uint32_t rank, uint32_t chunk)
{
	size_t i, chunks;

	f->rank = rank;
	f->chunk = chunk;
	f->n = s->S * 3 / 4 / chunk * chunk;
	chunks = f->n / chunk;
	f->left = floats((size_t)f->n * rank, 1);
	f->right = floats((size_t)s->G * s->E * rank, 1);
	round_to(f->left, s->type, (size_t)f->n * rank);
	round_to(f->right, s->type, (size_t)s->G * s->E * rank);
	f->exact = malloc(s->G * chunks + 1);
	for (i = 0; i < s->G * chunks; i++)
		f->exact[i] = draw(4) == 0;
	f->freq = malloc((s->E / 2 + 1) * sizeof *f->freq);
	for (i = 0; i < s->E / 2; i++)
		f->freq[i] = pow(500000, -2.0 * (double)i / s->E);
}

/* want[rows][E] <- the keys chosen, with those of the factors in place; NaN becomes 0, as in
 * what is compared with it */
static void
ref_rebuild(double *want, const struct sample *c, const struct shape *s, const struct factors *f)
{
	double *x = malloc(s->E * sizeof *x), angle;
	size_t g, i, e, j, at, half = s->E / 2;
	uint32_t row;

	for (i = 0; i < c->rows * s->E; i++)
		want[i] = isnan(c->picked_k[i]) ? 0 : c->picked_k[i];
	for (g = 0; g < s->G; g++)
		for (i = 0; i < c->picked[g]; i++) {
			at = c->start[g] + i;
			row = c->number[at];
			if (row >= f->n || f->exact[g * (f->n / f->chunk) + row / f->chunk])
				continue;
			for (e = 0; e < s->E; e++)
				for (j = 0, x[e] = 0; j < f->rank; j++)
					x[e] += (double)f->left[row * f->rank + j] *
					    f->right[(g * s->E + e) * f->rank + j];
			for (e = 0; e < s->E; e++) {
				want[at * s->E + e] = x[e];
				if (e >= 2 * half)
					continue;
				angle = c->picked_pos[at] * f->freq[e % half];
				want[at * s->E + e] = e < half ?
				    x[e] * cos(angle) - x[e + half] * sin(angle) :
				    x[e] * cos(angle) + x[e - half] * sin(angle);
			}
		}
	free(x);
}

static void
test_rebuild(const struct shape *s, uint32_t rank, uint32_t chunk)
{
	static const enum op op[] = { [KV_BF16] = REBUILD_BF16, [KV_F16] = REBUILD_F16,
		[KV_F32] = REBUILD };
	uint32_t len[64], room[64], g;
	uint64_t start[64];
	struct factors f;
	struct sample c;
	double *want;
	char what[96];
	size_t n, i;
	float *got;
	int k;

	make_sample(&c, s);
	make_factors(&f, s, rank, chunk);
	for (g = 0; g < s->G; g++)     /* far away: an f32 angle would fail */
		for (i = 0; i < c.rows; i++) {
			c.pos[i] += g == 0 ? 900000 : 0;
			c.picked_pos[i] += g == 0 && i % c.cap < c.picked[i / c.cap] ? 900000 : 0;
		}
	name_case(what, sizeof what, "rebuild", s);
	n = c.rows * s->E;
	want = malloc(n * sizeof *want);
	ref_rebuild(want, &c, s, &f);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct layer_rows from = device_rows(d, &c, s);
		struct layer_rows to = make_room(d, &c, s, start, len, room, 1);
		struct chosen choice = device_choice(d, &c, s);
		void *left = to_device_as(d, f.left, s->type, (size_t)f.n * rank),
		     *right = to_device_as(d, f.right, s->type, (size_t)s->G * s->E * rank),
		     *exact = to_device(d, f.exact, s->G * (size_t)(f.n / chunk)),
		     *freq = to_device(d, f.freq, s->E / 2 * sizeof *f.freq);
		struct low_rank low = { left, right, exact, f.n, rank, chunk, s->type };

		if (d->ops->rebuild != NULL) {
			d->ops->gather(d->dev, &to, &from, &choice);
			d->ops->rebuild(d->dev, &to, &choice, &low, freq);
			got = wide(d, to.k, s->type, n);
			for (i = 0; i < n; i++)
				if (isnan(got[i]) && isnan(c.picked_k[i]))
					got[i] = 0;
			compare(d, op[s->type], what, got, want, n);
			free(got);
		}
		d->ops->free(d->dev, left);
		d->ops->free(d->dev, right);
		d->ops->free(d->dev, exact);
		d->ops->free(d->dev, freq);
		d->ops->free(d->dev, choice.at);
		free_rows(d, &to);
		free_rows(d, &from);
	}
	free_sample(&c);
	free(f.left);
	free(f.right);
	free(f.exact);
	free(f.freq);
	free(want);
}

/* Ranks and widths in whole pieces, as tensor cores want them, and lists about as long as a tile */
static void
test_rebuild_tiles(void)
{
	static const uint32_t E[] = { 16, 64, 80, 96, 128, 144, 256 };
	static const uint32_t rank[] = { 8, 32, 40, 96, 160 };
	static const uint32_t S[] = { 1, 63, 64, 65, 129 };
	struct shape s = { 8, 2, 128, 3000, 8, SOME, KV_BF16, 1, 0, 0 };
	size_t i;

	test_rebuild(&s, 160, 8);
	s.type = KV_F32;
	test_rebuild(&s, 160, 8);
	for (i = 0; i < 35; i++) {
		s = (struct shape){ 6, 3, E[i % 7], S[(i + i / 5) % 5], 1 + i % 3,
			i % 2 ? SOME : ALL, i % 3 ? KV_BF16 : KV_F16, 1, 0, 0 };
		if (in_sample())
			test_rebuild(&s, rank[i % 5], 1 + draw(9));
	}
	s = (struct shape){ 2, 2, 130, 65, 1, ALL, KV_F32, 1, 0, 0 };      /* two tiles of pairs */
	test_rebuild(&s, 17, 1);
}

/* Choices of query heads, of one KV head */
static void
test_shared(void)
{
	static const struct shape shared[] = {
		{ 3, 3, 72, 300, 1, SHARED, KV_F32, 1, 0, 0 },
		{ 16, 16, 128, 3000, 1, SHARED, KV_BF16, 1, 0, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof shared / sizeof shared[0]; i++)
		test_attend_chosen(&shared[i]);
}

void
test_chosen(void)
{
	static const struct {
		uint32_t H, G;
	} heads[] = { { 3, 3 }, { 8, 2 }, { 8, 1 }, { 9, 3 }, { 32, 4 }, { 5, 5 } };
	static const uint32_t E[] = { 32, 33, 64, 80, 96, 128 };
	static const uint32_t entry[] = { 1, 16, 1, 8, 5 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	static const struct shape more[] = {
		{ 8, 1, 128, 5000, 1, SOME, KV_BF16, 1, 0, 0 },      /* cut into pieces */
		{ 8, 2, 128, 5000, 16, ALL, KV_BF16, 1, 0, 0 },
		{ 4, 4, 64, 3003, 1, ALL, KV_F16, 1, 0, 0 },
		/* more heads than the decode kernel takes */
		{ 32, 2, 64, 2000, 1, SOME, KV_BF16, 1, 0, 0 },
		{ 8, 2, 64, 900, 1, SOME, KV_F32, 30, 0, 0 },        /* logits of several hundred */
		{ 8, 4, 64, 100, 1, NONE, KV_BF16, 1, 0, 0 },
		/* one list, and few rows else */
		{ 28, 4, 128, 3000, 1, ONE_LONG, KV_BF16, 1, 0, 0 },
		{ 16, 4, 128, 1001, 16, ONE_LONG, KV_BF16, 1, 0, 0 },
		{ 16, 1, 96, 1234, 100, SOME, KV_F16, 1, 0, 0 },  /* splits end within entries */
		{ 2, 2, 128, 1235, 700, SOME, KV_F32, 1, 0, 0 },
		{ 8, 1, 256, 500, 7, SOME, KV_BF16, 1, 0, 0 },
		{ 6, 3, 64, 0, 1, ALL, KV_BF16, 1, 0, 0 },
		{ 6, 3, 64, 1, 16, ALL, KV_F16, 1, 0, 0 },
		{ 2, 1, 1, 77, 3, SOME, KV_F32, 1, 0, 0 },
		{ 8, 2, 64, 900, 1, SOME, KV_F32, 12, 50, 0 },
		{ 4, 4, 80, 333, 16, ALL, KV_F16, 8, 30, 0 },
		{ 14, 2, 128, 2001, 1, ALL, KV_BF16, 1.75f, 1.5f, 0 },
		{ 7, 7, 96, 65, 5, SOME, KV_BF16, 1, 0.75f, 0 },
		{ 16, 1, 256, 700, 3, ONE_LONG, KV_F16, 1.5f, 30, 0 },
		{ 6, 3, 33, 130, 1, SOME, KV_F32, 1.75f, 1, 0 },
		{ 64, 8, 64, 2100, 1, SOME, KV_BF16, 1, 0, 1 },
		{ 8, 2, 64, 300, 16, ALL, KV_F16, 1, 0, 1 },
		{ 9, 3, 33, 700, 3, ONE_LONG, KV_F32, 1, 0, 1 },
		{ 8, 4, 128, 100, 1, NONE, KV_BF16, 1, 0, 1 },
	};
	struct shape s;
	size_t h, e, i = 0;

	for (h = 0; h < 6; h++)
		for (e = 0; e < 6; e++, i++) {
			s = (struct shape){ heads[h].H, heads[h].G, E[e], 1 + draw(700),
				entry[i % 5], i % 4 == 3 ? ALL : SOME, type[(h + e) % 3], 1, 0, 0 };
			if (!in_sample())
				continue;
			test_attend_chosen(&s);
			if (i % 3 == 0)
				test_gather(&s, i % 2);
			if (i % 3 == 1)
				test_rebuild(&s, 1 + draw(64), 1 + draw(9));
		}
	for (i = 0; i < sizeof more / sizeof more[0]; i++) {
		if (!in_sample())
			continue;
		test_attend_chosen(&more[i]);
		test_gather(&more[i], 1);
	}
	test_rebuild_tiles();
	test_shared();
}
