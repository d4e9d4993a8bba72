/* gguf.h - the container of llama.cpp's models: metadata and a directory of tensors, mapped
 *
 * Versions 2 and 3, little-endian. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_GGUF_H
#define KVPIPE_GGUF_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "model/gguf_type.h"

enum { GGUF_DIMENSIONS = 4 };

enum gguf_kind {
	GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
	GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
	GGUF_KINDS
};

/* A value of the metadata. */
struct gguf_value {
	char *key;
	enum gguf_kind kind;            /* GGUF_ARRAY: of count values of kind `of` */
	enum gguf_kind of;
	uint64_t count;                 /* bytes of a string */
	const uint8_t *data;            /* in the mapping, not aligned */
};

struct gguf_tensor {
	char *name;
	const struct ggml_type *type;
	unsigned ndim;
	uint64_t dim[GGUF_DIMENSIONS];  /* as in the file: the innermost first */
	uint64_t bytes;
	const uint8_t *data;
};

struct gguf {
	char *path;
	const uint8_t *map;
	size_t size;
	struct stat opened;             /* what the file was before it was read */
	struct gguf_value *value;       /* [values] sorted by key */
	size_t values;
	struct gguf_tensor *tensor;     /* [tensors] in the order of the file */
	size_t tensors;
};

/* Is this a regular file that begins as GGUF files do? */
int gguf_is(const char *path);

/* Maps a file and checks all of its metadata and its directory against its size: counts, lengths,
 * types, dimensions, offsets, overlaps, keys and names that are there twice. */
int gguf_open(const char *path, struct gguf **out, char *err, size_t errlen);
/* As gguf_open(), for a model: another part of a split one than the first is refused. */
int gguf_open_model(const char *path, struct gguf **out, char *err, size_t errlen);
void gguf_close(struct gguf *);                        /* NULL allowed */

/* NULL when there is none. */
const struct gguf_value *gguf_find(const struct gguf *, const char *key);

/* Each reads one value. Returns MODEL_OK, with *out unchanged where the key is absent, or
 * MODEL_EINVALID for a value of another kind. A whole number may be of any integer type, and an
 * array of equal ones (one for each layer) counts as one. */
int gguf_whole(const struct gguf *, const char *key, uint64_t *out, char *err, size_t errlen);
/* An f32 becomes the number that its shortest decimal says: 1e-05, not 9.99999975e-06. */
int gguf_real(const struct gguf *, const char *key, double *out, char *err, size_t errlen);
int gguf_flag(const struct gguf *, const char *key, int *out, char *err, size_t errlen);
/* text[len] in the mapping: no zero byte behind it, and none in it */
int gguf_text(const struct gguf *, const char *key, const char **text, size_t *len, char *err,
    size_t errlen);
/* *out <- an array of this kind; NULL where the key is absent. */
int gguf_array(const struct gguf *, const char *key, enum gguf_kind of,
    const struct gguf_value **out, char *err, size_t errlen);

/* Element i of an array of whole numbers, and of f32. */
int64_t gguf_whole_at(const struct gguf_value *, uint64_t i);
float gguf_f32_at(const struct gguf_value *, uint64_t i);
/* The string at *at, which goes on to the next; first: the array's data. */
const char *gguf_next_text(const uint8_t **at, size_t *len);

/* The number that the shortest decimal of an f32 says. */
double gguf_shortest(float);

#endif
