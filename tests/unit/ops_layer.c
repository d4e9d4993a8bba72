/* ops_layer.c - project and ffn, and how many kernels a layer is (rope_append:
 * ops_rope_append.c) */
#include <stdio.h>
#include <string.h>

#include "ops/compose.h"
#include "tests/unit/ops_check.h"

#define EPS 1e-5f

/* Where the emulator is, and where gpu/ is linked */
extern unsigned long cuda_launches __attribute__((weak));
extern unsigned long cuda_early_starts __attribute__((weak));
extern void gpu_force_no_pdl(int) __attribute__((weak));

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

/* A matrix as the device has it, `by` elements askew, and the numbers in it */
struct matrix {
	float *w;
	struct mat on[16];           /* each device's */
	size_t by;                   /* in bytes */
};

static void
make_matrix(struct matrix *m, enum kv_dtype type, uint32_t out, uint32_t in, uint32_t by)
{
	const size_t n = (size_t)out * in, size = kv_dtype_size(type);
	void *t = malloc(n * size + 1);
	int k;

	m->w = floats(n, 1);
	m->by = by * size;
	kv_from_f32(t, m->w, type, n);
	kv_to_f32(m->w, t, type, n);
	for (k = 0; k < devices; k++)
		m->on[k] = (struct mat){ put_askew(&device[k], t, n * size, m->by),
			weight_type_of(type), out, in };
	free(t);
}

static void
free_matrix(struct matrix *m)
{
	int k;

	for (k = 0; k < devices; k++)
		free_askew(&device[k], m->on[k].data, m->by);
	free(m->w);
}

static const enum kv_dtype types[] = { KV_BF16, KV_F16, KV_F32 };

/* ---- project ---- */

enum { MOST = 6 };

/* What may lie askew, by one element */
enum { X = 1, NORM = 2, WEIGHTS = 4 };

struct projection {
	uint32_t N, in, n;           /* rows, their width, products */
	uint32_t out[MOST];
	enum kv_dtype type[MOST];
	unsigned biased;             /* 1 << i: product i has a bias */
	float scale;                 /* of x */
	float norm;                  /* of the norm's weights */
	int askew;
};

