/* forward.c - the transformer, written once over the op table
 *
 * forward() runs N rows through a range of layers. Prefill, chunked prefill, resume and decode call
 * it with different rows and positions.
 *
 * Two facts make chunks exact instead of approximate. Every row that a query may see is in the
 * cache when its chunk runs, so cutting the prompt changes only the order of rounding. And keys are
 * stored after rotary embedding at their own position, so dropping rows needs no rotation: the
 * others keep their positions. */
#include <stdlib.h>

#include "forward/forward_internal.h"
#include "forward/latent.h"
#include "forward/lora.h"
#include "forward/probe_mass.h"
#include "model/family.h"
#include "ops/compose.h"

/* Copies the queries q[N][H][E] of the rows of one cache to the observation windows. */
static void
keep_queries(const struct model *m, const float *q, const struct observation *obs, uint32_t l,
    const uint32_t *pos, uint32_t N)
{
	size_t row = (size_t)m->id.query_heads * m->id.head_width;
	uint32_t seen, at;

	for (; obs != NULL; obs = obs->next) {
		for (seen = N; seen > 0 && pos[seen - 1] >= obs->first; seen--)
			;
		if (seen == N || obs->q[l] == NULL)
			continue;
		for (at = obs->have; at > 0 && obs->pos[at - 1] >= pos[seen]; at--)
			;
		(obs->on_device ? m->ops->copy : m->ops->get)(m->dev, obs->q[l] + at * row,
		    q + seen * row, (N - seen) * row * sizeof(float));
	}
}

/* Normalises q or k before rotary embedding: each head by itself, or all heads of a row
 * together. */
static void
norm_heads(const struct model *m, float *x, const struct norm *norm, uint32_t N, uint32_t heads)
{
	const uint32_t E = m->id.head_width;

	if (norm->w == NULL)
		return;
	if (m->family->head_norm == HEAD_NORM_WIDE)
		run_norm(m->ops, m->dev, x, x, norm, N, heads * E);
	else
		run_norm(m->ops, m->dev, x, x, norm, N * heads, E);
}

/* ws->q, k, v <- queries, keys and values of N rows, from one matrix (wqkv) */
static void
project_together(const struct model *m, struct workspace *ws, uint32_t l, float *k, float *v,
    uint32_t N)
{
	const struct model_layer *w = &m->layer[l];
	const uint32_t G = model_weight_heads(m), E = m->id.head_width;
	const uint32_t q = m->id.query_heads / G * E, all = q + 2 * E;
	const struct product product = { ws->together, &w->wqkv, w->bqkv };
	const size_t heads = (size_t)N * G;

	run_project(m->ops, m->dev, &product, 1, ws->x, &w->norm, ws->xn, N);
	m->ops->copy_channels(m->dev, ws->q, q, ws->together, all, q, heads);
	m->ops->copy_channels(m->dev, k, E, ws->together + q, all, E, heads);
	m->ops->copy_channels(m->dev, v, E, ws->together + q + E, all, E, heads);
}

/* ws->q, k, v <- queries, keys and values of the rows in ws->x, but for factors of queries */
static void
project_weights(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	const struct model_layer *w = &m->layer[l];
	float *k = m->kv_copies > 1 ? ws->weight_k : ws->k;
	float *v = m->kv_copies > 1 ? ws->weight_v : ws->v;
	const struct product qkv[] = {
		{ ws->q, &w->wq, w->bq }, { k, &w->wk, w->bk }, { v, &w->wv, w->bv }
	};
	const uint32_t heads = model_weight_heads(m), E = m->id.head_width;
	const struct adapter_layer *a = ws->adapter != NULL ? &ws->adapter->layer[l] : NULL;

	if (w->wqkv.out > 0)
		project_together(m, ws, l, k, v, N);
	else if (a == NULL)
		run_project(m->ops, m->dev, qkv, 3, ws->x, &w->norm, ws->xn, N);
	else
		lora_project(m->ops, m->dev, qkv, (const struct lora *[]){ &a->q, &a->k, &a->v }, 3,
		    ws->x, &w->norm, ws->xn, ws->adapter->scratch, N);
	norm_heads(m, ws->q, &w->q_norm, N, m->id.query_heads);
	norm_heads(m, k, &w->k_norm, N, heads);
	if (m->clip > 0) {
		m->ops->clamp(m->dev, ws->q, (size_t)N * m->id.query_heads * E, m->clip);
		m->ops->clamp(m->dev, k, (size_t)N * heads * E, m->clip);
		m->ops->clamp(m->dev, v, (size_t)N * heads * E, m->clip);
	}
	if (m->family->flags & FAMILY_ADJACENT) {
		m->ops->split_pairs(m->dev, ws->q, N, m->id.query_heads, E, w->rope->dims);
		m->ops->split_pairs(m->dev, k, N, heads, E, w->rope->dims);
	}
	if (m->kv_copies > 1) {
		m->ops->repeat_heads(m->dev, ws->k, k, (size_t)N * heads, m->kv_copies, E);
		m->ops->repeat_heads(m->dev, ws->v, v, (size_t)N * heads, m->kv_copies, E);
	}
}

