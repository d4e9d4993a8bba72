/* ops_valuenorms.c - norms of values behind the output projection, of some query heads */
#include <stdio.h>

#include "tests/unit/ops_check.h"

struct shape {
	uint32_t n, E, D, H, first, heads;
	enum kv_dtype type;
	int euclidean;
};

/* want[heads][n] */
static void
reference(double *want, const float *w, const float *v, const struct shape *s)
{
	const size_t in = (size_t)s->H * s->E;
	double y, sum;
	uint32_t r, i, o, e;

	for (r = 0; r < s->heads; r++)
		for (i = 0; i < s->n; i++) {
			for (sum = 0, o = 0; o < s->D; o++) {
				for (y = 0, e = 0; e < s->E; e++)
					y += (double)w[o * in + (s->first + r) * s->E + e] *
					    v[(size_t)i * s->E + e];
				sum += s->euclidean ? y * y : fabs(y);
			}
			want[(size_t)r * s->n + i] = s->euclidean ? sqrt(sum) : sum;
		}
}

static void
test_shape(const struct shape *s)
{
	const size_t in = (size_t)s->H * s->E, stride = s->n + 3, all = s->heads * stride;
	float *w = floats(s->D * in, 0.5F), *v = floats((size_t)s->n * s->E, 2), *got, *guard;
	double *want = calloc(s->heads * (size_t)s->n + 1, sizeof *want);
	double *padded = malloc((all + 1) * sizeof *padded);
	char what[80];
	size_t i;
	int k;

	round_to(w, s->type, s->D * in);
	reference(want, w, v, s);
	guard = malloc((all + 1) * sizeof *guard);
	for (i = 0; i < all; i++) {
		guard[i] = 7;
		padded[i] = i % stride < s->n ? want[i / stride * s->n + i % stride] : 7;
	}
	snprintf(what, sizeof what, "value norms of %u rows of %u, %u heads to %u, dtype %d", s->n,
	    s->E, s->heads, s->D, (int)s->type);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		const struct mat wo = { to_device_as(d, w, s->type, s->D * in),
			weight_type_of(s->type), s->D, (uint32_t)in };
		const struct value_outputs of = { &wo, to_device(d, v, (size_t)s->n * s->E * 4),
			s->n, s->E, s->first, s->heads, s->euclidean };
		float *norms = to_device(d, guard, all * sizeof *guard);

		d->ops->value_norms(d->dev, norms, stride, &of);
		got = from_device(d, norms, all);
		compare(d, VALUE_NORMS, what, got, padded, all);
		free(got);
		d->ops->free(d->dev, norms);
		d->ops->free(d->dev, (void *)of.v);
		d->ops->free(d->dev, (void *)wo.data);
	}
	free(w);
	free(v);
	free(guard);
	free(want);
	free(padded);
}

void
test_value_norms(void)
{
	static const struct shape shapes[] = {
		{ 1, 64, 576, 9, 3, 3, KV_BF16, 0 }, { 300, 64, 200, 4, 2, 2, KV_BF16, 1 },
		{ 33, 128, 130, 6, 0, 3, KV_F16, 0 }, { 70, 10, 65, 6, 3, 3, KV_F32, 0 },
		{ 2, 256, 64, 2, 1, 1, KV_BF16, 1 }, { 31, 33, 1, 3, 2, 1, KV_F32, 1 },
		{ 257, 80, 63, 2, 0, 2, KV_F16, 1 },
	};
	size_t i;

	for (i = 0; i < sizeof shapes / sizeof *shapes; i++)
		test_shape(&shapes[i]);
}
