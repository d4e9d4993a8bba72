/* ops_rope_append.c - rope_append: rotary embedding of queries and keys, append to the cache */
#include <stdio.h>
#include <string.h>

#include "ops/compose.h"
#include "tests/unit/ops_check.h"

/* Keys and values are rounded to the type of the rows. */
static enum op
appended_as(enum kv_dtype type)
{
	return type == KV_F32 ? ROPE_APPEND : type == KV_F16 ? ROPE_APPEND_F16 : ROPE_APPEND_BF16;
}

/* G KV heads of different lengths, to which N rows are appended */
struct append_plan {
	uint64_t start[8];
	uint32_t len[8], capacity[8];
	uint32_t G, E, N;
	size_t all;                  /* rows of capacity, in all */
	size_t askew;                /* bytes by which the keys are misaligned */
};

static void
plan(struct append_plan *p, uint32_t G, uint32_t E, uint32_t N)
{
	uint32_t g;

	*p = (struct append_plan){ .G = G, .E = E, .N = N };
	for (g = 0; g < G; g++) {
		p->start[g] = p->all;
		p->len[g] = g * 5 % 7;
		p->capacity[g] = p->len[g] + N + g % 2;
		p->all += p->capacity[g];
	}
}

/* want[all][E] <- zeros, and x[N][G][E] where it is appended */
static double *
appended(const struct append_plan *p, const double *x)
{
	double *want = calloc(p->all * p->E, sizeof *want);
	uint32_t g, n;

	for (n = 0; n < p->N; n++)
		for (g = 0; g < p->G; g++)
			memcpy(want + (p->start[g] + p->len[g] + n) * p->E,
			    x + ((size_t)n * p->G + g) * p->E, p->E * sizeof *want);
	return want;
}

/* On device d: q, keys and values after rope_append(), one behind the other */
static float *
rope_append_on(struct device *d, const struct append_plan *p, enum kv_dtype type, uint32_t H,
    float *const x[3], const uint32_t *pos, const double *freq)
{
	const size_t row = p->E * kv_dtype_size(type), q = (size_t)p->N * H * p->E;
	const size_t kv = (size_t)p->N * p->G * p->E, rows = p->all * p->E;
	const struct ops *o = d->ops;
	struct append_plan now = *p;
	struct layer_rows c = { .k = o->alloc(d->dev, p->all * row),
		.v = o->alloc(d->dev, p->all * row), .pos = o->alloc(d->dev, p->all * 4),
		.start = now.start, .len = now.len, .capacity = now.capacity, .heads = p->G,
		.width = p->E, .dtype = type };
	void *dq = to_device(d, x[0], q * 4), *dk = put_askew(d, x[1], kv * 4, p->askew);
	void *dv = to_device(d, x[2], kv * 4), *dp = to_device(d, pos, p->N * 4);
	void *df = to_device(d, freq, p->E / 2 * 8), *back = malloc(p->all * row + 1);
	float *got = malloc((q + 2 * rows) * sizeof *got);
	uint32_t *at = malloc(p->all * sizeof *at), g, n;

	o->clear(d->dev, c.k, p->all * row);
	o->clear(d->dev, c.v, p->all * row);
	o->clear(d->dev, c.pos, p->all * 4);
	run_rope_append(o, d->dev, &c, dq, dk, dv, dp, &(struct rotary){ df, p->E, 1, 0 }, p->N, H);
	o->get(d->dev, got, dq, q * 4);
	o->get(d->dev, back, c.k, p->all * row);
	kv_to_f32(got + q, back, type, rows);
	o->get(d->dev, back, c.v, p->all * row);
	kv_to_f32(got + q + rows, back, type, rows);
	o->get(d->dev, at, c.pos, p->all * 4);
	for (g = 0; g < p->G; g++) {
		verdict(now.len[g] == p->len[g] + p->N, "rope_append, %s: head %u has %u rows",
		    d->name, g, now.len[g]);
		for (n = 0; n < p->N && at[p->start[g] + p->len[g] + n] == pos[n]; n++)
			;
		verdict(n == p->N, "rope_append, %s: position of row %u of head %u", d->name, n, g);
	}
	o->free(d->dev, c.k);
	o->free(d->dev, c.v);
	o->free(d->dev, c.pos);
	o->free(d->dev, dq);
	free_askew(d, dk, p->askew);
	o->free(d->dev, dv);
	o->free(d->dev, dp);
	o->free(d->dev, df);
	free(back);
	free(at);
	return got;
}