static void
project_qkv(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	const uint32_t width = m->id.query_heads * m->id.head_width;

	if (m->id.latent_rank != 0)
		latent_project(m, ws, l, N);
	else
		project_weights(m, ws, l, N);
	if (m->query_scale != 1)
		m->ops->mix(m->dev, ws->q, ws->q, (size_t)N * width, m->query_scale, 0);
	if (m->id.rope_query_beta != 0)
		m->ops->temper(m->dev, ws->q, ws->pos, N, width, (float)m->id.rope_query_beta,
		    m->id.rope_original_max_position);
}

/* ws->x += the output of the feed-forward network */
static void
add_network(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	const struct model_layer *w = &m->layer[l];

	if (w->experts.router.experts > 0)
		run_mixture(m->ops, m->dev, ws->x, &w->ffn, &w->experts, &w->shared_score,
		    w->ffn_adds, &(struct mixture_scratch){ ws->xn, ws->mixed, ws->gate, ws->up,
		    ws->shared_score, ws->expert_rows }, N);
	else if (w->ffn_adds != NULL || w->ffn_bias.up != NULL)
		run_ffn_with(m->ops, m->dev, ws->x, &w->ffn, &w->ffn_bias, w->ffn_adds, ws->xn,
		    ws->gate, ws->up, N);
	else
		run_ffn(m->ops, m->dev, ws->x, &w->ffn, ws->xn, ws->gate, ws->up, N);
}

/* ws->x += the output of attention, from ws->o, and then of the feed-forward network. Where both
 * read the same stream the network comes first: attention has read it already. */
static void
add_to_stream(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N)
{
	const int parallel = (m->family->flags & FAMILY_PARALLEL) != 0;
	const struct model_layer *w = &m->layer[l];
	const struct adapter *a = ws->adapter;
	const float *o = m->id.latent_rank != 0 ? latent_output(m, ws, l, N) : ws->o;

	if (parallel)
		add_network(m, ws, l, N);
	run_add(m->ops, m->dev, ws->x, o, &w->wo, w->bo, w->attention_adds, ws->xn, N);
	if (a == NULL && !parallel)
		add_network(m, ws, l, N);
	if (a == NULL)
		return;
	lora_add(m->ops, m->dev, ws->x, ws->o, &a->layer[l].o, a->scratch, N);
	if (w->experts.router.experts > 0)
		add_network(m, ws, l, N);
	else
		lora_ffn(m->ops, m->dev, ws->x, &w->ffn, &a->layer[l], ws->xn, ws->gate, ws->up,
		    a->scratch, N);
}

/* Adds the queries in ws->q, before rotary embedding, to the statistics of their sequences. */
static void
count_queries(const struct model *m, const struct workspace *ws, uint32_t l, const struct part *p,
    uint32_t n)
{
	const size_t q = (size_t)m->id.query_heads * m->id.head_width;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (p[i].s->cache->query_stats != NULL)
			query_stats_add(p[i].s->cache->query_stats, m, l, ws->q + p[i].at * q,
			    p[i].pos, p[i].N);
}

/* ws->gate_scores <- the scores that the gate of the caches that want them gives to the rows in
 * ws->x. */
static void
score_by_gate(struct workspace *ws, uint32_t l, const struct part *p, uint32_t n, uint32_t N)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (row_lists_wanted(p[i].s->cache->lists[ROW_GATE])) {
			gate_run(p[i].s->cache->gate, l, ws->x, ws->xn, N, ws->gate_scores);
			return;
		}
}

/* Applies rotary embedding to queries and keys, and appends keys and values to layer l of each
 * cache, or replaces rows by them. */
