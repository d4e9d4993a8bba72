/* gate.c - the tensors of a gate, checked against a model and on its device; and its run
 *
 * As in adapter.c, two passes over the same list of tensors: the first checks names and shapes and
 * adds up sizes, the second copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gate.h"
#include "model/made_for.h"
#include "model/model_files.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"
#include "ops/device_block.h"

#define OURS "kvpipe_gate"
#define TARGET "target_weights"
#define NORM_EPS 1e-6F          /* of Fast KVzip */

struct gate_loader {
	struct gate *gate;
	const struct overrides *overrides;
	struct device_block block;
	uint32_t layer;                         /* whose tensors are looked up */
	size_t seen;                            /* tensors looked up so far */
	char *err;
	size_t errlen;
};

#define FAIL(ld, code, file, ...) model_file_fail((ld)->err, (ld)->errlen, code, file, __VA_ARGS__)

static const struct tensor *
find(const struct gate_loader *ld, const char *part)
{
	char name[64];

	snprintf(name, sizeof name, "layers.%u.%s", ld->layer, part);
	return safetensors_find(ld->gate->files, name);
}

/* Looks up a tensor of the layer that must be there, [rows][cols], or the vector [rows]. */
static int
need(struct gate_loader *ld, const char *part, uint32_t rows, uint32_t cols,
    const struct tensor **out)
{
	const struct gate *gate = ld->gate;
	char name[64];
	size_t at;
	int rc;

	snprintf(name, sizeof name, "layers.%u.%s", ld->layer, part);
	rc = tensor_need(gate->files, gate->dir, name, rows, cols, out, ld->err, ld->errlen);
	if (rc == MODEL_OK && ld->block.host == NULL && tensor_not_finite(*out, &at))
		rc = FAIL(ld, MODEL_EINVALID, (*out)->file, "%s: element %zu is not finite", name,
		    at);
	ld->seen++;
	return rc;
}

static int
take_matrix(struct gate_loader *ld, const char *part, uint32_t out, uint32_t in, struct mat *w)
{
	const struct tensor *t;
	void *host, *device;
	const int rc = need(ld, part, out, in, &t);

	if (rc != MODEL_OK)
		return rc;
	device_block_reserve(&ld->block, t->bytes, &host, &device);
	if (host != NULL)
		memcpy(host, t->data, t->bytes);
	*w = (struct mat){ device, weight_type_of(t->dtype), out, in };
	return MODEL_OK;
}

static int
take_vector(struct gate_loader *ld, const char *part, uint32_t n, const float **v)
{
	const struct tensor *t;
	void *host, *device;
	const int rc = need(ld, part, n, 0, &t);

	if (rc != MODEL_OK)
		return rc;
	device_block_reserve(&ld->block, n * sizeof(float), &host, &device);
	if (host != NULL)
		kv_to_f32(host, t->data, t->dtype, n);
	*v = device;
	return MODEL_OK;
}

/* Room on the device for so many numbers of each row */
static float *
take_scratch(struct gate_loader *ld, uint32_t width)
{
	void *host, *device;

	device_block_reserve(&ld->block, (size_t)GATE_ROWS * width * sizeof(float), &host,
	    &device);
	return device;
}

/* sinks->base <- k_base [G][S][m], with the sinks of a KV head side by side */
static int
take_base(struct gate_loader *ld, struct gate_sinks *sinks)
{
	const size_t m = sinks->width, S = sinks->sinks, n = sinks->heads * S * m;
	const struct tensor *t;
	void *host, *device;
	float *x, *to;
	size_t i;
	int rc = need(ld, "k_base", (uint32_t)(sinks->heads * S), (uint32_t)m, &t);

	if (rc != MODEL_OK)
		return rc;
	device_block_reserve(&ld->block, n * sizeof(float), &host, &device);
	if ((to = host) != NULL) {
		if ((x = malloc(n * sizeof *x)) == NULL)
			return FAIL(ld, MODEL_ENOMEM, ld->gate->dir, "out of memory");
		kv_to_f32(x, t->data, t->dtype, n);
		for (i = 0; i < n; i++)
			to[i / (S * m) * S * m + i % m * S + i / m % S] = x[i];
		free(x);
	}
	sinks->base = device;
	return MODEL_OK;
}

static int
take_kvzap(struct gate_loader *ld, struct gate_layer *to)
{
	const struct kv_model *id = &ld->gate->model->id;
	const uint32_t D = id->hidden, G = model_weight_heads(ld->gate->model);
	const uint32_t hidden = ld->gate->width;
	int rc;

	if (ld->gate->kind == GATE_LINEAR) {
		if ((rc = take_matrix(ld, "weight", G, D, &to->first)) != MODEL_OK)
			return rc;
		return take_vector(ld, "bias", G, &to->first_bias);
	}
	if ((rc = take_matrix(ld, "0.weight", hidden, D, &to->first)) != MODEL_OK ||
	    (rc = take_vector(ld, "0.bias", hidden, &to->first_bias)) != MODEL_OK ||
	    (rc = take_matrix(ld, "2.weight", G, hidden, &to->second)) != MODEL_OK)
		return rc;
	return take_vector(ld, "2.bias", G, &to->second_bias);
}

