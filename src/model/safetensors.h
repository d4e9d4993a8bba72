/* safetensors.h - the tensors of a model folder, mapped
 *
 * Errors are MODEL_* codes of model.h. */
#ifndef KVPIPE_SAFETENSORS_H
#define KVPIPE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "libkvfile/dtype.h"
#include "model/overrides.h"
#include "ops/weight_type.h"

enum { TENSOR_DIMENSIONS = 8 };

struct checkpoint_matrix;

/* One tensor of the folder. */
struct tensor {
	const char *name;
	const void *data;                       /* in a mapping, or copy */
	void *copy;                             /* NULL where data lies as it is computed with */
	enum kv_dtype dtype;                    /* 0: no elements that we compute with */
	enum weight_type weight;                /* dtype, or blocks of a GGUF file; 0: neither */
	unsigned ndim;
	uint64_t dim[TENSOR_DIMENSIONS];
	uint64_t bytes;
	/* dtype as the file calls it: "BF16"; dtype is 0 when we have no such type */
	const char *type;
	const char *file;                       /* path of the file it is in, for messages */
	/* A GGUF file has some otherwise than they are computed with: the rows of so many heads in
	 * turns, first and second half of each; 0: they lie as they are used */
	uint32_t interleaved;
	int plus_one;                           /* norm weights, with the 1 that a family adds */
	/* a matrix that has to be made of others first, checkpoint.h; NULL: its data are there */
	const struct checkpoint_matrix *quantised;
};

/* The tensors of a folder or of a GGUF file, in their mapped files, sorted by name (bytes) */
struct tensor_set;

/* Maps model.safetensors or, where there is none, the shards that model.safetensors.index.json
 * names; of a GGUF file in place of a folder that file, and the other parts of a split one
 * (gguf_tensors.h), with the names that a folder would have. Returns MODEL_* and writes a message
 * that names the file (and tensor, offset) into err. Every header is checked against its file:
 * JSON, dtypes, shape x size = data_offsets, no overlap, no hole, nothing outside. Tensors of
 * dtypes other than f32, f16, bf16 are an error only when asked for. What an index says otherwise
 * than the shards is a notice, and so is a tensor in two shards with the same bytes, or one that
 * has to be copied because it is not aligned. */
int safetensors_open(const char *dir, const struct overrides *, struct tensor_set **out, char *err,
    size_t errlen);
/* As safetensors_open(), for one file of a folder. */
int safetensors_open_file(const char *dir, const char *name, const struct overrides *,
    struct tensor_set **out, char *err, size_t errlen);
void safetensors_close(struct tensor_set *);                  /* NULL allowed */
/* NULL when there is none. */
const struct tensor *safetensors_find(const struct tensor_set *, const char *name);
size_t safetensors_count(const struct tensor_set *);
const struct tensor *safetensors_at(const struct tensor_set *, size_t i);
/* What the first file says of itself under this key; NULL when it says nothing. */
const char *safetensors_metadata(const struct tensor_set *, const char *key);
/* The path of file i, in the order in which they were opened, which is tensor.file of what is in
 * it; NULL past the end. *opened <- what it was before it was read; NULL: not wanted. */
const char *safetensors_file(const struct tensor_set *, size_t i, struct stat *opened);

#endif