static void
test_project(struct projection c)
{
	const size_t skew_x = c.askew & X ? 4 : 0, skew_n = c.askew & NORM ? 4 : 0;
	float *x = floats((size_t)c.N * c.in, c.scale);
	float *norm = floats(c.in, c.norm), *bias[MOST], *got;
	double *xn = malloc((size_t)c.N * c.in * sizeof *xn), *want[MOST];
	struct matrix m[MOST];
	struct product p[MOST];
	uint32_t i, o;
	int k;

	for (i = 0; i < c.in; i++)             /* not the same for all parts of a block */
		norm[i] *= exp2f(-(float)(i / 128 % 5));
	ref_rmsnorm(xn, x, norm, c.N, c.in, EPS);
	for (i = 0; i < c.n; i++) {
		make_matrix(&m[i], c.type[i], c.out[i], c.in, c.askew & WEIGHTS && i == c.n - 1);
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
			float *dx = put_askew(d, x, (size_t)c.N * c.in * 4, skew_x);
			float *dxn = ops->alloc(d->dev, (size_t)c.N * c.in * 4);
			struct norm n = { .w = put_askew(d, norm, c.in * 4, skew_n), .eps = EPS };

			for (o = 0; o < c.n; o++) {
				p[o] = (struct product){ .w = &m[o].on[k] };
				p[o].y = ops->alloc(d->dev, (size_t)c.N * c.out[o] * 4);
				if (c.biased >> o & 1)
					p[o].bias = to_device(d, bias[o], c.out[o] * 4);
			}
			run_project(ops, d->dev, p, c.n, dx, &n, dxn, c.N);
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
			free_askew(d, dx, skew_x);
			ops->free(d->dev, dxn);
			free_askew(d, n.w, skew_n);
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

/* ---- ffn ---- */

struct network {
	uint32_t N, D, F;
	enum kv_dtype gate, up, down;
	float scale, norm;           /* of x, of the norm's weights */
	int askew;
};

static void
test_ffn_of(struct network c)
{
	const uint32_t N = c.N, D = c.D, F = c.F, askew = c.askew & WEIGHTS ? 1 : 0;
	const size_t x_size = (size_t)N * D * 4, y_size = (size_t)N * F * 4;
	const size_t skew = c.askew & X ? 4 : 0;
	float *x = floats((size_t)N * D, c.scale), *norm = floats(D, c.norm), *got;
	double *xn = malloc((size_t)N * D * sizeof *xn), *want = doubles(x, (size_t)N * D);
	double *gate = calloc((size_t)N * F, sizeof *gate), *up = calloc((size_t)N * F, sizeof *up);
	struct matrix m[3];
	size_t i;
	int k;

	make_matrix(&m[0], c.gate, F, D, 0);
	make_matrix(&m[1], c.up, F, D, askew);
	make_matrix(&m[2], c.down, D, F, askew);
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
		struct ffn w = { { .w = to_device(d, norm, D * 4), .eps = EPS },
			m[0].on[k], m[1].on[k],
			m[2].on[k], 0, { 0, 0, 0, 0 } };
		float *dx = put_askew(d, x, x_size, skew), *dxn = o->alloc(d->dev, x_size);
		float *dg = o->alloc(d->dev, y_size + skew), *du = o->alloc(d->dev, y_size);

		run_ffn(o, d->dev, dx, &w, dxn, dg + skew / 4, du, N);
		got = from_device(d, dx, (size_t)N * D);
		compare(d, FFN, "ffn", got, want, (size_t)N * D);
		free(got);
		free_askew(d, dx, skew);
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

static void
test_ffn(uint32_t N, uint32_t D, uint32_t F, enum kv_dtype in, enum kv_dtype out, float scale)
{
	test_ffn_of((struct network){ N, D, F, in, in, out, scale, 1, 0 });
}

/* ---- how many kernels ---- */

/* A layer of 4 query heads and 2 KV heads of width 16 on one device, with a capacity of ROWS
 * rows */
enum { ROWS = 40, D = 64, E = 16, H = 4, G = 2, ENTRIES = ROWS / 16 };

struct layer {
	float *x, *xn, *q, *k, *v;
	struct norm norm;
	struct mat w[4];             /* [D][D] of each type */
	struct ffn ffn;
	struct layer_rows rows;
	uint64_t start[G];
	uint32_t len[G], capacity[G];
	uint32_t *pos;               /* 0, 1, ... */
	double *freq;
	/* retrieval: keys in one bit, and what is chosen by them */
	struct entries bits;
	uint64_t first[G];
	uint32_t have[G], space[G], wanted[G];
	float *score;                /* [H][ROWS] */
	struct chosen chosen;
};

static void
kernels(struct device *d, const char *what, unsigned long from, unsigned long want)
{
	verdict(cuda_launches - from == want, "%s, %s: %lu kernels, want %lu", what, d->name,
	    cuda_launches - from, want);
}

static void
project_kernels(struct device *d, const struct layer *l, uint32_t N, const enum kv_dtype *type,
    uint32_t n, unsigned long want)
{
	float *y = d->ops->alloc(d->dev, (size_t)n * N * D * 4);
	const unsigned long from = cuda_launches;
	struct product p[MOST];
	uint32_t i;

	for (i = 0; i < n; i++)
		p[i] = (struct product){ y + (size_t)i * N * D, &l->w[type[i]], NULL };
	run_project(d->ops, d->dev, p, n, l->x, &l->norm, l->xn, N);
	kernels(d, "project", from, want);
	d->ops->free(d->dev, y);
}

static void
make_layer(struct layer *l, struct device *d, const float *x)
{
	static const enum kv_dtype type[] = { KV_F32, KV_F16, KV_BF16 };
	const struct ops *o = d->ops;
	uint32_t pos[ROWS], i;
	double freq[E / 2] = { 1, 0.1 };

	for (i = 0; i < ROWS; i++)
		pos[i] = i;
	*l = (struct layer){ .x = to_device(d, x, 5 * ROWS * D * 4),
		.norm = { .w = to_device(d, x, D * 4), .eps = EPS },
		.pos = to_device(d, pos, sizeof pos),
		.freq = to_device(d, freq, sizeof freq), .start = { 0, ROWS },
		.capacity = { ROWS, ROWS } };
	l->xn = l->x + ROWS * D;
	l->q = l->x + 2 * ROWS * D;
	l->k = l->x + 3 * ROWS * D;
	l->v = l->x + 4 * ROWS * D;
	for (i = 0; i < 3; i++)
		l->w[type[i]] = (struct mat){ to_device_as(d, x, type[i], D * D),
			weight_type_of(type[i]), D, D };
	l->ffn = (struct ffn){ .norm = l->norm, .gate = l->w[KV_BF16], .up = l->w[KV_BF16],
		.down = l->w[KV_BF16] };
	l->rows = (struct layer_rows){ o->alloc(d->dev, G * ROWS * E * 2),
		o->alloc(d->dev, G * ROWS * E * 2), o->alloc(d->dev, G * ROWS * 4), l->start,
		l->len, l->capacity, G, E, KV_BF16, 0, 0, NULL, 0 };
	l->bits = (struct entries){ o->alloc(d->dev, G * ENTRIES * E * 6), E * 6, l->first, l->have,
		l->space, G, E, 16 };
	for (i = 0; i < G; i++) {
		l->first[i] = i * ENTRIES;
		l->space[i] = ENTRIES;
	}
	l->score = o->alloc(d->dev, H * ROWS * 4);
	l->chosen = (struct chosen){ o->alloc(d->dev, G * ROWS * 4), ROWS, l->wanted, 1 };
}

static void
free_layer(struct layer *l, struct device *d)
{
	void *const all[] = { l->x, (void *)l->norm.w, l->pos, l->freq, l->rows.k, l->rows.v,
		l->rows.pos, (void *)l->w[KV_F32].data, (void *)l->w[KV_F16].data,
		(void *)l->w[KV_BF16].data, l->bits.data, l->score, l->chosen.at };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		d->ops->free(d->dev, all[i]);
}

/* To l->xn: attention to half of the rows, those with the greatest reduced scores */
static void
retrieve_half(struct device *d, struct layer *l)
{
	const struct ops *o = d->ops;
	const struct query query = { .q = l->q, .N = 1, .H = H };
	uint32_t g;

	for (g = 0; g < G; g++)
		l->wanted[g] = (l->len[g] + 1) / 2;
	o->pack_bits(d->dev, &l->bits, &l->rows);
	o->bits_scores(d->dev, l->score, ROWS, &query, &l->bits, &l->rows);
	o->group_reduce(d->dev, l->score, l->score, ROWS, (struct counts){ l->len, 0 },
	    NULL, H, G, REDUCE_MEAN);
	o->topk(d->dev, &l->chosen, l->score, ROWS, (struct counts){ l->len, 0 }, G);
	o->attend_chosen(d->dev, l->xn, &query, &l->rows, &l->chosen);
}

static void
early_starts(struct device *d, const char *what, unsigned long from, unsigned long want)
{
	verdict(cuda_early_starts - from == want, "%s, %s: %lu kernels may start early, want %lu",
	    what, d->name, cuda_early_starts - from, want);
}

/* rope_append and the logits' GEMV start early behind a GEMV, not behind cuBLAS. The kernel that
 * undoes f16's scale is ours. */
static void
test_early_starts(struct device *d)
{
	float *x = floats(5 * ROWS * D, 1);
	unsigned long from;
	struct layer l;

	make_layer(&l, d, x);
	project_kernels(d, &l, 8, (enum kv_dtype[]){ KV_BF16 }, 1, 1);
	from = cuda_early_starts;
	run_rope_append(d->ops, d->dev, &l.rows, l.q, l.k, l.v, l.pos,
	    &(struct rotary){ l.freq, E, 1, 0 }, 8, H);
	early_starts(d, "rope_append behind a GEMV", from, 1);
	d->ops->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 20, 0);
	from = cuda_early_starts;
	run_rope_append(d->ops, d->dev, &l.rows, l.q, l.k, l.v, l.pos,
	    &(struct rotary){ l.freq, E, 1, 0 }, 2, H);
	early_starts(d, "rope_append behind cuBLAS", from, 0);
	d->ops->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 20, 0);
	from = cuda_early_starts;
	d->ops->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 1, 0);
	early_starts(d, "a GEMV behind cuBLAS", from, 0);
	d->ops->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 20, 0);
	from = cuda_early_starts;
	d->ops->attend(d->dev, l.xn, NULL, &(struct query){ .q = l.q, .pos = l.pos, .N = 1,
	    .H = H }, &l.rows);
	early_starts(d, "attend behind cuBLAS", from, 1);      /* its second kernel */
	d->ops->matmul(d->dev, l.q, l.x, &l.w[KV_F16], NULL, 20, 0);
	from = cuda_early_starts;
	run_rope_append(d->ops, d->dev, &l.rows, l.q, l.k, l.v, l.pos,
	    &(struct rotary){ l.freq, E, 1, 0 }, 2, H);
	early_starts(d, "rope_append behind the scale of f16", from, 1);
	free_layer(&l, d);
	free(x);
}

