/* adapter.c - the tensors of a LookaheadKV adapter: checked against a model, and on its device
 *
 * As in model.c, two passes over the same list of tensors: the first checks names, shapes and
 * values and adds up sizes, the second binds. All matrices lie in one device block. Those of the
 * first factors stay in their type; the second factors become f32 with alpha / r in them, so that
 * no step of the forward pass has to scale. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/adapter.h"
#include "model/adapter_config.h"
#include "model/family.h"
#include "model/made_for.h"
#include "model/model_files.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"
#include "ops/device_block.h"

#define TENSORS "adapter_model.safetensors"
#define EMBEDDINGS "lookahead.embeddings"

/* What may differ from Llama in a model with an adapter: the forward pass of the learned tokens
 * (forward/lora.h) does the same. Other families are refused, until it does. */
#define ADAPTABLE (FAMILY_ATTENTION_BIAS | FAMILY_MLP_BIAS | FAMILY_QKV_BIAS | \
	FAMILY_ROPE_WIDTH | FAMILY_ROPE_SKIP | FAMILY_WINDOW_SWITCH | FAMILY_NEEDS_KV_HEADS | \
	FAMILY_WINDOW | FAMILY_LAYER_TYPES)

/* Of adapter_linears: gate, up and down */
#define NETWORK_LINEARS (7u << 4)

struct adapter_loader {
	struct adapter *a;
	const struct overrides *overrides;      /* no_overrides while binding to the device */
	uint8_t *needed;        /* [tensors in the file] 1: it was asked for */
	struct device_block block;
	char *err;
	size_t errlen;
};

#define FAIL(ld, code, file, ...) model_file_fail((ld)->err, (ld)->errlen, code, file, __VA_ARGS__)

/* ---- one tensor ---- */

static int
check_finite(struct adapter_loader *ld, const struct tensor *t)
{
	size_t at;

	if (!tensor_not_finite(t, &at))
		return MODEL_OK;
	return FAIL(ld, MODEL_EINVALID, t->file, "%s: value %zu is not finite (NaN or infinite)",
	    t->name, at);
}

/* Looks a tensor up that must be there, [rows][cols]. */
static int
need(struct adapter_loader *ld, const char *name, uint32_t rows, uint32_t cols,
    const struct tensor **out)
{
	const struct tensor_set *files = ld->a->files;
	const char *file = safetensors_at(files, 0)->file;
	int rc = tensor_need(files, file, name, rows, cols, out, ld->err, ld->errlen);

	if (rc == MODEL_OK)
		ld->needed[*out - safetensors_at(files, 0)] = 1;
	return rc != MODEL_OK || ld->block.host != NULL ? rc : check_finite(ld, *out);
}

/* ---- the LoRA of a linear ---- */

/* name[128] <- that of a tensor of a linear's LoRA, factor 'A' or 'B' */
static const char *
lora_name(char *name, const char *linear, char factor)
{
	snprintf(name, 128, "base_model.model.%s.lora_%c.weight", linear, factor);
	return name;
}

/* The tensors may be there, and nothing reads them. */
static void
ignore_lora(struct adapter_loader *ld, const char *linear)
{
	const struct tensor_set *files = ld->a->files;
	const struct tensor *t;
	char name[128];
	const char *factor;

	for (factor = "AB"; *factor != '\0'; factor++)
		if ((t = safetensors_find(files, lora_name(name, linear, *factor))) != NULL)
			ld->needed[t - safetensors_at(files, 0)] = 1;
}

