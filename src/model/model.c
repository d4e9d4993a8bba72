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

#include "model/bind_layer.h"
#include "model/family.h"
#include "model/leftovers.h"
#include "model/safetensors.h"

/* Names of the tensors outside of layers */
struct outer_names {
	char embed[TENSOR_NAME], head[TENSOR_NAME], head_bias[TENSOR_NAME], norm[TENSOR_NAME];
};

static struct outer_names
outer_names(const struct model *m)
{
	const char *head = m->family->names->head;
	struct outer_names n;

	/* GPT-NeoX and InternLM 2 as newer programs may write them */
	if (safetensors_find(m->files, tensor_name(m, head, ".weight", n.head)) == NULL &&
	    safetensors_find(m->files, "lm_head.weight") != NULL)
		head = "lm_head";
	tensor_name(m, m->family->names->embed, ".weight", n.embed);
	tensor_name(m, head, ".weight", n.head);
	tensor_name(m, m->family->names->head, ".bias", n.head_bias);
	tensor_name(m, m->family->names->norm, "", n.norm);
	return n;
}

/* A model with tied embeddings has them under one name or the other, or under both. */
static const char *
embedding_name(const struct model *m, const struct outer_names *n)
{
	const int other = m->id.tied_embeddings && safetensors_find(m->files, n->embed) == NULL &&
	    safetensors_find(m->files, n->head) != NULL;

	return other ? n->head : n->embed;
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
bind_tied_head(struct loader *ld, const struct outer_names *n)
{
	struct model *m = ld->m;
	const struct tensor *embed = safetensors_find(m->files, n->embed);
	const struct tensor *head = safetensors_find(m->files, n->head);

	m->head = m->embed;
	if (ld->constants.host != NULL || head == NULL || embed == NULL)
		return MODEL_OK;
	if (same_matrix(head, embed)) {
		ld->needed[head - safetensors_at(m->files, 0)] = 1;
		return MODEL_OK;
	}
	if (name_list_matches(&ld->overrides->tensors, n->head))
		return MODEL_OK;
	return FAIL(ld, MODEL_EINVALID, head->file, "%s differs from %s, but "
	    "tie_word_embeddings is true (--allow-tensor %s ignores it%s)", n->head, n->embed,
	    n->head, m->family->tied ? "" : ", --allow-config tie_word_embeddings uses it");
}

/* The head of a model whose embeddings are not tied */
static int
bind_head(struct loader *ld, const struct outer_names *n)
{
	struct model *m = ld->m;

	if (safetensors_find(m->files, n->head) == NULL &&
	    !checkpoint_has(&m->quantised, m->files, n->head))
		return FAIL(ld, MODEL_EINVALID, m->dir, "no tensor %s: if it is the "
		    "embedding, set \"tie_word_embeddings\": true in config.json", n->head);
	return bind_matrix(ld, n->head, m->id.vocabulary, m->id.hidden, &m->head);
}

/* The rotary embedding of each layer. freq, window_freq: on the device */
static void
bind_rope(struct model *m, const double *freq, const double *window_freq)
{
	const struct kv_model *id = &m->id;
	uint32_t l;

	m->no_rope = (struct rotary){ NULL, 0, 1, 0 };
	m->rope = (struct rotary){ freq, id->rope_width != 0 ? id->rope_width : id->head_width,
		id->rope_attention_factor != 0 ? (float)id->rope_attention_factor : 1,
		kv_rope_first(id) };
	m->window_rope = (struct rotary){ window_freq, m->rope.dims, 1, 0 };
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
	const struct outer_names names = outer_names(m);
	void *device, *window_device, *freq, *window_freq;
	int rc;

	ld->constants.used = ld->matrices = ld->copied = ld->quantised_bytes = ld->n_quantised = 0;
	device_block_reserve(&ld->constants, frequencies, &freq, &device);
	device_block_reserve(&ld->constants, frequencies, &window_freq, &window_device);
	if (freq != NULL) {
		model_rope_frequencies(&m->id, freq);
		model_window_frequencies(&m->id, window_freq);
	}
	bind_rope(m, device, window_device);
	if ((rc = bind_matrix(ld, embedding_name(m, &names), V, D, &m->embed)) != MODEL_OK)
		return rc;
	m->id.weights_dtype = elements_of(&m->embed);
	if (m->family->flags & FAMILY_ROOT_OF_WIDTH)
		scale_by_width(m);
	for (l = 0; l < m->id.layers; l++)
		if ((rc = bind_layer(ld, l)) != MODEL_OK)
			return rc;
	if ((rc = bind_norm(ld, names.norm, D, &m->norm)) != MODEL_OK)
		return rc;
	if ((m->family->flags & FAMILY_HEAD_BIAS) &&
	    (rc = bind_vector(ld, names.head_bias, V, &m->head_bias)) != MODEL_OK)
		return rc;
	if (m->id.tied_embeddings)
		return bind_tied_head(ld, &names);
	return bind_head(ld, &names);
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

static void
say_of_quantised(const struct loader *ld)
{
	if (ld->n_quantised > 0)
		notice(&ld->overrides->notice, "%s: %zu matrices are quantised (%s): computed with "
		    "as copies in bf16, %.1f MiB of memory", ld->m->dir, ld->n_quantised,
		    checkpoint_name(ld->m->quantised.method),
		    (double)ld->quantised_bytes / (1 << 20));
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
	ld->needed = calloc(safetensors_count(m->files) + 1, 1);
	if (m->layer == NULL || ld->needed == NULL)
		return FAIL(ld, MODEL_ENOMEM, dir, "out of memory");
	if ((rc = bind(ld)) != MODEL_OK ||
	    (rc = leftovers_check(m->files, ld->needed, m->wrapped, m->mixture.predicts ?
	    m->id.layers : UINT32_MAX, &m->quantised, ld->overrides, ld->err, ld->errlen)) !=
	    MODEL_OK)
		return rc;
	m->constant_bytes = ld->constants.used;
	m->matrix_bytes = ld->matrices;
	m->copy_bytes = ld->copied;
	say_of_quantised(ld);
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
	for (i = 0; i < m->n_copies; i++)
		free(m->copies[i]);
	free(m->copies);
	safetensors_close(m->files);
	free(m->needed);
	free(m->layer);
	free(m->dir);
	free(m);
}