/* Nor does a GEMV behind a copy, though a kernel was before that. */
static void
test_starts_behind_copies(struct device *d)
{
	static const char *const what[] = { "a GEMV behind copy", "a GEMV behind clear",
		"a GEMV behind put", "a GEMV behind get" };
	float *x = floats(5 * ROWS * D, 1), one;
	const struct ops *o = d->ops;
	unsigned long from;
	struct layer l;
	int i;

	make_layer(&l, d, x);
	for (i = 0; i < 4; i++) {
		o->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 1, 0);
		switch (i) {
		case 0: o->copy(d->dev, l.xn, l.q, sizeof one); break;
		case 1: o->clear(d->dev, l.xn, sizeof one); break;
		case 2: o->put(d->dev, l.xn, x, sizeof one); break;
		default: o->get(d->dev, &one, l.q, sizeof one);
		}
		from = cuda_early_starts;
		o->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 1, 0);
		early_starts(d, what[i], from, 0);
		o->matmul(d->dev, l.q, l.x, &l.w[KV_BF16], NULL, 1, 0);
		early_starts(d, "a GEMV behind a GEMV", from, 1);
	}
	free_layer(&l, d);
	free(x);
}

/* A layer of a decoding step has seven kernels: project, rope_append, two of attend, matmul, two of
 * ffn. */
