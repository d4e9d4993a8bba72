/* ops_bf16.c - products in bf16 on the CPU: what they round, what they leave alone, who has none
 *
 * The devices are those named "avx512 bf16"; all other tests run on them, too. */
#include <stdio.h>

#include "cpu/cpu_internal.h"
#include "tests/unit/ops_check.h"

/* To the nearest bf16, halfway cases to the even one: by the definition, in double precision */
static float
nearest_bf16(float x)
{
	int e;

	if (x == 0 || !isfinite(x))
		return x;
	frexp(x, &e);
	return (float)(nearbyint(ldexp(x, 8 - e)) * ldexp(1, e - 8));
}

struct product_case {
	uint32_t N, in, out;
	int with_bias, add;
	float *x, *w, *bias, *y;
};

/* want and bound of y with x rounded, and the bound for x as it is. A sum of n products passes at
 * most n roundings, and two more with bias and y: gamma(n + 2) of the sum of magnitudes (Higham,
 * 3.1); bf16 has 8 bits, so that x is off by 2^-8 of itself at most. */
static void
expect_product(const struct product_case *c, const float *x, double *want, double *bound,
    double loss)
{
	double u = (c->in + 2) * 0x1p-24, magnitude, sum;
	size_t n, o, i;

	for (n = 0; n < c->N; n++)
		for (o = 0; o < c->out; o++) {
			sum = c->with_bias ? c->bias[o] : 0;
			sum += c->add ? c->y[n * c->out + o] : 0;
			magnitude = 0;
			for (i = 0; i < c->in; i++) {
				sum += (double)x[n * c->in + i] * c->w[o * c->in + i];
				magnitude += fabs((double)x[n * c->in + i] * c->w[o * c->in + i]);
			}
			want[n * c->out + o] = sum;
			magnitude += c->with_bias ? fabs(c->bias[o]) : 0;
			magnitude += c->add ? fabs(c->y[n * c->out + o]) : 0;
			bound[n * c->out + o] = (u / (1 - u) * (1 + loss) + loss) * magnitude;
		}
}

/* y of the case on d, to be freed */
static float *
multiplied(struct device *d, const struct product_case *c, uint32_t N, const float *x,
    enum kv_dtype type)
{
	void *dx = to_device(d, x, (size_t)N * c->in * 4), *db = to_device(d, c->bias, c->out * 4),
	     *dy = to_device(d, c->y, (size_t)N * c->out * 4);
	struct mat m = { to_device_as(d, c->w, type, (size_t)c->out * c->in), weight_type_of(type),
		c->out, c->in };
	float *got;

	d->ops->matmul(d->dev, dy, dx, &m, c->with_bias ? db : NULL, N, c->add);
	got = from_device(d, dy, (size_t)N * c->out);
	d->ops->free(d->dev, dx);
	d->ops->free(d->dev, db);
	d->ops->free(d->dev, dy);
	d->ops->free(d->dev, (void *)m.data);
	return got;
}

static struct product_case
make_case(uint32_t N, uint32_t in, uint32_t out, int with_bias, int add)
{
	struct product_case c = { N, in, out, with_bias, add, floats((size_t)N * in, 2),
		floats((size_t)out * in, 1), floats(out, 3), floats((size_t)N * out, 3) };

	round_to(c.w, KV_BF16, (size_t)out * in);
	return c;
}

static void
free_case(struct product_case *c)
{
	free(c->x);
	free(c->w);
	free(c->bias);
	free(c->y);
}

/* Within the bounds; a few of the rows alone give the same bytes, as any number of threads does. */
static void
test_product(uint32_t N, uint32_t in, uint32_t out, int with_bias, int add)
{
	struct product_case c = make_case(N, in, out, with_bias, add);
	const size_t ny = (size_t)N * out;
	double *want = malloc(ny * sizeof *want), *bound = malloc(ny * sizeof *bound);
	float *rounded = malloc((size_t)N * in * 4), *first = NULL, *got, *few;
	char what[80];
	size_t i;
	int k;

	for (i = 0; i < (size_t)N * in; i++)
		rounded[i] = nearest_bf16(c.x[i]);
	new_case();
	for (k = 0; k < devices; k++) {
		if (strcmp(device[k].name, "avx512 bf16") != 0)
			continue;
		got = multiplied(&device[k], &c, N, c.x, KV_BF16);
		snprintf(what, sizeof what, "bf16 %ux%ux%u, x rounded", N, in, out);
		expect_product(&c, rounded, want, bound, 0);
		compare_each(&device[k], MATMUL, what, got, want, bound, ny);
		snprintf(what, sizeof what, "bf16 %ux%ux%u", N, in, out);
		expect_product(&c, c.x, want, bound, 0x1p-8);
		compare_each(&device[k], MATMUL, what, got, want, bound, ny);
		few = multiplied(&device[k], &c, 17, c.x, KV_BF16);
		verdict(memcmp(few, got, (size_t)17 * out * 4) == 0, "%s: 17 rows alone differ",
		    what);
		free(few);
		if (first != NULL)
			verdict(memcmp(first, got, ny * 4) == 0, "%s: %d threads differ from one",
			    what, device[k].threads);
		if (first != NULL)
			free(got);
		else
			first = got;
	}
	free(first);
	free(rounded);
	free(want);
	free(bound);
	free_case(&c);
}

