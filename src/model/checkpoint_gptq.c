/* checkpoint_gptq.c - GPTQ: integers of 4 or 8 bits, with a scale and a zero point of each group
 *
 * qweight [in / codes of a word][out] has codes down the columns, the first lowest; qzeros [groups]
 * [out / codes of a word] along the rows; scales [groups][out]; g_idx [in] names the group of each
 * input, and is i / group_size where there is none. x = scale * (code - zero) in the type of the
 * scales, as GPTQModel's TorchLinear.dequantize_weight: the difference is exact, the product
 * rounded once.
 *
 * Format gptq (v1) has zero points less 1. The words are increased by 1 in each of their fields at
 * once, with carries, as GPTQModel does when it loads such a file and undoes when it saves one:
 * AutoGPTQ gives a stored 15 the zero point 0, which is the same field, without a carry to the
 * next. Format gptq_v2 has them as they are. */
#include "model/checkpoint_internal.h"

static int
has(const struct checkpoint_search *s)
{
	return checkpoint_part(s, "qweight") != NULL;
}

/* Bits and groups of the module, where each may have its own: by the shapes */
static void
own_way(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct tensor *q = checkpoint_part(s, "qweight"), *z = checkpoint_part(s, "scales");

	if (!s->config->any_bits || z == NULL || z->ndim != 2 || q->ndim != 2 || z->dim[0] == 0)
		return;
	m->way.bits = q->dim[0] == checkpoint_ceil(m->cols, 4) ? 8 : 4;
	m->way.block_cols = (uint32_t)checkpoint_ceil(m->cols, z->dim[0]);
}

static int
find(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	struct checkpoint_way *w = &m->way;
	uint32_t each;
	int rc;

	*w = s->config->way[0];
	own_way(s, m);
	each = 32 / w->bits;
	m->scale_cols = w->block_cols == 0 ? 1 :
	    (uint32_t)checkpoint_ceil(m->cols, w->block_cols);
	if ((rc = checkpoint_need(s, "qweight", "I32", checkpoint_ceil(m->cols, each), m->rows,
	    &m->at.codes)) != MODEL_OK ||
	    (rc = checkpoint_need(s, "qzeros", "I32", m->scale_cols, checkpoint_ceil(m->rows,
	    each), &m->at.zeros)) != MODEL_OK ||
	    (rc = checkpoint_need(s, "scales", "scale", m->scale_cols, m->rows, &m->at.scales)) !=
	    MODEL_OK)
		return rc;
	m->rounded = m->at.scales->dtype;
	return checkpoint_groups(s, "g_idx", m->cols, m->scale_cols, &m->at.group);
}

static size_t
scratch(const struct checkpoint_matrix *m, uint32_t n)
{
	return 2 * (size_t)m->scale_cols * n;
}

/* scale[groups][n], zero[groups][n] <- of the rows of a piece, which are columns in the file */
static void
read_groups(const struct checkpoint_matrix *m, const struct checkpoint_piece *p, float *scale,
    float *zero)
{
	const struct tensor *s = m->at.scales, *z = m->at.zeros;
	const uint32_t bits = m->way.bits, each = 32 / bits, mask = (1u << bits) - 1;
	const uint32_t ones = m->zeros_less_1 ? UINT32_MAX / mask : 0;
	const size_t words = checkpoint_ceil(m->rows, each), size = kv_dtype_size(s->dtype);
	uint32_t g, i, row, w;

	for (g = 0; g < m->scale_cols; g++, scale += p->n, zero += p->n) {
		kv_to_f32(scale, (const uint8_t *)s->data + (g * (size_t)m->rows + p->row) * size,
		    s->dtype, p->n);
		for (i = 0; i < p->n; i++) {
			row = p->row + i;
			w = checkpoint_word(z, g * words + row / each) + ones;
			zero[i] = (float)(w >> row % each * bits & mask);
		}
	}
}

/* The columns of one word of each row of a piece, from column c on: written row by row, since rows
 * of x are far apart */
static void
numbers_of_words(const struct checkpoint_matrix *m, const struct checkpoint_piece *p, uint32_t c,
    const float *scale, const float *zero)
{
	const uint32_t bits = m->way.bits, each = 32 / bits, mask = (1u << bits) - 1;
	const uint32_t width = m->way.block_cols == 0 ? m->cols : m->way.block_cols;
	const uint32_t n = m->cols - c < each ? m->cols - c : each;
	const size_t words = c / each * (size_t)m->rows + p->row;
	size_t group[8], g;
	float *x = p->x + c;
	uint32_t i, k, w;

	for (k = 0; k < n; k++)
		group[k] = p->n * (size_t)(m->at.group != NULL ?
		    checkpoint_word(m->at.group, c + k) : (c + k) / width);
	for (i = 0; i < p->n; i++, x += m->cols) {
		w = checkpoint_word(m->at.codes, words + i);
		for (k = 0; k < n; k++, w >>= bits) {
			g = group[k] + i;
			x[k] = scale[g] * ((float)(int)(w & mask) - zero[g]);
		}
	}
}

static void
numbers(const struct checkpoint_matrix *m, const struct checkpoint_piece *p)
{
	float *scale = p->scratch, *zero = scale + m->scale_cols * (size_t)p->n;
	uint32_t c;

	read_groups(m, p, scale, zero);
	for (c = 0; c < m->cols; c += 32 / m->way.bits)
		numbers_of_words(m, p, c, scale, zero);
}

const struct checkpoint_scheme checkpoint_gptq = { "scales, qzeros, qweight", has, find, numbers,
	scratch };
