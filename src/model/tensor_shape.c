/* tensor_shape.c - a tensor that must be there, in its shape and of a type that we compute with */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "model/model_files.h"
#include "model/tensor_shape.h"

/* "[512][4096]" */
static const char *
show_shape(const struct tensor *t, char *text, size_t size)
{
	size_t n = 0;
	unsigned i;

	text[0] = '\0';
	for (i = 0; i < t->ndim && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "[%" PRIu64 "]", t->dim[i]);
	return t->ndim == 0 ? "a scalar" : text;
}

int
tensor_shape(const struct tensor *t, const uint64_t *dim, unsigned ndim, char *err, size_t errlen)
{
	struct tensor want = { .ndim = ndim };
	char a[96], b[96];

	memcpy(want.dim, dim, ndim * sizeof *dim);
	if (t->ndim != ndim || memcmp(t->dim, dim, ndim * sizeof *dim) != 0)
		return model_file_fail(err, errlen, MODEL_EINVALID, t->file,
		    "%s: want %s, file has %s", t->name, show_shape(&want, a, sizeof a),
		    show_shape(t, b, sizeof b));
	return MODEL_OK;
}

int
tensor_check(const struct tensor *t, const uint64_t *dim, unsigned ndim, char *err, size_t errlen)
{
	const int rc = tensor_shape(t, dim, ndim, err, errlen);

	if (rc != MODEL_OK)
		return rc;
	if (t->weight == 0 || (ndim == 1 && t->dtype == 0))
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, t->file, "%s: dtype %s is "
		    "not supported: want BF16, F16 or F32", t->name, t->type);
	return MODEL_OK;
}

int
tensor_need(const struct tensor_set *files, const char *where, const char *name, uint32_t rows,
    uint32_t cols, const struct tensor **out, char *err, size_t errlen)
{
	const struct tensor *t = safetensors_find(files, name);

	if (t == NULL)
		return model_file_fail(err, errlen, MODEL_EINVALID, where, "no tensor %s", name);
	*out = t;
	return tensor_check(t, (const uint64_t[]){ rows, cols }, cols == 0 ? 1 : 2, err, errlen);
}

int
tensor_not_finite(const struct tensor *t, size_t *at)
{
	const size_t block = weight_block(t->weight), size = weight_row_bytes(t->weight, block);
	const size_t n = t->bytes / size * block;
	float x[256];
	size_t from, i, some;

	for (from = 0; from < n; from += some) {
		some = n - from < 256 ? n - from : 256;
		weight_to_f32(x, (const uint8_t *)t->data + from / block * size, t->weight, some);
		for (i = 0; i < some; i++)
			if (!isfinite(x[i])) {
				*at = from + i;
				return 1;
			}
	}
	return 0;
}
