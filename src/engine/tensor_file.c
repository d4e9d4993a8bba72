/* tensor_file.c - numbers that were computed for a model beforehand */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "engine/tensor_file.h"
#include "model/model.h"

#define AT_ONCE 1024            /* numbers that are widened at a time */

/* folder, *name <- of a path: what stands before and behind the last slash, or a folder and its
 * model.safetensors */
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
tensor_file_open(struct tensor_set **files, const char *path, struct engine_error *e)
{
	const char *name = NULL;
	char *folder, why[512];
	int rc = ENGINE_OK;

	*files = NULL;
	if (split(&folder, &name, path, e) != ENGINE_OK)
		return e->code;
	if (safetensors_open_file(folder, name, &no_overrides, files, why, sizeof why) != MODEL_OK)
		rc = engine_fail(e, ENGINE_EDAMAGED, "%s", why);
	free(folder);
	return rc;
}

size_t
tensor_elements(const struct tensor *t)
{
	size_t n = 1;
	unsigned i;

	for (i = 0; i < t->ndim; i++)
		n *= (size_t)t->dim[i];
	return n;
}

/* x[AT_ONCE] <- the next numbers from `at` on; returns how many. */
static size_t
some_numbers(float *x, const struct tensor *t, size_t at)
{
	const size_t left = tensor_elements(t) - at, n = left < AT_ONCE ? left : AT_ONCE;

	kv_to_f32(x, (const char *)t->data + at * kv_dtype_size(t->dtype), t->dtype, n);
	return n;
}

static int
check_finite(const struct tensor *t, const char *path, const char *name, struct engine_error *e)
{
	const size_t all = tensor_elements(t), layer = all / (size_t)t->dim[0];
	const size_t head = layer / (size_t)t->dim[1];
	float x[AT_ONCE];
	size_t at, n, i;

	for (at = 0; at < all; at += n) {
		n = some_numbers(x, t, at);
		for (i = 0; i < n; i++)
			if (!isfinite(x[i]))
				return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s: a number of "
				    "layer %zu, head %zu is not finite", path, name,
				    (at + i) / layer, (at + i) % layer / head);
	}
	return ENGINE_OK;
}

int
tensor_file_find(const struct tensor_set *files, const char *path, const char *name, unsigned ndim,
    const char *shape, const struct tensor **found, struct engine_error *e)
{
	const struct tensor *t = *found = safetensors_find(files, name);
	unsigned i;
	int whole;

	if (t == NULL)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: there is no tensor %s", path, name);
	if (t->dtype == 0)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s is of type %s", path, name,
		    t->type);
	whole = t->ndim == ndim;
	for (i = 0; whole && i < ndim; i++)
		whole = t->dim[i] > 0 && t->dim[i] <= UINT32_MAX;
	if (!whole)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: tensor %s has %u dimensions, or one of "
		    "them is 0: want %s", path, name, t->ndim, shape);
	return check_finite(t, path, name, e);
}

void
tensor_file_hash(char hash[17], const struct tensor *const *t, unsigned count)
{
	XXH3_state_t *state = XXH3_createState();
	float x[AT_ONCE];
	size_t at, n;
	unsigned i;

	strcpy(hash, "0000000000000000");
	if (state == NULL)
		return;
	XXH3_64bits_reset(state);
	for (i = 0; i < count; i++)
		for (at = 0; at < tensor_elements(t[i]); at += n) {
			n = some_numbers(x, t[i], at);
			XXH3_64bits_update(state, x, n * sizeof *x);
		}
	snprintf(hash, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
	XXH3_freeState(state);
}
