/* gguf_config_internal.h - what the parts of the reader of a GGUF file's configuration share
 *
 * gguf_config.c reads sizes and keys, gguf_rope.c rotary embedding, gguf_experts.c mixtures of
 * experts, gguf_latent.c latent attention. Included by them only. */
#ifndef KVPIPE_GGUF_CONFIG_INTERNAL_H
#define KVPIPE_GGUF_CONFIG_INTERNAL_H

#include <jansson.h>

#include "model/gguf_arch.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/overrides.h"

struct gguf_reading {
	const struct gguf *g;
	const struct gguf_arch *arch;
	const struct overrides *overrides;
	json_t *json;
	char key[128];                  /* of gguf_key() */
	char *err;
	size_t errlen;
};

#define FAIL(c, code, ...) model_file_fail((c)->err, (c)->errlen, code, (c)->g->path, __VA_ARGS__)
#define BAD(c, ...) FAIL(c, MODEL_EINVALID, __VA_ARGS__)
#define UNSUPPORTED(c, ...) FAIL(c, MODEL_EUNSUPPORTED, __VA_ARGS__)

/* "llama.NAME", valid until the next call */
const char *gguf_key(struct gguf_reading *, const char *name);
/* Do the overrides name the architecture's key? */
int gguf_passed_over(struct gguf_reading *, const char *name);
/* Reads the value of the architecture's key, unless the overrides pass over it: gguf_value.c's
 * rules. */
int gguf_arch_whole(struct gguf_reading *, const char *name, uint64_t *out);
int gguf_arch_real(struct gguf_reading *, const char *name, double *out);
/* object.key <- value */
int gguf_set(struct gguf_reading *, json_t *object, const char *key, json_t *value);
/* config.json's key <- v, or the greatest number that fits */
int gguf_set_whole(struct gguf_reading *, const char *key, uint64_t v);
/* A number of config.json that has been set; 0: none */
uint64_t gguf_number(const struct gguf_reading *, const char *key);
/* NULL: none of that name */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *, const char *name);

/* Keys of rotary embedding: rope_theta, rope_scaling, partial_rotary_factor, and so on. width: of a
 * head, context: max_position_embeddings; 0: not known */
int gguf_rope(struct gguf_reading *, uint64_t width, uint64_t context);
/* Keys of a mixture of experts; without one nothing */
int gguf_experts(struct gguf_reading *);
/* Keys of multi-head latent attention. *rope <- how many channels of a head are rotated */
int gguf_latent(struct gguf_reading *, uint64_t *rope);

#endif
