/* gguf_tensors.c - the tensors of a GGUF file, or of the parts of a split one, as those of a model
 * folder
 *
 * Under Hugging Face's names and with their order of dimensions; the bytes are those of the file.
 * What stands there otherwise than in a folder is said of the tensor, for who binds it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_arch.h"
#include "model/gguf_tensors.h"
#include "model/safetensors_internal.h"

/* Factors of a rotation: part of the configuration (gguf_rope.c) */
static int
is_of_rope(const char *name)
{
	return strcmp(name, "rope_freqs.weight") == 0 ||
	    strcmp(name, "rope_factors_long.weight") == 0 ||
	    strcmp(name, "rope_factors_short.weight") == 0;
}

static int
ends_with(const char *text, const char *tail)
{
	const size_t n = strlen(text), m = strlen(tail);

	return n >= m && strcmp(text + n - m, tail) == 0;
}

/* The number of heads whose rows lie in turns; 0: they do not. */
static uint32_t
interleaved_heads(const struct gguf_arch *arch, const char *name, uint64_t heads, uint64_t kv_heads)
{
	if (!(arch->flags & GGUF_INTERLEAVED))
		return 0;
	if (strstr(name, ".self_attn.q_proj.") != NULL)
		return (uint32_t)heads;
	return strstr(name, ".self_attn.k_proj.") != NULL ? (uint32_t)kv_heads : 0;
}

/* A tensor of elements has a dtype; name: in memory of the shard */
static void
add_tensor(struct tensor_set *st, const struct shard *sh, const struct gguf_tensor *from,
    const char *name)
{
	struct tensor *t = &st->tensor[st->n++];
	unsigned i;

	*t = (struct tensor){ .name = name, .data = from->data, .weight = from->type->weight,
		.ndim = from->ndim, .bytes = from->bytes, .type = from->type->name,
		.file = sh->path };
	if (from->type->block == 1)
		t->dtype = (enum kv_dtype)from->type->weight;
	for (i = 0; i < t->ndim; i++)
		t->dim[i] = from->dim[t->ndim - 1 - i];
}

/* *heads, *kv_heads <- as the file says; 0: not, or not a number of a model */
static int
read_heads(struct tensor_set *st, const struct gguf *g, const struct gguf_arch *arch,
    uint64_t *heads, uint64_t *kv_heads)
{
	char key[80];
	int rc;

	*heads = 0;
	snprintf(key, sizeof key, "%s.attention.head_count", arch->name);
	if ((rc = gguf_whole(g, key, heads, st->err, st->errlen)) != MODEL_OK)
		return rc;
	*kv_heads = *heads;
	snprintf(key, sizeof key, "%s.attention.head_count_kv", arch->name);
	if ((rc = gguf_whole(g, key, kv_heads, st->err, st->errlen)) != MODEL_OK)
		return rc;
	*heads = *heads > UINT16_MAX ? 0 : *heads;
	*kv_heads = *kv_heads > UINT16_MAX ? 0 : *kv_heads;
	return MODEL_OK;
}

/* What is the same in the parts of a split file */
struct whole {
	const struct gguf_arch *arch;
	uint64_t heads, kv_heads;
};

/* Appends the tensors of a file, whose mapping becomes that of a shard. */
static int
add_file(struct tensor_set *st, struct gguf *g, const struct whole *w)
{
	struct shard *sh = realloc(st->shard, (st->shards + 1) * sizeof *sh);
	struct tensor *t;
	char hub[256];
	size_t i;

	if (sh == NULL)
		return FAIL(st, MODEL_ENOMEM, g->path, "out of memory");
	st->shard = sh;
	sh += st->shards++;
	*sh = (struct shard){ .path = g->path, .name = g->path, .map = g->map, .size = g->size,
		.opened = g->opened };
	g->path = NULL;
	g->map = NULL;
	t = realloc(st->tensor, (st->n + g->tensors + 1) * sizeof *t);
	st->tensor = t != NULL ? t : st->tensor;
	sh->names = calloc(g->tensors + 1, sizeof *sh->names);
	if (t == NULL || sh->names == NULL)
		return FAIL(st, MODEL_ENOMEM, sh->path, "out of memory");
	for (i = 0; i < g->tensors; i++) {
		if (is_of_rope(g->tensor[i].name))
			continue;
		gguf_hub_name(w->arch, g->tensor[i].name, hub, sizeof hub);
		if ((sh->names[i] = strdup(hub)) == NULL)
			return FAIL(st, MODEL_ENOMEM, sh->path, "out of memory");
		sh->n_names = i + 1;
		add_tensor(st, sh, &g->tensor[i], sh->names[i]);
		t = &st->tensor[st->n - 1];
		t->interleaved = interleaved_heads(w->arch, hub, w->heads, w->kv_heads);
		if (t->ndim == 1 && ends_with(hub, ".shared_expert_gate.weight")) {
			t->ndim = 2;            /* a matrix of one row */
			t->dim[1] = t->dim[0];
			t->dim[0] = 1;
		}
		t->plus_one = (w->arch->flags & GGUF_PLUS_ONE) && ends_with(hub, "norm.weight");
	}
	return MODEL_OK;
}