static int
bind_lora(struct adapter_loader *ld, const char *linear, uint32_t out, uint32_t in, struct lora *w)
{
	const struct adapter *ad = ld->a;
	const struct tensor *a, *b;
	void *host, *device;
	char name[128];
	size_t i, n = (size_t)out * ad->rank;
	int rc;

	if ((rc = need(ld, lora_name(name, linear, 'A'), ad->rank, in, &a)) != MODEL_OK ||
	    (rc = need(ld, lora_name(name, linear, 'B'), out, ad->rank, &b)) != MODEL_OK)
		return rc;
	device_block_reserve(&ld->block, a->bytes, &host, &device);
	if (host != NULL)
		memcpy(host, a->data, a->bytes);
	w->a = (struct mat){ device, weight_type_of(a->dtype), ad->rank, in };
	device_block_reserve(&ld->block, n * sizeof(float), &host, &device);
	if (host != NULL) {
		kv_to_f32(host, b->data, b->dtype, n);
		for (i = 0; i < n; i++)
			((float *)host)[i] = (float)(((float *)host)[i] * ad->scale);
	}
	w->b = (struct mat){ device, WEIGHT_F32, out, ad->rank };
	return MODEL_OK;
}

/* In the last layer only queries and keys reach a score. */
static int
bind_layer(struct adapter_loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->a->model->id;
	struct adapter_layer *y = &ld->a->layer[l];
	const uint32_t D = id->hidden, F = id->ffn, last = l + 1 == id->layers;
	const uint32_t q = id->query_heads * id->head_width;
	const uint32_t kv = model_weight_heads(ld->a->model) * id->head_width;
	const struct {
		struct lora *lora;
		const char *part;
		uint32_t out, in;
	} list[ADAPTER_LINEARS] = {
		{ &y->q, "self_attn", q, D }, { &y->k, "self_attn", kv, D },
		{ &y->v, "self_attn", kv, D }, { &y->o, "self_attn", D, q },
		{ &y->gate, "mlp", F, D }, { &y->up, "mlp", F, D }, { &y->down, "mlp", D, F },
	};
	char name[64];
	unsigned i;
	int rc = MODEL_OK;

	for (i = 0; rc == MODEL_OK && i < ADAPTER_LINEARS; i++) {
		snprintf(name, sizeof name, "model.layers.%u.%s.%s", l, list[i].part,
		    adapter_linears[i]);
		if (last && i >= 2)
			ignore_lora(ld, name);
		else if (ld->a->linears >> i & 1)
			rc = bind_lora(ld, name, list[i].out, list[i].in, list[i].lora);
	}
	return rc;
}

static int
bind(struct adapter_loader *ld)
{
	struct adapter *a = ld->a;
	const uint32_t D = a->model->id.hidden;
	const struct tensor *t;
	void *host, *device;
	uint32_t l;
	int rc;

	ld->block.used = 0;
	if ((rc = need(ld, EMBEDDINGS, a->n, D, &t)) != MODEL_OK)
		return rc;
	kv_to_f32(a->embedding, t->data, t->dtype, (size_t)a->n * D);
	device_block_reserve(&ld->block, (size_t)a->n * a->rank * sizeof *a->scratch, &host,
	    &device);
	a->scratch = device;
	for (l = 0; l < a->model->id.layers; l++)
		if ((rc = bind_layer(ld, l)) != MODEL_OK)
			return rc;
	a->bytes = ld->block.used;
	return MODEL_OK;
}

/* ---- the folder ---- */

static int
check_leftovers(struct adapter_loader *ld)
{
	const struct tensor *t;
	size_t i;

	for (i = 0; (t = safetensors_at(ld->a->files, i)) != NULL; i++)
		if (!ld->needed[i] && !name_list_matches(&ld->overrides->tensors, t->name))
			return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: not a tensor of this "
			    "adapter's target_modules (--allow-tensor NAME ignores it)", t->name);
	return MODEL_OK;
}

