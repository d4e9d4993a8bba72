/* ops_between.c - what passes in 16 bits from one product of many rows to the next: gate and up of
 * the feed-forward network */
#include <string.h>

#include "model/compose.h"
#include "tests/unit/ops_cache.h"

#define EPS 1e-5f

/* Where the emulator is */
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
	struct ffn ffn = { { to_device(d, n->norm, c->D * 4), EPS }, { NULL, KV_BF16, c->F, c->D },
		{ NULL, KV_BF16, c->F, c->D }, { down, KV_BF16, c->D, c->F }, 0 };
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

void
test_between(void)
{
	static const struct network networks[] = {
		{ 9, 64, 160, 0.1f, 1 }, { 20, 256, 344, 0.1f, 1 }, { 33, 252, 345, 0.1f, 1 },
		{ 130, 96, 200, 1, 1 }, { 13, 67, 513, 0.3f, 1 }, { 11, 512, 1000, 0.02f, 1 },
		{ 10, 1024, 104, 4, 1 }, { 9, 64, 160, 0.1f, 0 }, { 33, 252, 345, 0.1f, 0 },
		{ 300, 64, 24, 0.5f, 0 },
	};
	size_t i;

	for (i = 0; i < COUNT(networks); i++)
		test_network(networks[i]);
}