static void
append_parts(const struct model *m, struct workspace *ws, uint32_t l, const struct part *p,
    uint32_t n)
{
	const size_t q = (size_t)m->id.query_heads * m->id.head_width;
	const size_t kv = (size_t)m->id.kv_heads * m->id.head_width;
	int one_each = 1;
	uint32_t i;

	if (n == 1 && p->rewrite != NULL) {
		rewrite_rows_append(p->rewrite, l, ws->q, ws->k, ws->v, ws->pos, p->pos, p->N);
		return;
	}
	for (i = 0; i < n; i++) {
		cache_expect(p[i].s->cache, l, p[i].pos, p[i].N);
		ws->own_rows[i] = sequence_append_to(p[i].s, l);
		one_each &= p[i].N == 1;
	}
	if (one_each) {
		run_rope_append_each(m->ops, m->dev, ws->own_rows, n, ws->q, ws->k, ws->v, ws->pos,
		    m->layer[l].rope, m->id.query_heads);
		return;
	}
	for (i = 0; i < n; i++)
		run_rope_append(m->ops, m->dev, ws->own_rows[i], ws->q + p[i].at * q,
		    ws->k + p[i].at * kv, ws->v + p[i].at * kv, ws->pos + p[i].at,
		    m->layer[l].rope, p[i].N, m->id.query_heads);
}

/* Extends lists, indexes and the observation window by the appended rows of one sequence. */
static void
note_part(const struct model *m, struct workspace *ws, uint32_t l, const struct part *p)
{
	const size_t q = (size_t)m->id.query_heads * m->id.head_width;
	struct cache *c = p->s->cache;

	if (p->rewrite == NULL)
		sequence_appended(p->s, l, p->pos, p->N);
	if (row_lists_wanted(c->lists[ROW_GATE]))
		row_lists_put(c->lists[ROW_GATE], l, &c->layer[l], p->N,
		    ws->gate_scores + (size_t)p->at * m->id.kv_heads, p->N);
	if (row_lists_wanted(c->lists[ROW_NONCAUSAL]))
		noncausal_run(c->noncausal, m, c->lists[ROW_NONCAUSAL], l, &c->layer[l],
		    ws->q + p->at * q, ws->o, p->pos, p->N);
	if (c->index != NULL)
		index_extend(&c->index[l], sequence_last_rows(p->s, l));
	keep_queries(m, ws->q + p->at * q, p->obs, l, p->pos, p->N);
}

/* Returns the queries in ws->q of one sequence. */
static struct query
query_of(const struct model *m, const struct workspace *ws, uint32_t l, const struct part *p)
{
	return (struct query){ .q = ws->q + (size_t)p->at * m->id.query_heads * m->id.head_width,
		.pos = ws->pos + p->at, .N = p->N, .H = m->id.query_heads,
		.window = m->layer[l].window, .softcap = (float)m->id.attention_softcap,
		.sinks = m->layer[l].sinks };
}

static int
retrieves(const struct part *p)
{
	return p->s->retrieval != NULL && p->N == 1;
}

/* ws->o <- attention of each row to the rows of its own cache in layer l; ws->lse <- log-sum-exps,
 * if attention mass needs them */
static void
attend_parts(const struct model *m, struct workspace *ws, uint32_t l, const struct part *p,
    uint32_t n)
{
	const size_t H = m->id.query_heads, width = H * m->id.head_width;
	uint32_t i, together = 0;

	for (i = 0; i < n; i++) {
		struct cache *c = p[i].s->cache;
		const struct query query = query_of(m, ws, l, &p[i]);
		float *o = ws->o + p[i].at * width;

		if (retrieves(&p[i]))
			ws->each[together] = retrieve_begin(p[i].s->retrieval, l, o, &query,
			    &c->layer[l], cache_index(c, l));
		else
			ws->each[together] = (struct attention){ .o = o, .query = query,
			    .lse = c->mass != NULL ? ws->lse + p[i].at * H : NULL,
			    .rows = sequence_whole_rows(p[i].s, l) };
		if (p[i].apart)
			run_attend_apart(m->ops, m->dev, &ws->each[together]);
		else
			together += ws->each[together].rows != NULL;
	}
	run_attend_each(m->ops, m->dev, ws->each, together);
	for (i = 0; i < n; i++) {
		const struct cache *c = p[i].s->cache;
		const struct query query = query_of(m, ws, l, &p[i]);

		if (retrieves(&p[i]))
			retrieve_end(p[i].s->retrieval, l, &query, &c->layer[l],
			    cache_index(c, l));
	}
}