/* c <- the configuration, of an adapter that is for this model; without c->weights */
static int
read_config(struct adapter_loader *ld, const char *dir, struct adapter_config *c)
{
	struct adapter *a = ld->a;
	const struct kv_model *id = &a->model->id;
	char *path;
	int rc = adapter_config_read(dir, ld->overrides, c, ld->err, ld->errlen);

	if (rc != MODEL_OK)
		return rc;
	if ((a->model->family->flags & ~ADAPTABLE) != 0 || id->mlp_bias ||
	    !family_has_usual_tensors(a->model->family))
		rc = FAIL(ld, MODEL_EUNSUPPORTED, dir, "lookahead adapters are not supported for "
		    "models of type %s%s", id->architecture, id->mlp_bias ? " with mlp_bias" : "");
	else if (a->model->mixture.router.experts > 0 && (c->linears & NETWORK_LINEARS) != 0)
		rc = FAIL(ld, MODEL_EUNSUPPORTED, dir, "target_modules: gate_proj, up_proj and "
		    "down_proj are not supported for a mixture of experts (%s)", id->architecture);
	else if ((path = model_file_path(dir, ADAPTER_CONFIG)) == NULL)
		rc = FAIL(ld, MODEL_ENOMEM, dir, "out of memory");
	else {
		rc = made_for(c->weights, ADAPTER_WEIGHTS, path, a->model, &a->by_samples, ld->err,
		    ld->errlen);
		free(path);
	}
	json_decref(c->weights);
	return rc;
}

static int
read_folder(struct adapter_loader *ld, const char *dir)
{
	struct adapter *a = ld->a;
	const struct kv_model *id = &a->model->id;
	struct adapter_config c;
	struct weights_reading reading = a->model->reading;
	int rc;

	if ((rc = read_config(ld, dir, &c)) != MODEL_OK)
		return rc;
	if ((rc = safetensors_open_file(dir, TENSORS, ld->overrides, &a->files, ld->err,
	    ld->errlen)) != MODEL_OK)
		return rc;
	if (safetensors_count(a->files) == 0)
		return FAIL(ld, MODEL_EINVALID, dir, TENSORS " has no tensors");
	a->n = c.tokens;
	a->rank = c.rank;
	a->scale = c.scale;
	a->linears = c.linears;
	a->dir = strdup(dir);
	a->layer = calloc(id->layers, sizeof *a->layer);
	a->embedding = malloc((size_t)a->n * id->hidden * sizeof *a->embedding);
	ld->needed = calloc(safetensors_count(a->files), 1);
	if (a->dir == NULL || a->layer == NULL || a->embedding == NULL || ld->needed == NULL)
		return FAIL(ld, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = bind(ld)) != MODEL_OK || (rc = check_leftovers(ld)) != MODEL_OK)
		return rc;
	return weights_hash(a->files, &reading, a->id, ld->err, ld->errlen);
}

int
adapter_open(const char *dir, const struct model *m, const struct overrides *overrides,
    struct adapter **out, char *err, size_t errlen)
{
	struct adapter_loader ld = { .a = calloc(1, sizeof *ld.a), .overrides = overrides,
	    .err = err, .errlen = errlen };
	int rc;

	*out = NULL;
	if (ld.a == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	ld.a->model = m;
	rc = read_folder(&ld, dir);
	free(ld.needed);
	if (rc == MODEL_OK)
		*out = ld.a;
	else
		adapter_free(ld.a);
	return rc;
}

int
adapter_bind(struct adapter *a, char *err, size_t errlen)
{
	const struct model *m = a->model;
	struct adapter_loader ld = { .a = a, .overrides = &no_overrides, .err = err,
	    .errlen = errlen };
	const char *why;
	int rc = MODEL_ENOMEM, there;

	if (a->bytes == 0)
		return MODEL_OK;
	ld.needed = calloc(safetensors_count(a->files), 1);
	there = device_block_begin(&ld.block, m->ops, m->dev, a->bytes);
	a->block = ld.block.device;
	if (ld.needed == NULL || !there)
		FAIL(&ld, rc, a->dir, "no room for the %zu bytes of its LoRA", a->bytes);
	else if ((rc = bind(&ld)) == MODEL_OK) {
		if ((why = device_block_put(&ld.block, m->ops, m->dev)) != NULL)
			rc = FAIL(&ld, MODEL_EIO, a->dir, "%s", why);
	}
	free(ld.needed);
	device_block_end(&ld.block);
	return rc;
}

void
adapter_free(struct adapter *a)
{
	if (a == NULL)
		return;
	if (a->block != NULL)
		a->model->ops->free(a->model->dev, a->block);
	safetensors_close(a->files);
	free(a->embedding);
	free(a->layer);
	free(a->dir);
	free(a);
}
