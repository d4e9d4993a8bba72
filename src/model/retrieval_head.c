/* retrieval_head.c - the tensors of a retrieval head: checked against a model, and on its device
 *
 * As in adapter.c, two passes over the same list of tensors: the first checks names and shapes and
 * adds up sizes, the second copies. A matrix that is multiplied with [e; f] becomes two, and fc
 * three, so that nothing has to be put side by side at each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/made_for.h"
#include "model/model_files.h"
#include "model/retrieval_head.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"
#include "ops/device_block.h"

#define TENSORS "model.safetensors"
#define OURS "kvpipe_retrieval_head"
#define TARGET "target_weights"

struct head_loader {
	struct retrieval_head *h;
	const struct overrides *overrides;      /* no_overrides while binding to the device */
	struct device_block block;
	char *err;
	size_t errlen;
};

#define FAIL(ld, code, file, ...) model_file_fail((ld)->err, (ld)->errlen, code, file, __VA_ARGS__)

/* ---- the configuration ---- */

/* What draft checkpoints have in config.json besides the shape of a Llama. None of it changes
 * queries and keys: the vocabulary of the draft, how it was trained, what it is called. */
static const char *const passed[] = {
	"architectures", "draft_vocab_size", "eagle_config", "target_hidden_size",
	"target_model_type",
	"speculators_config", OURS
};

/* The layers that features come from: EAGLE-3's, where the configuration does not say. */
static int
read_layers(struct head_loader *ld, const char *path, const json_t *list)
{
	struct retrieval_head *h = ld->h;
	const uint32_t L = h->model->id.layers;
	json_int_t layer, last = -1;
	size_t i;

	if (list == NULL && L < 7)
		return FAIL(ld, MODEL_EINVALID, path, "no \"feature_layers\": those of EAGLE-3 (2, "
		    "L/2, L - 3) need 7 layers, the model has %u", L);
	for (i = 0; i < HEAD_FEATURES; i++) {
		const json_t *v = json_array_get(list, i);

		layer = list != NULL ? json_integer_value(v) :
		    (json_int_t[HEAD_FEATURES]){ 2, L / 2, L - 3 }[i];
		if (list != NULL && (json_array_size(list) != HEAD_FEATURES ||
		    !json_is_integer(v) || layer <= last || layer >= L))
			return FAIL(ld, MODEL_EINVALID, path, "\"feature_layers\" are not %d "
			    "ascending layers of %u", HEAD_FEATURES, L);
		h->feature_layer[i] = (uint32_t)(last = layer);
	}
	return MODEL_OK;
}

/* What is ours: the weights it was trained for, and where its features come from. */
static int
read_ours(struct head_loader *ld)
{
	const struct model *m = ld->h->model;
	char *path = model_file_path(ld->h->dir, "config.json");
	const json_t *own;
	json_t *json;
	int rc;

	if (path == NULL)
		return FAIL(ld, MODEL_ENOMEM, ld->h->dir, "out of memory");
	if ((rc = model_file_json(path, &json, ld->err, ld->errlen)) == MODEL_OK) {
		own = json_object_get(json, OURS);
		rc = made_for(json_object_get(own, TARGET), TARGET, path, m,
		    &ld->h->by_samples, ld->err, ld->errlen);
		if (rc == MODEL_OK && ld->h->has_features)
			rc = read_layers(ld, path, json_object_get(own, "feature_layers"));
		json_decref(json);
	}
	free(path);
	return rc;
}

/* Reads the configuration without the keys of `passed` and those of the overrides. */
static int
read_config(struct head_loader *ld, struct model *config)
{
	const struct name_list *more = &ld->overrides->keys;
	const size_t own = sizeof passed / sizeof *passed;
	const char **at = calloc(own + more->n, sizeof *at);
	struct overrides o = *ld->overrides;
	unsigned char *there = calloc(own + more->n, 1);
	size_t i;
	int rc;

	if (at == NULL || there == NULL)
		rc = FAIL(ld, MODEL_ENOMEM, ld->h->dir, "out of memory");
	else {
		memcpy(at, passed, sizeof passed);
		for (i = 0; i < more->n; i++)
			at[own + i] = more->at[i];
		o.keys = (struct name_list){ at, own + more->n, there };
		rc = model_config(ld->h->dir, &o, config, ld->err, ld->errlen);
		for (i = 0; i < more->n && more->there != NULL; i++)
			more->there[i] |= there[own + i];
	}
	free(at);
	free(there);
	return rc;
}