static void
test_rope_append(enum kv_dtype type, uint32_t G, uint32_t R, uint32_t E, uint32_t N, size_t askew)
{
	const size_t q = (size_t)N * G * R * E, kv = (size_t)N * G * E;
	float *x[3] = { floats(q, 2), floats(kv, 2), floats(kv, 2) }, *got;
	double *rotated = malloc((q + kv) * sizeof *rotated),
	    *freq = malloc((E / 2 + 1) * sizeof *freq);
	double *want[2], *values = doubles(x[2], kv), *bound = calloc(q + 2 * kv, sizeof *bound),
	    *at[2];
	uint32_t *pos = malloc(N * sizeof *pos), i;
	struct append_plan p;
	size_t rows;
	int k;

	plan(&p, G, E, N);
	p.askew = askew;
	rows = p.all * E;
	for (i = 0; i < N; i++)
		pos[i] = 7 + i * 7919;
	for (i = 0; i < E / 2; i++)
		freq[i] = pow(500000, -2.0 * i / E);
	ref_rope(rotated, x[0], pos, freq, N, G * R, E);
	ref_rope(rotated + q, x[1], pos, freq, N, G, E);
	rope_bound(bound, x[0], pos, freq, N, G * R, E);
	rope_bound(bound + q, x[1], pos, freq, N, G, E);
	want[0] = appended(&p, rotated + q);
	want[1] = appended(&p, values);
	for (k = 0; k < 2; k++) {
		size_t n;

		at[k] = appended(&p, bound + q + (size_t)k * kv);
		for (n = 0; n < rows; n++)
			at[k][n] = rounded_bound(at[k][n], want[k][n], type);
	}
	for (i = 0; i < 3; i++) {
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];

			got = rope_append_on(d, &p, type, G * R, x, pos, freq);
			if (i == 0)
				compare_each(d, ROPE_APPEND, "rope_append, queries", got, rotated,
				    bound, q);
			else
				compare_each(d, appended_as(type), i == 1 ? "rope_append, keys" :
				    "rope_append, values", got + q + (i - 1) * rows, want[i - 1],
				    at[i - 1], rows);
			free(got);
		}
	}
	for (i = 0; i < 3; i++)
		free(x[i]);
	for (i = 0; i < 2; i++) {
		free(want[i]);
		free(at[i]);
	}
	free(bound);
	free(values);
	free(rotated);
	free(freq);
	free(pos);
}

/* ---- a row for each of several caches ---- */

enum { TEXTS = 40 };

struct text_rows {
	struct append_plan plan;
	struct layer_rows rows;
};

/* Caches of different lengths, of the type but for the last one */
static void
make_texts(struct device *d, struct text_rows t[TEXTS], uint32_t n, enum kv_dtype type,
    enum kv_dtype last)
{
	const struct ops *o = d->ops;
	uint32_t i, g;

	for (i = 0; i < n; i++) {
		struct append_plan *p = &t[i].plan;
		struct layer_rows *c = &t[i].rows;

		plan(p, 3, 64, 5);
		for (g = 0; g < p->G; g++)
			p->len[g] += (i + g) % 5;
		*c = (struct layer_rows){ .start = p->start, .len = p->len, .heads = p->G,
			.capacity = p->capacity, .width = p->E,
			.dtype = i == n - 1 ? last : type };
		c->k = o->alloc(d->dev, p->all * p->E * 4);
		c->v = o->alloc(d->dev, p->all * p->E * 4);
		c->pos = o->alloc(d->dev, p->all * 4);
		o->clear(d->dev, c->k, p->all * p->E * 4);
		o->clear(d->dev, c->v, p->all * p->E * 4);
		o->clear(d->dev, c->pos, p->all * 4);
	}
}

/* Is what is in two arrays on the device the same to the byte? Frees both. */
static int
same_on_device(struct device *d, void *a, void *b, size_t bytes)
{
	char *x = malloc(2 * bytes);
	int same;

	d->ops->get(d->dev, x, a, bytes);
	d->ops->get(d->dev, x + bytes, b, bytes);
	same = d->ops->sync(d->dev) == NULL && memcmp(x, x + bytes, bytes) == 0;
	d->ops->free(d->dev, a);
	d->ops->free(d->dev, b);
	free(x);
	return same;
}

