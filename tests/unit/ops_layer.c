/* ops_layer.c - project, place and ffn: what a layer does besides attention */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

#define EPS 1e-5f

static double *
doubles(const float *x, size_t n)
{
	double *y = malloc((n + 1) * sizeof *y);
	size_t i;

	for (i = 0; i < n; i++)
		y[i] = x[i];
	return y;
}

/* y[N][out] += x[N][in] . w[out][in] */
static void
add_product(double *y, const double *x, const float *w, size_t N, size_t in, size_t out)
{
	size_t n, o, i;

	for (n = 0; n < N; n++)
		for (o = 0; o < out; o++)
			for (i = 0; i < in; i++)
				y[n * out + o] += x[n * in + i] * w[o * in + i];
}

/* A matrix as the device has it, and the numbers in it */
struct matrix {
	float *w;
	struct mat on[16];           /* each device's */
};

static void
make_matrix(struct matrix *m, enum kv_dtype type, uint32_t out, uint32_t in)
{
	int k;

	m->w = floats((size_t)out * in, 1);
	round_to(m->w, type, (size_t)out * in);
	for (k = 0; k < devices; k++)
		m->on[k] = (struct mat){ to_device_as(&device[k], m->w, type, (size_t)out * in),
			type, out, in };
}

static void
free_matrix(struct matrix *m)
{
	int k;

	for (k = 0; k < devices; k++)
		device[k].ops->free(device[k].dev, (void *)m->on[k].data);
	free(m->w);
}

/* ---- project ---- */

enum { MOST = 3 };

struct projection {
	uint32_t N, in, n;           /* rows, their width, products */
	uint32_t out[MOST];
	enum kv_dtype type[MOST];
	unsigned biased;             /* 1 << i: product i has a bias */
	float scale;                 /* of x */
};

static void
test_project(struct projection c)
{
	float *x = floats((size_t)c.N * c.in, c.scale), *norm = floats(c.in, 2), *bias[MOST], *got;
	double *xn = malloc((size_t)c.N * c.in * sizeof *xn), *want[MOST];
	struct matrix m[MOST];
	struct product p[MOST];
	uint32_t i, o;
	int k;

	ref_rmsnorm(xn, x, norm, c.N, c.in, EPS);
	for (i = 0; i < c.n; i++) {
		make_matrix(&m[i], c.type[i], c.out[i], c.in);
		bias[i] = floats(c.out[i], 1);
		want[i] = calloc((size_t)c.N * c.out[i], sizeof *want[i]);
		for (o = 0; o < c.N * c.out[i] && c.biased >> i & 1; o++)
			want[i][o] = bias[i][o % c.out[i]];
		add_product(want[i], xn, m[i].w, c.N, c.in, c.out[i]);
	}
	for (i = 0; i < c.n; i++) {
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];
			const struct ops *ops = d->ops;
			float *dx = to_device(d, x, (size_t)c.N * c.in * 4);
			float *dxn = ops->alloc(d->dev, (size_t)c.N * c.in * 4);
			struct norm n = { to_device(d, norm, c.in * 4), EPS };

			for (o = 0; o < c.n; o++) {
				p[o] = (struct product){ .w = &m[o].on[k] };
				p[o].y = ops->alloc(d->dev, (size_t)c.N * c.out[o] * 4);
				if (c.biased >> o & 1)
					p[o].bias = to_device(d, bias[o], c.out[o] * 4);
			}
			ops->project(d->dev, p, c.n, dx, &n, dxn, c.N);
			got = from_device(d, p[i].y, (size_t)c.N * c.out[i]);
			compare(d, PROJECT, "project", got, want[i], (size_t)c.N * c.out[i]);
			free(got);
			got = from_device(d, dx, (size_t)c.N * c.in);
			verdict(memcmp(got, x, (size_t)c.N * c.in * 4) == 0,
			    "project, %s: x has changed", d->name);
			free(got);
			for (o = 0; o < c.n; o++) {
				ops->free(d->dev, p[o].y);
				ops->free(d->dev, (void *)p[o].bias);
			}
			ops->free(d->dev, dx);
			ops->free(d->dev, dxn);
			ops->free(d->dev, (void *)n.w);
		}
	}
	for (i = 0; i < c.n; i++) {
		free_matrix(&m[i]);
		free(bias[i]);
		free(want[i]);
	}
	free(x);
	free(norm);
	free(xn);
}

/* ---- place ---- */

/* What is appended, in the type of the rows: a number may be rounded to the neighbour of the right
 * one. */
static enum op
placed_as(enum kv_dtype type)
{
	return type == KV_F32 ? PLACE : type == KV_F16 ? PLACE_F16 : PLACE_BF16;
}

/* The rows that are there, and N more behind them, of G KV heads of different lengths */
struct placing {
	uint64_t start[8];
	uint32_t len[8], room[8];
	uint32_t G, E, N;
	size_t all;                  /* rows of room */
};

static void
plan(struct placing *p, uint32_t G, uint32_t E, uint32_t N)
{
	uint32_t g;

	*p = (struct placing){ .G = G, .E = E, .N = N };
	for (g = 0; g < G; g++) {
		p->start[g] = p->all;
		p->len[g] = g * 5 % 7;
		p->room[g] = p->len[g] + N + g % 2;
		p->all += p->room[g];
	}
}

