/* model.c - binds the tensors of a model folder to the places where forward() looks for them
 *
 * Two passes over the same list of tensors. The first only checks: names, shapes, types, and the
 * size of the constants. So a wrong folder is refused before the device holds anything of it. The
 * second binds.
 *
 * Matrices go to the device as they are stored, through ops->weights; each may have its own type.
 * Norm weights and biases become f32 and lie, with the rotary frequencies, in one device block. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/device_block.h"
#include "model/family.h"
#include "model/leftovers.h"
#include "model/model_files.h"
#include "model/model.h"
#include "model/row_order.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

struct loader {
	struct model *m;
	const struct overrides *overrides;      /* no_overrides while binding to the device */
	uint8_t *needed;        /* [tensors in the folder] 1: some part of the model asked for it */
	struct device_block constants;
	size_t matrices;        /* and of matrices, each a multiple of 256 */
	size_t reordered;       /* of those whose rows are put in another order */
	char *err;
	size_t errlen;
};

#define FAIL(ld, code, file, ...) model_file_fail((ld)->err, (ld)->errlen, code, file, __VA_ARGS__)

/* Looks a tensor up that must be there, of a type we compute with: matrices may be in blocks, where
 * the backend takes these. cols 0: a vector. */
static int
need(struct loader *ld, const char *name, uint32_t rows, uint32_t cols, const struct tensor **out)
{
	const struct safetensors *files = ld->m->files;
	const int blocks = cols != 0 && ld->m->ops->blocks_in_f32 != NULL;
	int rc = tensor_of_shape(files, ld->m->dir, name, rows, cols, out, ld->err, ld->errlen);

	if (rc == MODEL_OK && ((*out)->weight == 0 || (!blocks && (*out)->dtype == 0)))
		return tensor_bad_type(*out, ld->err, ld->errlen);
	if (rc == MODEL_OK)
		ld->needed[*out - safetensors_at(files, 0)] = 1;
	return rc;
}

/* *data <- the tensor's rows in our order, on the host. A device with memory of its own has copied
 * them when weights() returns; where it has none, they stay with the model. */