/* Adds the attention mass that the queries of one sequence give to its rows in layer l. */
static void
add_mass(const struct model *m, struct workspace *ws, uint32_t l, const struct part *p)
{
	const struct query query = query_of(m, ws, l, p);
	float *lse = ws->lse + (size_t)p->at * m->id.query_heads;
	struct cache *c = p->s->cache;

	if (c->mass != NULL)
		m->ops->attend_mass(m->dev, c->mass[l].sum, c->mass[l].stride, &query, lse,
		    &c->layer[l], QUERIES_SUM);
	if (p->s->probe_mass != NULL)
		probe_mass_add(p->s->probe_mass, c, l, &query, lse,
		    ws->x + (size_t)p->at * m->id.hidden);
}

/* Lets matmul() round activations to bf16 until round_products(m, 0). */
static void
round_products(const struct model *m, int on)
{
	if (m->products_in_bf16)
		m->ops->products_in_bf16(m->dev, on);
}

void
forward_parts(const struct model *m, struct workspace *ws, const struct part *p, uint32_t n,
    uint32_t l0, uint32_t l1)
{
	const uint32_t N = n > 0 ? p[n - 1].at + p[n - 1].N : 0;
	uint32_t l, i;

	for (i = 0; l0 == 0 && i < n; i++)
		sequence_head_begin(p[i].s, p[i].pos, p[i].N);
	round_products(m, n == 1);
	for (l = l0; l < l1; l++) {
		for (i = 0; i < n; i++)
			sequence_head_note(p[i].s, l, ws->x + (size_t)p[i].at * m->id.hidden,
			    p[i].pos, p[i].N);
		score_by_gate(ws, l, p, n, N);
		project_qkv(m, ws, l, N);
		count_queries(m, ws, l, p, n);
		append_parts(m, ws, l, p, n);
		for (i = 0; i < n; i++)
			note_part(m, ws, l, &p[i]);
		attend_parts(m, ws, l, p, n);
		for (i = 0; i < n; i++)
			add_mass(m, ws, l, &p[i]);
		add_to_stream(m, ws, l, N);
	}
	round_products(m, 0);
}

void
forward_at_pos(const struct model *m, struct sequence *s, struct workspace *ws,
    const uint32_t *pos, uint32_t N, uint32_t l0, uint32_t l1, const struct observation *obs)
{
	const struct part all = { .s = s, .obs = obs, .pos = pos, .N = N };

	forward_parts(m, ws, &all, 1, l0, l1);
}

void
forward(const struct model *m, struct sequence *s, struct workspace *ws, const uint32_t *pos,
    uint32_t N, uint32_t l0, uint32_t l1, const struct observation *obs)
{
	m->ops->put(m->dev, ws->pos, pos, N * sizeof *pos);
	forward_at_pos(m, s, ws, pos, N, l0, l1, obs);
}

void
make_logits(const struct model *m, struct workspace *ws, float *out, const float *x, uint32_t N)
{
	const struct product head = { out, &m->head, m->head_bias };
	const size_t all = (size_t)N * m->id.vocabulary;

	run_project(m->ops, m->dev, &head, 1, x, &m->norm, ws->xn, N);
	if (m->logits_scale != 1)
		m->ops->mix(m->dev, out, out, all, m->logits_scale, 0);
	if (m->id.logits_softcap != 0)
		m->ops->softcap(m->dev, out, all, (float)m->id.logits_softcap);
}

void
scale_embeddings(const struct model *m, float *x, size_t N)
{
	if (m->embedding_scale != 1)
		m->ops->mix(m->dev, x, x, N * m->id.hidden, m->embedding_scale, 0);
}

int
get_logits(struct cache *c, const float *logits)
{
	const struct model *m = c->model;
	size_t bytes = m->id.vocabulary * sizeof *c->logits;

	if (c->logits == NULL && (c->logits = malloc(bytes)) == NULL)
		return MODEL_ENOMEM;
	m->ops->get(m->dev, c->logits, logits, bytes);
	return 0;
}

int
last_logits(const struct model *m, struct cache *c, struct workspace *ws, const float *x)
{
	make_logits(m, ws, ws->logits, x, 1);
	return get_logits(c, ws->logits);
}