static void
test_kernels(struct device *d)
{
	static const enum kv_dtype mixed[MOST] = { KV_F16, KV_BF16, KV_BF16, KV_BF16, KV_BF16,
		KV_BF16 };
	static const uint32_t N[] = { 1, 8, 20 };
	float *x = floats(5 * ROWS * D, 1);
	unsigned long from;
	struct layer l;
	size_t i;

	make_layer(&l, d, x);
	for (i = 0; i < 3; i++) {
		project_kernels(d, &l, N[i], mixed + 1, 3, 1);
		from = cuda_launches;
		run_rope_append(d->ops, d->dev, &l.rows, l.q, l.k, l.v, l.pos,
		    &(struct rotary){ l.freq, E, 1, 0 }, N[i], H);
		kernels(d, "rope_append", from, 1);
		from = cuda_launches;
		run_ffn(d->ops, d->dev, l.x, &l.ffn, l.xn, l.q, l.k, N[i]);
		kernels(d, "ffn", from, 2);
	}
	from = cuda_launches;
	d->ops->attend(d->dev, l.xn, NULL, &(struct query){ .q = l.q, .pos = l.pos, .N = 1,
	    .H = H }, &l.rows);
	kernels(d, "attend", from, 2);
	from = cuda_launches;
	retrieve_half(d, &l);
	kernels(d, "pack_bits, bits_scores, group_reduce, topk and attend_chosen", from, 7);
	from = cuda_launches;
	d->ops->group_reduce(d->dev, l.score, l.score, ROWS, (struct counts){ l.len, 0 },
	    NULL, G, G, REDUCE_MEAN);
	kernels(d, "group_reduce of nothing", from, 0);
	from = cuda_launches;
	d->ops->matmul(d->dev, l.x, l.q, &l.w[KV_BF16], NULL, 1, 1);
	kernels(d, "matmul", from, 1);
	project_kernels(d, &l, 1, mixed, 3, 2);
	project_kernels(d, &l, 3, mixed, MOST, 3);     /* at most four products each */
	verdict(d->ops->sync(d->dev) == NULL, "kernels, %s: %s", d->name, d->ops->sync(d->dev));
	free_layer(&l, d);
	free(x);
}