static int
bind_reordered(struct loader *ld, const struct tensor *t, struct mat *w)
{
	struct model *m = ld->m;
	void *copy;
	int rc;

	if ((rc = rows_in_halves(t, &copy, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	w->data = m->ops->weights(m->dev, copy, t->bytes);
	if (w->data == copy)
		m->reordered[m->n_reordered++] = copy;
	else
		free(copy);
	return MODEL_OK;
}

/* Some rows of a tensor: out of them, from row `from` on. */
static int
bind_rows(struct loader *ld, const struct tensor *t, uint32_t from, uint32_t out, uint32_t in,
    struct mat *w)
{
	const size_t row = weight_row_bytes(t->weight, in), bytes = out * row;
	int rc;

	*w = (struct mat){ .type = t->weight, .out = out, .in = in };
	ld->matrices += (bytes + 255) / 256 * 256;
	ld->reordered += t->interleaved > 0 ? bytes : 0;
	if (ld->constants.host == NULL)
		return MODEL_OK;
	if (t->interleaved == 0)
		w->data = ld->m->ops->weights(ld->m->dev, (const uint8_t *)t->data + from * row,
		    bytes);
	else if ((rc = bind_reordered(ld, t, w)) != MODEL_OK)
		return rc;
	if (w->data == NULL)
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: no room for it on the device", t->name);
	return MODEL_OK;
}

static int
bind_matrix(struct loader *ld, const char *name, uint32_t out, uint32_t in, struct mat *w)
{
	const struct tensor *t;
	int rc;

	if ((rc = need(ld, name, out, in, &t)) != MODEL_OK)
		return rc;
	return bind_rows(ld, t, 0, out, in, w);
}

static int
bind_vector(struct loader *ld, const char *name, uint32_t n, const float **v)
{
	void *host, *device, *copy = NULL;
	const struct tensor *t;
	int rc;

	if ((rc = need(ld, name, n, 0, &t)) != MODEL_OK)
		return rc;
	device_block_reserve(&ld->constants, n * sizeof **v, &host, &device);
	if (host != NULL && t->interleaved > 0 &&
	    (rc = rows_in_halves(t, &copy, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	if (host != NULL)
		kv_to_f32(host, copy != NULL ? copy : t->data, t->dtype, n);
	free(copy);
	*v = device;
	return MODEL_OK;
}

static int
bind_norm(struct loader *ld, const char *name, uint32_t width, struct norm *norm)
{
	const size_t at = ld->constants.used;
	int rc = bind_vector(ld, name, width, &norm->w);
	uint32_t i;

	norm->eps = (float)ld->m->id.norm_eps;
	if (rc != MODEL_OK || ld->constants.host == NULL ||
	    !(ld->m->family->flags & FAMILY_NORM_FROM_1) ||
	    safetensors_find(ld->m->files, name)->plus_one)
		return rc;
	for (i = 0; i < width; i++)
		((float *)(void *)(ld->constants.host + at))[i] += 1;
	return rc;
}

/* A norm of layer l. */
static int
bind_layer_norm(struct loader *ld, uint32_t l, const char *name, uint32_t width, struct norm *norm)
{
	char full[96];

	snprintf(full, sizeof full, "model.layers.%u.%s.weight", l, name);
	return bind_norm(ld, full, width, norm);
}

/* A projection, NAME.weight, and NAME.bias where biased. */
static int
bind_projection(struct loader *ld, uint32_t l, const char *name, uint32_t out, uint32_t in,
    struct mat *w, const float **bias)
{
	char full[96];
	int rc;

	snprintf(full, sizeof full, "model.layers.%u.%s.weight", l, name);
	if ((rc = bind_matrix(ld, full, out, in, w)) != MODEL_OK || bias == NULL)
		return rc;
	snprintf(full, sizeof full, "model.layers.%u.%s.bias", l, name);
	return bind_vector(ld, full, out, bias);
}

/* Matrices that stand on top of each other in one tensor. */
static int
bind_stacked(struct loader *ld, uint32_t l, const char *name, const uint32_t *out, uint32_t in,
    struct mat *const *w, uint32_t n)
{
	const struct tensor *t;
	uint32_t all = 0, from = 0, i;
	char full[96];
	int rc;

	for (i = 0; i < n; i++)
		all += out[i];
	snprintf(full, sizeof full, "model.layers.%u.%s.weight", l, name);
	if ((rc = need(ld, full, all, in, &t)) != MODEL_OK)
		return rc;
	for (i = 0; rc == MODEL_OK && i < n; from += out[i++])
		rc = bind_rows(ld, t, from, out[i], in, w[i]);
	return rc;
}

static int
bind_fused(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct model_layer *y = &ld->m->layer[l];
	const uint32_t D = id->hidden, F = id->ffn, q = id->query_heads * id->head_width;
	const uint32_t kv = model_weight_heads(ld->m) * id->head_width;
	int rc;

	if ((rc = bind_stacked(ld, l, "self_attn.qkv_proj", (const uint32_t[]){ q, kv, kv }, D,
	    (struct mat *[]){ &y->wq, &y->wk, &y->wv }, 3)) != MODEL_OK ||
	    (rc = bind_projection(ld, l, "self_attn.o_proj", D, q, &y->wo, NULL)) != MODEL_OK ||
	    (rc = bind_stacked(ld, l, "mlp.gate_up_proj", (const uint32_t[]){ F, F }, D,
	    (struct mat *[]){ &y->ffn.gate, &y->ffn.up }, 2)) != MODEL_OK)
		return rc;
	return bind_projection(ld, l, "mlp.down_proj", D, F, &y->ffn.down, NULL);
}

static int
bind_projections(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct model_layer *y = &ld->m->layer[l];
	const uint32_t D = id->hidden, F = id->ffn, flags = ld->m->family->flags;
	const uint32_t q = id->query_heads * id->head_width;
	const uint32_t kv = model_weight_heads(ld->m) * id->head_width;
	const int qkv = id->attention_bias, o = qkv && !(flags & FAMILY_QKV_BIAS);
	const int mlp = id->mlp_bias;
	const struct projection {
		const char *name;
		uint32_t out, in;
		struct mat *w;
		const float **bias;
	} list[] = {
		{ "self_attn.q_proj", q, D, &y->wq, qkv ? &y->bq : NULL },
		{ "self_attn.k_proj", kv, D, &y->wk, qkv ? &y->bk : NULL },
		{ "self_attn.v_proj", kv, D, &y->wv, qkv ? &y->bv : NULL },
		{ "self_attn.o_proj", D, q, &y->wo, o ? &y->bo : NULL },
		{ "mlp.gate_proj", F, D, &y->ffn.gate, mlp ? &y->ffn_bias.gate : NULL },
		{ "mlp.up_proj", F, D, &y->ffn.up, mlp ? &y->ffn_bias.up : NULL },
		{ "mlp.down_proj", D, F, &y->ffn.down, mlp ? &y->ffn_bias.down : NULL },
	};
	uint32_t i;
	int rc = MODEL_OK;

	y->ffn.gelu = (flags & FAMILY_GELU) != 0;
	if (flags & FAMILY_FUSED)
		return bind_fused(ld, l);
	for (i = 0; rc == MODEL_OK && i < sizeof list / sizeof list[0]; i++)
		rc = bind_projection(ld, l, list[i].name, list[i].out, list[i].in, list[i].w,
		    list[i].bias);
	return rc;
}

/* Those before attention and network, and behind them. Llama's second name means another place
 * where there are both. */
static int
bind_stream_norms(struct loader *ld, uint32_t l)
{
	struct model_layer *y = &ld->m->layer[l];
	const unsigned flags = ld->m->family->flags;
	const int after = (flags & (FAMILY_NORM_AFTER | FAMILY_NORM_AROUND)) != 0;
	const int around = (flags & FAMILY_NORM_AROUND) != 0, before = around || !after;
	const struct { const char *name; struct norm *norm; int there; } list[] = {
		{ "input_layernorm", &y->norm, before },
		{ around ? "pre_feedforward_layernorm" : "post_attention_layernorm", &y->ffn.norm,
		    before },
		{ "post_attention_layernorm", &y->residuals[0].norm, after },
		{ "post_feedforward_layernorm", &y->residuals[1].norm, after },
	};
	size_t i;
	int rc = MODEL_OK;

	for (i = 0; rc == MODEL_OK && i < sizeof list / sizeof list[0]; i++)
		if (list[i].there)
			rc = bind_layer_norm(ld, l, list[i].name, ld->m->id.hidden, list[i].norm);
	return rc;
}

/* The norms of a layer, and what they make of what it adds to the stream. */
static int
bind_norms(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	struct model_layer *y = &ld->m->layer[l];
	const unsigned flags = ld->m->family->flags;
	const uint32_t E = id->head_width;
	const int wide = (flags & FAMILY_WIDE_NORM) != 0;
	int rc;

	y->residuals[0].scale = y->residuals[1].scale = ld->m->residual_scale;
	if ((flags & (FAMILY_NORM_AFTER | FAMILY_NORM_AROUND)) || ld->m->residual_scale != 1) {
		y->attention_adds = &y->residuals[0];
		y->ffn_adds = &y->residuals[1];
	}
	if ((rc = bind_stream_norms(ld, l)) != MODEL_OK ||
	    !(flags & (FAMILY_HEAD_NORM | FAMILY_WIDE_NORM)))
		return rc;
	if ((rc = bind_layer_norm(ld, l, "self_attn.q_norm", wide ? id->query_heads * E : E,
	    &y->q_norm)) != MODEL_OK)
		return rc;
	return bind_layer_norm(ld, l, "self_attn.k_norm", wide ? model_weight_heads(ld->m) * E : E,
	    &y->k_norm);
}

static int
bind_layer(struct loader *ld, uint32_t l)
{
	int rc = bind_projections(ld, l);

	return rc == MODEL_OK ? bind_norms(ld, l) : rc;
}

/* A model with tied embeddings has them under one name or the other, or under both. */
static const char *
embedding_name(const struct model *m)
{
	const int other = m->id.tied_embeddings && safetensors_find(m->files, EMBEDDING) == NULL &&
	    safetensors_find(m->files, HEAD) != NULL;

	return other ? HEAD : EMBEDDING;
}

static int
same_matrix(const struct tensor *a, const struct tensor *b)
{
	return a->dtype == b->dtype && a->ndim == b->ndim && a->bytes == b->bytes &&
	    memcmp(a->dim, b->dim, a->ndim * sizeof *a->dim) == 0 &&
	    memcmp(a->data, b->data, a->bytes) == 0;
}

/* With tied embeddings lm_head.weight is superfluous. transformers 4 ignores it, 5 uses it when it
 * differs: where it does, the folder contradicts itself. */
static int
bind_tied_head(struct loader *ld)
{
	struct model *m = ld->m;
	const struct tensor *embed = safetensors_find(m->files, EMBEDDING);
	const struct tensor *head = safetensors_find(m->files, HEAD);

	m->head = m->embed;
	if (ld->constants.host != NULL || head == NULL || embed == NULL)
		return MODEL_OK;
	if (same_matrix(head, embed)) {
		ld->needed[head - safetensors_at(m->files, 0)] = 1;
		return MODEL_OK;
	}
	if (name_list_matches(&ld->overrides->tensors, HEAD))
		return MODEL_OK;
	return FAIL(ld, MODEL_EINVALID, head->file, HEAD " differs from " EMBEDDING ", but "
	    "tie_word_embeddings is true (--allow-tensor " HEAD " ignores it%s)",
	    m->family->tied ? "" : ", --allow-config tie_word_embeddings uses it");
}

/* The head of a model whose embeddings are not tied */
static int
bind_head(struct loader *ld)
{
	struct model *m = ld->m;

	if (safetensors_find(m->files, HEAD) == NULL)
		return FAIL(ld, MODEL_EINVALID, m->dir, "no tensor " HEAD ": if it is the "
		    "embedding, set \"tie_word_embeddings\": true in config.json");
	return bind_matrix(ld, HEAD, m->id.vocabulary, m->id.hidden, &m->head);
}

/* The rotary embedding of each layer. freq, window_freq: on the device */
static void
bind_rope(struct model *m, const double *freq, const double *window_freq)
{
	const struct kv_model *id = &m->id;
	uint32_t l;

	m->no_rope = (struct rotary){ NULL, 0, 1 };
	m->rope = (struct rotary){ freq, id->rope_width != 0 ? id->rope_width : id->head_width,
		id->rope_attention_factor != 0 ? (float)id->rope_attention_factor : 1 };
	m->window_rope = (struct rotary){ window_freq, m->rope.dims, 1 };
	for (l = 0; l < id->layers; l++) {
		m->layer[l].window = kv_layer_window(id, l);
		m->layer[l].rope = kv_rope_dims(id, l) == 0 ? &m->no_rope :
		    id->rope_window_theta != 0 && m->layer[l].window != 0 ? &m->window_rope :
		    &m->rope;
	}
}

/* Gemma: as transformers has it that runs the weights in their own type, in which the model was
 * trained. */
static void
scale_by_width(struct model *m)
{
	float root = sqrtf((float)m->id.hidden), stored;

	kv_from_f32(&stored, &root, m->id.weights_dtype, 1);
	kv_to_f32(&m->embedding_scale, &stored, m->id.weights_dtype, 1);
	m->id.embedding_multiplier = m->embedding_scale;
}

/* The type of the model's numbers: of blocks that of their scales (kv-snapshot(5), 4.1) */
static enum kv_dtype
elements_of(const struct mat *w)
{
	return weight_is_block(w->type) ? KV_F16 : mat_elements(w);
}

static int
bind(struct loader *ld)
{
	struct model *m = ld->m;
	uint32_t V = m->id.vocabulary, D = m->id.hidden, l;
	const size_t frequencies = m->id.head_width / 2 * sizeof *m->rope.freq;
	void *device, *window_device, *freq, *window_freq;
	int rc;

	ld->constants.used = ld->matrices = ld->reordered = 0;
	device_block_reserve(&ld->constants, frequencies, &freq, &device);
	device_block_reserve(&ld->constants, frequencies, &window_freq, &window_device);
	if (freq != NULL) {
		model_rope_frequencies(&m->id, freq);
		model_window_frequencies(&m->id, window_freq);
	}
	bind_rope(m, device, window_device);
	if ((rc = bind_matrix(ld, embedding_name(m), V, D, &m->embed)) != MODEL_OK)
		return rc;
	m->id.weights_dtype = elements_of(&m->embed);
	if (m->family->flags & FAMILY_ROOT_OF_WIDTH)
		scale_by_width(m);
	for (l = 0; l < m->id.layers; l++)
		if ((rc = bind_layer(ld, l)) != MODEL_OK)
			return rc;
	if ((rc = bind_norm(ld, "model.norm.weight", D, &m->norm)) != MODEL_OK)
		return rc;
	if (m->id.tied_embeddings)
		return bind_tied_head(ld);
	return bind_head(ld);
}

/* The second pass: fills the constants on the host, then puts them on the device. */
static int
bind_for_device(struct loader *ld)
{
	struct model *m = ld->m;
	const int there = device_block_begin(&ld->constants, m->ops, m->dev, m->constant_bytes);
	const char *why;
	int rc;

	m->constants = ld->constants.device;
	if (!there)
		return FAIL(ld, MODEL_ENOMEM, m->dir, "no room for %zu bytes of norm weights",
		    m->constant_bytes);
	m->ops->expect(m->dev, m->matrix_bytes);
	if ((rc = bind(ld)) != MODEL_OK)
		return rc;
	if ((why = device_block_put(&ld->constants, m->ops, m->dev)) != NULL)
		return FAIL(ld, MODEL_EIO, m->dir, "%s", why);
	return MODEL_OK;
}

static int
open_folder(struct loader *ld, const char *dir)
{
	struct model *m = ld->m;
	int rc;

	if ((m->dir = strdup(dir)) == NULL)
		return FAIL(ld, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = model_config(dir, ld->overrides, m, ld->err, ld->errlen)) != MODEL_OK ||
	    (rc = safetensors_open(dir, ld->overrides, &m->files, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	m->layer = calloc(m->id.layers, sizeof *m->layer);
	m->reordered = calloc(m->id.layers, 2 * sizeof *m->reordered);
	ld->needed = calloc(safetensors_count(m->files) + 1, 1);
	if (m->layer == NULL || m->reordered == NULL || ld->needed == NULL)
		return FAIL(ld, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = bind(ld)) != MODEL_OK ||
	    (rc = leftovers_check(m->files, ld->needed, ld->overrides, ld->err, ld->errlen)) !=
	    MODEL_OK)
		return rc;
	m->constant_bytes = ld->constants.used;
	m->matrix_bytes = ld->matrices;
	m->reordered_bytes = ld->reordered;
	if ((rc = weights_hash(m->files, &m->reading, m->weights, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	return model_name_weights(m, NULL, ld->err, ld->errlen);
}

int
model_open(const char *dir, const struct overrides *overrides,
    const struct weights_reading *reading, const struct ops *ops, struct dev *dev,
    struct model **out, char *err, size_t errlen)
{
	struct loader ld = { .m = calloc(1, sizeof *ld.m), .overrides = overrides, .err = err,
	    .errlen = errlen };
	int rc;

	*out = NULL;
	if (ld.m == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	ld.m->ops = ops;
	ld.m->dev = dev;
	ld.m->reading = *reading;
	rc = open_folder(&ld, dir);
	ld.m->needed = ld.needed;
	if (rc == MODEL_OK)
		*out = ld.m;
	else
		model_free(ld.m);
	return rc;
}

int
model_bind(struct model *m, char *err, size_t errlen)
{
	struct loader ld = { .m = m, .overrides = &no_overrides, .err = err, .errlen = errlen };
	int rc = MODEL_ENOMEM;

	ld.needed = calloc(safetensors_count(m->files) + 1, 1);
	if (ld.needed != NULL)
		rc = bind_for_device(&ld);
	else
		model_file_fail(err, errlen, rc, m->dir, "out of memory");
	free(ld.needed);
	device_block_end(&ld.constants);
	return rc;
}

int
model_load(const char *dir, const struct ops *ops, struct dev *dev, struct model **out, char *err,
    size_t errlen)
{
	const struct weights_reading reading = { .threads = 1 };
	int rc = model_open(dir, &no_overrides, &reading, ops, dev, out, err, errlen);

	if (rc == MODEL_OK && (rc = model_bind(*out, err, errlen)) != MODEL_OK) {
		model_free(*out);
		*out = NULL;
	}
	return rc;
}

int
model_has_weights(const struct model *m, const char *digits, char *err, size_t errlen)
{
	char sampled[33];
	int rc;

	if (strcmp(digits, m->weights) == 0)
		return WEIGHTS_SAME;
	if ((rc = weights_hash_sampled(m->files, sampled, err, errlen)) != MODEL_OK)
		return rc;
	return strcmp(digits, sampled) == 0 ? WEIGHTS_ALIKE : WEIGHTS_OTHER;
}

int
model_name_weights(struct model *m, const struct kv_model *snapshot, char *err, size_t errlen)
{
	m->id.weights_rule = snapshot != NULL ? snapshot->weights_rule : WEIGHTS_RULE;
	if (m->id.weights_rule == WEIGHTS_SAMPLED)
		return weights_hash_sampled(m->files, m->id.weights, err, errlen);
	memcpy(m->id.weights, m->weights, sizeof m->weights);
	return MODEL_OK;
}

void
model_free(struct model *m)
{
	size_t i;

	if (m == NULL)
		return;
	m->ops->free(m->dev, m->constants);
	for (i = 0; i < m->n_reordered; i++)
		free(m->reordered[i]);
	free(m->reordered);
	safetensors_close(m->files);
	free(m->needed);
	free(m->layer);
	free(m->dir);
	free(m);
}
