/* query_calibration.c - query statistics of a model from other texts */
#include "engine/query_calibration.h"
#include "engine/tensor_file.h"

/* Returns number i of a tensor. */
static float
number(const struct tensor *t, size_t i)
{
	float x;

	kv_to_f32(&x, (const char *)t->data + i * kv_dtype_size(t->dtype), t->dtype, 1);
	return x;
}

static int
check(const struct query_calibration *c, struct engine_error *e)
{
	const uint64_t *m = c->mean->dim, *v = c->covariance->dim;
	const size_t E = c->width, heads = (size_t)c->layers * c->heads;
	size_t h, i;

	if (v[0] != m[0] || v[1] != m[1] || v[2] != m[2] || v[3] != m[2])
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor query_cov does not have the "
		    "layers, query heads and head width of query_mean", c->path);
	for (h = 0; h < heads; h++)
		for (i = 0; i < E; i++)
			if (number(c->covariance, (h * E + i) * E + i) < 0)
				return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor query_cov: the "
				    "variance of channel %zu of layer %zu, query head %zu is "
				    "negative", c->path, i, h / c->heads, h % c->heads);
	return ENGINE_OK;
}

/* Looks the moduli up, which need not be there. */
static int
find_moduli(struct query_calibration *c, struct engine_error *e)
{
	const uint64_t *m = c->mean->dim, *d;
	size_t i;
	int rc;

	if (safetensors_find(c->files, "query_modulus") == NULL)
		return ENGINE_OK;
	rc = tensor_file_find(c->files, c->path, "query_modulus", 3,
	    "layers, query heads and half of the head width", &c->modulus, e);
	if (rc != ENGINE_OK)
		return rc;
	d = c->modulus->dim;
	if (d[0] != m[0] || d[1] != m[1] || d[2] != m[2] / 2)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor query_modulus does not have the "
		    "layers, query heads and half of the head width of query_mean", c->path);
	for (i = 0; i < tensor_elements(c->modulus); i++)
		if (number(c->modulus, i) < 0)
			return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor query_modulus: element "
			    "%zu is negative", c->path, i);
	return ENGINE_OK;
}

int
query_calibration_load(struct query_calibration *out, const char *path, struct engine_error *e)
{
	int rc;

	*out = (struct query_calibration){ .path = path };
	if ((rc = tensor_file_open(&out->files, path, e)) != ENGINE_OK ||
	    (rc = tensor_file_find(out->files, path, "query_mean", 3,
	    "layers, query heads and head width", &out->mean, e)) != ENGINE_OK ||
	    (rc = tensor_file_find(out->files, path, "query_cov", 4,
	    "layers, query heads and twice the head width", &out->covariance, e)) != ENGINE_OK)
		return rc;
	out->layers = (uint32_t)out->mean->dim[0];
	out->heads = (uint32_t)out->mean->dim[1];
	out->width = (uint32_t)out->mean->dim[2];
	if ((rc = check(out, e)) == ENGINE_OK && (rc = find_moduli(out, e)) == ENGINE_OK)
		tensor_file_hash(out->hash, (const struct tensor *[]){ out->mean,
		    out->covariance, out->modulus }, out->modulus != NULL ? 3 : 2);
	return rc;
}

void
query_calibration_free(struct query_calibration *c)
{
	safetensors_close(c->files);
	*c = (struct query_calibration){ .path = NULL };
}

int
query_calibration_layer(const struct query_calibration *c, const struct kv_model *m,
    uint32_t layer, double *numbers, struct kv_query_stats *stats, struct engine_error *e)
{
	const size_t E = m->head_width, H = m->query_heads;
	const uint32_t pairs = kv_rope_dims(m, layer) / 2;
	double *sum = numbers, *product, *modulus;
	const double *mean;
	size_t h, i, j, at;

	if (c->layers != m->layers || c->heads != m->query_heads || c->width != m->head_width)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: query statistics of %u layers, %u "
		    "query heads and a head width of %u, and the model has %u, %u and %u", c->path,
		    c->layers, c->heads, c->width, m->layers, m->query_heads, m->head_width);
	*stats = (struct kv_query_stats){ .n = 1 };
	kv_query_stats_arrays(stats, m, layer, numbers);
	product = numbers + (stats->product - numbers);
	for (i = 0; i < H * E; i++)
		sum[i] = number(c->mean, layer * H * E + i);
	modulus = numbers + (stats->modulus - numbers);
	for (i = 0; c->modulus != NULL && i < H * pairs; i++)
		modulus[i] = number(c->modulus, layer * H * (E / 2) + i / pairs * (E / 2) +
		    i % pairs);
	if (c->modulus == NULL)
		stats->modulus = NULL;
	for (h = 0; h < H; h++) {
		at = (layer * H + h) * E * E;
		mean = sum + h * E;
		for (i = 0; i < E; i++)
			for (j = 0; j <= i; j++)
				*product++ = ((double)number(c->covariance, at + i * E + j) +
				    number(c->covariance, at + j * E + i)) / 2 + mean[i] * mean[j];
	}
	return ENGINE_OK;
}
