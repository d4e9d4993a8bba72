/* bind_layer.c - matrices, biases and norms of a layer, under the names that its family has */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bind_layer.h"
#include "model/family.h"
#include "model/row_order.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"

/* The language model of a model that sees images stands in language_model, around "model." or
 * within it. */
const char *
tensor_name(const struct model *m, const char *name, const char *what, char full[TENSOR_NAME])
{
	static const char within[] = "model.language_model.embed_tokens.weight";
	const int inner = m->wrapped && safetensors_find(m->files, within) != NULL;
	const int outer = m->wrapped && !inner;

	if (inner && strncmp(name, "model.", 6) == 0)
		snprintf(full, TENSOR_NAME, "model.language_model.%s%s", name + 6, what);
	else
		snprintf(full, TENSOR_NAME, "%s%s%s", outer ? "language_model." : "", name, what);
	return full;
}

/* Looks a quantised matrix up. *out is good until the next one. */
static int
need_quantised(struct loader *ld, const char *name, uint32_t rows, uint32_t cols,
    const struct tensor **out)
{
	const struct model *m = ld->m;
	int rc = checkpoint_find(&m->quantised, m->files, name, rows, cols, &ld->quantised, ld->err,
	    ld->errlen);

	if (rc != MODEL_OK)
		return rc;
	checkpoint_mark(&ld->quantised, m->files, ld->needed);
	ld->n_quantised++;
	*out = &ld->quantised.tensor;
	return MODEL_OK;
}

/* Looks a tensor up that must be there, of a type we compute with. cols 0: a vector. */
static int
need(struct loader *ld, const char *name, uint32_t rows, uint32_t cols, const struct tensor **out)
{
	const struct tensor_set *files = ld->m->files;
	int rc;

	if (cols != 0 && checkpoint_has(&ld->m->quantised, files, name))
		return need_quantised(ld, name, rows, cols, out);
	rc = tensor_need(files, ld->m->dir, name, rows, cols, out, ld->err, ld->errlen);
	if (rc == MODEL_OK)
		ld->needed[*out - safetensors_at(files, 0)] = 1;
	return rc;
}

/* *data <- a copy on the host, which becomes the model's. A device with memory of its own has
 * copied it when weights() returns; where it has none, it stays with the model. */
static int
keep_copy(struct loader *ld, const struct tensor *t, void *copy, size_t bytes,
    const void **data)
{
	struct model *m = ld->m;
	void **copies = realloc(m->copies, (m->n_copies + 1) * sizeof *copies);

	if (copies == NULL) {
		free(copy);
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: out of memory", t->name);
	}
	m->copies = copies;
	*data = m->ops->weights(m->dev, copy, bytes);
	if (*data == copy)
		m->copies[m->n_copies++] = copy;
	else
		free(copy);
	return MODEL_OK;
}