/* x after some steps of decoding through a layer */
static float *
after_steps(struct device *d, const float *numbers)
{
	const struct ops *o = d->ops;
	struct layer l;
	float *x;
	int i;

	make_layer(&l, d, numbers);
	for (i = 0; i < ROWS; i++) {
		struct mat kv = { l.w[KV_BF16].data, WEIGHT_BF16, G * E, D };
		struct product p[] = { { l.q, &l.w[KV_BF16], NULL }, { l.k, &kv, NULL },
			{ l.v, &kv, NULL } };
		const struct query query = { .q = l.q, .pos = l.pos + i, .N = 1, .H = H };

		run_project(o, d->dev, p, 3, l.x, &l.norm, l.xn, 1);
		run_rope_append(o, d->dev, &l.rows, l.q, l.k, l.v, l.pos + i,
		    &(struct rotary){ l.freq, E, 1, 0 }, 1, H);
		if (i % 4 == 0)
			o->attend(d->dev, l.xn, NULL, &query, &l.rows);
		else
			retrieve_half(d, &l);
		o->matmul(d->dev, l.x, l.xn, &l.w[KV_BF16], NULL, 1, 1);
		run_ffn(o, d->dev, l.x, &l.ffn, l.xn, l.q, l.k, 1);
	}
	x = from_device(d, l.x, D);
	verdict(o->sync(d->dev) == NULL && isfinite(x[0]), "steps, %s: %s", d->name,
	    o->sync(d->dev));
	free_layer(&l, d);
	return x;
}

/* Kernels that start before those ahead of them have ended find memory as they should: on a GPU,
 * where each of them is over in no time, any that does not wait would be seen. */
static void
test_early(struct device *d)
{
	float *numbers = floats(5 * ROWS * D, 1), *want, *got;
	struct device in_turn = *d;
	char err[128] = "";
	int round;

	gpu_force_no_pdl(1);
	in_turn.dev = d->ops->open(d->threads, 0, err, sizeof err);
	gpu_force_no_pdl(0);
	verdict(in_turn.dev != NULL, "in turn: %s", err);
	if (in_turn.dev != NULL) {
		want = after_steps(&in_turn, numbers);
		for (round = 0; round < (emulated() ? 1 : 30); round++) {
			got = after_steps(d, numbers);
			verdict(memcmp(got, want, D * sizeof *got) == 0,
			    "%s: kernels that start early, round %d", d->name, round);
			free(got);
		}
		free(want);
	}
	d->ops->close(in_turn.dev);
	free(numbers);
}

