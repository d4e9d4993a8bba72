/* ops_between.c - what passes in 16 bits from one product of many rows to the next: gate and up of
 * the feed-forward network, and the output of attention */
#include <string.h>

#include "ops/compose.h"
#include "tests/unit/ops_cache.h"

#define EPS 1e-5f

/* Where the emulator is */
extern unsigned long cuda_launches __attribute__((weak));
extern unsigned long cuda_products __attribute__((weak));

/* Is this a GPU that is not kept to naive kernels? */
static int
is_fast_gpu(const struct device *d)
{
	return strcmp(d->name, "cuda") == 0;
}

/* ---- gate and up ----
 *
 * Let r be the root mean square of the relative error of rounding to bf16. With u = 2^-8 and
 * mantissas spread as 1 / m in [1, 2) (Benford's law) it is u sqrt(1 / (8 ln 2)) = 0.425 u, 1.7e-3;
 * and so is what sums of products lose, relative to the norm of all of them, where one factor is
 * rounded. What the network adds to x is off by three roundings: of xn, by which gate and up lose
 * independently, as their weights are, and of silu(gate) up. That is sqrt(3) r. Gate and up in bf16
 * are two more: sqrt(5) r, 1.29 times as much. Naive kernels, and the CPU, sum in f32. */
#define ROUNDING (0.425 * 0x1p-8)
#define BEFORE (1.732 * ROUNDING)
#define NOW (2.236 * ROUNDING)
#define SLACK 1.15           /* few numbers; the relative error of silu(x) is not that of x */
#define IN_F32 5e-7

struct network {
	uint32_t N, D, F;
	float scale;                 /* of the weights of gate and up */
	int adjacent;                /* up lies behind gate */
};

/* The same on the host; want: what is to be added to x, in double precision */
struct numbers {
	float *x, *norm, *gate, *up, *down;
	double *want;
};

static void
make_numbers(struct numbers *n, const struct network *c)
{
	const size_t FD = (size_t)c->F * c->D, NF = (size_t)c->N * c->F, ND = (size_t)c->N * c->D;
	double *xn = malloc(ND * sizeof *xn), *g = malloc(NF * sizeof *g);
	double *u = malloc(NF * sizeof *u);
	size_t i, o, k;

	*n = (struct numbers){ floats(ND, 1), floats(c->D, 1), floats(FD, c->scale),
		floats(FD, c->scale), floats(FD, 1), calloc(ND, sizeof(double)) };
	round_to(n->gate, KV_BF16, FD);
	round_to(n->up, KV_BF16, FD);
	round_to(n->down, KV_BF16, FD);
	ref_rmsnorm(xn, n->x, n->norm, c->N, c->D, EPS);
	for (i = 0; i < NF; i++) {
		const size_t row = i / c->F * c->D, w = i % c->F * c->D;

		for (g[i] = u[i] = k = 0; k < c->D; k++) {
			g[i] += xn[row + k] * n->gate[w + k];
			u[i] += xn[row + k] * n->up[w + k];
		}
		g[i] = g[i] / (1 + exp(-g[i])) * u[i];
	}
	for (i = 0; i < ND; i++)
		for (o = 0; o < c->F; o++)
			n->want[i] += g[i / c->D * c->F + o] * n->down[i % c->D * c->F + o];
	free(xn);
	free(g);
	free(u);
}

static void
free_numbers(struct numbers *n)
{
	free(n->x);
	free(n->norm);
	free(n->gate);
	free(n->up);
	free(n->down);
	free(n->want);
}

/* The norm of the error of what was added to x[n], as a share of the norm of want[n] */
static double
relative_error(const float *got, const float *x, const double *want, size_t n)
{
	double error = 0, all = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		const double e = (double)got[i] - x[i] - want[i];

		error += e * e;
		all += want[i] * want[i];
	}
	return sqrt(error / all);
}

/* The network's op, or (plain) what it is composed of, on one device: the relative error.
 * *products: how many cuBLAS made */
