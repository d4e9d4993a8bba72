/* checkpoint_nf4.c - bitsandbytes with load_in_4bit: NF4 and FP4, codes of 4 bits in blocks of a
 * matrix's consecutive numbers
 *
 * NAME.weight has two codes in a byte, the first in the upper half, without regard to rows; absmax
 * one f32 of each block. With nested quantisation (QLoRA's "double") absmax are bytes, numbers of
 * nested_quant_map, with an f32 of nested_absmax for each block of them, and all plus an offset.
 * What is not in tensors is JSON in quant_state.bitsandbytes__nf4, as bytes.
 *
 * x = map[code] * absmax in f32, rounded to the dtype that the JSON names, and absmax =
 * nested_map[byte] * nested_absmax + offset in f32, as bitsandbytes.functional.dequantize_4bit. The
 * maps of the 16 codes are checked and not taken from the file, which is as bitsandbytes has it,
 * too. */
#include <jansson.h>
#include <math.h>

#include "model/checkpoint_internal.h"

/* QLoRA (Dettmers et al. 2023), appendix E */
static const float nf4_map[16] = {
	-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
	-0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
	0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
	0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f
};

/* bitsandbytes' FP4: sign, 2 bits of exponent, 1 of mantissa, divided by the largest */
static const float fp4_map[16] = {
	0, 0.0625f / 12, 8.0f / 12, 1, 4.0f / 12, 6.0f / 12, 2.0f / 12, 3.0f / 12,
	0, -0.0625f / 12, -8.0f / 12, -1, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12
};

static const struct kind {
	const char *name, *state;
	const float *map;
} kinds[] = {
	{ "nf4", "weight.quant_state.bitsandbytes__nf4", nf4_map },
	{ "fp4", "weight.quant_state.bitsandbytes__fp4", fp4_map },
};

static const struct kind *
find_kind(const struct checkpoint_search *s)
{
	return checkpoint_part(s, kinds[0].state) != NULL ? &kinds[0] :
	    checkpoint_part(s, kinds[1].state) != NULL ? &kinds[1] : NULL;
}

static int
has(const struct checkpoint_search *s)
{
	return find_kind(s) != NULL;
}

/* A power of two, as bitsandbytes has them; 0: not there, or another number */
static uint32_t
block_of(const json_t *state, const char *key)
{
	const json_int_t n = json_integer_value(json_object_get(state, key));

	return n >= 16 && n <= 65536 && (n & (n - 1)) == 0 ? (uint32_t)n : 0;
}

static int
read_dtype(const json_t *state, enum kv_dtype *out)
{
	static const struct { const char *name; enum kv_dtype dtype; } types[] = {
		{ "bfloat16", KV_BF16 }, { "float16", KV_F16 }, { "float32", KV_F32 } };
	const char *name = json_string_value(json_object_get(state, "dtype"));
	size_t i;

	for (i = 0; name != NULL && i < sizeof types / sizeof types[0]; i++)
		if (strcmp(types[i].name, name) == 0) {
			*out = types[i].dtype;
			return 1;
		}
	return 0;
}

static int
check_state(const struct checkpoint_search *s, struct checkpoint_matrix *m, const json_t *state)
{
	const json_t *shape = json_object_get(state, "shape"), *nested;

	if (json_array_size(shape) != 2 ||
	    json_integer_value(json_array_get(shape, 0)) != m->rows ||
	    json_integer_value(json_array_get(shape, 1)) != m->cols)
		return checkpoint_bad(s, m->at.state, "its shape is not [%u][%u]", m->rows,
		    m->cols);
	if ((m->block = block_of(state, "blocksize")) == 0)
		return checkpoint_bad(s, m->at.state, "no blocksize that is a power of two");
	if (!read_dtype(state, &m->rounded))
		return checkpoint_unsupported(s, m->at.state, "dtype is none of bfloat16, float16, "
		    "float32");
	if (checkpoint_part(s, "weight.nested_absmax") == NULL)
		return MODEL_OK;
	nested = json_object_get(state, "nested_offset");
	if ((m->scale_block = block_of(state, "nested_blocksize")) == 0 ||
	    !json_is_number(nested))
		return checkpoint_bad(s, m->at.state, "no nested_blocksize that is a power of two, "
		    "or no nested_offset");
	m->scale_offset = (float)json_number_value(nested);
	if (!isfinite(m->scale_offset))
		return checkpoint_bad(s, m->at.state, "nested_offset is too large");
	return MODEL_OK;
}

