/* bind_experts.c - the tensors of a mixture of experts, in the forms that files have
 *
 * One tensor for each matrix of each expert; or one for a matrix of all, [M][F][D], as GGUF files
 * have them; or one with gate and up of all on top of each other, [M][2 F][D]. The ops have a
 * table of pointers whatever the form is, and weights stay as they are stored. */
#include <stdio.h>
#include <string.h>

#include "model/bind_layer.h"
#include "model/family.h"
#include "model/safetensors.h"

const void **
bind_table(struct loader *ld, uint32_t n, struct expert_mats *w)
{
	void *host, *device;

	device_block_reserve(&ld->constants, n * sizeof *w->at, &host, &device);
	w->at = device;
	return host;
}

static int
same_type(struct loader *ld, const char *name, enum weight_type type, struct expert_mats *w,
    uint32_t e)
{
	if (e > 0 && w->type != type)
		return FAIL(ld, MODEL_EUNSUPPORTED, ld->m->dir, "%s: of type %s, as other experts "
		    "are not", name, weight_type_name(type));
	w->type = type;
	return MODEL_OK;
}

/* ---- a tensor for each expert ---- */

static int
bind_each(struct loader *ld, uint32_t l, const char *part, struct expert_mats *w)
{
	const struct expert_names *is = ld->m->family->experts->names;
	const uint32_t M = ld->m->mixture.router.experts;
	const void **table = bind_table(ld, M, w);
	char name[TENSOR_NAME], full[TENSOR_NAME];
	struct mat mat;
	uint32_t e;
	int rc;

	for (e = 0; e < M; e++) {
		snprintf(name, sizeof name, "%s.%u.%s", is->experts, e, part);
		part_name(ld, l, name, ".weight", full);
		if ((rc = bind_matrix(ld, full, w->out, w->in, &mat)) != MODEL_OK)
			return rc;
		if ((rc = same_type(ld, full, mat.type, w, e)) != MODEL_OK)
			return rc;
		if (table != NULL)
			table[e] = mat.data;
	}
	return MODEL_OK;
}

/* ---- a tensor for all experts ---- */

/* The tensor of a part of a layer that has all experts, with or without .weight; NULL: none */
static const struct tensor *
find_all(const struct loader *ld, uint32_t l, const char *part, char full[TENSOR_NAME])
{
	const struct tensor *t;

	if (part == NULL)
		return NULL;
	t = find_part(ld, l, part, "", full);
	return t != NULL ? t : find_part(ld, l, part, ".weight", full);
}

/* w, and more (NULL: nothing) behind it, <- [M][w->out + more->out][in] */
static int
bind_all(struct loader *ld, const struct tensor *t, struct expert_mats *w, struct expert_mats *more)
{
	const uint32_t M = ld->m->mixture.router.experts;
	const uint32_t rows = w->out + (more != NULL ? more->out : 0);
	const void **table = bind_table(ld, M, w);
	const void **next = more != NULL ? bind_table(ld, M, more) : NULL;
	const size_t row = weight_row_bytes(t->weight, w->in);
	const char *data = NULL;
	struct mat mat;
	uint32_t e;
	int rc;

	if ((rc = bind_tensor_of_all(ld, t, M, rows, w->in, &mat)) != MODEL_OK)
		return rc;
	data = mat.data;
	w->type = t->weight;
	if (more != NULL)
		more->type = t->weight;
	for (e = 0; table != NULL && e < M; e++) {
		table[e] = data + (size_t)e * rows * row;
		if (next != NULL)
			next[e] = data + ((size_t)e * rows + w->out) * row;
	}
	return MODEL_OK;
}

/* One matrix of all experts, in whichever form the files have it: in a tensor for all, else in one
 * for each. */
static int
bind_mats(struct loader *ld, uint32_t l, const char *all, const char *part, struct expert_mats *w)
{
	const struct expert_names *is = ld->m->family->experts->names;
	char full[TENSOR_NAME], stacked[TENSOR_NAME];
	const struct tensor *t;

	if (all == NULL && is->experts != NULL) {
		snprintf(stacked, sizeof stacked, "%s.%s", is->experts, part);
		all = stacked;
	}
	if ((t = find_all(ld, l, all, full)) != NULL)
		return bind_all(ld, t, w, NULL);
	if (is->experts == NULL)
		return FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s", full);
	return bind_each(ld, l, part, w);
}