static double
run_network(struct device *d, const struct network *c, const struct numbers *n, int plain,
    unsigned long *products)
{
	static const struct ffn_bias none = { NULL, NULL, NULL };
	const struct ops *o = d->ops;
	const size_t FD = (size_t)c->F * c->D, ND = (size_t)c->N * c->D, NF = (size_t)c->N * c->F;
	float *both = malloc(2 * FD * sizeof *both), *x = to_device(d, n->x, ND * 4), *got;
	float *xn = o->alloc(d->dev, ND * 4), *gate = o->alloc(d->dev, NF * 4);
	float *up = o->alloc(d->dev, NF * 4);
	uint16_t *w, *down = to_device_as(d, n->down, KV_BF16, FD);
	struct ffn ffn = { { .w = to_device(d, n->norm, c->D * 4), .eps = EPS },
		{ NULL, WEIGHT_BF16, c->F, c->D },
		{ NULL, WEIGHT_BF16, c->F, c->D }, { down, WEIGHT_BF16, c->D, c->F }, 0,
		{ 0, 0, 0, 0 } };
	double error;

	memcpy(both, c->adjacent ? n->gate : n->up, FD * sizeof *both);
	memcpy(both + FD, c->adjacent ? n->up : n->gate, FD * sizeof *both);
	w = to_device_as(d, both, KV_BF16, 2 * FD);
	ffn.gate.data = c->adjacent ? w : w + FD;
	ffn.up.data = c->adjacent ? w + FD : w;
	*products = &cuda_products != NULL ? cuda_products : 0;
	if (plain)
		run_ffn_with(o, d->dev, x, &ffn, &none, NULL, xn, gate, up, c->N);
	else
		run_ffn(o, d->dev, x, &ffn, xn, gate, up, c->N);
	*products = &cuda_products != NULL ? cuda_products - *products : 0;
	got = from_device(d, x, ND);
	error = relative_error(got, n->x, n->want, ND);
	if (!plain)
		same_bytes(d, "network", got, ND * 4);
	free(got);
	free(both);
	o->free(d->dev, x);
	o->free(d->dev, xn);
	o->free(d->dev, gate);
	o->free(d->dev, up);
	o->free(d->dev, w);
	o->free(d->dev, down);
	o->free(d->dev, (void *)ffn.norm.w);
	return error;
}

static void
test_network(struct network c)
{
	struct numbers n;
	/* a row of xn in 16 bits is written by a kernel that takes a multiple of 4 */
	unsigned long products, want = c.adjacent && c.D % 4 == 0 ? 2 : 3;
	double plain, fused;
	int k;

	make_numbers(&n, &c);
	new_case();
	for (k = 0; k < devices; k++) {
		const int rounds = device[k].rounds;

		plain = run_network(&device[k], &c, &n, 1, &products);
		fused = run_network(&device[k], &c, &n, 0, &products);
		verdict(plain <= (rounds ? SLACK * BEFORE : IN_F32),
		    "network of %u rows, %u to %u, composed, %s: error %.2e", c.N, c.D, c.F,
		    device[k].name, plain);
		verdict(fused <= (rounds ? SLACK * NOW : IN_F32),
		    "network of %u rows, %u to %u, %s: error %.2e", c.N, c.D, c.F, device[k].name,
		    fused);
		verdict(&cuda_products == NULL || !is_fast_gpu(&device[k]) || products == want,
		    "network of %u rows, %u to %u: %lu products, want %lu", c.N, c.D, c.F, products,
		    want);
	}
	free_numbers(&n);
}

/* ---- the output of attention ---- */

/* What lies between attention and the product with its output */
enum between { NOTHING, A_COPY, OTHER_NUMBERS, LSE_WANTED, CASES };

/* y[N][OUT] of the product, which took so many kernels */
enum { OUT = 24 };

static float *
run_product(struct device *d, struct cache *c, const struct shape *s, const struct mat *w,
    const float *q, const float *other, enum between between, unsigned long *kernels)
{
	const struct ops *o = d->ops;
	const size_t n = (size_t)s->N * s->H * s->E;
	struct layer_rows rows = cache_on_device(d, c, s, 1);
	float *dq = to_device(d, q, n * 4), *out = o->alloc(d->dev, n * 4), *got;
	float *lse = o->alloc(d->dev, (size_t)s->N * s->H * 4);
	float *y = o->alloc(d->dev, (size_t)s->N * OUT * 4);
	uint32_t *pos = to_device(d, c->qpos, s->N * 4);
	const struct query query = cache_query(s, dq, pos);

	o->attend(d->dev, out, between == LSE_WANTED ? lse : NULL, &query, &rows);
	if (between == A_COPY)
		o->copy(d->dev, dq, out, n * 4);
	if (between == OTHER_NUMBERS)
		o->put(d->dev, out, other, n * 4);
	*kernels = &cuda_launches != NULL ? cuda_launches : 0;
	o->matmul(d->dev, y, out, w, NULL, s->N, 0);
	*kernels = &cuda_launches != NULL ? cuda_launches - *kernels : 0;
	got = from_device(d, y, (size_t)s->N * OUT);
	cache_free_rows(d, &rows);
	o->free(d->dev, dq);
	o->free(d->dev, out);
	o->free(d->dev, lse);
	o->free(d->dev, y);
	o->free(d->dev, pos);
	return got;
}

