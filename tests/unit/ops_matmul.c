/* ops_matmul.c - matmul of every path, against the same formula in double precision */
#include <stdio.h>

#include "ops/compose.h"
#include "tests/unit/ops_check.h"

/* Where the emulator is */
extern int cublas_missing __attribute__((weak));
extern unsigned long cuda_launches __attribute__((weak));

/* [N][out], for matmul_bound(); to be freed */
static double *
magnitudes(const float *x, const float *w, const float *bias, const float *y, size_t N, size_t in,
    size_t out, int add)
{
	double *magnitude = malloc(N * out * sizeof *magnitude);
	size_t n, o, i;

	for (n = 0; n < N; n++)
		for (o = 0; o < out; o++) {
			double sum = (add ? fabs(y[n * out + o]) : 0) + (bias != NULL ?
			    fabs(bias[o]) : 0);

			for (i = 0; i < in; i++)
				sum += fabs((double)x[n * in + i] * w[o * in + i]);
			magnitude[n * out + o] = sum;
		}
	return magnitude;
}

/* Every second row of x is multiplied by odd; weights are large where that is small. */
static void
test_range(uint32_t N, uint32_t in, uint32_t out, enum kv_dtype type, int with_bias, int add,
    float odd)
{
	const size_t ny = (size_t)N * out;
	float *x = floats((size_t)N * in, 1), *w = floats((size_t)out * in, odd < 1 ? 6e4f : 1),
	      *bias = floats(out, 1), *y = floats(ny, 1), *got;
	double *want = malloc(ny * sizeof *want), *bound = malloc(ny * sizeof *bound), *magnitude;
	char what[80];
	size_t i;
	int k;

	snprintf(what, sizeof what, "matmul %ux%ux%u %s%s%s", N, in, out, kv_dtype_name(type),
	    with_bias ? " bias" : "", add ? " add" : "");
	round_to(w, type, (size_t)out * in);
	for (i = 0; i < (size_t)N * in; i++)
		x[i] *= i / in % 2 == 1 ? odd : odd < 1 ? 0 : 1;
	for (i = 0; i < ny; i++)
		want[i] = y[i];
	ref_matmul(want, x, w, with_bias ? bias : NULL, N, in, out, add);
	magnitude = magnitudes(x, w, with_bias ? bias : NULL, y, N, in, out, add);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		void *dx = to_device(d, x, (size_t)N * in * 4), *dy = to_device(d, y, ny * 4),
		     *db = to_device(d, bias, out * 4);
		void *dw = to_device_as(d, w, type, (size_t)out * in);
		struct mat m = { dw, weight_type_of(type), out, in };

		d->ops->matmul(d->dev, dy, dx, &m, with_bias ? db : NULL, N, add);
		got = from_device(d, dy, ny);
		matmul_bound(bound, magnitude, ny, in, type, d->rounds);
		compare_each(d, MATMUL, what, got, want, bound, ny);
		free(got);
		d->ops->put(d->dev, dy, y, ny * 4);
		d->ops->matmul(d->dev, dy, dx, &m, with_bias ? db : NULL, N, add);
		got = from_device(d, dy, ny);
		again(d, what, got, ny);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
		d->ops->free(d->dev, db);
		d->ops->free(d->dev, dw);
	}
	free(x);
	free(w);
	free(bias);
	free(y);
	free(want);
	free(bound);
	free(magnitude);
}

static void
test_matmul(uint32_t N, uint32_t in, uint32_t out, enum kv_dtype type, int with_bias, int add)
{
	test_range(N, in, out, type, with_bias, add, 1);
}

/* ---- products that follow each other ---- */

enum { ROWS = 12, WIDTH = 32 };        /* of x, of y and of everything else */

/* What changes x, behind which there is a row more; other: another buffer of the same size. */
struct change {
	const struct ops *ops;
	struct dev *dev;
	int rounds;                    /* products are of numbers that were converted before */
	float *x, *other, *xn;         /* xn: twice that size */
	const struct mat *w;
	const void *pos, *freq;
};

static void by_put(const struct change *c) { c->ops->put(c->dev, c->x, (float[]){ 7 }, 4); }

static void
by_copy(const struct change *c)
{
	c->ops->copy(c->dev, c->x + ROWS * WIDTH - WIDTH, c->other, WIDTH * 4);
}