static int
take_fastkvzip(struct gate_loader *ld, struct gate_layer *to)
{
	const struct kv_model *id = &ld->gate->model->id;
	const uint32_t D = id->hidden, G = model_weight_heads(ld->gate->model);
	const uint32_t m = ld->gate->width;
	struct gate_sinks *s = &to->sinks;
	int rc;

	s->heads = G;
	s->group = id->query_heads / G;
	s->width = m;
	s->sinks = ld->gate->sinks;
	s->q_norm.eps = s->k_norm.eps = NORM_EPS;
	if ((rc = take_matrix(ld, "q_proj.weight", id->query_heads * m, D, &to->first)) !=
	    MODEL_OK ||
	    (rc = take_vector(ld, "q_proj.bias", id->query_heads * m, &to->first_bias)) !=
	    MODEL_OK ||
	    (rc = take_matrix(ld, "k_proj.weight", G * m, D, &to->second)) != MODEL_OK ||
	    (rc = take_vector(ld, "q_norm.weight", m, &s->q_norm.w)) != MODEL_OK ||
	    (rc = take_vector(ld, "k_norm.weight", m, &s->k_norm.w)) != MODEL_OK ||
	    (rc = take_base(ld, s)) != MODEL_OK)
		return rc;
	return take_vector(ld, "b", id->query_heads, &s->bias);
}

static int
take_all(struct gate_loader *ld)
{
	struct gate *gate = ld->gate;
	const struct kv_model *id = &gate->model->id;
	const uint32_t heads = model_weight_heads(gate->model);
	int rc = MODEL_OK;

	ld->block.used = 0;
	ld->seen = 0;
	gate->scores = take_scratch(ld, heads);
	gate->first = take_scratch(ld, gate->kind == GATE_LINEAR ? 0 :
	    gate->kind == GATE_MLP ? gate->width : id->query_heads * gate->width);
	gate->second = take_scratch(ld, gate->kind == GATE_SINKS ? heads * gate->width : 0);
	for (ld->layer = 0; rc == MODEL_OK && ld->layer < id->layers; ld->layer++)
		rc = (gate->kind == GATE_SINKS ? take_fastkvzip : take_kvzap)(ld,
		    &gate->layer[ld->layer]);
	gate->bytes = ld->block.used;
	if (rc == MODEL_OK && ld->seen != safetensors_count(gate->files))
		return FAIL(ld, MODEL_EINVALID, gate->dir, "%zu tensors: a gate of this kind for "
		    "the %u layers of %s has %zu", safetensors_count(gate->files), id->layers,
		    gate->model->dir, ld->seen);
	return rc;
}

/* ---- the folder ---- */

/* The kind, and the sizes that the model does not give, by the tensors of the first layer */
static int
find_kind(struct gate_loader *ld)
{
	struct gate *gate = ld->gate;
	const struct tensor *hidden = find(ld, "0.weight"), *norm = find(ld, "q_norm.weight");
	const struct tensor *base = find(ld, "k_base"), *sized = hidden != NULL ? hidden : norm;

	gate->kind = hidden != NULL ? GATE_MLP : norm != NULL ? GATE_SINKS : GATE_LINEAR;
	gate->method = norm != NULL ? "fastkvzip" : "kvzap";
	if (sized == NULL && find(ld, "weight") == NULL)
		return FAIL(ld, MODEL_EINVALID, gate->dir, "no tensor layers.0.weight, "
		    "layers.0.0.weight or layers.0.q_norm.weight: it is no gate of KVzap or Fast "
		    "KVzip");
	if (sized != NULL && (sized->ndim == 0 || sized->dim[0] == 0 || sized->dim[0] > 65536))
		return FAIL(ld, MODEL_EINVALID, sized->file, "%s: its first dimension is not from "
		    "1 to 65536", sized->name);
	gate->width = sized != NULL ? (uint32_t)sized->dim[0] : 0;
	if (gate->kind == GATE_SINKS && base != NULL && base->ndim == 2)
		gate->sinks = base->dim[0] <= UINT32_MAX ?
		    (uint32_t)base->dim[0] / model_weight_heads(gate->model) : 0;
	return MODEL_OK;
}

/* Compares the model with the one that config.json names, if the folder has it. */
static int
check_model(struct gate_loader *ld)
{
	struct gate *gate = ld->gate;
	char *path = model_file_path(gate->dir, "config.json");
	json_t *json;
	int rc = MODEL_OK;

	if (path == NULL)
		return FAIL(ld, MODEL_ENOMEM, gate->dir, "out of memory");
	if (access(path, F_OK) == 0 &&
	    (rc = model_file_json(path, &json, ld->err, ld->errlen)) == MODEL_OK) {
		rc = made_for(json_object_get(json_object_get(json, OURS), TARGET), TARGET,
		    path, gate->model, &gate->by_samples, ld->err, ld->errlen);
		json_decref(json);
	}
	free(path);
	return rc;
}