/* What is never rounded: few rows, and weights of other types */
static void
test_as_before(uint32_t N, enum kv_dtype type)
{
	struct product_case c = make_case(N, 70, 100, 1, 1);
	float *want = NULL, *got;
	int k;

	for (k = 0; k < devices; k++)
		if (strcmp(device[k].name, "avx512") == 0 && device[k].threads == 1)
			want = multiplied(&device[k], &c, N, c.x, type);
	for (k = 0; k < devices && want != NULL; k++)
		if (strcmp(device[k].name, "avx512 bf16") == 0) {
			got = multiplied(&device[k], &c, N, c.x, type);
			verdict(memcmp(want, got, (size_t)N * c.out * 4) == 0,
			    "%u rows by weights in %s are not what they are in f32", N,
			    kv_dtype_name(type));
			free(got);
		}
	free(want);
	free_case(&c);
}

/* A NaN, an infinity and numbers that f32 can hold but bf16 not with all digits stay in their rows,
 * also where these are not whole pairs. */
static void
test_not_finite(struct device *d)
{
	enum { FIRST = 4, ODD = 4 };
	struct product_case c = make_case(20, 33, 50, 0, 0);
	const float odd[ODD] = { NAN, INFINITY, 0x1.fffffep127f, 0x1p-140f };
	float *got, *row;
	size_t i, o;

	for (i = 0; i < ODD; i++) {
		memset(c.x + (FIRST + i) * c.in, 0, c.in * 4);
		c.x[(FIRST + i) * c.in] = odd[i];
	}
	for (o = 0; o < c.out; o++)
		c.w[o * c.in] = 1;
	got = multiplied(d, &c, c.N, c.x, KV_BF16);
	row = got + FIRST * c.out;
	for (o = 0; o < c.out; o++) {
		verdict(isnan(row[o]), "bf16: NaN becomes %g", row[o]);
		verdict(isinf(row[c.out + o]), "bf16: infinity becomes %g", row[c.out + o]);
		verdict(isinf(row[2 * c.out + o]), "bf16: FLT_MAX becomes %g", row[2 * c.out + o]);
		verdict(row[3 * c.out + o] == 0, "bf16: 2^-140 becomes %g", row[3 * c.out + o]);
	}
	for (i = 0; i < c.N; i++)
		for (o = 0; o < c.out && (i < FIRST || i >= FIRST + ODD); o++)
			if (!isfinite(got[i * c.out + o]))
				verdict(0, "bf16: row %zu, which is finite, has %g", i,
				    got[i * c.out + o]);
	free(got);
	free_case(&c);
}

/* A device without the instructions says so. */
static void
test_refused(void)
{
	char err[128] = "";
	struct dev *d;

	if (!cpu_force_isa("base"))
		return;
	d = cpu_ops.open(0, 1, err, sizeof err);
	verdict(!cpu_ops.products_in_bf16(d, 1), "products in bf16 without instructions");
	verdict(strstr(cpu_ops.describe(d), "bf16") == NULL, "it is \"%s\"", cpu_ops.describe(d));
	cpu_ops.close(d);
	cpu_force_isa(NULL);
}

void
test_bf16(void)
{
	int k;

	if (emulated())
		return;
	test_product(17, 64, 48, 0, 0);
	test_product(18, 1, 1, 1, 1);
	test_product(23, 33, 49, 1, 0);                /* a channel without its neighbour */
	test_product(40, 95, 80, 0, 1);
	test_product(130, 31, 33, 1, 1);
	test_product(700, 70, 200, 0, 0);              /* several tiles */
	test_product(2100, 8, 20, 1, 1);               /* several slabs */
	test_product(24, 5003, 60, 1, 1);              /* several depths */
	test_product(24, 4097, 20, 1, 0);
	test_as_before(16, KV_BF16);
	test_as_before(1, KV_BF16);
	test_as_before(40, KV_F16);
	test_as_before(40, KV_F32);
	for (k = 0; k < devices; k++)
		if (strcmp(device[k].name, "avx512 bf16") == 0)
			test_not_finite(&device[k]);
	test_refused();
}