static void
by_embed(const struct change *c)
{
	c->ops->embed(c->dev, c->x + WIDTH, c->w, (uint32_t[]){ 3 }, 1);
}

static void
by_rmsnorm(const struct change *c)
{
	c->ops->rmsnorm(c->dev, c->x, c->x, c->other, ROWS, WIDTH, 1);
}

static void
by_swiglu(const struct change *c)
{
	c->ops->swiglu(c->dev, c->x, c->x, c->other, ROWS, WIDTH);
}

static void
by_rope(const struct change *c)
{
	c->ops->rope(c->dev, c->x, c->pos, &(struct rotary){ c->freq, WIDTH, 1, 0 }, ROWS, 1,
	    WIDTH);
}

static void
by_keep(const struct change *c)
{
	struct layer_rows rows = { .k = c->x, .pos = (uint32_t *)c->other,
		.start = (uint64_t[]){ 0 }, .len = (uint32_t[]){ 6 }, .heads = 1, .width = 1,
		.dtype = KV_F32 };

	c->ops->compact(c->dev, &rows, NULL, 0, 1, (uint32_t[]){ 1 },
	    (uint32_t *[]){ (uint32_t[]){ 5 } });
}

/* All of x; the end of it; one row, which does not go by way of 16 bits */
static void
by_matmul(const struct change *c)
{
	c->ops->matmul(c->dev, c->x, c->other, c->w, NULL, ROWS, 0);
}

static void
by_later_matmul(const struct change *c)
{
	c->ops->matmul(c->dev, c->x + WIDTH, c->rounds ? c->x : c->other, c->w, NULL, ROWS, 1);
}

static void
by_short_matmul(const struct change *c)
{
	c->ops->matmul(c->dev, c->x, c->other, c->w, NULL, 1, 0);
}

static void
by_attend(const struct change *c)
{
	struct layer_rows none = { .k = c->other, .v = c->other, .pos = (uint32_t *)c->other,
		.start = (uint64_t[]){ 0 }, .len = (uint32_t[]){ 0 }, .heads = 1, .width = WIDTH,
		.dtype = KV_F32 };
	const struct query query = { .q = c->other, .pos = c->pos, .N = ROWS, .H = 1 };

	c->ops->attend(c->dev, c->x, NULL, &query, &none);
}

/* What several ops make of it at once */
static void
by_project(const struct change *c)
{
	const struct product p = { c->x, c->w, NULL };

	run_project(c->ops, c->dev, &p, 1, c->other, &(struct norm){ .w = c->other, .eps = 1 },
	    c->xn, ROWS);
}

static void
by_ffn(const struct change *c)
{
	const struct ffn w = { .norm = { .w = c->other, .eps = 1 }, .gate = *c->w, .up = *c->w,
		.down = *c->w };

	run_ffn(c->ops, c->dev, c->x, &w, c->xn, c->xn + ROWS * WIDTH, c->other, ROWS);
}

static void
by_rope_append(const struct change *c)
{
	struct layer_rows to = { .k = c->xn, .v = c->xn + ROWS * WIDTH / 2,
		.pos = (uint32_t *)(c->x + ROWS * WIDTH),
		.start = (uint64_t[]){ 0 }, .len = (uint32_t[]){ 0 },
		.capacity = (uint32_t[]){ ROWS }, .heads = 1, .width = WIDTH, .dtype = KV_BF16 };

	run_rope_append(c->ops, c->dev, &to, c->x, c->other, c->other, c->pos,
	    &(struct rotary){ c->freq, WIDTH, 1, 0 }, ROWS, 1);
}