/* The product is the same whether attention has left its output in 16 bits or not; kernels: that it
 * takes if so, besides cuBLAS' own, and if not. */
static void
test_output(struct shape s, enum kv_dtype type, unsigned long kernels, unsigned long otherwise)
{
	const uint32_t in = s.H * s.E;
	const size_t n = (size_t)s.N * in, size = (size_t)s.N * OUT;
	float *q = floats(n, 1), *other = floats(n, 1), *weights = floats((size_t)OUT * in, 1);
	float *y[CASES];
	unsigned long took;
	struct cache c;
	char what[128];
	int k, i;

	cache_make(&c, &s);
	cache_name(what, sizeof what, "product behind attend", &s);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct mat w = { to_device_as(d, weights, type, (size_t)OUT * in),
			weight_type_of(type), OUT, in };

		for (i = 0; i < CASES; i++) {
			y[i] = run_product(d, &c, &s, &w, q, other, i, &took);
			verdict(&cuda_launches == NULL || !is_fast_gpu(d) ||
			    took == (i == NOTHING ? kernels : otherwise),
			    "%s, %s weights, case %d: %lu kernels", what, kv_dtype_name(type), i,
			    took);
		}
		for (i = 1; i < CASES; i++)
			verdict(!memcmp(y[i], y[0], size * sizeof **y) == (i != OTHER_NUMBERS),
			    "%s, %s, case %d: not the same", what, d->name, i);
		for (i = 0; i < CASES; i++)
			free(y[i]);
		d->ops->free(d->dev, (void *)w.data);
	}
	cache_free(&c);
	free(q);
	free(other);
	free(weights);
}

void
test_between(void)
{
	static const struct network networks[] = {
		{ 9, 64, 160, 0.1f, 1 }, { 20, 256, 344, 0.1f, 1 }, { 33, 252, 345, 0.1f, 1 },
		{ 130, 96, 200, 1, 1 }, { 13, 67, 513, 0.3f, 1 }, { 11, 512, 1000, 0.02f, 1 },
		{ 10, 1024, 104, 4, 1 }, { 9, 64, 160, 0.1f, 0 }, { 33, 252, 345, 0.1f, 0 },
		{ 300, 64, 24, 0.5f, 0 },
	};
	static const uint32_t widths[] = { 32, 64, 80, 96, 128 };
	size_t i;

	for (i = 0; i < COUNT(networks); i++)
		test_network(networks[i]);
	for (i = 0; i < COUNT(widths); i++)
		test_output((struct shape){ 9 + 40 * (uint32_t)i, 6, 2, widths[i], 70, KV_BF16, 1,
			LATE, i % 2 ? 30 : 0, 0 }, KV_BF16, 0, 1);
	/* cache or weights of another type; a width that tensor cores do not take; split keys */
	test_output((struct shape){ 12, 4, 2, 64, 70, KV_F16, 1, LATE, 0, 0 }, KV_BF16, 1, 1);
	test_output((struct shape){ 12, 4, 2, 64, 70, KV_BF16, 1, LATE, 0, 0 }, KV_F16, 2, 2);
	test_output((struct shape){ 12, 4, 2, 64, 70, KV_BF16, 1, LATE, 0, 0 }, KV_F32, 0, 0);
	test_output((struct shape){ 12, 4, 2, 36, 70, KV_BF16, 1, LATE, 0, 0 }, KV_BF16, 1, 1);
	test_output((struct shape){ 12, 2, 1, 64, 2000, KV_BF16, 1, LATE, 0, 0 }, KV_BF16, 1, 1);
}
