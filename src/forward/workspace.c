/* workspace.c - buffers of the rows that run at once */
#include <stdlib.h>

#include "forward/latent.h"

/* Returns whether there was memory for latent attention. */
static int
alloc_latent(struct workspace *ws, const struct model *m, size_t N)
{
	const size_t narrow = m->latent_query_rank, parts = m->id.head_width, f = sizeof(float);

	ws->heads = m->ops->alloc(m->dev, N * (latent_floats(m) - parts - narrow) * f);
	ws->parts = m->ops->alloc(m->dev, N * parts * f);
	ws->narrow = m->ops->alloc(m->dev, (N * narrow + 1) * f);
	return ws->heads != NULL && ws->parts != NULL && ws->narrow != NULL;
}

/* Scratch of the mixture for so many rows; 0: the model has none */
static size_t
experts_bytes(const struct model *m, size_t rows)
{
	const struct mixture *x = &m->mixture;
	const struct experts e = { .router = x->router, .down = { .out = m->id.hidden,
		.in = x->width } };
	struct expert_rows parts;

	return x->router.experts > 0 ? expert_rows_at(&parts, NULL, &e, rows) : 0;
}

/* Floats of a row of queries, keys and values that come from one matrix; 0: they do not */
static uint64_t
together_floats(const struct model *m)
{
	return (uint64_t)m->layer[0].wqkv.out;
}

struct workspace *
workspace_new(const struct model *m, uint32_t rows)
{
	const struct kv_model *id = &m->id;
	struct workspace *ws = calloc(1, sizeof *ws);
	size_t N = rows, f = sizeof(float);
	size_t q_dim = (size_t)id->query_heads * id->head_width;
	size_t kv_dim = (size_t)id->kv_heads * id->head_width;
	size_t weight_dim = (size_t)model_weight_heads(m) * id->head_width;

	if (ws == NULL)
		return NULL;
	ws->rows = rows;
	ws->each = &ws->one;
	ws->own_rows = &ws->one_rows;
	ws->x = ws->own_x = m->ops->alloc(m->dev, N * id->hidden * f);
	ws->xn = m->ops->alloc(m->dev, N * id->hidden * f);
	ws->q = m->ops->alloc(m->dev, N * q_dim * f);
	ws->o = m->ops->alloc(m->dev, N * q_dim * f);
	ws->k = m->ops->alloc(m->dev, N * kv_dim * f);
	ws->v = id->latent_rank != 0 ? ws->k : m->ops->alloc(m->dev, N * kv_dim * f);
	if (m->kv_copies > 1) {
		ws->weight_k = m->ops->alloc(m->dev, N * weight_dim * f);
		ws->weight_v = m->ops->alloc(m->dev, N * weight_dim * f);
	}
	if (together_floats(m) > 0)
		ws->together = m->ops->alloc(m->dev, N * together_floats(m) * f);
	ws->gate = m->ops->alloc(m->dev, N * model_network_width(m) * f);
	ws->up = m->ops->alloc(m->dev, N * model_network_width(m) * f);
	if (experts_bytes(m, N) > 0) {
		ws->mixed = m->ops->alloc(m->dev, N * id->hidden * f);
		ws->shared_score = m->ops->alloc(m->dev, N * f);
		ws->expert_rows = m->ops->alloc(m->dev, experts_bytes(m, N));
	}
	ws->lse = m->ops->alloc(m->dev, N * id->query_heads * f);
	ws->logits = m->ops->alloc(m->dev, id->vocabulary * f);
	ws->pos = m->ops->alloc(m->dev, N * sizeof *ws->pos);
	ws->tok = m->ops->alloc(m->dev, sizeof *ws->tok);
	ws->host_pos = calloc(N, sizeof *ws->host_pos);
	ws->host_x = calloc(id->hidden, f);
	ws->gate_scores = calloc(N * id->kv_heads, f);
	if (!ws->x || !ws->xn || !ws->q || !ws->o || !ws->k || !ws->v || !ws->gate || !ws->up ||
	    !ws->lse || !ws->logits || !ws->pos || !ws->tok || !ws->host_pos || !ws->host_x ||
	    !ws->gate_scores || (together_floats(m) > 0 && !ws->together) ||
	    (m->kv_copies > 1 && (!ws->weight_k || !ws->weight_v)) ||
	    (id->latent_rank != 0 && !alloc_latent(ws, m, N)) ||
	    (experts_bytes(m, N) > 0 && (!ws->mixed || !ws->shared_score || !ws->expert_rows))) {
		workspace_free(ws, m);
		return NULL;
	}
	return ws;
}

uint64_t
workspace_bytes(const struct model *m, uint32_t rows)
{
	const struct kv_model *id = &m->id;
	const uint32_t weight_heads = m->kv_copies > 1 ? model_weight_heads(m) : 0;
	uint64_t E = id->head_width, floats = 2 * (uint64_t)id->hidden + id->query_heads * 2 * E +
	    (id->latent_rank != 0 ? E + latent_floats(m) :
	    (id->kv_heads + weight_heads) * 2 * E) + 2 * model_network_width(m) + id->query_heads;

	floats += together_floats(m);
	if (m->mixture.router.experts > 0)
		floats += id->hidden + 1;
	return experts_bytes(m, rows) + rows * (floats * sizeof(float) + sizeof(uint32_t)) +
	    id->vocabulary * sizeof(float);
}

void
workspace_free(struct workspace *ws, const struct model *m)
{
	if (ws == NULL)
		return;
	m->ops->free(m->dev, ws->own_x);
	m->ops->free(m->dev, ws->xn);
	m->ops->free(m->dev, ws->q);
	m->ops->free(m->dev, ws->o);
	m->ops->free(m->dev, ws->k);
	m->ops->free(m->dev, ws->v != ws->k ? ws->v : NULL);
	m->ops->free(m->dev, ws->heads);
	m->ops->free(m->dev, ws->parts);
	m->ops->free(m->dev, ws->narrow);
	m->ops->free(m->dev, ws->weight_k);
	m->ops->free(m->dev, ws->weight_v);
	m->ops->free(m->dev, ws->together);
	m->ops->free(m->dev, ws->gate);
	m->ops->free(m->dev, ws->up);
	m->ops->free(m->dev, ws->mixed);
	m->ops->free(m->dev, ws->shared_score);
	m->ops->free(m->dev, ws->expert_rows);
	m->ops->free(m->dev, ws->lse);
	m->ops->free(m->dev, ws->logits);
	m->ops->free(m->dev, ws->pos);
	m->ops->free(m->dev, ws->tok);
	free(ws->host_pos);
	free(ws->host_x);
	free(ws->gate_scores);
	free(ws);
}

uint32_t
workspace_rows(const struct workspace *ws)
{
	return ws->rows;
}

float *
workspace_x(struct workspace *ws)
{
	return ws->x;
}

void
workspace_use(struct workspace *ws, float *x)
{
	ws->x = x != NULL ? x : ws->own_x;
}
