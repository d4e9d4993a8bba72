/* ops_blocks.c - weights in blocks: the numbers of each type, and products with them
 *
 * tests/fixtures/blocks is what tests/oracle/ggml_blocks.py has recorded. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

/* Bytes of a block in front of its halves; -1: there is none */
static const struct type {
	enum weight_type type;
	int scale, min;
} types[] = {
	{ WEIGHT_Q4_0, 0, -1 }, { WEIGHT_Q4_1, 0, 2 }, { WEIGHT_Q5_0, 0, -1 },
	{ WEIGHT_Q5_1, 0, 2 }, { WEIGHT_Q8_0, 0, -1 }, { WEIGHT_MXFP4, -1, -1 },
	{ WEIGHT_Q4_K, 0, 2 }, { WEIGHT_Q5_K, 0, 2 }, { WEIGHT_Q6_K, 208, -1 },
};

enum { TYPES = sizeof types / sizeof types[0], AT_ONCE = 64 };

/* ---- numbers ---- */

static size_t
recorded(const char *name, const char *ending, void *to, size_t most)
{
	char path[96];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof path, FIXTURES "/%s.%s", name, ending);
	if ((f = fopen(path, "rb")) != NULL) {
		n = fread(to, 1, most, f);
		fclose(f);
	}
	return n;
}

static void
test_numbers(void)
{
	static unsigned char blocks[8192];
	static float want[8192], got[8192];
	size_t i, bytes, n;

	for (i = 0; i < TYPES; i++) {
		const char *name = weight_type_name(types[i].type);

		bytes = recorded(name, "blocks", blocks, sizeof blocks);
		n = recorded(name, "f32", want, sizeof want) / sizeof *want;
		weight_to_f32(got, blocks, types[i].type, n);
		verdict(n > 0 && bytes == weight_row_bytes(types[i].type, n) &&
		    memcmp(got, want, n * sizeof *want) == 0, "%s: numbers of blocks", name);
	}
}

/* ---- products ---- */

struct weights {
	const struct type *type;
	size_t in, out, bytes;
	unsigned char *blocks;
	float *numbers;                /* [out][in] */
};

static void
put_half(unsigned char *at)
{
	const float x = (float)draw(1000) / 1000 - 0.4f;

	kv_from_f32(at, &x, KV_F16, 1);
}

static struct weights
random_weights(const struct type *t, size_t in, size_t out)
{
	const size_t block = weight_row_bytes(t->type, weight_block(t->type));
	struct weights w = { t, in, out, out * weight_row_bytes(t->type, in), NULL,
		malloc(in * out * sizeof(float)) };
	size_t i;

	w.blocks = draw_bytes(w.bytes);
	for (i = 0; i < w.bytes; i += block) {
		if (t->scale >= 0)
			put_half(w.blocks + i + t->scale);
		else
			w.blocks[i] = (unsigned char)(120 + draw(9));
		if (t->min >= 0)
			put_half(w.blocks + i + t->min);
	}
	weight_to_f32(w.numbers, w.blocks, t->type, in * out);
	return w;
}

static void
free_weights(struct weights *w)
{
	free(w->blocks);
	free(w->numbers);
}

/* want[N][out] <- the product, bound <- how far it may be away: with x rounded to 8 bits by half of
 * the unit of its 32 channels; and by the rounding of sums */
static void
expect_products(const struct weights *w, const float *x, const float *bias, const float *y,
    size_t N, int rounded, double *want, double *bound)
{
	const double u = ((double)w->in + 40) * 0x1p-24;
	size_t n, o, i, j;

	for (n = 0; n < N; n++)
		for (o = 0; o < w->out; o++) {
			const float *a = x + n * w->in, *b = w->numbers + o * w->in;
			double sum = 0, size = 0, away = 0, unit = 0;

			for (i = 0; i < w->in; i++) {
				if (i % 32 == 0)
					for (unit = 0, j = i; j < i + 32 && j < w->in; j++)
						unit = fmax(unit, fabs((double)a[j]) / 127);
				sum += (double)a[i] * b[i];
				size += fabs((double)a[i] * b[i]) + unit * fabs((double)b[i]);
				away += unit * 0.5001 * fabs((double)b[i]);
			}
			/* numbers of a type with a minimum are small beside its terms */
			size *= w->type->min >= 0 ? 64 : 1;
			sum += bias != NULL ? bias[o] : 0;
			sum += y != NULL ? y[n * w->out + o] : 0;
			want[n * w->out + o] = sum;
			bound[n * w->out + o] = u * (size + fabs(sum) + 8) +
			    (rounded ? away : 0);
		}
}