/* The shape: that of a Llama of one layer. */
static int
read_shape(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	const struct kv_model *target = &h->model->id, *id = &h->shape;
	struct model *config = calloc(1, sizeof *config);
	int rc;

	if (config == NULL)
		return FAIL(ld, MODEL_ENOMEM, h->dir, "out of memory");
	if ((rc = read_config(ld, config)) == MODEL_OK) {
		h->shape = config->id;
		h->max_position = config->max_position;
	}
	free(config);
	if (rc != MODEL_OK)
		return rc;
	if (strcmp(id->architecture, "llama") != 0 || id->attention_bias ||
	    id->rope_type == KV_ROPE_LONGROPE)
		return FAIL(ld, MODEL_EUNSUPPORTED, h->dir, "a retrieval head of type %s%s%s is "
		    "not supported: want a layer of Llama", id->architecture,
		    id->attention_bias ? ", with attention_bias" : "",
		    id->rope_type == KV_ROPE_LONGROPE ? ", with longrope" : "");
	if (id->query_heads % target->kv_heads != 0)
		return FAIL(ld, MODEL_EMISMATCH, h->dir, "%u query heads for the %u KV heads of "
		    "%s: want a multiple", id->query_heads, target->kv_heads, h->model->dir);
	h->D = id->hidden;
	h->H = id->query_heads;
	h->G = id->kv_heads;
	h->E = id->head_width;
	return MODEL_OK;
}

/* ---- the tensors ---- */

/* Looks a tensor up that must be there, [rows][cols]. */
static int
need(struct head_loader *ld, const char *name, uint32_t rows, uint32_t cols,
    const struct tensor **out)
{
	return tensor_need(ld->h->files, safetensors_at(ld->h->files, 0)->file, name, rows, cols,
	    out, ld->err, ld->errlen);
}

/* *w <- the `in` columns from `first` on of a matrix of `out` rows */
static void
take_columns(struct head_loader *ld, const struct tensor *t, uint32_t first, uint32_t in,
    struct mat *w)
{
	const size_t element = kv_dtype_size(t->dtype), row = in * element;
	const uint32_t out = (uint32_t)t->dim[0];
	const size_t all = (size_t)t->dim[1] * element;
	void *host, *device;
	uint32_t i;

	device_block_reserve(&ld->block, out * row, &host, &device);
	for (i = 0; host != NULL && i < out; i++)
		memcpy((char *)host + i * row, (const char *)t->data + i * all + first * element,
		    row);
	*w = (struct mat){ device, weight_type_of(t->dtype), out, in };
}

static int
take_norm(struct head_loader *ld, const char *name, struct norm *norm)
{
	const struct retrieval_head *h = ld->h;
	const struct tensor *t;
	void *host, *device;
	int rc = need(ld, name, h->D, 0, &t);

	if (rc != MODEL_OK)
		return rc;
	device_block_reserve(&ld->block, h->D * sizeof(float), &host, &device);
	if (host != NULL)
		kv_to_f32(host, t->data, t->dtype, h->D);
	*norm = (struct norm){ .w = device, .eps = (float)h->shape.norm_eps };
	return MODEL_OK;
}

/* Of queries or keys */
static int
take_projection(struct head_loader *ld, const char *name, uint32_t out, struct mat *w,
    struct mat *w_feature)
{
	const struct retrieval_head *h = ld->h;
	const struct tensor *t;
	int rc = need(ld, name, out, h->has_features ? 2 * h->D : h->D, &t);

	if (rc != MODEL_OK)
		return rc;
	take_columns(ld, t, 0, h->D, w);
	if (h->has_features)
		take_columns(ld, t, h->D, h->D, w_feature);
	return MODEL_OK;
}

static int
take_features(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	const uint32_t from = h->model->id.hidden;
	const struct tensor *t;
	unsigned i;
	int rc;

	if (!h->has_features)
		return MODEL_OK;
	if ((rc = take_norm(ld, "midlayer.hidden_norm.weight", &h->feature_norm)) != MODEL_OK ||
	    (rc = need(ld, "fc.weight", h->D, HEAD_FEATURES * from, &t)) != MODEL_OK)
		return rc;
	for (i = 0; i < HEAD_FEATURES; i++)
		take_columns(ld, t, i * from, from, &h->fc[i]);
	return MODEL_OK;
}

static int
take_embedding(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	const struct mat *embed = &h->model->embed;
	const struct tensor *t = safetensors_find(h->files, "embed_tokens.weight");
	int rc;

	if (t == NULL) {
		if (h->D != h->model->id.hidden)
			return FAIL(ld, MODEL_EMISMATCH, h->dir, "no embed_tokens.weight, and the "
			    "embedding of %s has width %u, not %u", h->model->dir,
			    h->model->id.hidden, h->D);
		h->embed = *embed;
		return MODEL_OK;
	}
	if ((rc = need(ld, "embed_tokens.weight", h->model->id.vocabulary, h->D, &t)) != MODEL_OK)
		return rc;
	take_columns(ld, t, 0, h->D, &h->embed);
	return MODEL_OK;
}

static void
take_frequencies(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	const double factor = h->shape.rope_attention_factor;
	void *host, *device;

	device_block_reserve(&ld->block, h->E / 2 * sizeof *h->rope.freq, &host, &device);
	if (host != NULL)
		model_rope_frequencies(&h->shape, host);
	h->rope = (struct rotary){ device, h->shape.rope_width != 0 ? h->shape.rope_width : h->E,
		factor != 0 ? (float)factor : 1, 0 };
}

