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
	GGUF_FUSED = 1 << 2,            /* attn_qkv, and ffn_up is gate and up */
	GGUF_NORM_AFTER = 1 << 3,       /* post_attention_norm in place of attn_norm, and so on */
	GGUF_NORM_AROUND = 1 << 4,      /* both */
	GGUF_SCALES = 1 << 5,           /* Granite's four */
	GGUF_SOFTCAPS = 1 << 6,
	GGUF_WINDOW = 1 << 7,           /* may have attention.sliding_window */
	GGUF_QUERY_SCALAR = 1 << 8,     /* query_pre_attn_scalar, which no key says */
	GGUF_EXPERTS = 1 << 9,          /* expert_count, with names of tensors as Qwen's .. */
	GGUF_MIXTRAL = 1 << 10,         /* .. or as Mixtral's, .. */
	GGUF_GRANITE = 1 << 11,         /* .. or as Granite's */
	GGUF_RENORMALISED = 1 << 12     /* weights of experts are, which no key says */
};

struct gguf_arch {
	const char *name;               /* general.architecture */
	const char *model_type;
	unsigned flags;
	uint32_t narrow_layers;         /* GGUF_QUERY_SCALAR: with so many it is hidden / heads */
};

/* Finds the architecture. One that we do not compute is MODEL_EUNSUPPORTED, by its name. */
int gguf_architecture(const struct gguf *, const struct gguf_arch **out, char *err, size_t errlen);

/* name[size] <- Hugging Face's name of a tensor; GGUF's where it has none. */
void gguf_hub_name(const struct gguf_arch *, const char *gguf, char *name, size_t size);

#endif
