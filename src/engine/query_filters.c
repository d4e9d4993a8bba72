/* query_filters.c - loads Q-Filters */
#include <stdlib.h>

#include "engine/query_filters.h"
#include "engine/tensor_file.h"

static int
take(struct query_filters *f, const struct tensor *t, struct engine_error *e)
{
	const size_t n = tensor_elements(t);

	f->layers = (uint32_t)t->dim[0];
	f->heads = (uint32_t)t->dim[1];
	f->width = (uint32_t)t->dim[2];
	if ((f->at = engine_alloc(n, sizeof *f->at, e)) == NULL)
		return e->code;
	kv_to_f32(f->at, t->data, t->dtype, n);
	tensor_file_hash(f->hash, &t, 1);
	return ENGINE_OK;
}

int
query_filters_load(struct query_filters *out, const char *path, struct engine_error *e)
{
	struct tensor_set *files;
	const struct tensor *t;
	int rc;

	*out = (struct query_filters){ .path = path };
	if ((rc = tensor_file_open(&files, path, e)) == ENGINE_OK)
		rc = tensor_file_find(files, path, "q_filters", 3,
		    "layers, KV heads and head width", &t, e);
	if (rc == ENGINE_OK)
		rc = take(out, t, e);
	safetensors_close(files);
	return rc;
}

void
query_filters_free(struct query_filters *f)
{
	free(f->at);
	f->at = NULL;
}
