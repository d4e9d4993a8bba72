/* query_filters.c - loads Q-Filters */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "engine/query_filters.h"
#include "model/model.h"
#include "model/safetensors.h"

static const char TENSOR[] = "q_filters";

static int
take_shape(struct query_filters *f, const struct tensor *t, struct engine_error *e)
{
	if (t == NULL)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: there is no tensor %s", f->path,
		    TENSOR);
	if (t->dtype == 0)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s is of type %s", f->path,
		    TENSOR, t->type);
	if (t->ndim != 3 || t->dim[0] > UINT32_MAX || t->dim[1] > UINT32_MAX ||
	    t->dim[2] > UINT32_MAX)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s has %u dimensions, want "
		    "layers, KV heads and head width", f->path, TENSOR, t->ndim);
	f->layers = (uint32_t)t->dim[0];
	f->heads = (uint32_t)t->dim[1];
	f->width = (uint32_t)t->dim[2];
	return ENGINE_OK;
}

static int
take_numbers(struct query_filters *f, const struct tensor *t, struct engine_error *e)
{
	const size_t n = (size_t)f->layers * f->heads * f->width;
	size_t i;

	if ((f->at = engine_alloc(n, sizeof *f->at, e)) == NULL)
		return e->code;
	kv_to_f32(f->at, t->data, t->dtype, n);
	for (i = 0; i < n; i++)
		if (!isfinite(f->at[i]))
			return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s: a number of layer "
			    "%zu, KV head %zu is not finite", f->path, TENSOR,
			    i / f->width / f->heads, i / f->width % f->heads);
	snprintf(f->hash, sizeof f->hash, "%016llx",
	    (unsigned long long)XXH3_64bits(f->at, n * sizeof *f->at));
	return ENGINE_OK;
}

/* folder, *name <- of a path: what stands before and behind the last slash, or a folder and NULL */
static int
split(char **folder, const char **name, const char *path, struct engine_error *e)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	const int is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	const size_t n = is_folder ? strlen(path) : slash != NULL ? (size_t)(slash - path) + 1 : 1;

	if ((*folder = engine_alloc(n + 1, 1, e)) == NULL)
		return e->code;
	memcpy(*folder, is_folder || slash != NULL ? path : ".", n);
	(*folder)[n] = '\0';
	*name = is_folder ? "model.safetensors" : slash != NULL ? slash + 1 : path;
	return ENGINE_OK;
}

int
query_filters_load(struct query_filters *out, const char *path, struct engine_error *e)
{
	struct safetensors *files = NULL;
	const struct tensor *t;
	const char *name = NULL;
	char *folder, why[512];
	int rc;

	*out = (struct query_filters){ .path = path };
	if (split(&folder, &name, path, e) != ENGINE_OK)
		return e->code;
	if (safetensors_open_file(folder, name, &no_overrides, &files, why, sizeof why) != MODEL_OK)
		rc = engine_fail(e, ENGINE_EDAMAGED, "%s", why);
	else {
		t = safetensors_find(files, TENSOR);
		if ((rc = take_shape(out, t, e)) == ENGINE_OK)
			rc = take_numbers(out, t, e);
	}
	safetensors_close(files);
	free(folder);
	return rc;
}

void
query_filters_free(struct query_filters *f)
{
	free(f->at);
	f->at = NULL;
}