static void
test_projects(void)
{
	static const uint32_t N[] = { 1, 2, 3, 4, 5, 8, 9, 20, 33 };
	size_t n, t;
	int askew;

	for (n = 0; n < sizeof N / sizeof N[0]; n++) {
		test_project((struct projection){ N[n], 64, 3, { 96, 24, 24 },
		    { KV_BF16, KV_BF16, KV_BF16 }, n % 2 == 0 ? 7 : 0, 1, 2, 0 });
		test_project((struct projection){ N[n], 250 + n % 3 * 7, 3, { 61, 7, 130 },
		    { KV_F16, KV_BF16, KV_F32 }, 2, 30, 2, 0 });
	}
	for (t = 0; t < 3; t++) {
		const enum kv_dtype y = types[t];

		test_project((struct projection){ 1, 2056, 1, { 1 }, { y }, 0, 1e-3f, 2, 0 });
		test_project((struct projection){ 1, 4104, 2, { 5, 517 }, { y, y }, 1, 1, 2, 0 });
		/* a large one between small ones; more than one launch takes */
		test_project((struct projection){ 2, 264, 3, { 1, 701, 3 }, { y, y, y }, 5, 1, 2,
			0 });
		test_project((struct projection){ 1 + (uint32_t)t * 4, 40, 6, { 9, 4, 5, 33, 2, 8 },
		    { y, y, y, y, y, y }, 63, 1, 2, 0 });
		/* f16 has no such numbers, or only bad ones */
		test_project((struct projection){ 9, 1028, 2, { 21, 8 }, { y, y }, 1, 1, 3e5f, 0 });
		test_project((struct projection){ 11, 68, 2, { 21, 8 }, { y, y }, 0, 1, 2e-7f, 0 });
		for (askew = X; askew <= WEIGHTS; askew *= 2) {
			test_project((struct projection){ 1, 264, 2, { 9, 70 }, { y, y }, 0, 1, 1,
			    askew });
			test_project((struct projection){ 10, 64, 2, { 9, 70 }, { y, y }, 0, 1, 1,
			    askew });
		}
	}
	/* x does not fit into shared memory, or not into a block's registers */
	test_project((struct projection){ 1, 25003, 2, { 9, 3 }, { KV_BF16, KV_BF16 }, 0, 1, 2,
		0 });
	test_project((struct projection){ 7, 7000, 2, { 2, 5 }, { KV_F16, KV_F16 }, 2, 1, 2, 0 });
	test_project((struct projection){ 9, 16384, 1, { 2 }, { KV_F16 }, 0, 1, 2, 0 });
	test_project((struct projection){ 9, 16388, 1, { 2 }, { KV_BF16 }, 0, 1, 2, 0 });
}

static void
test_ffns(void)
{
	uint32_t N;
	size_t t;

	for (N = 1; N <= 10; N++) {
		test_ffn(N, 64, 160, KV_BF16, KV_BF16, 1);
		test_ffn(N, 32 + N, 45, types[N % 3], types[(N + 1) % 3], 20);
	}
	test_ffn(33, 64, 130, KV_F16, KV_F16, 1);
	for (N = 0; N < 2; N++)         /* four at a time, and one by one */
		test_ffn(13, 40, 20 + N, KV_F16, KV_BF16, 1);
	for (t = 0; t < 3; t++) {
		const enum kv_dtype y = types[t], z = types[(t + 1) % 3];

		test_ffn(1, 1024, 515, y, y, 1);
		test_ffn(4, 1032, 20, y, y, 1000);
		test_ffn_of((struct network){ 1, 40, 19, y, z, y, 1, 1, 0 });
		test_ffn_of((struct network){ 9, 40, 20, y, z, y, 1, 1, 0 });
		test_ffn_of((struct network){ 3, 40, 24, y, y, y, 1, 1, X });
		test_ffn_of((struct network){ 5, 40, 24, y, y, y, 1, 1, WEIGHTS });
		test_ffn_of((struct network){ 12, 40, 24, y, y, y, 1, 1, X });
		/* f16 has no such numbers as the gate makes, or only bad ones */
		test_ffn_of((struct network){ 10, 64, 1100, y, y, y, 1, 600, 0 });
		test_ffn_of((struct network){ 11, 64, 37, y, y, y, 1, 2e-3f, 0 });
	}
	test_ffn(1, 20, 25003, KV_F16, KV_BF16, 1);
	test_ffn(8, 16, 801, KV_BF16, KV_BF16, 1);     /* more sums than fit into shared memory */
}

void
test_layer(void)
{
	int k;

	test_projects();
	test_rope_appends();
	test_ffns();
	for (k = 0; k < devices; k++) {
		if (strcmp(device[k].name, "cuda") != 0)
			continue;
		if (&cuda_launches != NULL) {
			test_kernels(&device[k]);
			test_early_starts(&device[k]);
			test_starts_behind_copies(&device[k]);
		}
		if (gpu_force_no_pdl != NULL)
			test_early(&device[k]);
	}
}