/* Binds the tensor's rows in our order. */
static int
bind_reordered(struct loader *ld, const struct tensor *t, struct mat *w)
{
	void *copy;
	int rc;

	if ((rc = rows_in_halves(t, &copy, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	return keep_copy(ld, t, copy, t->bytes, &w->data);
}

/* Binds rows of a quantised matrix, from row `from` on, in bf16. */
static int
bind_quantised(struct loader *ld, const struct tensor *t, uint32_t from, struct mat *w)
{
	const size_t bytes = (size_t)w->out * w->in * 2;
	uint16_t *copy = malloc(bytes);
	int rc;

	if (copy == NULL)
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: no memory for it in bf16, %zu bytes",
		    t->name, bytes);
	if ((rc = checkpoint_rows(t->quantised, from, w->out, ld->m->reading.threads, copy, ld->err,
	    ld->errlen)) == MODEL_OK)
		return keep_copy(ld, t, copy, bytes, &w->data);
	free(copy);
	return rc;
}

/* Can the device compute with weights of this type? */
static int
check_type(struct loader *ld, const struct tensor *t, enum weight_type type)
{
	if (!weight_is_block(type) || ld->m->ops->blocks_in_f32 != NULL)
		return MODEL_OK;
	return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: weights of type %s: a GPU computes with "
	    "F32, F16 and BF16 only (--device cpu computes with them)", t->name,
	    type == t->weight ? t->type : weight_type_name(type));
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
	ld->copied += t->interleaved > 0 || t->quantised != NULL ? bytes : 0;
	ld->quantised_bytes += t->quantised != NULL ? bytes : 0;
	ld->m->has_blocks |= weight_is_block(t->weight);
	if ((rc = check_type(ld, t, t->weight)) != MODEL_OK || ld->constants.host == NULL)
		return rc;
	if (t->quantised != NULL)
		rc = bind_quantised(ld, t, from, w);
	else if (t->interleaved > 0)
		rc = bind_reordered(ld, t, w);
	else
		w->data = ld->m->ops->weights(ld->m->dev, (const uint8_t *)t->data + from * row,
		    bytes);
	if (rc != MODEL_OK)
		return rc;
	if (w->data == NULL)
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: no room for it on the device", t->name);
	return MODEL_OK;
}

int
bind_copy(struct loader *ld, const struct tensor *t, enum weight_type type, void *copy,
    size_t bytes, const void **data)
{
	int rc;

	*data = NULL;
	ld->matrices += (bytes + 255) / 256 * 256;
	ld->copied += bytes;
	ld->m->has_blocks |= weight_is_block(type);
	if ((rc = check_type(ld, t, type)) != MODEL_OK || copy == NULL ||
	    (rc = keep_copy(ld, t, copy, bytes, data)) != MODEL_OK)
		return rc;
	if (*data == NULL)
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: no room for it on the device", t->name);
	return MODEL_OK;
}

int
bind_matrix(struct loader *ld, const char *name, uint32_t out, uint32_t in, struct mat *w)
{
	const struct tensor *t;
	int rc;

	if ((rc = need(ld, name, out, in, &t)) != MODEL_OK)
		return rc;
	return bind_rows(ld, t, 0, out, in, w);
}

int
bind_tensor_of_all(struct loader *ld, const struct tensor *t, uint32_t n, uint32_t out, uint32_t in,
    struct mat *w)
{
	int rc = tensor_check(t, (const uint64_t[]){ n, out, in }, 3, ld->err, ld->errlen);

	if (rc != MODEL_OK)
		return rc;
	if ((uint64_t)n * out > UINT32_MAX)
		return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: too many rows", t->name);
	ld->needed[t - safetensors_at(ld->m->files, 0)] = 1;
	return bind_rows(ld, t, 0, n * out, in, w);
}

/* v <- the numbers of a tensor that has been looked up */
static int
bind_numbers(struct loader *ld, const struct tensor *t, uint32_t n, const float **v)
{
	void *host, *device, *copy = NULL;
	int rc;

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

int
bind_vector(struct loader *ld, const char *name, uint32_t n, const float **v)
{
	const struct tensor *t;
	int rc = need(ld, name, n, 0, &t);

	return rc != MODEL_OK ? rc : bind_numbers(ld, t, n, v);
}

int
bind_row(struct loader *ld, const char *name, uint32_t n, const float **v)
{
	const struct tensor *t = safetensors_find(ld->m->files, name);
	int rc;

	if (t == NULL || t->ndim != 2)
		return bind_vector(ld, name, n, v);
	if ((rc = need(ld, name, 1, n, &t)) != MODEL_OK)
		return rc;
	if (t->dtype == 0)
		return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: dtype %s is not supported: want "
		    "BF16, F16 or F32", name, t->type);
	return bind_numbers(ld, t, n, v);
}

static int
bind_ones(struct loader *ld, uint32_t n, const float **v)
{
	void *host, *device;
	uint32_t i;

	device_block_reserve(&ld->constants, n * sizeof **v, &host, &device);
	for (i = 0; host != NULL && i < n; i++)
		((float *)host)[i] = 1;
	*v = device;
	return MODEL_OK;
}

int
bind_norm(struct loader *ld, const char *name, uint32_t width, struct norm *norm)
{
	const enum family_norm kind = ld->m->family->norm;
	char full[TENSOR_NAME];
	size_t at;
	uint32_t i;
	int rc;

	norm->eps = (float)ld->m->id.norm_eps;
	norm->centred = kind != NORM_RMS;
	if (kind == NORM_LAYER_BARE)
		return bind_ones(ld, width, &norm->w);
	snprintf(full, sizeof full, "%s.bias", name);
	if (kind == NORM_LAYER_BIASED &&
	    (rc = bind_vector(ld, full, width, &norm->bias)) != MODEL_OK)
		return rc;
	at = ld->constants.used;
	snprintf(full, sizeof full, "%s.weight", name);
	rc = bind_vector(ld, full, width, &norm->w);
	if (rc != MODEL_OK || ld->constants.host == NULL ||
	    !(ld->m->family->flags & FAMILY_NORM_FROM_1) ||
	    safetensors_find(ld->m->files, full)->plus_one)
		return rc;
	for (i = 0; i < width; i++)
		((float *)(void *)(ld->constants.host + at))[i] += 1;
	return rc;
}

const char *
part_name(const struct loader *ld, uint32_t l, const char *part, const char *what,
    char full[TENSOR_NAME])
{
	char name[TENSOR_NAME];

	snprintf(name, sizeof name, "%s.%u.%s", ld->m->family->names->layers, l, part);
	return tensor_name(ld->m, name, what, full);
}

const struct tensor *
find_part(const struct loader *ld, uint32_t l, const char *part, const char *what,
    char full[TENSOR_NAME])
{
	return safetensors_find(ld->m->files, part_name(ld, l, part, what, full));
}

/* Rows of the tensor that part p begins, and how many parts it has */
static uint32_t
rows_together(const struct part *p, size_t left, size_t *parts)
{
	uint32_t rows = p->out;

	for (*parts = 1; *parts < left && p[*parts].name == NULL; ++*parts)
		rows += p[*parts].out;
	return rows;
}

int
bind_parts(struct loader *ld, uint32_t l, const struct part *p, size_t n)
{
	const struct tensor *t;
	char full[TENSOR_NAME];
	size_t i, parts;
	uint32_t from;
	int rc;

	for (; n > 0; p += parts, n -= parts) {
		const uint32_t rows = rows_together(p, n, &parts);

		if ((rc = need(ld, part_name(ld, l, p->name, ".weight", full), rows, p->in, &t)) !=
		    MODEL_OK)
			return rc;
		for (from = 0, i = 0; i < parts; from += p[i++].out)
			if ((rc = bind_rows(ld, t, from, p[i].out, p[i].in, p[i].w)) != MODEL_OK)
				return rc;
		if (p->bias != NULL && (rc = bind_vector(ld, part_name(ld, l, p->name, ".bias",
		    full), p->out, p->bias)) != MODEL_OK)
			return rc;
	}
	return MODEL_OK;
}

/* Queries, keys and values of layer l, and the output projection */
static int
bind_attention(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	const struct tensor_names *is = ld->m->family->names;
	struct model_layer *y = &ld->m->layer[l];
	const uint32_t flags = ld->m->family->flags, D = id->hidden;
	const uint32_t q = id->query_heads * id->head_width;
	const uint32_t kv = model_weight_heads(ld->m) * id->head_width;
	const int qkv = id->attention_bias;
	const int o = qkv && !(flags & (FAMILY_QKV_BIAS | FAMILY_O_PLAIN));
	const struct part apart[] = {
		{ is->qkv != NULL ? is->qkv : is->q, q, D, &y->wq, qkv ? &y->bq : NULL },
		{ is->k, kv, D, &y->wk, qkv ? &y->bk : NULL },
		{ is->v, kv, D, &y->wv, qkv ? &y->bv : NULL },
		{ is->o, D, q, &y->wo, o ? &y->bo : NULL },
	}, together[] = {
		{ is->qkv, q + 2 * kv, D, &y->wqkv, qkv ? &y->bqkv : NULL }, apart[3],
	};

	if (flags & FAMILY_LATENT)
		return bind_latent(ld, l);
	return flags & FAMILY_TOGETHER ? bind_parts(ld, l, together, 2) :
	    bind_parts(ld, l, apart, 4);
}

/* *x <- the only number of a tensor of the activation; where there is none, and need not be one, it
 * stays as it is. */
static int
read_number(struct loader *ld, uint32_t l, const char *name, int must, double *x)
{
	char full[TENSOR_NAME];
	const struct tensor *t;
	float number;

	t = find_part(ld, l, name, "", full);
	if (t == NULL)
		return must ? FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s", full) : MODEL_OK;
	ld->needed[t - safetensors_at(ld->m->files, 0)] = 1;
	if (t->dtype == 0 || t->ndim > 1 || (t->ndim == 1 && t->dim[0] != 1))
		return FAIL(ld, MODEL_EINVALID, t->file, "%s: not one number in BF16, F16 or F32",
		    full);
	kv_to_f32(&number, t->data, t->dtype, 1);
	*x = (double)number;
	return MODEL_OK;
}

static double
softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* The parameters of xIELU, as transformers' class makes them of what is stored */
static int
bind_xielu(struct loader *ld, uint32_t l, struct xielu *p)
{
	double positive = 0, negative = 0, beta = 0.5, eps = -1e-6;
	int rc;

	if ((rc = read_number(ld, l, "mlp.act_fn.alpha_p", 1, &positive)) != MODEL_OK ||
	    (rc = read_number(ld, l, "mlp.act_fn.alpha_n", 1, &negative)) != MODEL_OK ||
	    (rc = read_number(ld, l, "mlp.act_fn.beta", 0, &beta)) != MODEL_OK ||
	    (rc = read_number(ld, l, "mlp.act_fn.eps", 0, &eps)) != MODEL_OK)
		return rc;
	*p = (struct xielu){ (float)softplus(positive), (float)(beta + softplus(negative)),
		(float)beta, (float)eps };
	return MODEL_OK;
}

static int
bind_projections(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	const struct tensor_names *is = ld->m->family->names;
	struct model_layer *y = &ld->m->layer[l];
	const uint32_t D = id->hidden, F = id->ffn;
	const int mlp = id->mlp_bias;
	const struct part network[] = {
		{ is->gate_up != NULL ? is->gate_up : is->gate, F, D, &y->ffn.gate,
		    mlp ? &y->ffn_bias.gate : NULL },
		{ is->up, F, D, &y->ffn.up, mlp ? &y->ffn_bias.up : NULL },
		{ is->down, D, F, &y->ffn.down, mlp ? &y->ffn_bias.down : NULL },
	};

	const int gated = network[0].name != NULL;
	int rc;

	y->ffn.act = ld->m->family->act;
	if ((rc = bind_attention(ld, l)) != MODEL_OK || (y->ffn.act == ACT_XIELU &&
	    (rc = bind_xielu(ld, l, &y->ffn.xielu)) != MODEL_OK))
		return rc;
	if (model_layer_has_experts(ld->m, l))
		return bind_experts(ld, l);
	return bind_parts(ld, l, gated ? network : network + 1, gated ? 3 : 2);
}

/* host[n] (NULL: nothing) <- the numbers of a tensor */
static int
keep_numbers(struct loader *ld, const struct tensor *t, size_t n, float *host)
{
	if (t->dtype == 0)
		return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: dtype %s is not supported: want "
		    "BF16, F16 or F32", t->name, t->type);
	if (host != NULL)
		kv_to_f32(host, t->data, t->dtype, n);
	return MODEL_OK;
}