/* y of x, x is changed, y of it again: is that the product of what x holds now? */
static void
test_change(struct device *d, const char *what, void (*change)(const struct change *))
{
	const size_t n = ROWS * WIDTH, bytes = n * sizeof(float);
	float *x = floats(n + WIDTH, 1), *w = floats(WIDTH * WIDTH, 1), *first, *second, *fresh;
	uint32_t pos[ROWS] = { 1, 2, 3 };
	double freq[WIDTH / 2] = { 1, 0.5 };
	const struct ops *o = d->ops;
	struct mat m = { to_device_as(d, w, KV_BF16, WIDTH * WIDTH), WEIGHT_BF16,
		WIDTH, WIDTH };
	float *y = o->alloc(d->dev, bytes);
	void *dp = to_device(d, pos, sizeof pos), *df = to_device(d, freq, sizeof freq);
	struct change c = { o, d->dev, d->rounds, to_device(d, x, bytes + WIDTH * 4),
		to_device(d, w, bytes), o->alloc(d->dev, 2 * bytes), &m, dp, df };

	o->matmul(d->dev, y, c.x, &m, NULL, ROWS, 0);
	first = from_device(d, y, n);
	o->matmul(d->dev, y, c.x, &m, NULL, ROWS, 0);
	change(&c);
	o->matmul(d->dev, y, c.x, &m, NULL, ROWS, 0);
	second = from_device(d, y, n);
	o->copy(d->dev, c.other, c.x, bytes);
	o->matmul(d->dev, y, c.other, &m, NULL, ROWS, 0);
	fresh = from_device(d, y, n);
	verdict(memcmp(second, fresh, bytes) == 0, "%s: x changed by %s: a stale product", d->name,
	    what);
	verdict(memcmp(first, fresh, bytes) != 0, "%s: %s did not change x", d->name, what);
	verdict(o->sync(d->dev) == NULL, "%s, %s: %s", d->name, what, o->sync(d->dev));
	o->free(d->dev, (void *)m.data);
	o->free(d->dev, y);
	o->free(d->dev, dp);
	o->free(d->dev, df);
	o->free(d->dev, c.x);
	o->free(d->dev, c.other);
	o->free(d->dev, c.xn);
	free(x);
	free(w);
	free(first);
	free(second);
	free(fresh);
}

static void
test_changes(void)
{
	static const struct {
		const char *name;
		void (*change)(const struct change *);
	} way[] = {
		{ "put", by_put }, { "copy", by_copy }, { "embed", by_embed },
		{ "rmsnorm", by_rmsnorm }, { "swiglu", by_swiglu }, { "rope", by_rope },
		{ "keep", by_keep }, { "matmul", by_matmul }, { "matmul, later", by_later_matmul },
		{ "matmul of one row", by_short_matmul }, { "attend", by_attend },
		{ "project", by_project }, { "ffn", by_ffn }, { "rope_append", by_rope_append },
	};
	size_t i;
	int k;

	for (k = 0; k < devices; k++)
		for (i = 0; i < sizeof way / sizeof way[0]; i++)
			test_change(&device[k], way[i].name, way[i].change);
}

/* Others that are in 16 bits in between do not become the second product's. */
static void
test_others_between(struct device *d)
{
	const size_t bytes = ROWS * WIDTH * sizeof(float);
	const struct ops *o = d->ops;
	float *x = floats(3 * ROWS * WIDTH, 1), *first, *second;
	float *dx = to_device(d, x, 3 * bytes), *y = o->alloc(d->dev, 3 * bytes);
	struct mat w = { to_device_as(d, x, KV_BF16, WIDTH * WIDTH), WEIGHT_BF16,
		WIDTH, WIDTH };
	const struct product p = { y + ROWS * WIDTH, &w, NULL };
	const struct norm norm = { .w = dx, .eps = 1 };
	const struct ffn ffn = { norm, w, w, w, 0, { 0, 0, 0, 0 } };
	int i;

	for (i = 0; i < 2; i++) {
		o->matmul(d->dev, y, dx, &w, NULL, ROWS, 0);
		first = from_device(d, y, ROWS * WIDTH);
		if (i == 0)
			run_project(o, d->dev, &p, 1, dx + ROWS * WIDTH, &norm,
			    y + 2 * ROWS * WIDTH, ROWS);
		else
			run_ffn(o, d->dev, dx + ROWS * WIDTH, &ffn, y + 2 * ROWS * WIDTH,
			    dx + 2 * ROWS * WIDTH, y + ROWS * WIDTH, ROWS);
		o->matmul(d->dev, y, dx, &w, NULL, ROWS, 0);
		second = from_device(d, y, ROWS * WIDTH);
		verdict(memcmp(first, second, bytes) == 0, "%s: after %s a product of other rows",
		    d->name, i == 0 ? "project" : "ffn");
		free(first);
		free(second);
	}
	verdict(o->sync(d->dev) == NULL, "others between, %s: %s", d->name, o->sync(d->dev));
	o->free(d->dev, dx);
	o->free(d->dev, y);
	o->free(d->dev, (void *)w.data);
	free(x);
}

