/* safetensors_internal.h - what the parts of the reader of tensors share
 *
 * safetensors.c reads one file, safetensors_shards.c finds those of a folder, gguf_tensors.c reads
 * llama.cpp's files. Included by them only. */
#ifndef KVPIPE_SAFETENSORS_INTERNAL_H
#define KVPIPE_SAFETENSORS_INTERNAL_H

#include <jansson.h>

#include "model/model.h"
#include "model/model_files.h"
#include "model/safetensors.h"

struct shard {
	char *path;
	const char *name;               /* last component of path */
	const uint8_t *map;
	size_t size;
	struct stat opened;             /* what it was before it was read */
	json_t *header;                 /* owns the tensors' names and types; NULL of a GGUF file */
	char **names;                   /* [n_names] or NULL: names that are the shard's */
	size_t n_names;
};

struct tensor_set {
	struct shard *shard;
	size_t shards;
	struct tensor *tensor;          /* [n], sorted by name once all shards are there */
	size_t n;
	const struct overrides *overrides;      /* while opening */
	char *err;                      /* while opening */
	size_t errlen;
};

/* Messages about a file, and about a tensor in it. */
#define FAIL(st, code, file, ...) model_file_fail((st)->err, (st)->errlen, code, file, __VA_ARGS__)
#define BAD(st, file, ...) FAIL(st, MODEL_EINVALID, file, __VA_ARGS__)
#define BAD_TENSOR(st, t, fmt, ...) BAD(st, (t)->file, "%s: " fmt, (t)->name, ##__VA_ARGS__)

/* Maps a file of the folder and appends its tensors. */
int safetensors_add(struct tensor_set *, const char *dir, const char *name);
/* Adds the files of a model; the tensors are sorted by name then, and each name is there once. */
int safetensors_add_folder(struct tensor_set *, const char *dir);
/* Compares names, for qsort() and bsearch(). */
int safetensors_by_name(const void *a, const void *b);

#endif
