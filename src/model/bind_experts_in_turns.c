/* bind_experts_in_turns.c - the experts of gpt-oss, whose files have gate and up in turns
 *
 * Elements: gate_up_proj [M][D][2 F], column 2 f of gate and 2 f + 1 of up, and down_proj
 * [M][F][D]: each expert's matrix lies on its side. MXFP4: NAME_blocks [M][rows][in / 32][16], two
 * elements a byte, 2 i in the low half and 2 i + 1 in the high one, and NAME_scales
 * [M][rows][in / 32], powers of two (OCP Microscaling Formats, 2023, section 5.1; in safetensors as
 * transformers' integrations/mxfp4.py has them). Neither is a form of the ops: what they compute
 * with are copies, [M][2 F][D] with the rows of gate before those of up, and [M][D][F], of the same
 * elements or of blocks of llama.cpp (weight_type.h). The numbers are the same, to the bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bind_layer.h"
#include "model/family.h"
#include "model/safetensors.h"
#include "model/tensor_shape.h"

enum { ELEMENTS = 32, CODES = 16, BLOCK = 1 + CODES };  /* of a block: elements, bytes */

/* One matrix of all experts as the files have it: elements, or blocks and scales */
struct turned {
	const struct tensor *elements, *codes, *scales;
	uint32_t M, out, in;
	int turns;              /* 1: row i of the copy is row 2 i, in the second half 2 i + 1 */
};

static const struct tensor *
look(struct loader *ld, uint32_t l, const char *part, const char *what, char full[TENSOR_NAME])
{
	const struct tensor *t = find_part(ld, l, part, what, full);

	if (t != NULL)
		ld->needed[t - safetensors_at(ld->m->files, 0)] = 1;
	return t;
}

/* A tensor of bytes, of this shape */
static int
check_bytes(struct loader *ld, const struct tensor *t, const uint64_t *dim, unsigned ndim)
{
	if (strcmp(t->type, "U8") != 0)
		return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: dtype %s, and MXFP4 has U8",
		    t->name, t->type);
	return tensor_shape(t, dim, ndim, ld->err, ld->errlen);
}

static int
find_turned(struct loader *ld, uint32_t l, const char *part, struct turned *x)
{
	const uint64_t M = x->M, blocks = x->in / ELEMENTS;
	char full[TENSOR_NAME], name[TENSOR_NAME];

	if ((x->elements = look(ld, l, part, "", full)) != NULL)
		return tensor_check(x->elements, (const uint64_t[]){ M, x->in, x->out }, 3,
		    ld->err, ld->errlen);
	x->codes = look(ld, l, part, "_blocks", name);
	x->scales = look(ld, l, part, "_scales", name);
	if (x->codes == NULL)
		return FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s or %s_blocks", full,
		    full);
	if (x->scales == NULL)
		return FAIL(ld, MODEL_EINVALID, x->codes->file, "%s: no tensor %s", x->codes->name,
		    name);
	if (x->in % ELEMENTS != 0)
		return FAIL(ld, MODEL_EINVALID, x->codes->file, "%s: rows of %u, and a block of "
		    "MXFP4 has %d", x->codes->name, x->in, ELEMENTS);
	if (check_bytes(ld, x->codes, (const uint64_t[]){ M, x->out, blocks, CODES }, 4) !=
	    MODEL_OK || check_bytes(ld, x->scales, (const uint64_t[]){ M, x->out, blocks }, 3) !=
	    MODEL_OK)
		return MODEL_EINVALID;
	return MODEL_OK;
}

/* The row of the files that is row i of the copy */
static size_t
source_row(const struct turned *x, size_t i)
{
	const size_t half = x->out / 2;

	return !x->turns ? i : i < half ? 2 * i : 2 * (i - half) + 1;
}

/* The matrix of one expert, upright: tiles, so that neither side leaves the cache */
static void
turn_elements(const struct turned *x, uint32_t e, uint8_t *to)
{
	const size_t size = kv_dtype_size(x->elements->dtype), in = x->in, out = x->out;
	const uint8_t *from = (const uint8_t *)x->elements->data + e * in * out * size;
	enum { TILE = 32 };
	size_t i, k, o, d;

	for (i = 0; i < out; i += TILE)
		for (k = 0; k < in; k += TILE)
			for (o = i; o < out && o < i + TILE; o++)
				for (d = k; d < in && d < k + TILE; d++)
					memcpy(to + (o * in + d) * size,
					    from + (d * out + source_row(x, o)) * size, size);
}

/* to <- a block of llama.cpp: the scale, then element j in the low half of byte j and j + 16 in the
 * high one */
static void
put_block(uint8_t *to, const uint8_t *codes, uint8_t scale)
{
	size_t j;

	*to++ = scale;
	for (j = 0; j < CODES; j++) {
		const unsigned shift = j % 2 * 4;

		to[j] = (uint8_t)((codes[j / 2] >> shift & 0xf) |
		    (codes[CODES / 2 + j / 2] >> shift & 0xf) << 4);
	}
}