static float *
multiplied(struct device *d, const struct weights *w, const float *x, const float *bias,
    const float *y, size_t N, int add)
{
	void *dx = to_device(d, x, N * w->in * 4), *db = to_device(d, bias, w->out * 4),
	     *dy = to_device(d, y, N * w->out * 4), *dw = to_device(d, w->blocks, w->bytes);
	const struct mat m = { dw, w->type->type, (uint32_t)w->out, (uint32_t)w->in };
	float *got;

	d->ops->matmul(d->dev, dy, dx, &m, bias, (uint32_t)N, add);
	got = from_device(d, dy, N * w->out);
	d->ops->free(d->dev, dx);
	d->ops->free(d->dev, db);
	d->ops->free(d->dev, dy);
	d->ops->free(d->dev, dw);
	return got;
}

/* Few rows are the bytes that each has alone. */
static void
alone(struct device *d, const struct weights *w, const float *x, const float *bias, const float *y,
    size_t N, int add, const float *got)
{
	const size_t n = N - 1;
	float *one = multiplied(d, w, x + n * w->in, bias, y + n * w->out, 1, add);

	verdict(memcmp(one, got + n * w->out, w->out * sizeof *one) == 0,
	    "%s, %s: a row alone has other bytes", d->name, weight_type_name(w->type->type));
	free(one);
}

static void
test_product(const struct type *t, size_t N, size_t in, size_t out, int add)
{
	struct weights w = random_weights(t, in, out);
	float *x = floats(N * in, 2), *bias = floats(out, 3), *y = floats(N * out, 3), *got;
	double *want = malloc(N * out * sizeof *want), *bound = malloc(N * out * sizeof *bound);
	char what[80];
	int k, exact;

	for (exact = 0; exact < 2; exact++) {
		snprintf(what, sizeof what, "%s %zux%zux%zu%s%s", weight_type_name(t->type), N, in,
		    out, add ? " add" : "", exact ? " exact" : "");
		expect_products(&w, x, bias, add ? y : NULL, N, !exact && N <= AT_ONCE, want,
		    bound);
		new_case();
		for (k = 0; k < devices; k++) {
			struct device *d = &device[k];

			if (strcmp(d->name, "avx512 bf16") == 0 && N > 16)
				continue;      /* products of more rows are of rounded weights */
			d->ops->blocks_in_f32(d->dev, exact);
			got = multiplied(d, &w, x, bias, y, N, add);
			compare_each(d, MATMUL, what, got, want, bound, N * out);
			if (N <= AT_ONCE)
				alone(d, &w, x, bias, y, N, add, got);
			free(got);
			d->ops->blocks_in_f32(d->dev, 0);
		}
	}
	free_weights(&w);
	free(x);
	free(bias);
	free(y);
	free(want);
	free(bound);
}

/* Channels that are multiples of a unit, one of them 127 of them, are not rounded at all. */
static void
test_whole(const struct type *t, size_t in)
{
	struct weights w = random_weights(t, in, 7);
	float *x = floats(in, 1), *bias = floats(7, 1), *y = floats(7, 1), *got;
	double want[7], bound[7];
	size_t i;
	int k;

	for (i = 0; i < in; i++)
		x[i] = (i % 32 == 5 ? 127 : (float)draw(255) - 127) * 0.25f;
	expect_products(&w, x, bias, NULL, 1, 0, want, bound);
	new_case();
	for (k = 0; k < devices; k++) {
		got = multiplied(&device[k], &w, x, bias, y, 1, 0);
		compare_each(&device[k], MATMUL, weight_type_name(t->type), got, want, bound, 7);
		free(got);
	}
	free_weights(&w);
	free(x);
	free(bias);
	free(y);
}

/* A row is not changed by the row behind it, whose scale is not a number: where a row has no whole
 * chunk, that of the next one may be read. */
