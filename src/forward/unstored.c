/* unstored.c - runs probe tokens (drafts, repeated text, learned tokens) without storing them
 *
 * Their rows are appended, so that they see each other, and dropped by resetting the lengths:
 * nothing is copied, and their keys stay readable after the rows. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/set_aside.h"
#include "forward/forward_internal.h"

/* to[n][E] of dtype <- n keys from row `from` on of a layer's, in the type that they have. scratch:
 * for a row of it */
static void
get_keys(char *to, const struct model *m, const struct layer_rows *rows, uint64_t from, uint32_t n,
    void *scratch)
{
	const size_t size = rows_k_bytes(rows), E = rows->width;
	const size_t row = E * kv_dtype_size(rows->dtype);
	const char *key = (const char *)rows->k + from * size;
	float x[KV_ROW_WIDTH_MOST];

	if (!kv_row_type_quantised(rows_k_type(rows))) {
		m->ops->get(m->dev, to, key, n * row);
		return;
	}
	for (; n > 0; n--, key += size, to += row) {
		m->ops->get(m->dev, scratch, key, size);
		kv_rows_to_f32(x, scratch, rows_k_type(rows), E, 1);
		kv_from_f32(to, x, rows->dtype, E);
	}
}

/* Copies the keys of the last n rows of every KV head to obs->own. */
static int
observe_own(struct observation *obs, const struct cache *c, uint32_t n)
{
	const struct model *m = c->model;
	const size_t row = m->id.head_width * kv_dtype_size(c->dtype);
	char scratch[(KV_ROW_WIDTH_MOST + 1) * sizeof(float)];
	uint32_t l, g;

	if ((obs->own = calloc(m->id.layers, sizeof *obs->own)) == NULL)
		return MODEL_ENOMEM;
	obs->n_own = n;
	for (l = 0; l < m->id.layers; l++) {
		const struct layer_rows *rows = &c->layer[l];
		char *to = obs->own[l] = malloc(rows->heads * n * row);

		if (to == NULL)
			return MODEL_ENOMEM;
		for (g = 0; g < rows->heads; g++)
			get_keys(to + g * n * row, m, rows, rows->start[g] + rows->len[g] - n, n,
			    scratch);
	}
	return 0;
}

static int
run_input_unstored(const struct model *m, struct sequence *s, struct workspace *ws,
    const struct run_input *in, size_t n, struct observation *obs, const struct step_hook *step,
    char *err, size_t errlen)
{
	struct cache *c = s->cache;
	uint32_t position = c->next_position;
	struct set_aside aside;
	int rc = reserve_positions(s, n, err, errlen);

	if (rc != 0)
		return rc;
	aside = cache_set_aside(c, 0);
	rc = run_chunks(m, s, ws, in, n, &position, obs, step, err, errlen);
	cache_put_back(c, &aside);
	if (rc != 0)
		return rc;
	if (obs != NULL && observe_own(obs, c, (uint32_t)n) != 0) {
		snprintf(err, errlen, "no memory for the keys of %zu tokens", n);
		return MODEL_ENOMEM;
	}
	cache_drop_last(c, (uint32_t)n, 0, m->id.layers);
	return 0;
}

int
run_unstored(const struct model *m, struct sequence *s, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, const struct step_hook *step,
    char *err, size_t errlen)
{
	const struct run_input in = { ids, NULL };

	return run_input_unstored(m, s, ws, &in, n, obs, step, err, errlen);
}

int
run_unstored_embeddings(const struct model *m, struct sequence *s, struct workspace *ws,
    const float *x, size_t n, const struct adapter *adapter, struct observation *obs,
    const struct step_hook *step, char *err, size_t errlen)
{
	const struct run_input in = { NULL, x };
	int rc;

	ws->adapter = adapter;
	rc = run_input_unstored(m, s, ws, &in, n, obs, step, err, errlen);
	ws->adapter = NULL;
	return rc;
}

int
run_unstored_layer(const struct model *m, struct sequence *s, struct workspace *ws, float *x,
    const uint32_t *pos, uint32_t N, uint32_t l, const struct adapter *adapter,
    const struct observation *obs, char *err, size_t errlen)
{
	struct cache *c = s->cache;
	struct set_aside aside;
	int rc;

	if ((rc = check_positions(c, N, err, errlen)) != 0)
		return rc;
	if (sequence_reserve_layers(s, N, l, l + 1) != 0) {
		snprintf(err, errlen, "no memory for %u more rows", N);
		return MODEL_ENOMEM;
	}
	aside = cache_set_aside(c, 1);
	c->ran += l == 0 ? N : 0;
	ws->adapter = adapter;
	workspace_use(ws, x);
	forward(m, s, ws, pos, N, l, l + 1, obs);
	workspace_use(ws, NULL);
	ws->adapter = NULL;
	cache_put_back(c, &aside);
	cache_drop_last(c, N, l, l + 1);
	if (cache_log(c, KV_EVENT_RUN, N, l, l + 1) == 0)
		return 0;
	snprintf(err, errlen, "no memory for the event log");
	return MODEL_ENOMEM;
}