/* want[all][E] <- zeros, and x[N][G][E] where it is appended */
static double *
appended(const struct placing *p, const double *x)
{
	double *want = calloc(p->all * p->E, sizeof *want);
	uint32_t g, n;

	for (n = 0; n < p->N; n++)
		for (g = 0; g < p->G; g++)
			memcpy(want + (p->start[g] + p->len[g] + n) * p->E,
			    x + ((size_t)n * p->G + g) * p->E, p->E * sizeof *want);
	return want;
}

/* On device d: what comes out of place() in q, keys and values, one behind the other */
static float *
place_on(struct device *d, const struct placing *p, enum kv_dtype type, uint32_t H,
    float *const x[3], const uint32_t *pos, const double *freq)
{
	const size_t row = p->E * kv_dtype_size(type), q = (size_t)p->N * H * p->E;
	const size_t kv = (size_t)p->N * p->G * p->E, rows = p->all * p->E;
	const struct ops *o = d->ops;
	struct placing now = *p;
	struct layer_rows c = { .k = o->alloc(d->dev, p->all * row),
		.v = o->alloc(d->dev, p->all * row), .pos = o->alloc(d->dev, p->all * 4),
		.start = now.start, .len = now.len, .room = now.room, .heads = p->G,
		.width = p->E, .dtype = type };
	void *dq = to_device(d, x[0], q * 4), *dk = to_device(d, x[1], kv * 4);
	void *dv = to_device(d, x[2], kv * 4), *dp = to_device(d, pos, p->N * 4);
	void *df = to_device(d, freq, p->E / 2 * 8), *back = malloc(p->all * row + 1);
	float *got = malloc((q + 2 * rows) * sizeof *got);
	uint32_t *at = malloc(p->all * sizeof *at), g, n;

	o->clear(d->dev, c.k, p->all * row);
	o->clear(d->dev, c.v, p->all * row);
	o->clear(d->dev, c.pos, p->all * 4);
	o->place(d->dev, &c, dq, dk, dv, dp, df, p->N, H);
	o->get(d->dev, got, dq, q * 4);
	o->get(d->dev, back, c.k, p->all * row);
	kv_to_f32(got + q, back, type, rows);
	o->get(d->dev, back, c.v, p->all * row);
	kv_to_f32(got + q + rows, back, type, rows);
	o->get(d->dev, at, c.pos, p->all * 4);
	for (g = 0; g < p->G; g++) {
		verdict(now.len[g] == p->len[g] + p->N, "place, %s: head %u has %u rows", d->name,
		    g, now.len[g]);
		for (n = 0; n < p->N && at[p->start[g] + p->len[g] + n] == pos[n]; n++)
			;
		verdict(n == p->N, "place, %s: position of row %u of head %u", d->name, n, g);
	}
	o->free(d->dev, c.k);
	o->free(d->dev, c.v);
	o->free(d->dev, c.pos);
	o->free(d->dev, dq);
	o->free(d->dev, dk);
	o->free(d->dev, dv);
	o->free(d->dev, dp);
	o->free(d->dev, df);
	free(back);
	free(at);
	return got;
}

static void
test_place(enum kv_dtype type, uint32_t G, uint32_t R, uint32_t E, uint32_t N)
{
	const size_t q = (size_t)N * G * R * E, kv = (size_t)N * G * E;
	float *x[3] = { floats(q, 2), floats(kv, 2), floats(kv, 2) }, *got;
	double *turned = malloc((q + kv) * sizeof *turned), *freq = malloc((E / 2 + 1) * sizeof *freq);
	double *want[2], *values = doubles(x[2], kv);
	uint32_t *pos = malloc(N * sizeof *pos), i;
	struct placing p;
	size_t rows;
	int k;

	plan(&p, G, E, N);
	rows = p.all * E;
	for (i = 0; i < N; i++)
		pos[i] = 7 + i * 7919;
	for (i = 0; i < E / 2; i++)
		freq[i] = pow(500000, -2.0 * i / E);
	ref_rope(turned, x[0], pos, freq, N, G * R, E);
	ref_rope(turned + q, x[1], pos, freq, N, G, E);
	want[0] = appended(&p, turned + q);
	want[1] = appended(&p, values);
	for (i = 0; i < 3; i++) {
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];

			got = place_on(d, &p, type, G * R, x, pos, freq);
			if (i == 0)
				compare(d, PLACE, "place, queries", got, turned, q);
			else
				compare(d, placed_as(type), i == 1 ? "place, keys" : "place, values",
				    got + q + (i - 1) * rows, want[i - 1], rows);
			free(got);
		}
	}
	for (i = 0; i < 3; i++)
		free(x[i]);
	free(want[0]);
	free(want[1]);
	free(values);
	free(turned);
	free(freq);
	free(pos);
}