static int
take_all(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	int rc;

	ld->block.used = 0;
	take_frequencies(ld);
	if ((rc = take_norm(ld, "midlayer.input_layernorm.weight", &h->norm)) != MODEL_OK ||
	    (rc = take_projection(ld, "midlayer.self_attn.q_proj.weight", h->H * h->E, &h->q,
	    &h->q_feature)) != MODEL_OK ||
	    (rc = take_projection(ld, "midlayer.self_attn.k_proj.weight", h->G * h->E, &h->k,
	    &h->k_feature)) != MODEL_OK ||
	    (rc = take_features(ld)) != MODEL_OK || (rc = take_embedding(ld)) != MODEL_OK)
		return rc;
	h->bytes = ld->block.used;
	return MODEL_OK;
}

/* ---- the folder ---- */

/* A projection that is twice as wide as the head has features. */
static int
find_features(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	const struct tensor *t = safetensors_find(h->files, "midlayer.self_attn.k_proj.weight");

	h->has_features = t != NULL && t->ndim == 2 && t->dim[1] == 2 * (uint64_t)h->D;
	return read_ours(ld);
}

/* id <- what keys depend on: the tensors, by a hash, and what the configuration says of them */
static void
name_by(const struct retrieval_head *h, const char *weights, XXH3_state_t *x, char *id)
{
	const float real[] = { (float)h->shape.norm_eps, h->rope.factor };
	const uint32_t whole[] = { h->D, h->H, h->G, h->E, h->has_features != 0 };
	double freq[512];

	model_rope_frequencies(&h->shape, freq);
	XXH3_128bits_reset(x);
	XXH3_128bits_update(x, weights, 32);
	XXH3_128bits_update(x, whole, sizeof whole);
	if (h->has_features)
		XXH3_128bits_update(x, h->feature_layer, sizeof h->feature_layer);
	XXH3_128bits_update(x, real, sizeof real);
	XXH3_128bits_update(x, freq, h->rope.dims / 2 * sizeof *freq);
	model_hash_text(XXH3_128bits_digest(x), id);
}

static int
name_head(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	struct weights_reading reading = h->model->reading;
	XXH3_state_t *x = XXH3_createState();
	char whole[33], sampled[33];
	int rc = MODEL_ENOMEM;

	if (x == NULL)
		FAIL(ld, rc, h->dir, "out of memory");
	else if ((rc = weights_hash(h->files, &reading, whole, ld->err, ld->errlen)) == MODEL_OK &&
	    (rc = weights_hash_sampled(h->files, sampled, ld->err, ld->errlen)) == MODEL_OK) {
		name_by(h, whole, x, h->id);
		name_by(h, sampled, x, h->sampled_id);
	}
	XXH3_freeState(x);
	return rc;
}

static int
read_folder(struct head_loader *ld)
{
	struct retrieval_head *h = ld->h;
	int rc;

	if ((rc = read_shape(ld)) != MODEL_OK ||
	    (rc = safetensors_open_file(h->dir, TENSORS, ld->overrides, &h->files, ld->err,
	    ld->errlen)) != MODEL_OK)
		return rc;
	if (safetensors_count(h->files) == 0)
		return FAIL(ld, MODEL_EINVALID, h->dir, TENSORS " has no tensors");
	if ((rc = find_features(ld)) != MODEL_OK || (rc = take_all(ld)) != MODEL_OK)
		return rc;
	return name_head(ld);
}

int
retrieval_head_open(const char *dir, const struct model *m, const struct overrides *overrides,
    struct retrieval_head **out, char *err, size_t errlen)
{
	struct head_loader ld = { .h = calloc(1, sizeof *ld.h), .overrides = overrides, .err = err,
	    .errlen = errlen };
	int rc;

	*out = NULL;
	if (ld.h == NULL || (ld.h->dir = strdup(dir)) == NULL) {
		free(ld.h);
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	}
	ld.h->model = m;
	rc = read_folder(&ld);
	if (rc == MODEL_OK)
		*out = ld.h;
	else
		retrieval_head_free(ld.h);
	return rc;
}

int
retrieval_head_bind(struct retrieval_head *h, char *err, size_t errlen)
{
	const struct model *m = h->model;
	struct head_loader ld = { .h = h, .overrides = &no_overrides, .err = err,
	    .errlen = errlen };
	const int there = device_block_begin(&ld.block, m->ops, m->dev, h->bytes);
	const char *why;
	int rc = MODEL_ENOMEM;

	h->block = ld.block.device;
	if (!there)
		FAIL(&ld, rc, h->dir, "no room for the %zu bytes of the retrieval head", h->bytes);
	else if ((rc = take_all(&ld)) == MODEL_OK) {
		if ((why = device_block_put(&ld.block, m->ops, m->dev)) != NULL)
			rc = FAIL(&ld, MODEL_EIO, h->dir, "%s", why);
	}
	device_block_end(&ld.block);
	return rc;
}

void
retrieval_head_free(struct retrieval_head *h)
{
	if (h == NULL)
		return;
	if (h->block != NULL)
		h->model->ops->free(h->model->dev, h->block);
	safetensors_close(h->files);
	free(h->dir);
	free(h);
}
