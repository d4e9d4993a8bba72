/* op_counts.c - the table of ops that count: each adds its costs (op_formulas.c) and calls the
 * device's op
 *
 * Ops without counted costs only call the device's op. A fused op is counted if the device has done
 * it; else the ops that it is composed of are called, and counted. */
#include <stdlib.h>

#include "engine/op_counts_internal.h"

static struct counter *
of(struct dev *d)
{
	return (struct counter *)d;
}

/* An op that is not counted */
#define PASS(name, parameters, ...) \
	static void counted_##name parameters { of(d)->under->name(of(d)->dev, __VA_ARGS__); }
#define PASS_RESULT(type, name, parameters, ...) \
	static type counted_##name parameters { return of(d)->under->name(__VA_ARGS__); }

PASS_RESULT(const char *, sync, (struct dev *d), of(d)->dev)
PASS_RESULT(const char *, describe, (struct dev *d), of(d)->dev)
PASS_RESULT(int, products_in_bf16, (struct dev *d, int on), of(d)->dev, on)
PASS(blocks_in_f32, (struct dev *d, int on), on)
PASS(use_kernels, (struct dev *d, enum kernels which, const struct findings *f), which, f)
PASS_RESULT(uint64_t, event_record, (struct dev *d), of(d)->dev)
PASS_RESULT(const char *, event_wait, (struct dev *d, uint64_t event), of(d)->dev, event)
PASS(mem_info, (struct dev *d, size_t *free_bytes, size_t *total), free_bytes, total)
PASS(free, (struct dev *d, void *p), p)
PASS(put, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
PASS(put_scattered,
    (struct dev * d, void *dst, const uint64_t *at, uint32_t n, const void *rows, size_t bytes),
    dst, at, n, rows, bytes)
PASS(get, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
PASS(get_side, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
PASS_RESULT(void *, host_alloc, (struct dev *d, size_t bytes), of(d)->dev, bytes)
PASS(host_free, (struct dev *d, void *p), p)
PASS(get_async, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
PASS(copy, (struct dev *d, void *dst, const void *src, size_t bytes), dst, src, bytes)
PASS(clear, (struct dev *d, void *dst, size_t bytes), dst, bytes)
PASS(embed, (struct dev *d, float *x, const struct mat *t, const uint32_t *tok, uint32_t N), x,
    t, tok, N)
PASS(embed_ids, (struct dev *d, float *x, const struct mat *t, const uint32_t *tok, uint32_t N),
    x, t, tok, N)
PASS(rmsnorm, (struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps), y, x, w, N, D, eps)
PASS(layernorm, (struct dev *d, float *y, const float *x, const float *w, const float *bias,
    uint32_t heads, uint32_t N, uint32_t D, float eps), y, x, w, bias, heads, N, D, eps)
PASS(split_pairs, (struct dev *d, float *x, uint32_t N, uint32_t heads, uint32_t E,
    uint32_t dims), x, N, heads, E, dims)
PASS(rope, (struct dev *d, float *x, const uint32_t *pos, const struct rotary *r, uint32_t N,
    uint32_t heads, uint32_t E), x, pos, r, N, heads, E)
PASS(compact, (struct dev *d, struct layer_rows *l, float *mass, size_t stride, uint32_t H,
    const uint32_t *count, uint32_t *const *keep), l, mass, stride, H, count, keep)
PASS(compact_listed, (struct dev *d, struct layer_rows *l, float *mass, size_t stride, uint32_t H,
    const struct chosen *kept), l, mass, stride, H, kept)
PASS(round, (struct dev *d, float *x, size_t n, enum kv_dtype dtype), x, n, dtype)
PASS(swiglu, (struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t
    F), y, gate, up, N, F)
PASS(geglu, (struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t
    F), y, gate, up, N, F)
PASS(softcap, (struct dev *d, float *x, size_t n, float cap), x, n, cap)
PASS(clamp, (struct dev *d, float *x, size_t n, float limit), x, n, limit)
PASS(mix, (struct dev *d, float *y, const float *x, size_t n, float a, float b), y, x, n, a, b)
PASS(copy_channels, (struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    uint32_t width, size_t rows), y, y_stride, x, x_stride, width, rows)
PASS(temper, (struct dev *d, float *x, const uint32_t *pos, uint32_t N, uint32_t D, float beta,
    uint32_t period), x, pos, N, D, beta, period)
PASS(repeat_heads, (struct dev *d, float *y, const float *x, size_t n, uint32_t times, uint32_t E),
    y, x, n, times, E)
PASS(scale_rows, (struct dev *d, float *x, const float *s, uint32_t N, uint32_t D), x, s, N, D)
PASS(activate, (struct dev *d, float *x, size_t n, enum activation act, const struct xielu *p), x,
    n, act, p)
PASS(gate_scores, (struct dev *d, float *score, const float *q, const float *k,
    const struct gate_sinks *w, uint32_t N), score, q, k, w, N)
PASS(lse_merge, (struct dev *d, float *lse, const float *other, size_t n), lse, other, n)
PASS(knorm, (struct dev *d, float *score, size_t stride, const struct layer_rows *l), score,
    stride, l)
PASS(keydiff, (struct dev *d, float *score, size_t stride, const struct layer_rows *l), score,
    stride, l)
PASS(rank_rows, (struct dev *d, float *rank, size_t stride, uint32_t *nan, const struct ranking *r,
    const struct layer_rows *l), rank, stride, nan, r, l)
PASS(argmax, (struct dev *d, uint32_t *tok, const float *x, uint32_t n, uint32_t N), tok, x, n, N)
PASS(pack_bits, (struct dev *d, struct entries *e, const struct layer_rows *l), e, l)
PASS(pack_pages, (struct dev *d, struct entries *e, const struct layer_rows *l), e, l)
PASS(group_reduce, (struct dev *d, float *joint, const float *score, size_t stride, struct counts
    n, const float *sinks, uint32_t H, uint32_t G, enum reduce how), joint, score, stride, n, sinks,
    H, G, how)
PASS(topk, (struct dev *d, struct chosen *to, const float *joint, size_t stride, struct counts n,
    uint32_t G), to, joint, stride, n, G)
PASS(scores_by_label, (struct dev *d, float *row, size_t stride, const float *joint, size_t
    joint_stride, const uint32_t *label, size_t label_stride, const uint32_t *n, uint32_t G),
    row, stride, joint, joint_stride, label, label_stride, n, G)

PASS_RESULT(uint64_t, fetch_chosen,
    (struct dev * d, struct chosen *list, const struct chosen *chosen,
	const struct layer_rows *rows, const struct low_rank *low, const struct offload_slots *f,
	int ahead),
    of(d)->dev, list, chosen, rows, low, f, ahead)
PASS(fetch_wait, (struct dev *d, uint64_t fetch), fetch)

/* ---- memory: how much of the device is in use ---- */

static void
see_memory(struct counter *c)
{
	size_t now, total;

	if (c->under->shares_memory)
		return;
	c->under->mem_info(c->dev, &now, &total);
	if (now != SIZE_MAX && now < c->free_at_first &&
	    c->free_at_first - now > c->work->device_peak)
		c->work->device_peak = c->free_at_first - now;
}

static void *
counted_alloc(struct dev *d, size_t bytes)
{
	void *p = of(d)->under->alloc(of(d)->dev, bytes);

	see_memory(of(d));
	return p;
}

static const void *
counted_weights(struct dev *d, const void *host, size_t bytes)
{
	const void *p = of(d)->under->weights(of(d)->dev, host, bytes);

	see_memory(of(d));
	return p;
}

static void
counted_expect(struct dev *d, size_t bytes)
{
	of(d)->under->expect(of(d)->dev, bytes);
	see_memory(of(d));
}

/* ---- graphs ---- */

static int
counted_graph_begin(struct dev *d)
{
	struct counter *c = of(d);

	c->graph = (struct op_counts){ .products = 0 };
	c->n_attend = 0;
	c->lost_attend = 0;
	return c->capturing = c->under->graph_begin(c->dev);
}

static uint32_t
counted_graph_end(struct dev *d, uint32_t *pos)
{
	of(d)->capturing = 0;
	return of(d)->under->graph_end(of(d)->dev, pos);
}

static int
counted_graph_launch(struct dev *d, uint32_t graph, uint32_t more)
{
	if (of(d)->lost_attend || !of(d)->under->graph_launch(of(d)->dev, graph, more))
		return 0;
	count_launch(of(d));
	return 1;
}

/* ---- what is counted ---- */

static int
counted_project(struct dev *d, const struct product *p, uint32_t n, const float *x,
    const struct norm *norm, float *xn, uint32_t N)
{
	uint32_t i;

	if (!of(d)->under->project(of(d)->dev, p, n, x, norm, xn, N))
		return 0;
	for (i = 0; i < n; i++)
		count_product(of(d), p[i].w, N);
	return 1;
}

static void
counted_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	count_product(of(d), w, N);
	of(d)->under->matmul(of(d)->dev, y, x, w, bias, N, add);
}

static void
counted_append(struct dev *d, struct layer_rows *l, const float *k, const float *v, const
    uint32_t *pos, uint32_t N)
{
	count_append(of(d), l, N);
	of(d)->under->append(of(d)->dev, l, k, v, pos, N);
}

static int
counted_rope_append(struct dev *d, struct layer_rows *l, float *q, float *k, const float *v,
    const uint32_t *pos, const struct rotary *r, uint32_t N, uint32_t H)
{
	if (!of(d)->under->rope_append(of(d)->dev, l, q, k, v, pos, r, N, H))
		return 0;
	count_append(of(d), l, N);
	return 1;
}

static int
counted_rope_append_each(struct dev *d, struct layer_rows *const *rows, uint32_t n, float *q,
    float *k, const float *v, const uint32_t *pos, const struct rotary *r, uint32_t H)
{
	uint32_t i;

	if (!of(d)->under->rope_append_each(of(d)->dev, rows, n, q, k, v, pos, r, H))
		return 0;
	for (i = 0; i < n; i++)
		count_append(of(d), rows[i], 1);
	return 1;
}

static int
counted_ffn(struct dev *d, float *x, const struct ffn *w, float *xn, float *gate, float *up,
    uint32_t N)
{
	if (!of(d)->under->ffn(of(d)->dev, x, w, xn, gate, up, N))
		return 0;
	count_ffn(of(d), w, N);
	return 1;
}

static void
counted_experts(struct dev *d, float *y, const float *x, const struct experts *e, void *scratch,
    uint32_t N)
{
	of(d)->under->experts(of(d)->dev, y, x, e, scratch, N);
	count_experts(of(d), e, scratch, N);
}

static void
counted_attend(struct dev *d, float *o, float *lse, const struct query *q, const struct
    layer_rows *l)
{
	count_attend(of(d), q, l, o != NULL);
	of(d)->under->attend(of(d)->dev, o, lse, q, l);
}

static int
counted_attend_each(struct dev *d, const struct attention *a, uint32_t n)
{
	uint32_t i;

	if (!of(d)->under->attend_each(of(d)->dev, a, n))
		return 0;
	for (i = 0; i < n; i++)
		if (a[i].chosen != NULL)
			count_chosen(of(d), &a[i].query, a[i].rows, a[i].chosen);
		else
			count_attend(of(d), &a[i].query, a[i].rows, a[i].o != NULL);
	return 1;
}

static int
counted_attend_apart(struct dev *d, const struct attention *a)
{
	if (!of(d)->under->attend_apart(of(d)->dev, a))
		return 0;
	count_attend(of(d), &a->query, a->rows, a->o != NULL);
	return 1;
}

static void
counted_attend_mass(struct dev *d, float *mass, size_t stride, const struct query *q, const
    float *lse, const struct layer_rows *l, enum over_queries over)
{
	count_attend(of(d), q, l, 0);
	of(d)->under->attend_mass(of(d)->dev, mass, stride, q, lse, l, over);
}

static void
counted_query_stats(struct dev *d, double *sums, const float *q, uint32_t N, uint32_t H, uint32_t E,
    uint32_t first, uint32_t dims)
{
	of(d)->work->attention += (uint64_t)N * H * E * (E + 1);
	of(d)->under->query_stats(of(d)->dev, sums, q, N, H, E, first, dims);
}

static void
counted_head_products(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *a, int transposed, uint32_t N)
{
	const struct mat all = { .type = a->w->type, .out = a->heads * a->rows, .in = a->w->in };

	count_product(of(d), &all, N);
	of(d)->under->head_products(of(d)->dev, y, y_stride, x, x_stride, a, transposed, N);
}

static void
counted_value_norms(struct dev *d, float *norms, size_t stride, const struct value_outputs *v)
{
	of(d)->work->products += 2 * (uint64_t)v->n * v->heads * v->width * v->wo->out;
	of(d)->under->value_norms(of(d)->dev, norms, stride, v);
}

static void
counted_window_mass(struct dev *d, float *mass, size_t stride, const struct query *q, const
    struct layer_rows *l, const struct layer_rows *own, enum over_queries over)
{
	count_window_mass(of(d), q, l, own);
	of(d)->under->window_mass(of(d)->dev, mass, stride, q, l, own, over);
}

static void
counted_bits_scores(struct dev *d, float *score, size_t stride, const struct query *q, const
    struct entries *bits, const struct layer_rows *l)
{
	count_bits(of(d), q, bits, l);
	of(d)->under->bits_scores(of(d)->dev, score, stride, q, bits, l);
}

static void
counted_page_scores(struct dev *d, float *score, size_t stride, const struct query *q, const
    struct entries *pages, enum kv_dtype dtype)
{
	count_pages(of(d), q, pages);
	of(d)->under->page_scores(of(d)->dev, score, stride, q, pages, dtype);
}

static void
counted_key_scores(struct dev *d, float *score, size_t stride, const struct query *q, const
    struct layer_rows *l)
{
	count_keys(of(d), q, l);
	of(d)->under->key_scores(of(d)->dev, score, stride, q, l);
}

static void
counted_attend_chosen(struct dev *d, float *o, const struct query *q, const struct layer_rows
    *l, const struct chosen *chosen)
{
	count_chosen(of(d), q, l, chosen);
	of(d)->under->attend_chosen(of(d)->dev, o, q, l, chosen);
}

static void
counted_gather(struct dev *d, struct layer_rows *to, const struct layer_rows *from, const struct
    chosen *chosen)
{
	count_gather(of(d), from, chosen);
	of(d)->under->gather(of(d)->dev, to, from, chosen);
}

static void
counted_rebuild(struct dev *d, struct layer_rows *to, const struct chosen *chosen, const struct
    low_rank *low, const double *freq)
{
	count_rebuild(of(d), to, chosen, low);
	of(d)->under->rebuild(of(d)->dev, to, chosen, low, freq);
}

/* ---- the table ---- */

static void
counted_close(struct dev *d)
{
	struct counter *c = of(d);

	if (c == NULL)
		return;
	see_memory(c);
	c->under->close(c->dev);
	free(c->attend);
	free(c);
}

/* Fills the table; an op that is NULL in the device's is NULL in it. */
static void
fill_table(struct ops *to, const struct ops *under)
{
	*to = *under;
#define COUNTED(name) to->name = under->name != NULL ? counted_##name : NULL
	COUNTED(close); COUNTED(sync); COUNTED(describe); COUNTED(products_in_bf16);
	COUNTED(blocks_in_f32); COUNTED(use_kernels); COUNTED(event_record);
	COUNTED(event_wait); COUNTED(mem_info);
	COUNTED(alloc);
	COUNTED(free); COUNTED(put); COUNTED(put_scattered); COUNTED(get); COUNTED(get_side);
	COUNTED(host_alloc);
	COUNTED(host_free); COUNTED(get_async); COUNTED(copy); COUNTED(clear);
	COUNTED(expect); COUNTED(weights); COUNTED(graph_begin); COUNTED(graph_end);
	COUNTED(graph_launch); COUNTED(embed); COUNTED(embed_ids); COUNTED(rmsnorm);
	COUNTED(layernorm); COUNTED(matmul); COUNTED(rope); COUNTED(split_pairs);
	COUNTED(append); COUNTED(compact); COUNTED(round);
	COUNTED(swiglu); COUNTED(geglu); COUNTED(softcap); COUNTED(clamp); COUNTED(mix);
	COUNTED(temper); COUNTED(repeat_heads); COUNTED(experts); COUNTED(scale_rows);
	COUNTED(copy_channels); COUNTED(head_products);
	COUNTED(project);
	COUNTED(rope_append); COUNTED(rope_append_each); COUNTED(ffn); COUNTED(attend);
	COUNTED(attend_each); COUNTED(attend_apart);
	COUNTED(lse_merge);
	COUNTED(attend_mass); COUNTED(query_stats);
	COUNTED(value_norms); COUNTED(activate); COUNTED(gate_scores); COUNTED(window_mass);
	COUNTED(knorm); COUNTED(keydiff);
	COUNTED(compact_listed); COUNTED(rank_rows);
	COUNTED(argmax); COUNTED(pack_bits); COUNTED(pack_pages); COUNTED(bits_scores);
	COUNTED(page_scores); COUNTED(key_scores); COUNTED(group_reduce); COUNTED(topk);
	COUNTED(scores_by_label); COUNTED(attend_chosen); COUNTED(gather);
	COUNTED(rebuild); COUNTED(fetch_chosen); COUNTED(fetch_wait);
#undef COUNTED
}

int
op_counts_start(struct device *d, struct op_counts *work, struct engine_error *e)
{
	struct counter *c = engine_alloc(1, sizeof *c, e);
	size_t total;

	if (c == NULL)
		return e->code;
	*c = (struct counter){ .under = d->ops, .dev = d->dev, .work = work };
	fill_table(&c->ops, d->ops);
	d->ops->mem_info(d->dev, &c->free_at_first, &total);
	d->ops = &c->ops;
	d->dev = (struct dev *)c;
	return ENGINE_OK;
}

struct op_counts
op_counts_since(const struct op_counts *now, const struct op_counts *before)
{
	return (struct op_counts){ .products = now->products - before->products,
		.attention = now->attention - before->attention,
		.retrieval = now->retrieval - before->retrieval,
		.weights = now->weights - before->weights,
		.rows_read = now->rows_read - before->rows_read,
		.rows_written = now->rows_written - before->rows_written,
		.indexes = now->indexes - before->indexes };
}

void
op_counts_add(struct op_counts *sum, const struct op_counts *more)
{
	sum->products += more->products;
	sum->attention += more->attention;
	sum->retrieval += more->retrieval;
	sum->weights += more->weights;
	sum->rows_read += more->rows_read;
	sum->rows_written += more->rows_written;
	sum->indexes += more->indexes;
	if (more->device_peak > sum->device_peak)
		sum->device_peak = more->device_peak;
}
