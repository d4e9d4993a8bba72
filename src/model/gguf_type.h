/* gguf_type.h - the types of tensors in GGUF files
 *
 * Numbers, names, and sizes of blocks are those of ggml (ggml.h, ggml-common.h). */
#ifndef KVPIPE_GGUF_TYPE_H
#define KVPIPE_GGUF_TYPE_H

#include <stdint.h>

#include "ops/weight_type.h"

struct ggml_type {
	const char *name;               /* "F16", "Q4_K" */
	uint32_t block, bytes;          /* numbers of a block, and its bytes */
	enum weight_type weight;        /* 0: we do not compute with it */
};

/* NULL: no such type. */
const struct ggml_type *ggml_type(uint32_t number);

#endif