static int
read_state(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct tensor *t = m->at.state;
	json_t *state;
	int rc;

	if (strcmp(t->type, "U8") != 0)
		return checkpoint_bad(s, t, "dtype %s: want U8", t->type);
	state = json_loadb(t->data, t->bytes, JSON_REJECT_DUPLICATES, NULL);
	rc = json_is_object(state) ? check_state(s, m, state) :
	    checkpoint_bad(s, t, "not a JSON object");
	json_decref(state);
	return rc;
}

static int
check_map(const struct checkpoint_search *s, const struct kind *kind, struct checkpoint_matrix *m)
{
	int rc = checkpoint_need(s, "weight.quant_map", "F32", 16, 1, &m->at.map);
	float map[16];
	int i;

	if (rc != MODEL_OK)
		return rc;
	kv_to_f32(map, m->at.map->data, KV_F32, 16);
	for (i = 0; i < 16; i++)
		if (map[i] != kind->map[i])
			return checkpoint_bad(s, m->at.map, "value %d is %.9g, not %.9g as %s has "
			    "it", i, map[i], kind->map[i], kind->name);
	return MODEL_OK;
}

static int
find_scales(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const uint64_t blocks = checkpoint_ceil((uint64_t)m->rows * m->cols, m->block);
	int rc;

	if (m->scale_block == 0)
		return checkpoint_need(s, "weight.absmax", "F32", blocks, 1, &m->at.scales);
	if ((rc = checkpoint_need(s, "weight.absmax", "U8", blocks, 1, &m->at.scales)) !=
	    MODEL_OK || (rc = checkpoint_need(s, "weight.nested_absmax", "F32",
	    checkpoint_ceil(blocks, m->scale_block), 1, &m->at.scale_scales)) != MODEL_OK)
		return rc;
	return checkpoint_need(s, "weight.nested_quant_map", "F32", 256, 1, &m->at.scale_map);
}

/* The codes may be stored as numbers of any type (bnb_4bit_quant_storage): bytes count. */
static int
find(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct kind *kind = find_kind(s);
	const uint64_t bytes = checkpoint_ceil((uint64_t)m->rows * m->cols, 2);
	int rc;

	m->at.state = checkpoint_part(s, kind->state);
	if ((m->at.codes = checkpoint_part(s, "weight")) == NULL)
		return checkpoint_bad(s, m->at.state, "no weight beside it");
	if (m->at.codes->bytes != bytes)
		return checkpoint_bad(s, m->at.codes, "want %llu bytes for [%u][%u], file has %llu",
		    (unsigned long long)bytes, m->rows, m->cols,
		    (unsigned long long)m->at.codes->bytes);
	if ((rc = read_state(s, m)) != MODEL_OK || (rc = check_map(s, kind, m)) != MODEL_OK)
		return rc;
	m->way.is_float = kind->map == fp4_map;
	return find_scales(s, m);
}

/* absmax of a block */
static float
scale_of(const struct checkpoint_matrix *m, const float *nested_map, uint64_t block)
{
	float x, by;

	if (m->scale_block == 0) {
		kv_to_f32(&x, (const uint8_t *)m->at.scales->data + 4 * block, KV_F32, 1);
		return x;
	}
	kv_to_f32(&by, (const uint8_t *)m->at.scale_scales->data + 4 * (block / m->scale_block),
	    KV_F32, 1);
	x = nested_map[((const uint8_t *)m->at.scales->data)[block]] * by;
	return x + m->scale_offset;
}

static size_t
scratch(const struct checkpoint_matrix *m, uint32_t n)
{
	(void)m;
	(void)n;
	return 256;
}

static void
numbers(const struct checkpoint_matrix *m, const struct checkpoint_piece *p)
{
	const float *map = m->way.is_float ? fp4_map : nf4_map;
	const uint8_t *codes = m->at.codes->data;
	const uint64_t begin = (uint64_t)p->row * m->cols, end = begin + (uint64_t)p->n * m->cols;
	float *nested_map = p->scratch, *x = p->x, scale;
	uint64_t i, to;

	if (m->scale_block != 0)
		kv_to_f32(nested_map, m->at.scale_map->data, KV_F32, 256);
	for (i = begin; i < end;) {
		to = (i / m->block + 1) * m->block;
		scale = scale_of(m, nested_map, i / m->block);
		for (; i < to && i < end; i++)
			*x++ = map[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * scale;
	}
}

const struct checkpoint_scheme checkpoint_nf4 = { "absmax, quant_state, codes", has, find, numbers,
	scratch };
