/* ops_keys.c - the scores knorm and keydiff, on devices that make them: on the others the methods
 * of these names run on the host */
#include <stdio.h>

#include "tests/unit/ops_check.h"

enum { MOST_HEADS = 9 };

struct shape {
	uint32_t G, E, rows;             /* of the longest KV head; each next one has step fewer */
	uint32_t step;
	enum kv_dtype type;
	float scale;
	int zeros;                       /* some keys have no length, and KV head 0's cancel out */
	enum kv_row_type stored;         /* as struct layer_rows' k_type */
};

static float *
make_keys(const struct shape *s, size_t n, const uint64_t *start, const uint32_t *len)
{
	float *k = floats(n * s->E, s->scale), *row = k + start[0] * s->E;
	size_t i, e;

	for (i = 0; s->zeros && i < n; i += 3)
		for (e = 0; e < s->E; e++)
			k[i * s->E + e] = 0;
	for (i = 0; s->zeros && i < len[0]; i++)
		for (e = 0; e < s->E; e++)
			row[i * s->E + e] = i == 1 ? 1 : i == 2 ? -1 : 0;
	round_to(k, s->type, n * s->E);
	return k;
}

/* The rows of keys as they are stored; k <- the numbers that they stand for */
static void *
store(float *k, enum kv_row_type type, size_t E, size_t n)
{
	void *rows = malloc(n * kv_row_bytes(type, E) + 1);

	verdict(kv_rows_from_f32(rows, k, type, E, n) == n, "keys are stored");
	kv_rows_to_f32(k, rows, type, E, n);
	return rows;
}

static double
length(const float *k, size_t E)
{
	double sum = 0;
	size_t e;

	for (e = 0; e < E; e++)
		sum += (double)k[e] * k[e];
	return sqrt(sum);
}

/* norm, diff: of one KV head */
static void
reference(double *norm, double *diff, const float *k, size_t n, size_t E)
{
	double *anchor = calloc(E + 1, sizeof *anchor), l, dot, all = 0;
	size_t s, e;

	for (s = 0; s < n; s++) {
		l = length(k + s * E, E);
		norm[s] = -l;
		for (e = 0; e < E; e++)
			anchor[e] += l == 0 ? 0 : k[s * E + e] / l;
	}
	for (e = 0; e < E; e++)
		all += anchor[e] * anchor[e];
	for (s = 0; s < n; s++) {
		for (e = 0, dot = 0; e < E; e++)
			dot += k[s * E + e] * anchor[e];
		diff[s] = norm[s] == 0 || all == 0 ? 0 : dot / norm[s] / sqrt(all);
	}
	free(anchor);
}

/* What the op gives to the rows, and nothing behind them. */
static void
run(struct device *d, enum op op, const struct layer_rows *rows, size_t stride, const double *want)
{
	const size_t n = rows->heads * stride;
	float *guard = malloc((n + 1) * sizeof *guard), *on_device, *got;
	double *all = malloc((n + 1) * sizeof *all);
	char what[64];
	size_t i;

	for (i = 0; i < n; i++)
		guard[i] = 7;
	on_device = to_device(d, guard, n * sizeof *guard);
	(op == KNORM ? d->ops->knorm : d->ops->keydiff)(d->dev, on_device, stride, rows);
	got = from_device(d, on_device, n);
	for (i = 0; i < n; i++)
		all[i] = i % stride < rows->len[i / stride] ? want[i] : guard[i];
	snprintf(what, sizeof what, "%s of %u heads, %zu wide, dtype %d", op == KNORM ? "knorm" :
	    "keydiff", rows->heads, (size_t)rows->width, (int)rows->dtype);
	compare(d, rows->k_type != 0 ? SCORES_ROWS : op, what, got, all, n);
	verdict(d->ops->sync(d->dev) == NULL, "%s: %s: %s", d->name, what, d->ops->sync(d->dev));
	d->ops->free(d->dev, on_device);
	free(guard);
	free(got);
	free(all);
}

static void
test_shape(struct shape s)
{
	const size_t stride = s.rows + 3;
	double *norm = calloc(s.G * stride, sizeof *norm), *diff = calloc(s.G * stride,
	    sizeof *diff);
	uint64_t start[MOST_HEADS];
	uint32_t len[MOST_HEADS], g;
	const enum kv_row_type type = s.stored != 0 ? s.stored : (enum kv_row_type)s.type;
	size_t n = 1;
	void *stored;
	float *k;
	int i;

	for (g = 0; g < s.G; g++) {
		len[g] = s.rows > g * s.step ? s.rows - g * s.step : 0;
		start[g] = n;
		n += len[g] + 2;
	}
	k = make_keys(&s, n, start, len);
	stored = store(k, type, s.E, n);
	for (g = 0; g < s.G; g++)
		reference(norm + g * stride, diff + g * stride, k + start[g] * s.E, len[g], s.E);
	for (i = 0; i < 2; i++) {
		int j;

		new_case();
		for (j = 0; j < devices; j++) {
			struct device *d = &device[j];
			struct layer_rows rows = { .start = start, .len = len, .heads = s.G,
				.width = s.E, .dtype = s.type, .k_type = s.stored };

			if (i == 0 ? d->ops->knorm == NULL : d->ops->keydiff == NULL)
				continue;
			rows.k = to_device(d, stored, n * kv_row_bytes(type, s.E));
			run(d, i == 0 ? KNORM : KEYDIFF, &rows, stride, i == 0 ? norm : diff);
			d->ops->free(d->dev, rows.k);
		}
	}
	free(k);
	free(stored);
	free(norm);
	free(diff);
}

void
test_keys(void)
{
	static const uint32_t width[] = { 1, 7, 8, 24, 64, 80, 128, 200, 256, 257, 264 };
	static const enum kv_row_type stored[] = { KV_ROW_Q8_0, KV_ROW_INT8, KV_ROW_Q4_0,
		KV_ROW_Q5_0 | KV_ROW_HADAMARD, KV_ROW_Q4_1, KV_ROW_FP8,
		KV_ROW_INT8 | KV_ROW_HADAMARD };
	size_t i;

	for (i = 0; i < sizeof width / sizeof *width; i++)
		test_shape((struct shape){ 3, width[i], 130, 1, i % 3 == 0 ? KV_F32 :
		    i % 3 == 1 ? KV_BF16 : KV_F16, 2, i % 4 == 3, 0 });
	/* keys of a chunk, one less, one more; heads without any; many chunks */
	for (i = 63; i <= 65; i++)
		test_shape((struct shape){ 9, 32, (uint32_t)i, 9, KV_BF16, 1, 0, 0 });
	test_shape((struct shape){ 2, 64, 5000, 1111, KV_BF16, 3, 1, 0 });
	test_shape((struct shape){ 1, 256, 33, 0, KV_F32, 1, 0, 0 });
	test_shape((struct shape){ 2, 16, 1, 1, KV_F16, 1, 0, 0 });
	test_shape((struct shape){ 2, 16, 0, 0, KV_F16, 1, 0, 0 });
	for (i = 0; i < sizeof stored / sizeof *stored; i++)
		test_shape((struct shape){ 3, stored[i] == KV_ROW_FP8 ? 33 : 64, 200, 60,
			KV_BF16, 2, i % 3 == 0, stored[i] });
}