static int
bind_matrices(struct loader *ld, uint32_t l, struct experts *e)
{
	const struct expert_names *is = ld->m->family->experts->names;
	const uint32_t D = ld->m->id.hidden, F = ld->m->mixture.width;
	char full[TENSOR_NAME], other[TENSOR_NAME];
	const struct tensor *t;
	int rc;

	e->gate = e->up = (struct expert_mats){ .out = F, .in = D };
	e->down = (struct expert_mats){ .out = D, .in = F };
	if ((t = find_all(ld, l, is->gate_up, full)) != NULL)
		rc = bind_all(ld, t, &e->gate, &e->up);
	else if (is->experts == NULL && find_all(ld, l, is->all_gate, other) == NULL &&
	    find_all(ld, l, is->all_up, other) == NULL)
		rc = FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s", full);
	else if ((rc = bind_mats(ld, l, is->all_gate, is->gate, &e->gate)) == MODEL_OK)
		rc = bind_mats(ld, l, is->all_up, is->up, &e->up);
	return rc != MODEL_OK ? rc : bind_mats(ld, l, is->all_down, is->down, &e->down);
}

/* ---- the rest ---- */

/* The network that all rows take */
static int
bind_shared(struct loader *ld, uint32_t l)
{
	const struct expert_names *is = ld->m->family->experts->names;
	const uint32_t D = ld->m->id.hidden, F = ld->m->mixture.shared;
	struct model_layer *y = &ld->m->layer[l];
	char full[TENSOR_NAME];
	const int apart = is->shared_gate_up == NULL || (is->shared_gate != NULL &&
	    find_part(ld, l, is->shared_gate, ".weight", full) != NULL);
	const struct part parts[] = {
		{ apart ? is->shared_gate : is->shared_gate_up, F, D, &y->ffn.gate, NULL },
		{ apart ? is->shared_up : NULL, F, D, &y->ffn.up, NULL },
		{ is->shared_down, D, F, &y->ffn.down, NULL },
		{ is->shared_score, 1, D, &y->shared_score, NULL },
	};

	return F == 0 ? MODEL_OK : bind_parts(ld, l, parts, is->shared_score != NULL ? 4 : 3);
}

/* gpt-oss' in GGUF files: upright, and gate and up apart */
static int
bind_upright(struct loader *ld, uint32_t l, struct experts *e)
{
	const struct expert_names *is = ld->m->family->experts->names;
	const uint32_t M = ld->m->mixture.router.experts;
	const struct { const char *part; struct expert_mats *w; } list[] = {
		{ is->all_gate, &e->gate }, { is->all_up, &e->up }, { is->all_down, &e->down } };
	size_t i;
	int rc = bind_matrices(ld, l, e);

	for (i = 0; rc == MODEL_OK && i < sizeof list / sizeof list[0]; i++)
		rc = bind_expert_biases(ld, l, list[i].part, ".bias", M, list[i].w, NULL);
	return rc;
}

static int
bind_in_turns_or_upright(struct loader *ld, uint32_t l, struct experts *e)
{
	const struct expert_names *is = ld->m->family->experts->names;
	char full[TENSOR_NAME];

	return (find_all(ld, l, is->all_gate, full) != NULL ||
	    find_all(ld, l, is->all_up, full) != NULL ? bind_upright : bind_experts_in_turns)(ld,
	    l, e);
}

int
bind_experts(struct loader *ld, uint32_t l)
{
	const struct expert_names *is = ld->m->family->experts->names;
	struct model_layer *y = &ld->m->layer[l];
	struct experts *e = &y->experts;
	const uint32_t M = ld->m->mixture.router.experts;
	const struct part router = { is->router, M, ld->m->id.hidden, &e->router.w,
		is->in_turns ? &e->router.bias : NULL };
	char full[TENSOR_NAME];
	int rc;

	if (ld->m->ops->experts == NULL)
		return FAIL(ld, MODEL_EUNSUPPORTED, ld->m->dir, "a mixture of experts: %s does not "
		    "compute it (--device cpu does)", ld->m->ops->name);
	e->router = ld->m->mixture.router;
	e->act = ld->m->family->act;
	e->limit = ld->m->mixture.limit;
	if ((rc = bind_parts(ld, l, &router, 1)) != MODEL_OK ||
	    (rc = (is->in_turns ? bind_in_turns_or_upright : bind_matrices)(ld, l, e)) != MODEL_OK)
		return rc;
	if (ld->m->mixture.corrected && (rc = bind_row(ld, part_name(ld, l, is->correction, "",
	    full), M, &e->router.correction)) != MODEL_OK)
		return rc;
	return bind_shared(ld, l);
}
