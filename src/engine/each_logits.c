/* each_logits.c - the logits after every token that runs, a block of rows at a time */
#include <math.h>
#include <stdlib.h>

#include "engine/device_memory.h"
#include "engine/each_logits.h"
#include "forward/finite.h"

/* Size of a block: enough rows that the product with the lm_head is a GEMM, but little memory
 * compared with the weights */
#define BLOCK_BYTES ((size_t)32 << 20)

uint32_t
each_logits_rows(const struct model *m, uint32_t at_once)
{
	const size_t rows = BLOCK_BYTES / (m->id.vocabulary * sizeof(float));

	return rows == 0 ? 1 : rows < at_once ? (uint32_t)rows : at_once;
}

int
each_logits_begin(struct each_logits *x, const struct logits_sink *sink, const struct model *m,
    struct workspace *ws, struct engine_error *e)
{
	const uint32_t rows = each_logits_rows(m, workspace_rows(ws));
	const size_t all = (size_t)rows * m->id.vocabulary;

	*x = (struct each_logits){ .model = m, .ws = ws, .sink = *sink, .rows = rows };
	if ((x->host = engine_alloc(all, sizeof *x->host, e)) == NULL)
		return e->code;
	if ((x->device = m->ops->alloc(m->dev, all * sizeof *x->device)) == NULL)
		return engine_fail(e, ENGINE_ENOROOM, "no memory for the logits of %u tokens",
		    rows);
	return ENGINE_OK;
}

/* Gives the sink the logits after N rows, at most those of a block. */
static int
put_block(struct each_logits *b, const float *x, uint32_t N, uint32_t position,
    struct engine_error *e)
{
	const struct model *m = b->model;
	const struct device d = { m->ops, m->dev };
	const uint32_t V = m->id.vocabulary;
	const float *row = b->host;
	uint32_t i;
	int rc;

	make_logits(m, b->ws, b->device, x, N);
	m->ops->get(m->dev, b->host, b->device, (size_t)N * V * sizeof *b->host);
	rc = device_synced(&d, e);
	for (i = 0; rc == ENGINE_OK && i < N; i++, row += V)
		if ((rc = logits_check(m, row, position + i, e)) == ENGINE_OK)
			b->sink.take(b->sink.with, row);
	return rc;
}

int
each_logits_put(struct each_logits *b, const float *x, uint32_t N, uint32_t position,
    struct engine_error *e)
{
	uint32_t at, n;
	int rc = ENGINE_OK;

	for (at = 0; rc == ENGINE_OK && at < N; at += n) {
		n = N - at < b->rows ? N - at : b->rows;
		rc = put_block(b, x + (size_t)at * b->model->id.hidden, n, position + at, e);
	}
	return rc;
}

void
each_logits_end(struct each_logits *x)
{
	x->model->ops->free(x->model->dev, x->device);
	free(x->host);
}

int
logits_check(const struct model *m, const float *logits, uint32_t position, struct engine_error *e)
{
	char cause[256];
	uint32_t v;

	for (v = 0; v < m->id.vocabulary; v++)
		if (!isfinite(logits[v]))
			return engine_fail(e, ENGINE_ERUN, "position %u: the logit of token %u is "
			    "not finite (NaN or infinite): %s", position, v,
			    finite_cause(m, NULL, m->id.layers, cause, sizeof cause));
	return ENGINE_OK;
}