/* A LayerNorm of each head with weights of its own: in one tensor NAME.weight [heads][width]
 * (Command R+), or in NAME.0.weight and so on (StableLM 2) */
static int
bind_own_norms(struct loader *ld, uint32_t l, const char *name, uint32_t heads, uint32_t width,
    struct norm *norm)
{
	char full[TENSOR_NAME], part[TENSOR_NAME];
	const struct tensor *t;
	void *host, *device;
	float *w;
	uint32_t h;
	int rc;

	*norm = (struct norm){ .eps = (float)ld->m->id.norm_eps, .centred = 1, .heads = heads };
	device_block_reserve(&ld->constants, (size_t)heads * width * sizeof *w, &host, &device);
	norm->w = device;
	w = host;
	if (find_part(ld, l, name, ".weight", full) != NULL) {
		rc = need(ld, full, heads, width, &t);
		return rc != MODEL_OK ? rc : keep_numbers(ld, t, (size_t)heads * width, w);
	}
	for (h = 0; h < heads; h++) {
		snprintf(part, sizeof part, "%s.%u", name, h);
		if ((rc = need(ld, part_name(ld, l, part, ".weight", full), width, 0, &t)) !=
		    MODEL_OK || (rc = keep_numbers(ld, t, width,
		    w != NULL ? w + (size_t)h * width : NULL)) != MODEL_OK)
			return rc;
	}
	return MODEL_OK;
}

