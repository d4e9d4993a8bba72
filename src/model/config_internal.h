/* config_internal.h - what the parts of the configuration reader share
 *
 * config.c reads sizes, config_kind.c what a model is, config_keys.c judges keys, config_rope.c
 * reads rotary embedding, config_latent.c latent attention, config_window.c windows, config_scale.c
 * multipliers, config_experts.c mixtures of experts, config_wrapper.c takes the text part of a
 * model, checkpoint_config.c reads how weights are quantised. Included by them only. */
#ifndef KVPIPE_CONFIG_INTERNAL_H
#define KVPIPE_CONFIG_INTERNAL_H

#include <jansson.h>

#include "model/family.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/overrides.h"

struct config {
	const char *path;       /* of the file at hand */
	json_t *json;
	const struct overrides *overrides;
	const struct family *family;
	char *err;
	size_t errlen;
};

#define FAIL(c, code, ...) model_file_fail((c)->err, (c)->errlen, code, (c)->path, __VA_ARGS__)
#define BAD(c, ...) FAIL(c, MODEL_EINVALID, __VA_ARGS__)
#define UNSUPPORTED(c, ...) FAIL(c, MODEL_EUNSUPPORTED, __VA_ARGS__)
#define REQUIRED UINT32_MAX             /* in place of a default */

/* ---- values: config_values.c ---- */

/* Adds to the message of a refusal that --allow-config passes over the key; "rope_scaling.KEY" is
 * one of an object. Nothing where rc is none, or the message has such words already. Returns rc. */
int config_hint(struct config *, const char *key, int rc);

/* NULL where it is absent or null, which is the same in Hugging Face's configurations. */
json_t *config_get(const json_t *object, const char *key);
/* A whole number, 1 to max; fallback, or REQUIRED, where it is absent. */
int config_count(struct config *, const json_t *object, const char *key, uint32_t max,
    uint32_t fallback, uint32_t *out);
/* A real number above 0, from min to max; *out stays as it is when there is none. */
int config_real(struct config *, const json_t *object, const char *key, double min, double max,
    double *out);
/* true or false; *out stays as it is when there is none. */
int config_flag(struct config *, const json_t *object, const char *key, int *out);
/* v as JSON text for a message, cut to size. Returns text. */
const char *config_show(const json_t *v, char *text, size_t size);
/* Is v this JSON? 1 and 1.0 are the same. */
int config_has(const json_t *v, const char *only);

/* ---- the parts ---- */

/* Takes the keys of the overrides out of c->json; "rope_scaling.KEY" is one of an object. */
void config_pass_over(struct config *);
/* Where the model also sees images and its text part is one of ours: c->json <- the configuration
 * of that part, and *wrapped 1 */
int config_unwrap(struct config *, int *wrapped);
/* c->family <- the family, or what it is instead */
int config_kind(struct config *);
/* Is it the family's causal language model, in letters of any case? */
int config_is_class(const struct config *, const char *name);
/* Every key is understood, harmless, or refused. */
int config_check_keys(struct config *);
/* The rope fields of id, which are zero before. */
int config_rope(struct config *, struct model *);
/* The windows of id, behind the rope fields. */
int config_window(struct config *, struct model *);
/* The mixture of experts of m, behind the sizes. config_experts_key(): is the key one of it? */
int config_experts(struct config *, struct model *);
int config_experts_key(const struct config *, const char *name);
/* Multipliers and softcaps of m and its id. */
int config_multipliers(struct config *, struct model *);
/* Has queries multiplied so that logits are q.k times this in place of 1/sqrt(E). */
void config_scale_queries(struct model *, double attention);
/* The widths of multi-head latent attention, in place of the head width; and, after
 * config_rope(), the scale of its logits. */
int config_latent(struct config *, struct model *);
int config_latent_scale(struct config *, struct model *);

#endif