static void
test_neighbours(const struct type *t, size_t in)
{
	enum { ROWS = 9, BAD = 4 };
	struct weights w = random_weights(t, in, ROWS);
	float *x = floats(in, 2), *bias = floats(ROWS, 3), *y = floats(ROWS, 3), *want, *got;
	const size_t row = weight_row_bytes(t->type, in);
	int k;

	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];

		want = multiplied(d, &w, x, bias, y, 1, 0);
		memset(w.blocks + BAD * row, 0x7f, row);
		got = multiplied(d, &w, x, bias, y, 1, 0);
		got[BAD] = want[BAD];
		verdict(memcmp(got, want, ROWS * sizeof *got) == 0,
		    "%s, %s: a row has other bytes before a row that is not finite", d->name,
		    weight_type_name(t->type));
		memcpy(w.blocks + BAD * row, w.blocks, row);
		free(want);
		free(got);
	}
	free_weights(&w);
	free(x);
	free(bias);
	free(y);
}

/* bf16, for prompts: weights and x are rounded */
static void
test_bf16_panels(const struct type *t, size_t N, size_t in, size_t out)
{
	struct weights w = random_weights(t, in, out);
	float *x = floats(N * in, 2), *bias = floats(out, 3), *y = floats(N * out, 3), *got;
	double *want = malloc(N * out * sizeof *want), *bound = malloc(N * out * sizeof *bound);
	size_t i;
	int k;

	round_to(w.numbers, KV_BF16, in * out);
	round_to(x, KV_BF16, N * in);
	expect_products(&w, x, bias, NULL, N, 0, want, bound);
	for (i = 0; i < N * out; i++)
		bound[i] *= 2;
	new_case();
	for (k = 0; k < devices; k++)
		if (strcmp(device[k].name, "avx512 bf16") == 0) {
			got = multiplied(&device[k], &w, x, bias, y, N, 0);
			compare_each(&device[k], MATMUL, weight_type_name(t->type), got, want,
			    bound, N * out);
			free(got);
		}
	free_weights(&w);
	free(x);
	free(bias);
	free(y);
	free(want);
	free(bound);
}

/* ---- other ops ---- */

static void
test_embedding(const struct type *t, size_t in)
{
	const uint32_t tok[] = { 3, 0, 4, 3 };
	struct weights w = random_weights(t, in, 5);
	float *got;
	size_t n;
	int k, ok;

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		void *dw = to_device(d, w.blocks, w.bytes), *dx = cleared(d, 4 * in * 4);
		const struct mat m = { dw, t->type, 5, (uint32_t)in };

		d->ops->embed(d->dev, dx, &m, tok, 4);
		got = from_device(d, dx, 4 * in);
		for (ok = 1, n = 0; n < 4; n++)
			ok &= memcmp(got + n * in, w.numbers + tok[n] * in, in * 4) == 0;
		verdict(ok, "%s: embeddings in %s", d->name, weight_type_name(t->type));
		free(got);
		d->ops->free(d->dev, dw);
		d->ops->free(d->dev, dx);
	}
	free_weights(&w);
}

static void
test_not_finite(const struct type *t)
{
	const size_t in = 512, out = 6;
	struct weights w = random_weights(t, in, out);
	const float bad[] = { NAN, INFINITY, -INFINITY };
	float *x, *bias = floats(out, 1), *y = floats(out, 1), *got;
	size_t i, o;
	int k, ok;

	for (i = 0; i < 3; i++) {
		x = floats(in, 1);
		x[100 * i + 3] = bad[i];
		for (k = 0; k < devices; k++) {
			got = multiplied(&device[k], &w, x, bias, y, 1, 0);
			for (ok = 1, o = 0; o < out; o++)
				ok &= !isfinite(got[o]);
			verdict(ok, "%s, %s: a product with %g is finite", device[k].name,
			    weight_type_name(t->type), (double)bad[i]);
			free(got);
		}
		free(x);
	}
	free_weights(&w);
	free(bias);
	free(y);
}

void
test_blocks(void)
{
	size_t i;

	test_numbers();
	if (device[0].ops->blocks_in_f32 == NULL)
		return;
	for (i = 0; i < TYPES; i++) {
		const struct type *t = &types[i];
		const size_t block = weight_block(t->type);

		test_product(t, 1, block, 3, 0);
		test_product(t, 1, 3 * block, 301, 1);
		test_product(t, 2, 9 * block, 33, 0);
		test_product(t, 17, 5 * block, 50, 1);
		test_product(t, 64, 256, 9, 0);
		test_product(t, 65, 7 * block, 70, 1);
		test_whole(t, 11 * block);
		test_neighbours(t, 11 * block);
		test_bf16_panels(t, 70, 2 * 2048 + 256, 50);
		test_embedding(t, 13 * block);
		test_not_finite(t);
	}
}