static void
turn_blocks(const struct turned *x, uint32_t e, uint8_t *to)
{
	const size_t blocks = x->in / ELEMENTS;
	const uint8_t *codes = x->codes->data, *scales = x->scales->data;
	size_t o, b, at;

	for (o = 0; o < x->out; o++)
		for (b = 0; b < blocks; b++, to += BLOCK) {
			at = (e * (size_t)x->out + source_row(x, o)) * blocks + b;
			put_block(to, codes + at * CODES, scales[at]);
		}
}

/* A scale of all ones is not a number (OCP, section 5.4.1). */
static int
check_scales(struct loader *ld, const struct turned *x)
{
	const uint8_t *scale = x->scales->data, *bad = memchr(scale, 0xff, x->scales->bytes);

	return bad == NULL ? MODEL_OK : FAIL(ld, MODEL_EINVALID, x->scales->file, "%s: number %zu "
	    "is a NaN", x->scales->name, (size_t)(bad - scale));
}

/* w, and more (NULL: nothing) behind it in each expert */
static int
bind_turned(struct loader *ld, const struct turned *x, struct expert_mats *w,
    struct expert_mats *more)
{
	const enum weight_type type = x->elements != NULL ? x->elements->weight : WEIGHT_MXFP4;
	const struct tensor *t = x->elements != NULL ? x->elements : x->codes;
	const size_t row = weight_row_bytes(type, x->in), each = x->out * row;
	const void **table = bind_table(ld, x->M, w);
	const void **next = more != NULL ? bind_table(ld, x->M, more) : NULL;
	uint8_t *copy = NULL;
	const char *data;
	uint32_t e;
	int rc;

	w->type = type;
	if (more != NULL)
		more->type = type;
	if (x->scales != NULL && (rc = check_scales(ld, x)) != MODEL_OK)
		return rc;
	if (table != NULL && (copy = malloc(x->M * each)) == NULL)
		return FAIL(ld, MODEL_ENOMEM, t->file, "%s: no memory for its rows in another "
		    "order, %zu bytes", t->name, x->M * each);
	for (e = 0; copy != NULL && e < x->M; e++)
		(x->elements != NULL ? turn_elements : turn_blocks)(x, e, copy + e * each);
	if ((rc = bind_copy(ld, t, type, copy, x->M * each, (const void **)&data)) != MODEL_OK)
		return rc;
	for (e = 0; table != NULL && e < x->M; e++) {
		table[e] = data + e * each;
		if (next != NULL)
			next[e] = data + e * each + w->out * row;
	}
	return MODEL_OK;
}

int
bind_expert_biases(struct loader *ld, uint32_t l, const char *part, const char *what, uint32_t M,
    struct expert_mats *w, struct expert_mats *more)
{
	const uint32_t n = w->out + (more != NULL ? more->out : 0), step = more != NULL ? 2 : 1;
	float *host[2] = { NULL, NULL }, row[2];
	struct expert_mats *const of[2] = { w, more };
	char full[TENSOR_NAME];
	const struct tensor *t = look(ld, l, part, what, full);
	void *memory, *device;
	size_t size, i;
	uint32_t k;
	int rc;

	if (t == NULL)
		return FAIL(ld, MODEL_EINVALID, ld->m->dir, "no tensor %s", full);
	if ((rc = tensor_check(t, (const uint64_t[]){ M, n }, 2, ld->err, ld->errlen)) != MODEL_OK)
		return rc;
	if (t->dtype == 0)
		return FAIL(ld, MODEL_EUNSUPPORTED, t->file, "%s: dtype %s: want BF16, F16 or F32",
		    t->name, t->type);
	size = kv_dtype_size(t->dtype);
	for (k = 0; k < step; k++) {
		device_block_reserve(&ld->constants, (size_t)M * w->out * sizeof(float), &memory,
		    &device);
		host[k] = memory;
		of[k]->bias = device;
	}
	for (i = 0; host[0] != NULL && i < (size_t)M * w->out; i++) {
		kv_to_f32(row, (const uint8_t *)t->data + i * step * size, t->dtype, step);
		for (k = 0; k < step; k++)
			host[k][i] = row[k];
	}
	return MODEL_OK;
}

int
bind_experts_in_turns(struct loader *ld, uint32_t l, struct experts *e)
{
	const struct expert_names *is = ld->m->family->experts->names;
	const uint32_t M = ld->m->mixture.router.experts, D = ld->m->id.hidden;
	const uint32_t F = ld->m->mixture.width;
	struct turned both = { .M = M, .out = 2 * F, .in = D, .turns = 1 };
	struct turned down = { .M = M, .out = D, .in = F };
	int rc;

	e->gate = e->up = (struct expert_mats){ .out = F, .in = D };
	e->down = (struct expert_mats){ .out = D, .in = F };
	if ((rc = find_turned(ld, l, is->gate_up, &both)) != MODEL_OK ||
	    (rc = find_turned(ld, l, is->all_down, &down)) != MODEL_OK ||
	    (rc = bind_turned(ld, &both, &e->gate, &e->up)) != MODEL_OK ||
	    (rc = bind_turned(ld, &down, &e->down, NULL)) != MODEL_OK ||
	    (rc = bind_expert_biases(ld, l, is->gate_up, "_bias", M, &e->gate, &e->up)) !=
	    MODEL_OK)
		return rc;
	return bind_expert_biases(ld, l, is->all_down, "_bias", M, &e->down, NULL);
}
