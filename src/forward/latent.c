/* latent.c - queries, keys and outputs of multi-head latent attention */
#include "forward/latent.h"
#include "ops/compose.h"

/* Channels of a query head in the weights */
static uint32_t
query_width(const struct kv_model *id)
{
	return id->latent_nope + id->rope_width;
}

/* Floats of a row of ws->heads: queries, or values, of all heads */
static uint64_t
heads_floats(const struct kv_model *id)
{
	const uint32_t q = query_width(id);

	return (uint64_t)id->query_heads * (q > id->latent_value ? q : id->latent_value);
}

uint64_t
latent_floats(const struct model *m)
{
	return heads_floats(&m->id) + m->id.head_width + m->latent_query_rank;
}

/* ws->heads <- queries of all heads, c[N][rank] and r[N][rope] <- the two parts of keys */
static void
project_latent(const struct model *m, struct workspace *ws, const struct latent_attention *a,
    const struct norm *norm, float *c, float *r, uint32_t N)
{
	const uint32_t Q = m->latent_query_rank;
	const struct product first[] = {
		{ Q != 0 ? ws->narrow : ws->heads, Q != 0 ? &a->wq_a : &a->wq, a->bq_a },
		{ c, &a->wc, a->bc }, { r, &a->wr, a->br }
	};

	run_project(m->ops, m->dev, first, 3, ws->x, norm, ws->xn, N);
	if (Q == 0)
		return;
	run_norm(m->ops, m->dev, ws->narrow, ws->narrow, &a->q_norm, N, Q);
	m->ops->matmul(m->dev, ws->heads, ws->narrow, &a->wq, NULL, N, 0);
}

void
latent_project(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	const struct latent_attention *a = &m->layer[l].latent;
	const struct kv_model *id = &m->id;
	const uint32_t H = id->query_heads, E = id->head_width, q = query_width(id);
	const uint32_t rank = id->latent_rank, rope = id->rope_width;
	float *c = ws->parts, *r = c + (size_t)N * rank, *rotated = ws->heads + id->latent_nope;

	project_latent(m, ws, a, &m->layer[l].norm, c, r, N);
	run_norm(m->ops, m->dev, c, c, &a->c_norm, N, rank);
	if (m->latent_adjacent) {
		m->ops->split_pairs(m->dev, rotated, N, H, q, rope);
		m->ops->split_pairs(m->dev, r, N, 1, rope, rope);
	}
	m->ops->copy_channels(m->dev, ws->k, E, c, rank, rank, N);
	m->ops->copy_channels(m->dev, ws->k + rank, E, r, rope, rope, N);
	m->ops->head_products(m->dev, ws->q, E, ws->heads, q, &a->uk, !a->uk_exchanged, N);
	m->ops->copy_channels(m->dev, ws->q + rank, E, rotated, q, rope, (size_t)N * H);
}

const float *
latent_output(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	m->ops->head_products(m->dev, ws->heads, m->id.latent_value, ws->o, m->id.head_width,
	    &m->layer[l].latent.uv, 0, N);
	return ws->heads;
}