/* ---- split files ---- */

/* *count <- how many parts the model has, 1 where it is not split; *no <- which one this is */
static int
read_split(struct tensor_set *st, const struct gguf *g, uint64_t *count, uint64_t *no)
{
	int rc;

	*count = 1;
	*no = 0;
	if ((rc = gguf_whole(g, "split.count", count, st->err, st->errlen)) != MODEL_OK ||
	    (rc = gguf_whole(g, "split.no", no, st->err, st->errlen)) != MODEL_OK)
		return rc;
	if (*count == 0)
		*count = 1;
	if (*no >= *count || *count > 99999)
		return BAD(st, g->path, "split.no is %" PRIu64 ", split.count %" PRIu64, *no,
		    *count);
	return MODEL_OK;
}

/* *path <- that of part `no` beside the first one, to be freed; NULL: the first is not called so */
static int
part_path(struct tensor_set *st, const char *first, uint64_t no, uint64_t count, char **path)
{
	char tail[40];
	const size_t n = strlen(first);
	size_t m;

	*path = NULL;
	snprintf(tail, sizeof tail, "-00001-of-%05" PRIu64 ".gguf", count);
	m = strlen(tail);
	if (n < m || strcmp(first + n - m, tail) != 0)
		return BAD(st, first, "the first of %" PRIu64 " parts, whose name does not end "
		    "with %s: the others cannot be found", count, tail);
	if (asprintf(path, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)(n - m), first, no + 1,
	    count) == -1) {
		*path = NULL;
		return FAIL(st, MODEL_ENOMEM, first, "out of memory");
	}
	return MODEL_OK;
}

static int
add_part(struct tensor_set *st, const char *path, uint64_t no, uint64_t count,
    const struct whole *w)
{
	uint64_t of, is;
	struct gguf *g;
	int rc = gguf_open(path, &g, st->err, st->errlen);

	if (rc != MODEL_OK)
		return rc;
	if ((rc = read_split(st, g, &of, &is)) == MODEL_OK && (of != count || is != no))
		rc = BAD(st, path, "part %" PRIu64 " of %" PRIu64 " by its keys, and %" PRIu64
		    " of %" PRIu64 " by its name", is + 1, of, no + 1, count);
	if (rc == MODEL_OK)
		rc = add_file(st, g, w);
	gguf_close(g);
	return rc;
}

static int
add_parts(struct tensor_set *st, const char *first, uint64_t count, const struct whole *w)
{
	char *path;
	uint64_t i;
	int rc = MODEL_OK;

	for (i = 1; rc == MODEL_OK && i < count; i++) {
		if ((rc = part_path(st, first, i, count, &path)) != MODEL_OK)
			return rc;
		rc = add_part(st, path, i, count, w);
		free(path);
	}
	return rc;
}

/* The names are sorted: one of each. */
static int
check_names(struct tensor_set *st)
{
	size_t i;

	for (i = 1; i < st->n; i++)
		if (strcmp(st->tensor[i - 1].name, st->tensor[i].name) == 0)
			return BAD(st, st->tensor[i].file, "tensor %s is there twice",
			    st->tensor[i].name);
	return MODEL_OK;
}

/* All tensors of all parts, as the first file counts them */
static int
check_split(struct tensor_set *st, const char *first, uint64_t all, uint64_t found)
{
	if (all == found)
		return MODEL_OK;
	return BAD(st, first, "split.tensors.count is %" PRIu64 ", the parts have %" PRIu64, all,
	    found);
}

int
gguf_tensors_add(struct tensor_set *st, const char *path)
{
	uint64_t count, no, all, rope = 0, i;
	struct whole w;
	struct gguf *g;
	int rc = gguf_open_model(path, &g, st->err, st->errlen);

	if (rc != MODEL_OK)
		return rc;
	if ((rc = gguf_architecture(g, &w.arch, st->err, st->errlen)) == MODEL_OK &&
	    (rc = read_heads(st, g, w.arch, &w.heads, &w.kv_heads)) == MODEL_OK)
		rc = read_split(st, g, &count, &no);
	for (i = 0; rc == MODEL_OK && i < g->tensors; i++)
		rope += is_of_rope(g->tensor[i].name);
	all = UINT64_MAX;
	if (rc == MODEL_OK)
		rc = gguf_whole(g, "split.tensors.count", &all, st->err, st->errlen);
	if (rc == MODEL_OK)
		rc = add_file(st, g, &w);
	gguf_close(g);
	if (rc == MODEL_OK && (rc = add_parts(st, path, count, &w)) == MODEL_OK && count > 1 &&
	    all != UINT64_MAX)
		rc = check_split(st, path, all, st->n + rope);
	if (rc != MODEL_OK)
		return rc;
	if (st->n > 0)
		qsort(st->tensor, st->n, sizeof *st->tensor, safetensors_by_name);
	return check_names(st);
}
