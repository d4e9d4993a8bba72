/* specontext.c - SpeContext (2025): rows compete, by the attention of a retrieval head, before the
 * first layer runs
 *
 * SpeContext (Xu et al. 2025), section 4.3: the attention weights of the retrieval head over all
 * tokens, for each query head; the maximum over the query heads of a KV head of the model (GQA,
 * MQA); the best of these within the budget, and the same tokens in every layer. With latent
 * attention a query head of the model has a choice of its own (MLA), from the weights of the query
 * heads of the retrieval head that belong to it. In a layer that has lost rows, the remaining ones
 * compete by the scores of their positions. */
#include <math.h>
#include <stdlib.h>

#include "retrieval/retrieval_internal.h"

void
specontext_free(struct retrieval *t)
{
	t->ops->free(t->dev, t->specontext.score);
	t->ops->free(t->dev, t->specontext.joint);
	free(t->specontext.always);
	t->specontext = (struct specontext){ .stride = 0 };
}

/* Returns the greatest number of positions that are always read next to each other, the current
 * token included. */
static uint32_t
longest_always(const struct retrieval_options *o)
{
	const uint32_t recent = o->recent > 0 ? o->recent : 1;

	return o->sinks > recent ? o->sinks : recent;
}

int
specontext_reserve(struct retrieval *t, const struct head_keys *text)
{
	const uint32_t n = longest_always(&t->opt);
	const size_t stride = retrieve_stride(text->keys.capacity[0]);
	struct specontext *a = &t->specontext;
	uint32_t i;

	if (t->opt.method != RETRIEVE_SPECONTEXT ||
	    (stride <= a->stride && a->heads == text->head->H))
		return KV_OK;
	specontext_free(t);
	a->score = t->ops->alloc(t->dev, text->head->H * stride * sizeof *a->score);
	a->joint = t->ops->alloc(t->dev, t->lists * stride * sizeof *a->joint);
	a->always = malloc(n * sizeof *a->always);
	if (a->score == NULL || a->joint == NULL || a->always == NULL) {
		specontext_free(t);
		return KV_ENOMEM;
	}
	for (i = 0; i < n; i++)
		a->always[i] = INFINITY;
	a->stride = stride;
	a->heads = text->head->H;
	return KV_OK;
}

/* Sets positions first .. first+n-1 to be always read. */
static void
always_read(struct retrieval *t, uint32_t first, uint32_t n)
{
	struct specontext *a = &t->specontext;
	uint32_t c;

	for (c = 0; n > 0 && c < t->lists; c++)
		t->ops->put(t->dev, a->joint + c * a->stride + first, a->always,
		    n * sizeof *a->always);
}

void
specontext_score(struct retrieval *t, struct head_keys *text)
{
	const struct retrieval_head *h = text->head;
	const struct layer_rows *keys = &text->keys;
	const uint32_t n = keys->len[0], recent = t->opt.recent > 0 ? t->opt.recent : 1;
	struct specontext *a = &t->specontext;
	struct query query = { .N = 1, .H = h->H };
	uint32_t c;

	if (t->opt.method != RETRIEVE_SPECONTEXT)
		return;
	a->n = n;
	a->chosen = 0;
	a->bytes = 0;
	if (n <= t->opt.budget)                 /* no layer has more rows than the budget */
		return;
	query.q = head_keys_query(text);
	t->ops->key_scores(t->dev, a->score, a->stride, &query, keys);
	for (c = 0; c < t->lists; c++)
		t->n[c] = n;
	t->ops->group_reduce(t->dev, a->joint, a->score, a->stride, (struct counts){ t->n, 0 },
	    NULL, h->H, t->lists, t->opt.reduce);
	always_read(t, 0, t->opt.sinks < n ? t->opt.sinks : n);
	always_read(t, recent < n ? n - recent : 0, recent < n ? recent : n);
	a->bytes = n * (uint64_t)h->G * h->E * kv_dtype_size(keys->dtype) / t->G;
}

/* Does the layer have the rows of all n positions? */
static int
has_all(const struct layer_rows *rows, uint32_t n)
{
	uint32_t g;

	for (g = 0; g < rows->heads && rows->len[g] == n; g++)
		;
	return g == rows->heads;
}

/* t->candidate <- the scores of the positions of rows; in one call if all KV heads have the same
 * capacity */
static void
score_rows(struct retrieval *t, const struct layer_rows *rows)
{
	const uint32_t G = rows->heads;
	const uint64_t apart = G > 1 ? rows->start[1] - rows->start[0] : 0;
	const struct specontext *a = &t->specontext;
	uint32_t g;

	for (g = 0; g < G && rows->start[g] == rows->start[0] + g * apart; g++)
		;
	if (g == G) {
		t->ops->scores_by_label(t->dev, t->candidate, t->stride, a->joint, a->stride,
		    rows->pos + rows->start[0], apart, t->n, G);
		return;
	}
	for (g = 0; g < G; g++)
		t->ops->scores_by_label(t->dev, t->candidate + g * t->stride, t->stride,
		    a->joint + g * a->stride, a->stride, rows->pos + rows->start[g], 0, t->n + g,
		    1);
}

static void
choose_from_all(struct retrieval *t)
{
	uint32_t c;

	t->chosen.rows = 1;
	for (c = 0; c < t->lists; c++) {
		t->n[c] = t->specontext.n;
		t->chosen.n[c] = t->specontext.n < t->opt.budget ? t->specontext.n : t->opt.budget;
	}
	t->ops->topk(t->dev, &t->chosen, t->specontext.joint, t->specontext.stride,
	    (struct counts){ t->n, 0 }, t->lists);
	retrieve_unite(t);
	t->specontext.chosen = 1;
}

static void
choose_ahead(struct retrieval *t, const struct layer_rows *rows)
{
	struct specontext *a = &t->specontext;
	const int all = has_all(rows, a->n);
	uint32_t c;

	for (c = 0; c < t->lists; c++)
		retrieve_set_choice(t, rows, c, 1, 0, t->opt.budget);
	if (all && a->chosen)
		return;
	if (all) {
		choose_from_all(t);
		return;
	}
	score_rows(t, rows);
	if (t->offload != NULL)         /* fetches ahead still read t->chosen */
		offload_wait_all(t->offload);
	t->ops->topk(t->dev, &t->chosen, t->candidate, t->stride, (struct counts){ t->n, 0 },
	    t->lists);
	retrieve_unite(t);
	a->chosen = 0;
}

void
specontext_prefetch(struct retrieval *t, uint32_t l, const struct layer_rows *rows)
{
	uint32_t g;

	for (g = 0; g < t->G && rows->len[g] + 1 == t->specontext.n; g++)
		;
	if (g < t->G || t->specontext.n <= t->opt.budget || !offload_has(t->offload, l))
		return;
	if (!t->specontext.chosen) {
		choose_from_all(t);
		t->whole = 0;
		t->specontext.started = 0;
	}
	t->specontext.started |= offload_start(t->offload, l, &(struct offload_step){
	    .chosen = retrieve_read(t), .rows = rows, .ahead = 1,
	    .same = t->specontext.started });
}

/* Adds what the head has read for all layers to the first layer that chooses. */
static void
count_bytes(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x)
{
	(void)g;
	(void)rows;
	(void)x;
	s->index_bytes += t->specontext.bytes;
}

const struct retrieval_method retrieval_specontext = { .choose = choose_ahead,
	.count = count_bytes };