static int
name_gate(struct gate_loader *ld)
{
	static const char *const kinds[] = { " linear", " mlp", "" };
	struct gate *gate = ld->gate;
	struct weights_reading reading = gate->model->reading;
	char hash[33];
	const int rc = weights_hash(gate->files, &reading, hash, ld->err, ld->errlen);

	if (rc == MODEL_OK)
		snprintf(gate->label, sizeof gate->label, "%s%s %s", gate->method,
		    kinds[gate->kind], hash);
	return rc;
}

static int
read_folder(struct gate_loader *ld)
{
	struct gate *gate = ld->gate;
	int rc = safetensors_open(gate->dir, ld->overrides, &gate->files, ld->err, ld->errlen);

	if (rc == MODEL_OK)
		rc = find_kind(ld);
	if (rc == MODEL_OK)
		rc = check_model(ld);
	if (rc == MODEL_OK && (gate->layer = calloc(gate->model->id.layers,
	    sizeof *gate->layer)) == NULL)
		rc = FAIL(ld, MODEL_ENOMEM, gate->dir, "out of memory");
	if (rc == MODEL_OK)
		rc = take_all(ld);
	return rc == MODEL_OK ? name_gate(ld) : rc;
}

int
gate_open(const char *dir, const struct model *m, const struct overrides *overrides,
    struct gate **out, char *err, size_t errlen)
{
	struct gate_loader ld = { .gate = calloc(1, sizeof *ld.gate), .overrides = overrides,
	    .err = err, .errlen = errlen };
	int rc;

	*out = NULL;
	if (ld.gate == NULL || (ld.gate->dir = strdup(dir)) == NULL) {
		free(ld.gate);
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	}
	ld.gate->model = m;
	rc = read_folder(&ld);
	if (rc == MODEL_OK)
		*out = ld.gate;
	else
		gate_free(ld.gate);
	return rc;
}

int
gate_bind(struct gate *gate, char *err, size_t errlen)
{
	const struct model *m = gate->model;
	struct gate_loader ld = { .gate = gate, .overrides = &no_overrides, .err = err,
	    .errlen = errlen };
	const int there = device_block_begin(&ld.block, m->ops, m->dev, gate->bytes);
	const char *why;
	int rc = MODEL_ENOMEM;

	gate->block = ld.block.device;
	if (!there)
		FAIL(&ld, rc, gate->dir, "no room for the %zu bytes of the gate", gate->bytes);
	else if ((rc = take_all(&ld)) == MODEL_OK) {
		if ((why = device_block_put(&ld.block, m->ops, m->dev)) != NULL)
			rc = FAIL(&ld, MODEL_EIO, gate->dir, "%s", why);
	}
	device_block_end(&ld.block);
	return rc;
}

void
gate_free(struct gate *gate)
{
	if (gate == NULL)
		return;
	if (gate->block != NULL)
		gate->model->ops->free(gate->model->dev, gate->block);
	safetensors_close(gate->files);
	free(gate->layer);
	free(gate->dir);
	free(gate);
}

/* ---- the run ---- */

/* gate->scores <- those of at most GATE_ROWS rows */
static void
run_some(const struct gate *gate, uint32_t l, const float *x, float *xn, uint32_t N)
{
	const struct model *m = gate->model;
	const struct gate_layer *w = &gate->layer[l];
	const struct product first = { gate->kind == GATE_LINEAR ? gate->scores : gate->first,
		&w->first, w->first_bias };
	const struct product both[] = { first, { gate->second, &w->second, NULL } };

	run_project(m->ops, m->dev, both, gate->kind == GATE_SINKS ? 2 : 1, x, &m->layer[l].norm,
	    xn, N);
	if (gate->kind == GATE_MLP) {
		m->ops->activate(m->dev, gate->first, (size_t)N * gate->width, ACT_GELU,
		    NULL);
		m->ops->matmul(m->dev, gate->scores, gate->first, &w->second, w->second_bias, N, 0);
	}
	if (gate->kind == GATE_SINKS)
		m->ops->gate_scores(m->dev, gate->scores, gate->first, gate->second, &w->sinks, N);
}

/* scores[n * copies] <- each of the n numbers at its beginning so many times */
static void
repeat_scores(float *scores, size_t n, uint32_t copies)
{
	uint32_t i;

	while (n-- > 0)
		for (i = copies; i-- > 0;)
			scores[n * copies + i] = scores[n];
}

void
gate_run(const struct gate *gate, uint32_t l, const float *x, float *xn, uint32_t N, float *scores)
{
	const struct model *m = gate->model;
	const size_t D = m->id.hidden, G = model_weight_heads(m);
	uint32_t at, n;

	for (at = 0; at < N; at += n) {
		n = N - at < GATE_ROWS ? N - at : GATE_ROWS;
		run_some(gate, l, x + at * D, xn, n);
		m->ops->get(m->dev, scores + at * G, gate->scores, n * G * sizeof *scores);
	}
	if (m->kv_copies > 1)
		repeat_scores(scores, N * G, m->kv_copies);
}