/* The second product with the same x finds it converted. */
static void
test_converted_once(void)
{
	float x[ROWS * WIDTH] = { 1 };
	unsigned long before;
	int k;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, sizeof x), *y = d->ops->alloc(d->dev, sizeof x);
		struct mat m = { to_device(d, x, sizeof x), WEIGHT_BF16, 16, WIDTH };

		d->ops->matmul(d->dev, y, dx, &m, NULL, ROWS, 0);
		before = cuda_launches;
		d->ops->matmul(d->dev, y, dx, &m, NULL, ROWS, 0);
		verdict(d->rounds == (cuda_launches == before), "%s: %lu kernels more", d->name,
		    cuda_launches - before);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, y);
		d->ops->free(d->dev, (void *)m.data);
	}
}

/* Only a product that needs cuBLAS fails without it. */
static void
test_no_cublas(void)
{
	struct mat m = { NULL, WEIGHT_F32, 1, 1 };
	char err[128] = "";
	struct dev *d = gpu_ops.open(0, 0, err, sizeof err);
	const char *text;

	cublas_missing = 1;
	m.data = gpu_ops.alloc(d, 64);
	gpu_ops.clear(d, (void *)m.data, 64);
	gpu_ops.matmul(d, (float *)m.data + 8, m.data, &m, NULL, 8, 0);
	text = gpu_ops.sync(d);
	verdict(text == NULL, "8 rows without cuBLAS: %s", text);
	gpu_ops.matmul(d, (float *)m.data + 9, m.data, &m, NULL, 9, 0);
	text = gpu_ops.sync(d);
	verdict(text != NULL && strstr(text, "cuBLAS is not there") != NULL &&
		strstr(text, "libcublas") != NULL, "9 rows without cuBLAS: \"%s\"", text);
	cublas_missing = 0;
	gpu_ops.free(d, (void *)m.data);
	gpu_ops.close(d);
}

void
test_matmuls(void)
{
	static const uint32_t N[] = { 1, 2, 3, 5, 8, 9, 17, 33, 130 };
	static const struct {
		uint32_t in, out;
	} shape[] = { { 64, 300 }, { 33, 5 }, { 250, 259 }, { 1, 1 }, { 7, 513 } };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t n, s, t;
	uint32_t i = 0;
	int k;

	for (n = 0; n < sizeof N / sizeof N[0]; n++)
		for (s = 0; s < sizeof shape / sizeof shape[0]; s++, i++)
			test_matmul(
			    N[n], shape[s].in, shape[s].out, type[i % 3], i / 3 % 2, i / 6 % 2);
	test_matmul(700, 40, 600, KV_BF16, 1, 1);      /* more than one tile each way */
	test_matmul(1, 2048, 517, KV_BF16, 0, 0);
	test_matmul(4, 2048, 517, KV_F16, 1, 0);
	for (t = 0; t < 3; t++) {
		test_matmul(1, 4104, 1, type[t], 1, 0);        /* one row of w for a block */
		test_matmul(2, 2056, 5, type[t], 0, 1);
		test_matmul(9, 28, 1, type[t], t == 1, 1);     /* rows of 8 bytes more or less */
		test_matmul(10, 1, 6, type[t], 1, t == 2);
		test_range(9, 64, 21, type[t], 1, 1, 3e5f);    /* f16 has no such numbers */
	}
	test_range(11, 64, 21, KV_F16, 0, 1, 2e-7f);
	test_range(12, 27, 5, KV_F16, 0, 0, 2e-7f);
	test_matmul(1, 25003, 20, KV_BF16, 0, 1);       /* x does not fit into shared memory */
	test_matmul(7, 7000, 3, KV_F16, 1, 0);
	test_matmul(8, 16, 1601, KV_BF16, 1, 1);       /* more sums than fit there */
	test_changes();
	for (k = 0; k < devices; k++)
		test_others_between(&device[k]);
	if (&cuda_launches != NULL)
		test_converted_once();
	if (&cublas_missing != NULL)
		test_no_cublas();
}
