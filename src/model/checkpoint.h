/* checkpoint.h - matrices that a folder has in fewer bits, as quantisers of Hugging Face's models
 * save them
 *
 * They are computed with as copies in bf16. Each number is first what the scheme's own program
 * makes of it, with its order of operations and the type it rounds to, and is then rounded to bf16:
 * what torch's .to(bfloat16) gives of that program's result. checkpoint_grid.c, checkpoint_gptq.c,
 * checkpoint_awq.c and checkpoint_nf4.c say which program that is.
 *
 * Internal to model/. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_CHECKPOINT_H
#define KVPIPE_CHECKPOINT_H

#include "model/safetensors.h"

enum checkpoint_method {
	CHECKPOINT_PLAIN,               /* no matrix is quantised */
	CHECKPOINT_FP8, CHECKPOINT_COMPRESSED, CHECKPOINT_GPTQ, CHECKPOINT_AWQ, CHECKPOINT_NF4
};

/* How matrices of a folder may be quantised */
struct checkpoint_way {
	int is_float, packed;           /* FP8, else integers; several codes in a word of 32 bits */
	uint32_t bits;
	/* rows and columns that have one scale; 0: all */
	uint32_t block_rows, block_cols;
	int has_zeros;                  /* zero points that are not given by the bits */
};

enum { CHECKPOINT_WAYS = 8 };

/* quantization_config of a folder */
struct checkpoint_config {
	enum checkpoint_method method;
	/* of compressed-tensors several, else one */
	struct checkpoint_way way[CHECKPOINT_WAYS];
	size_t ways;
	int any_bits;                   /* GPTQ: modules may have bits and groups of their own */
	int zeros_less_1;               /* GPTQ: zero points are stored less 1 */
	/* activations, or the cache, are quantised where the model comes from: there are scales */
	int activations, cache;
};

struct checkpoint_scheme;

/* The tensors that a quantised matrix is made of. NULL: it has none */
struct checkpoint_parts {
	const struct tensor *codes, *scales, *zeros;
	const struct tensor *group;             /* the group of each column */
	const struct tensor *shape;             /* compressed-tensors */
	const struct tensor *map;               /* bitsandbytes; else a table that says nothing */
	/* bitsandbytes: of scales that are quantised, too, and what describes all */
	const struct tensor *scale_scales, *scale_map, *state;
};

/* A quantised matrix of a folder: [rows][cols] */
struct checkpoint_matrix {
	struct tensor tensor;           /* what it is computed with: bf16, without data */
	const struct checkpoint_scheme *scheme;
	struct checkpoint_way way;
	struct checkpoint_parts at;
	uint32_t rows, cols;
	uint32_t scale_cols;            /* scales of a row */
	int zeros_less_1;
	enum kv_dtype rounded;          /* what the scheme's program rounds numbers to */
	/* bitsandbytes: numbers with one scale, scales with one of their own, and what is added */
	uint32_t block, scale_block;
	float scale_offset;
};

/* Has the folder a quantised matrix of this name, "...weight"? */
int checkpoint_has(const struct checkpoint_config *, const struct tensor_set *, const char *name);
/* *m <- the matrix of this name, "...weight", [rows][cols]; m->tensor is what the loader binds.
 * Tensors and shapes are checked, values are not but group numbers. */
int checkpoint_find(const struct checkpoint_config *, const struct tensor_set *, const char *name,
    uint32_t rows, uint32_t cols, struct checkpoint_matrix *m, char *err, size_t errlen);
/* out[n][cols] bf16 <- rows from `from` on, by this many threads. A number that is not finite is
 * MODEL_EINVALID and named. */
int checkpoint_rows(const struct checkpoint_matrix *m, uint32_t from, uint32_t n, unsigned threads,
    uint16_t *out, char *err, size_t errlen);
/* Marks the tensors of the matrix in needed[tensors of files]. */
void checkpoint_mark(const struct checkpoint_matrix *, const struct tensor_set *,
    uint8_t *needed);
/* Is it a scale of activations or of a cache, which the configuration has said are quantised? */
int checkpoint_passes_over(const struct checkpoint_config *, const struct tensor *);
/* "FP8", "GPTQ": for messages */
const char *checkpoint_name(enum checkpoint_method);

#endif
