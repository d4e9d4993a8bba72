/* checkpoint_grid.c - FP8 and compressed-tensors: rows of codes, and a grid of scales
 *
 * A scale is one of a tensor, a row, a group of columns, or a block of rows and columns. The last
 * block may be cut off by the matrix's end. Codes are FP8 (e4m3, OCP 8-bit floating point),
 * integers of 8 bits, or integers of 4 or 8 bits in words of 32, the first lowest, stored plus
 * 2^(bits - 1).
 *
 * FP8 (DeepSeek-V3, Qwen3): x = f32(code) * f32(scale), as transformers' Fp8Dequantize and
 * DeepSeek-V3's fp8_cast_bf16.py, which round that product to bf16; the scale is called
 * weight_scale_inv, or weight_scale where it is one of the tensor.
 * compressed-tensors: x = (code - zero) * scale in the type of the scale, as
 * compressed_tensors.quantization.lifecycle.forward.dequantize: the difference is exact there, and
 * the product rounded once. With weight_g_idx column i has the scale of group g_idx[i]
 * (releases before 0.20). */
#include "model/checkpoint_internal.h"

/* ---- FP8 ---- */

/* e4m3: 4 bits of exponent, bias 7, and no infinity; 0x7f and 0xff are not numbers */
static float
fp8_number(uint8_t code)
{
	const uint32_t e = code >> 3 & 15, m = code & 7, sign = (uint32_t)(code & 0x80) << 24;
	uint32_t bits;
	float x;

	if ((code & 0x7f) == 0x7f)
		bits = 0x7fc00000;
	else if (e == 0) {
		x = (float)m / 512;
		return code & 0x80 ? -x : x;
	} else
		bits = (e + 120) << 23 | m << 20;
	bits |= sign;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* ---- what the tensors are ---- */

static int
is_fp8(const struct checkpoint_search *s)
{
	return s->config->method == CHECKPOINT_FP8;
}

static int
has(const struct checkpoint_search *s)
{
	const struct tensor *t = checkpoint_part(s, "weight");

	return (t != NULL && t->weight == 0) ||
	    (!is_fp8(s) && checkpoint_part(s, "weight_packed") != NULL);
}

static uint64_t
rows_of_scales(const struct checkpoint_matrix *m)
{
	return m->way.block_rows == 0 ? 1 : checkpoint_ceil(m->rows, m->way.block_rows);
}

static int
find_codes(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct checkpoint_way *w = &m->way;
	const char *type = w->is_float ? "F8_E4M3" : "I8";
	const struct tensor *shape;
	int rc;

	if (!w->packed)
		return checkpoint_need(s, "weight", type, m->rows, m->cols, &m->at.codes);
	if ((rc = checkpoint_need(s, "weight_packed", "I32", m->rows,
	    checkpoint_ceil((uint64_t)m->cols * w->bits, 32), &m->at.codes)) != MODEL_OK ||
	    (rc = checkpoint_need(s, "weight_shape", "I64", 2, 1, &shape)) != MODEL_OK)
		return rc;
	m->at.shape = shape;
	if (checkpoint_word(shape, 0) != m->rows || checkpoint_word(shape, 1) != 0 ||
	    checkpoint_word(shape, 2) != m->cols || checkpoint_word(shape, 3) != 0)
		return checkpoint_bad(s, shape, "want %u, %u there", m->rows, m->cols);
	return MODEL_OK;
}

/* Zero points of groups and rows are packed as codes are, down the columns; not in the first
 * releases. */
static int
find_zeros(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct checkpoint_way *w = &m->way;
	const struct tensor *t = checkpoint_part(s, "weight_zero_point");
	const int bytes = t != NULL && strcmp(t->type, "I8") == 0;
	const int packed = w->packed && w->block_rows != 0 && !bytes;

	if (!w->has_zeros)
		return MODEL_OK;
	return checkpoint_need(s, "weight_zero_point", packed ? "I32" : "I8", packed ?
	    checkpoint_ceil((uint64_t)m->rows * w->bits, 32) : rows_of_scales(m), m->scale_cols,
	    &m->at.zeros);
}

/* -1 in front: the order of groups was never set, and is that of columns. */
static int
find_groups(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct tensor *t = checkpoint_part(s, "weight_g_idx");

	if (t != NULL && strcmp(t->type, "I32") == 0 && t->bytes >= 4 &&
	    checkpoint_word(t, 0) == UINT32_MAX) {
		m->at.map = t;
		return MODEL_OK;
	}
	return checkpoint_groups(s, "weight_g_idx", m->cols, m->scale_cols, &m->at.group);
}

/* Does this way fit? The message says why it does not. */
static int
find_way(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const char *scale = is_fp8(s) && checkpoint_part(s, "weight_scale_inv") != NULL ?
	    "weight_scale_inv" : "weight_scale";
	const struct checkpoint_way *w = &m->way;
	const uint32_t cols = w->block_cols;
	int rc;

	m->scale_cols = cols == 0 ? 1 : (uint32_t)checkpoint_ceil(m->cols, cols);
	if ((rc = find_codes(s, m)) != MODEL_OK)
		return rc;
	if (w->block_rows == 1 && cols > 0 && m->cols % cols != 0)
		return checkpoint_bad(s, m->at.codes, "%u columns are not groups of %u", m->cols,
		    cols);
	if (is_fp8(s) && w->block_rows != 0 && strcmp(scale, "weight_scale") == 0)
		scale = "weight_scale_inv";
	if ((rc = checkpoint_need(s, scale, "scale", rows_of_scales(m), m->scale_cols,
	    &m->at.scales)) != MODEL_OK || (rc = find_zeros(s, m)) != MODEL_OK)
		return rc;
	m->rounded = is_fp8(s) ? KV_F32 : m->at.scales->dtype;
	return is_fp8(s) ? MODEL_OK : find_groups(s, m);
}

/* Of several ways that of the tensor is the one whose shapes are right: they tell them apart. */
static int
find(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct checkpoint_matrix empty = *m;
	const struct tensor *zeros;
	size_t i;
	int rc = MODEL_EINVALID;

	for (i = 0; i < s->config->ways; i++) {
		*m = empty;
		m->way = s->config->way[i];
		if ((rc = find_way(s, m)) != MODEL_OK)
			continue;
		zeros = is_fp8(s) || m->way.has_zeros ? NULL :
		    checkpoint_part(s, "weight_zero_point");
		if (zeros == NULL)
			return MODEL_OK;
		rc = checkpoint_bad(s, zeros, "zero points, but the configuration says that the "
		    "weights are symmetric");
	}
	return rc;
}

/* ---- numbers ---- */

/* The code at index i of consecutive words, which were stored plus half of the range */
static int
packed_code(const struct tensor *t, size_t words, size_t i, uint32_t bits)
{
	const uint32_t each = 32 / bits, mask = (1u << bits) - 1;
	const uint32_t w = checkpoint_word(t, words + i / each);

	return (int)(w >> i % each * bits & mask) - (int)(1u << (bits - 1));
}

static void
codes_of_row(const struct checkpoint_matrix *m, uint32_t row, const float *fp8, float *x)
{
	const struct checkpoint_way *w = &m->way;
	const uint8_t *codes = (const uint8_t *)m->at.codes->data + (size_t)row * m->cols;
	const size_t words = row * checkpoint_ceil((uint64_t)m->cols * w->bits, 32);
	uint32_t c;

	if (w->packed)
		for (c = 0; c < m->cols; c++)
			x[c] = (float)packed_code(m->at.codes, words, c, w->bits);
	else if (w->is_float)
		for (c = 0; c < m->cols; c++)
			x[c] = fp8[codes[c]];
	else
		for (c = 0; c < m->cols; c++)
			x[c] = (float)(int8_t)codes[c];
}

/* scale[scale_cols], zero[scale_cols] <- those of a row */
static void
scales_of_row(const struct checkpoint_matrix *m, uint32_t row, float *scale, float *zero)
{
	const struct checkpoint_way *w = &m->way;
	const struct tensor *s = m->at.scales, *z = m->at.zeros;
	const size_t at = w->block_rows == 0 ? 0 : row / w->block_rows * (size_t)m->scale_cols;
	const uint32_t each = 32 / w->bits, mask = (1u << w->bits) - 1;
	uint32_t g;

	kv_to_f32(scale, (const uint8_t *)s->data + at * kv_dtype_size(s->dtype), s->dtype,
	    m->scale_cols);
	for (g = 0; g < m->scale_cols; g++)
		if (z == NULL)
			zero[g] = 0;
		else if (strcmp(z->type, "I8") == 0)
			zero[g] = (float)((const int8_t *)z->data)[at + g];
		else
			zero[g] = (float)(int)(checkpoint_word(z, row / each * (size_t)m->scale_cols
			    + g) >> row % each * w->bits & mask) - (float)(1u << (w->bits - 1));
}

static size_t
scratch(const struct checkpoint_matrix *m, uint32_t n)
{
	(void)n;
	return 256 + 2 * (size_t)m->scale_cols;
}

static void
numbers(const struct checkpoint_matrix *m, const struct checkpoint_piece *p)
{
	const uint32_t width = m->way.block_cols == 0 ? m->cols : m->way.block_cols;
	float *fp8 = p->scratch, *scale = fp8 + 256, *zero = scale + m->scale_cols, *x = p->x;
	uint32_t i, c, end, g;

	for (i = 0; i < 256; i++)
		fp8[i] = fp8_number((uint8_t)i);
	for (i = 0; i < p->n; i++, x += m->cols) {
		codes_of_row(m, p->row + i, fp8, x);
		scales_of_row(m, p->row + i, scale, zero);
		for (g = 0, c = 0; m->at.group == NULL && c < m->cols; g++)
			for (end = m->cols - c < width ? m->cols : c + width; c < end; c++)
				x[c] = (x[c] - zero[g]) * scale[g];
		for (c = 0; m->at.group != NULL && c < m->cols; c++) {
			g = checkpoint_word(m->at.group, c);
			x[c] = (x[c] - zero[g]) * scale[g];
		}
	}
}

const struct checkpoint_scheme checkpoint_grid = { "a code and its scale", has, find, numbers,
	scratch };
