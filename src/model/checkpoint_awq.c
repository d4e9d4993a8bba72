/* checkpoint_awq.c - AWQ, version gemm: integers of 4 bits, with a scale and a zero point of each
 * group of inputs
 *
 * qweight [in][out / 8] and qzeros [groups][out / 8] have eight outputs in a word, whose nibbles
 * are outputs 0, 2, 4, 6, 1, 3, 5, 7, the lowest first; scales are [groups][out].
 *
 * x = (code - zero) * scale in the type of the scales, as AutoAWQ's dequantize_gemm
 * (awq/utils/packing_utils.py): the difference is exact, the product rounded once. */
#include "model/checkpoint_internal.h"

static int
has(const struct checkpoint_search *s)
{
	return checkpoint_part(s, "qweight") != NULL;
}

static int
find(const struct checkpoint_search *s, struct checkpoint_matrix *m)
{
	const struct tensor *codes = checkpoint_part(s, "qweight");
	struct checkpoint_way *w = &m->way;
	int rc;

	*w = s->config->way[0];
	if (m->rows % 8 != 0)
		return checkpoint_bad(s, codes, "%u outputs are not words of 8", m->rows);
	if (w->block_cols != 0 && m->cols % w->block_cols != 0)
		return checkpoint_bad(s, codes, "%u inputs are not groups of %u", m->cols,
		    w->block_cols);
	m->scale_cols = w->block_cols == 0 ? 1 : m->cols / w->block_cols;
	if ((rc = checkpoint_need(s, "qweight", "I32", m->cols, m->rows / 8, &m->at.codes)) !=
	    MODEL_OK || (rc = checkpoint_need(s, "qzeros", "I32", m->scale_cols, m->rows / 8,
	    &m->at.zeros)) != MODEL_OK || (rc = checkpoint_need(s, "scales", "scale",
	    m->scale_cols, m->rows, &m->at.scales)) != MODEL_OK)
		return rc;
	m->rounded = m->at.scales->dtype;
	return MODEL_OK;
}

static size_t
scratch(const struct checkpoint_matrix *m, uint32_t n)
{
	(void)m;
	return 2 * (size_t)n;
}

/* Output `row` of a row of words */
static float
code_of(const struct tensor *t, size_t words, uint32_t row)
{
	static const uint8_t nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };

	return (float)(checkpoint_word(t, words + row / 8) >> 4 * nibble[row % 8] & 15);
}

/* scale[n], zero[n] <- of a group, for the rows of a piece */
static void
read_group(const struct checkpoint_matrix *m, const struct checkpoint_piece *p, uint32_t g,
    float *scale, float *zero)
{
	const struct tensor *s = m->at.scales;
	uint32_t i;

	kv_to_f32(scale, (const uint8_t *)s->data + (g * (size_t)m->rows + p->row) *
	    kv_dtype_size(s->dtype), s->dtype, p->n);
	for (i = 0; i < p->n; i++)
		zero[i] = code_of(m->at.zeros, g * (size_t)(m->rows / 8), p->row + i);
}

/* A few columns at a time are written row by row, since rows of x are far apart. */
static void
numbers(const struct checkpoint_matrix *m, const struct checkpoint_piece *p)
{
	const uint32_t width = m->cols / m->scale_cols;
	const size_t words = m->rows / 8;
	float *scale = p->scratch, *zero = scale + p->n, *x;
	uint32_t c, i, k, n;

	for (c = 0; c < m->cols; c += n) {
		n = width - c % width < 16 ? width - c % width : 16;
		if (c % width == 0)
			read_group(m, p, c / width, scale, zero);
		for (i = 0, x = p->x + c; i < p->n; i++, x += m->cols)
			for (k = 0; k < n; k++)
				x[k] = (code_of(m->at.codes, (c + k) * words, p->row + i) -
				    zero[i]) * scale[i];
	}
}

const struct checkpoint_scheme checkpoint_awq = { "scales, qzeros, qweight", has, find, numbers,
	scratch };