static int
bind_norms(struct loader *ld, uint32_t l)
{
	const struct kv_model *id = &ld->m->id;
	const struct tensor_names *is = ld->m->family->names;
	struct model_layer *y = &ld->m->layer[l];
	const uint32_t D = id->hidden, E = id->head_width;
	const enum family_head_norm of = ld->m->family->head_norm;
	const int wide = of == HEAD_NORM_WIDE;
	const uint32_t H = id->query_heads, G = model_weight_heads(ld->m);
	/* heads 0: a norm of rows */
	const struct { const char *name; uint32_t width, heads; struct norm *norm; } list[] = {
		{ is->attention_norm, D, 0, &y->norm }, { is->ffn_norm, D, 0, &y->ffn.norm },
		{ is->attention_adds, D, 0, &y->residuals[0].norm },
		{ is->ffn_adds, D, 0, &y->residuals[1].norm },
		{ is->q_norm, wide ? H * E : E, H, &y->q_norm },
		{ is->k_norm, wide ? G * E : E, G, &y->k_norm },
	};
	char full[TENSOR_NAME];
	size_t i;
	int rc = MODEL_OK;

	for (i = 0; rc == MODEL_OK && i < sizeof list / sizeof list[0]; i++)
		if (list[i].name != NULL && list[i].heads > 0 && of == HEAD_NORM_OWN)
			rc = bind_own_norms(ld, l, list[i].name, list[i].heads, E, list[i].norm);
		else if (list[i].name != NULL)
			rc = bind_norm(ld, part_name(ld, l, list[i].name, "", full), list[i].width,
			    list[i].norm);
	return rc;
}

int
bind_layer(struct loader *ld, uint32_t l)
{
	const struct tensor_names *is = ld->m->family->names;
	struct model_layer *y = &ld->m->layer[l];
	int rc = bind_projections(ld, l);
	char full[TENSOR_NAME];

	if (rc == MODEL_OK && is->sinks != NULL)
		rc = bind_vector(ld, part_name(ld, l, is->sinks, "", full),
		    ld->m->id.query_heads, &y->sinks);
	y->residuals[0].scale = y->residuals[1].scale = ld->m->residual_scale;
	if (is->attention_adds != NULL || ld->m->residual_scale != 1) {
		y->attention_adds = &y->residuals[0];
		y->ffn_adds = &y->residuals[1];
	}
	return rc == MODEL_OK ? bind_norms(ld, l) : rc;
}