/* Nothing is changed where there is no room. */
static void
test_no_room(struct device *d)
{
	float zero[64] = { 0 };
	uint32_t len[2] = { 0, 1 }, room[2] = { 2, 1 }, *pos;
	uint64_t start[2] = { 0, 2 };
	char err[128];
	struct dev *dev = d->ops->open(d->threads, 1, err, sizeof err);
	struct layer_rows c = { .start = start, .len = len, .room = room, .heads = 2, .width = 2,
		.dtype = KV_F32 };
	const char *text;
	float *x;

	if (dev == NULL)
		return;
	x = d->ops->alloc(dev, sizeof zero);
	d->ops->put(dev, x, zero, sizeof zero);
	c.k = x;
	c.v = x + 8;
	c.pos = pos = (uint32_t *)x + 16;
	d->ops->place(dev, &c, x + 24, x + 32, x + 40, pos + 4, (double *)(x + 48), 1, 2);
	text = d->ops->sync(dev);
	verdict(text != NULL && strstr(text, "KV head 1 has 1 rows of 1, no room for 1") != NULL,
	    "place without room, %s: \"%s\"", d->name, text != NULL ? text : "");
	verdict(len[0] == 0 && len[1] == 1, "place without room, %s: rows have become more", d->name);
	d->ops->free(dev, x);
	d->ops->close(dev);
}

/* ---- ffn ---- */

static void
test_ffn(uint32_t N, uint32_t D, uint32_t F, enum kv_dtype in, enum kv_dtype out, float scale)
{
	const size_t x_size = (size_t)N * D * 4, y_size = (size_t)N * F * 4;
	float *x = floats((size_t)N * D, scale), *norm = floats(D, 1), *got;
	double *xn = malloc((size_t)N * D * sizeof *xn), *want = doubles(x, (size_t)N * D);
	double *gate = calloc((size_t)N * F, sizeof *gate), *up = calloc((size_t)N * F, sizeof *up);
	struct matrix m[3];
	size_t i;
	int k;

	make_matrix(&m[0], in, F, D);
	make_matrix(&m[1], in, F, D);
	make_matrix(&m[2], out, D, F);
	ref_rmsnorm(xn, x, norm, N, D, EPS);
	add_product(gate, xn, m[0].w, N, D, F);
	add_product(up, xn, m[1].w, N, D, F);
	for (i = 0; i < (size_t)N * F; i++)
		gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
	add_product(want, gate, m[2].w, N, F, D);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		const struct ops *o = d->ops;
		struct ffn w = { { to_device(d, norm, D * 4), EPS }, m[0].on[k], m[1].on[k],
			m[2].on[k] };
		float *dx = to_device(d, x, x_size), *dxn = o->alloc(d->dev, x_size);
		float *dg = o->alloc(d->dev, y_size), *du = o->alloc(d->dev, y_size);

		o->ffn(d->dev, dx, &w, dxn, dg, du, N);
		got = from_device(d, dx, (size_t)N * D);
		compare(d, FFN, "ffn", got, want, (size_t)N * D);
		free(got);
		o->free(d->dev, dx);
		o->free(d->dev, dxn);
		o->free(d->dev, dg);
		o->free(d->dev, du);
		o->free(d->dev, (void *)w.norm.w);
	}
	for (i = 0; i < 3; i++)
		free_matrix(&m[i]);
	free(x);
	free(norm);
	free(xn);
	free(want);
	free(gate);
	free(up);
}

void
test_layer(void)
{
	static const uint32_t N[] = { 1, 2, 3, 5, 8, 9, 20, 33 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t n, t;
	int k;

	for (n = 0; n < sizeof N / sizeof N[0]; n++) {
		test_project((struct projection){ N[n], 64, 3, { 96, 24, 24 },
		    { KV_BF16, KV_BF16, KV_BF16 }, n % 2 == 0 ? 7 : 0, 1 });
		test_project((struct projection){ N[n], 250 + n % 3 * 7, 3, { 61, 7, 130 },
		    { KV_F16, KV_BF16, KV_F32 }, 2, 30 });
		test_ffn(N[n], 64, 160, KV_BF16, KV_BF16, 1);
		test_ffn(N[n], 33 + (uint32_t)n, 45, type[n % 3], type[(n + 1) % 3], 20);
		test_place(type[n % 3], 3, 2, 20, N[n]);
		test_place(type[(n + 1) % 3], 2, 4, 64, N[n]);
	}
	for (t = 0; t < 3; t++) {
		test_project((struct projection){ 1, 2056, 1, { 1 }, { type[t] }, 0, 1e-3f });
		test_project((struct projection){ 1, 4104, 2, { 5, 517 }, { type[t], type[t] }, 1, 1 });
		test_ffn(1, 1024, 515, type[t], type[t], 1);
		test_ffn(4, 1032, 20, type[t], type[t], 1000);
		test_place(type[t], 8, 1, 128, 1);
		test_place(type[t], 1, 5, 33, 4);
	}
	test_project((struct projection){ 1, 25003, 2, { 9, 3 }, { KV_BF16, KV_BF16 }, 0, 1 });
	test_ffn(1, 20, 25003, KV_F16, KV_BF16, 1);
	for (k = 0; k < devices; k++)
		test_no_room(&device[k]);
}
