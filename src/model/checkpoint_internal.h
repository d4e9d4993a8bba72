/* checkpoint_internal.h - what the schemes of quantised matrices share
 *
 * Included by checkpoint*.c only. */
#ifndef KVPIPE_CHECKPOINT_INTERNAL_H
#define KVPIPE_CHECKPOINT_INTERNAL_H

#include <stdint.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/model.h"
#include "model/model_files.h"

/* What find() is looking through */
struct checkpoint_search {
	const struct checkpoint_config *config;
	const struct tensor_set *files;
	const char *name;               /* of the matrix: "model.layers.0.mlp.up_proj.weight" */
	char *err;
	size_t errlen;
};

/* A piece of a matrix: x[n][cols] <- rows from `row` on, before they are rounded */
struct checkpoint_piece {
	uint32_t row, n;
	float *x;
	float *scratch;                 /* [scratch of the scheme] */
};

struct checkpoint_scheme {
	const char *name;               /* for messages */
	/* a tensor beside or in place of NAME.weight, without which the matrix is plain */
	int (*has)(const struct checkpoint_search *);
	/* Fills m->at, m->way and what else numbers() needs; checks shapes. Returns MODEL_* */
	int (*find)(const struct checkpoint_search *, struct checkpoint_matrix *m);
	void (*numbers)(const struct checkpoint_matrix *, const struct checkpoint_piece *);
	/* floats that numbers() wants for n rows */
	size_t (*scratch)(const struct checkpoint_matrix *, uint32_t n);
};

extern const struct checkpoint_scheme checkpoint_grid, checkpoint_gptq, checkpoint_awq,
    checkpoint_nf4;

enum { PART_NAME = 200 };       /* bytes of a name, at most */

/* The tensor called as the matrix, with what in place of "weight"; NULL: none. */
const struct tensor *checkpoint_part(const struct checkpoint_search *, const char *what);
/* *out <- the same, which must be there, of a type and shape: dim 0 where it has fewer dimensions.
 * type "scale": F32, F16 or BF16. */
int checkpoint_need(const struct checkpoint_search *, const char *what, const char *type,
    uint64_t rows, uint64_t cols, const struct tensor **out);
/* Writes the message "FILE: NAME: ..." about a part; returns MODEL_EINVALID. */
int checkpoint_bad(const struct checkpoint_search *, const struct tensor *, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As checkpoint_bad(), about what we do not compute; returns MODEL_EUNSUPPORTED. */
int checkpoint_unsupported(const struct checkpoint_search *, const struct tensor *,
    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Each column's group, NAME.WHAT of I32 [cols], must be below groups. NULL: there is none */
int checkpoint_groups(const struct checkpoint_search *, const char *what, uint32_t cols,
    uint32_t groups, const struct tensor **out);

static inline uint64_t
checkpoint_ceil(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

/* Word i of a tensor of 32-bit integers, which may be unaligned */
static inline uint32_t
checkpoint_word(const struct tensor *t, size_t i)
{
	uint32_t w;

	memcpy(&w, (const uint8_t *)t->data + 4 * i, sizeof w);
	return w;
}

#endif
