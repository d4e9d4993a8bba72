/* gguf_arch.h - the architectures of GGUF files that we compute, as deviations from Llama
 *
 * What llama.cpp's converter does otherwise than Hugging Face's files have it. */
#ifndef KVPIPE_GGUF_ARCH_H
#define KVPIPE_GGUF_ARCH_H

#include "model/gguf.h"

enum {
	/* rows of queries and keys lie in the order of a rotation of neighbours (2i, 2i + 1) */
	GGUF_INTERLEAVED = 1 << 0,
	GGUF_PLUS_ONE = 1 << 1,         /* norms have the 1 that others add while they run */
	GGUF_SCALES = 1 << 2,           /* Granite's four */
	GGUF_LOGIT_SCALE = 1 << 3,      /* logits are multiplied by logit_scale */
	GGUF_SOFTCAPS = 1 << 4,
	GGUF_WINDOW = 1 << 5,           /* may have attention.sliding_window */
	GGUF_WINDOW_BY_LAYERS = 1 << 6, /* has one with so many layers, where no key says */
	GGUF_OTHER_WITH_WINDOW = 1 << 7, /* with a window it is the model of the next row */
	GGUF_QUERY_SCALAR = 1 << 8,     /* query_pre_attn_scalar, which no key says */
	GGUF_TEMPERATURE = 1 << 9,      /* of queries, by their position */
	GGUF_LAYER_NORM = 1 << 10,
	/* original_max_position_embeddings beside the scaling of rotary embedding */
	GGUF_ORIGINAL_CONTEXT = 1 << 11,
	GGUF_EXPERTS = 1 << 12,         /* expert_count */
	GGUF_ROUTED = 1 << 13,          /* keys of a router of the DeepSeek line */
	GGUF_DENSE_FIRST = 1 << 14,     /* some layers without experts, and an expert for all */
	GGUF_RENORMALISED = 1 << 15,    /* weights of experts are, which no key says */
	/* it is the model of the next row with experts, with an expert for all rows, with scores
	 * that are sigmoids */
	GGUF_OTHER_WITH_EXPERTS = 1 << 16,
	GGUF_OTHER_WITH_SHARED = 1 << 17,
	GGUF_OTHER_WITH_SIGMOID = 1 << 18,
	GGUF_LATENT = 1 << 19,          /* multi-head latent attention */
	GGUF_YARN_EXACT = 1 << 20,      /* yarn's bounds are not rounded, which no key says */
	GGUF_HARMONY = 1 << 21,         /* messages end with <|end|>, and turns otherwise */
	GGUF_EVERY = 1 << 22            /* experts in each so many-th layer */
};

/* Values of expert_gating_func */
enum { GGUF_SOFTMAX = 1, GGUF_SIGMOID = 2 };

struct gguf_arch {
	const char *name;               /* general.architecture */
	const char *model_type;
	unsigned flags;
	/* GGUF_QUERY_SCALAR: with so many it is hidden / heads; GGUF_WINDOW_BY_LAYERS */
	uint32_t layers;
};

/* Finds the architecture. One that we do not compute is MODEL_EUNSUPPORTED, by its name. */
int gguf_architecture(const struct gguf *, const struct gguf_arch **out, char *err, size_t errlen);

/* name[size] <- Hugging Face's name of a tensor; GGUF's where it has none. */
void gguf_hub_name(const struct gguf_arch *, const char *gguf, char *name, size_t size);

#endif