/* dims: channels that are rotated, of 64 */
static void
test_rope_append_each(struct device *d, uint32_t n, enum kv_dtype type, enum kv_dtype last,
    uint32_t dims)
{
	enum { H = 6, G = 3, E = 64 };
	struct text_rows a[TEXTS], b[TEXTS];
	struct layer_rows *rows[TEXTS];
	float *q = floats(n * H * E, 2), *kv = floats(n * G * E, 2), *at[2][3];
	double freq[E / 2];
	uint32_t pos[TEXTS], i, *dpos;
	int same = 1;

	for (i = 0; i < E / 2; i++)
		freq[i] = pow(10000, -2.0 * i / E);
	for (i = 0; i < n; i++)
		pos[i] = 3 + i * 977;
	dpos = to_device(d, pos, n * 4);
	for (i = 0; i < 2; i++) {
		at[i][0] = to_device(d, q, n * H * E * 4);
		at[i][1] = to_device(d, kv, n * G * E * 4);
		at[i][2] = to_device(d, kv, n * G * E * 4);
	}
	make_texts(d, a, n, type, last);
	make_texts(d, b, n, type, last);
	void *df = to_device(d, freq, sizeof freq);
	const struct rotary rope = { df, dims, 1, 0 };

	for (i = 0; i < n; i++) {
		rows[i] = &a[i].rows;
		run_rope_append(d->ops, d->dev, &b[i].rows, at[1][0] + i * H * E,
		    at[1][1] + i * G * E, at[1][2] + i * G * E, dpos + i, &rope, 1, H);
	}
	run_rope_append_each(d->ops, d->dev, rows, n, at[0][0], at[0][1], at[0][2], dpos, &rope, H);
	for (i = 0; i < n; i++) {
		same &= memcmp(a[i].plan.len, b[i].plan.len, sizeof a[i].plan.len) == 0;
		same &= same_on_device(d, a[i].rows.k, b[i].rows.k, a[i].plan.all * E * 4);
		same &= same_on_device(d, a[i].rows.v, b[i].rows.v, a[i].plan.all * E * 4);
		same &= same_on_device(d, a[i].rows.pos, b[i].rows.pos, a[i].plan.all * 4);
	}
	same &= same_on_device(d, at[0][0], at[1][0], n * H * E * 4);
	verdict(same, "rope_append_each, %s: not what each of %u is alone, %u rotated", d->name, n,
	    dims);
	for (i = 0; i < 4; i++)
		d->ops->free(d->dev, at[i / 2][1 + i % 2]);
	d->ops->free(d->dev, df);
	d->ops->free(d->dev, dpos);
	free(q);
	free(kv);
}

/* Without capacity nothing is changed. */
static void
test_no_capacity(struct device *d)
{
	float zero[64] = { 0 };
	uint32_t len[2] = { 0, 1 }, capacity[2] = { 2, 1 }, *pos;
	uint64_t start[2] = { 0, 2 };
	char err[128];
	struct dev *dev = d->ops->open(d->threads, 1, err, sizeof err);
	struct layer_rows c = { .start = start, .len = len, .capacity = capacity, .heads = 2,
		.width = 2, .dtype = KV_F32 };
	const char *text;
	float *x;

	if (dev == NULL)
		return;
	x = d->ops->alloc(dev, sizeof zero);
	d->ops->put(dev, x, zero, sizeof zero);
	c.k = x;
	c.v = x + 8;
	c.pos = pos = (uint32_t *)x + 16;
	run_rope_append(d->ops, dev, &c, x + 24, x + 32, x + 40, pos + 4,
	    &(struct rotary){ (double *)(x + 48), 2, 1, 0 }, 1, 2);
	text = d->ops->sync(dev);
	verdict(text != NULL && strstr(text, "KV head 1 has 1 rows of 1, no room for 1") != NULL,
	    "rope_append without capacity, %s: \"%s\"", d->name, text != NULL ? text : "");
	verdict(len[0] == 0 && len[1] == 1, "rope_append without capacity, %s: rows have become "
	    "more", d->name);
	d->ops->free(dev, x);
	d->ops->close(dev);
}

void
test_rope_appends(void)
{
	static const enum kv_dtype types[] = { KV_BF16, KV_F16, KV_F32 };
	static const uint32_t N[] = { 1, 2, 7, 8, 9, 20 };     /* from 6 on heads are not split */
	size_t n, t;
	int k;

	for (n = 0; n < sizeof N / sizeof N[0]; n++) {
		test_rope_append(types[n % 3], 3, 2, 20, N[n], 0);
		test_rope_append(types[(n + 1) % 3], 2, 4, 64, N[n], 0);
	}
	for (t = 0; t < 3; t++) {
		test_rope_append(types[t], 8, 1, 128, 1, 0);
		test_rope_append(types[t], 3, 7, 8, 5, 0);
		test_rope_append(types[t], 1, 5, 33, 4, 0);
		test_rope_append(types[t], 1, 2, 1, 2, 0);
		test_rope_append(types[t], 2, 3, 64, 3, 4);
		test_rope_append(types[t], 2, 1, 1024, 2, 0);
		test_rope_append(types[t], 2, 2, 256, 3, 0);
	}
	for (k = 0; k < devices; k++) {
		test_no_capacity(&device[k]);
		for (t = 0; t < 3; t++) {
			test_rope_append_each(&device[k], 2 + (uint32_t)t, types[t], types[t], 64);
			test_rope_append_each(&device[k], TEXTS, types[t], types[t], 64);
			test_rope_append_each(&device[k], 3, types[t], types[(t + 1) % 3], 64);
			test_rope_append_each(&device[k], 3, types[t], types[t], 32);
		}
	}
}
