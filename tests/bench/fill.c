/* fill.c - random keys and values. What they are changes neither the work nor what is read. */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "tests/bench/fill.h"

static float *
random_floats(const struct model *m, size_t n)
{
	float *x = m->ops->alloc(m->dev, n * sizeof *x);
	size_t i;

	for (i = 0; x != NULL && i < n; i++)
		x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	return x;
}

struct cache *
bench_fill(const struct model *m, uint32_t rows, uint32_t more, enum kv_row_type type)
{
	const size_t n = (size_t)rows * m->id.kv_heads * m->id.head_width;
	struct cache *c = cache_new(m, m->id.weights_dtype);
	float *k = random_floats(m, n), *v = random_floats(m, n);
	uint32_t *pos = malloc(rows * sizeof *pos), i;
	struct kv_head head = { .model = m->id };

	if (kv_row_type_quantised(type)) {
		memset(head.key_type, (int)type, m->id.layers);
		memset(head.value_type, (int)type, m->id.layers);
	}
	if (c != NULL)
		cache_set_row_types(c, &head);
	if (c == NULL || k == NULL || v == NULL || pos == NULL ||
	    cache_reserve(c, rows + more) != 0) {
		cache_free(c);
		c = NULL;
	}
	for (i = 0; c != NULL && i < rows; i++)
		pos[i] = i;
	for (i = 0; c != NULL && i < m->id.layers; i++) {
		cache_expect(c, i, pos, rows);
		m->ops->append(m->dev, &c->layer[i], k, v, pos, rows);
	}
	if (c != NULL)
		c->next_position = rows;
	m->ops->free(m->dev, k);
	m->ops->free(m->dev, v);
	free(pos);
	return c;
}
