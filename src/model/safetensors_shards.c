/* safetensors_shards.c - the files of a model, as an index names them
 *
 * The index says which files there are. Tools that change a shard forget it, so that what the
 * shards hold counts, and the index does not where it says something else: as in transformers. */
#include <stdlib.h>
#include <string.h>

#include "model/file_kind.h"
#include "model/folder.h"
#include "model/safetensors_internal.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* What a warning says of several tensors: how many, and one of them */
struct some {
	size_t n;
	const char *first;
};

static void
count_one(struct some *s, const char *name)
{
	if (s->n++ == 0)
		s->first = name;
}

/* A name that stays in the folder. */
static int
is_name(const char *s)
{
	return s[0] != '\0' && strchr(s, '/') == NULL && strcmp(s, ".") != 0 &&
	    strcmp(s, "..") != 0;
}

static int
has_shard(const struct tensor_set *st, const char *name)
{
	size_t i;

	for (i = 0; i < st->shards; i++)
		if (strcmp(st->shard[i].name, name) == 0)
			return 1;
	return 0;
}

/* Every file that the map names, once. */
static int
add_mapped_shards(struct tensor_set *st, const char *dir, const char *index, json_t *map)
{
	const char *tensor, *name;
	json_t *v;
	char *path;
	int rc, missing;

	json_object_foreach(map, tensor, v) {
		if ((name = json_string_value(v)) == NULL || !is_name(name))
			return BAD(st, index, "%s is not mapped to a file in this folder", tensor);
		if (has_shard(st, name))
			continue;
		if ((path = model_file_path(dir, name)) == NULL)
			return FAIL(st, MODEL_ENOMEM, index, "out of memory");
		missing = !file_is_there(path);
		free(path);
		if (missing)
			return FAIL(st, MODEL_EIO, index, "missing shard %s: the download is not "
			    "complete", name);
		if ((rc = safetensors_add(st, dir, name)) != MODEL_OK)
			return rc;
	}
	return MODEL_OK;
}

/* Where the map says that the tensor is, or NULL */
static const char *
mapped_to(json_t *map, const char *name)
{
	return json_string_value(json_object_get(map, name));
}

static int
is_mapped_here(json_t *map, const struct tensor *t)
{
	const char *where = mapped_to(map, t->name);

	return where != NULL && strcmp(strrchr(t->file, '/') + 1, where) == 0;
}

static int
same_tensor(const struct tensor *a, const struct tensor *b)
{
	return strcmp(a->type, b->type) == 0 && a->ndim == b->ndim &&
	    memcmp(a->dim, b->dim, a->ndim * sizeof *a->dim) == 0 && a->bytes == b->bytes &&
	    memcmp(a->data, b->data, a->bytes) == 0;
}

/* a and b have the same name. Returns MODEL_OK when one of them, *keep, will do. */
static int
choose(struct tensor_set *st, json_t *map, const struct tensor *a, const struct tensor *b,
    const struct tensor **keep)
{
	*keep = is_mapped_here(map, b) ? b : a;
	if (same_tensor(a, b))
		return MODEL_OK;
	if (is_mapped_here(map, *keep) && name_list_matches(&st->overrides->tensors, a->name))
		return MODEL_OK;
	return BAD_TENSOR(st, a, "%s has it, too, with other values%s", b->file,
	    is_mapped_here(map, *keep) ? " (--allow-tensor NAME takes that of the index)" :
	    ": save the model again with one of them");
}

/* One of each name stays, of the sorted tensors. */
static int
drop_doubles(struct tensor_set *st, const char *index, json_t *map)
{
	struct some doubles = { 0 };
	const struct tensor *keep;
	size_t i, n = 0;
	int rc;

	for (i = 0; i < st->n; i++) {
		if (n == 0 || strcmp(st->tensor[n - 1].name, st->tensor[i].name) != 0) {
			st->tensor[n++] = st->tensor[i];
			continue;
		}
		rc = choose(st, map, &st->tensor[n - 1], &st->tensor[i], &keep);
		if (rc != MODEL_OK)
			return rc;
		st->tensor[n - 1] = *keep;
		count_one(&doubles, st->tensor[n - 1].name);
	}
	st->n = n;
	if (doubles.n > 0)
		notice(&st->overrides->notice, "%s: tensors in two shards, of which one is used: "
		    "%zu (%s%s)", index, doubles.n, doubles.first, doubles.n > 1 ? ", ..." : "");
	return MODEL_OK;
}

/* Says where the map lags behind the shards. */
static void
compare_map(struct tensor_set *st, const char *index, json_t *map)
{
	struct some lags = { 0 };
	const char *name;
	json_t *v;
	size_t i;

	for (i = 0; i < st->n; i++)
		if (!is_mapped_here(map, &st->tensor[i]))
			count_one(&lags, st->tensor[i].name);
	json_object_foreach(map, name, v)
		if (safetensors_find(st, name) == NULL)
			count_one(&lags, name);
	if (lags.n > 0)
		notice(&st->overrides->notice, "%s: the index is wrong and the shards are used: "
		    "%zu %s (%s%s)", index, lags.n, lags.n > 1 ? "tensors" : "tensor", lags.first,
		    lags.n > 1 ? ", ..." : "");
}

static void
sort_tensors(struct tensor_set *st)
{
	if (st->n > 0)
		qsort(st->tensor, st->n, sizeof *st->tensor, safetensors_by_name);
}

static int
add_indexed(struct tensor_set *st, const char *dir, const char *path)
{
	json_t *json, *map;
	int rc;

	if ((rc = model_file_json(path, &json, st->err, st->errlen)) != MODEL_OK)
		return rc;
	map = json_object_get(json, "weight_map");
	if (!json_is_object(map))
		rc = BAD(st, path, "no weight_map");
	else if ((rc = add_mapped_shards(st, dir, path, map)) == MODEL_OK) {
		sort_tensors(st);
		if ((rc = drop_doubles(st, path, map)) == MODEL_OK)
			compare_map(st, path, map);
	}
	json_decref(json);
	return rc;
}

/* A single file comes first, as in Hugging Face's loader. */
int
safetensors_add_folder(struct tensor_set *st, const char *dir)
{
	char *single = model_file_path(dir, SINGLE), *index = model_file_path(dir, INDEX);
	int rc;

	if (single == NULL || index == NULL)
		rc = FAIL(st, MODEL_ENOMEM, dir, "out of memory");
	else if (file_is_there(single)) {
		if ((rc = safetensors_add(st, dir, SINGLE)) == MODEL_OK)
			sort_tensors(st);
	} else if (file_is_there(index))
		rc = add_indexed(st, dir, index);
	else if ((rc = model_folder_without_weights(dir, st->err, st->errlen)) == MODEL_OK)
		rc = FAIL(st, MODEL_EIO, dir, "no " SINGLE " and no " INDEX);
	free(single);
	free(index);
	return rc;
}
