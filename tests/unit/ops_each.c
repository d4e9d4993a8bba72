/* ops_each.c - attend_each: several calls of attend() and attend_chosen() together are what each is
 * alone, to the byte; where a backend has none, they are made one after the other */
#include <string.h>

#include "ops/compose.h"
#include "tests/unit/ops_cache.h"

/* Texts of a batch: one row of queries or some, windows or none, rows in one part and in
 * several, heads without rows, caches of every type; some that follow each other go into one launch
 * on a GPU, others do not */
static const struct shape text[] = {
	{ 1, 9, 3, 64, 512, KV_BF16, 1, LATE, 0, 0 },
	{ 1, 9, 3, 64, 1700, KV_BF16, 1, ONE_LONG | LATE, 0, 0 },
	{ 1, 9, 3, 64, 0, KV_BF16, 1, 0, 0, 0 },
	{ 1, 32, 8, 128, 33, KV_BF16, 1, LATE, 0, 0 },
	{ 2, 6, 3, 64, 100, KV_BF16, 1, LATE, 0, 0 },
	{ 1, 8, 2, 128, 900, KV_BF16, 1, LATE, 50, 0 },
	{ 1, 8, 2, 128, 300, KV_BF16, 1, LATE, 500, 5 },
	{ 1, 9, 3, 64, 3, KV_F16, 1, 0, 0, 0 },
	{ 1, 9, 3, 64, 4100, KV_F32, 1, ONE_LONG | LATE, 0, 0 },
	{ 1, 32, 4, 128, 1001, KV_BF16, 1, PACKED | ONE_LONG | LATE, 0, 0 },
	{ 1, 8, 2, 20, 700, KV_F32, 1, LATE, 50, 0 },
	{ 1, 8, 2, 20, 70, KV_F16, 3, LATE, 500, 5 },
	{ 5, 4, 1, 96, 1500, KV_F16, 1, LATE, 0, 0 },
	{ 140, 2, 2, 32, 300, KV_BF16, 1, PROMPT, 40, 0 },
	{ 1, 9, 3, 64, 700, KV_BF16, 1, LATE | SINKS, 0, 0 },
	{ 1, 9, 3, 64, 900, KV_BF16, 1, LATE | SINKS, 0, 0 },
	{ 1, 10, 2, 32, 300, KV_F32, 1, LATE | SINKS, 40, 0 },
	{ 1, 8, 2, 96, 500, KV_BF16, 1, LATE, 0, 0 },
	{ 1, 8, 2, 96, 77, KV_BF16, 1, LATE, 0, 0 },
	{ 1, 8, 1, 96, 131, KV_F16, 1, LATE, 0, 0 },
	{ 1, 8, 1, 96, 700, KV_F16, 1, LATE, 0, 0 },
};

enum { MOST_TEXTS = 36 };

/* One of the calls, and what it gives */
struct one {
	struct cache cache;
	struct layer_rows rows;
	float *q, *o, *lse;
	struct query query;
	size_t n, lses;
	struct chosen chosen;
};

static struct attention
make(struct device *d, struct one *x, const struct shape *s)
{
	const struct cache_types all = cache_types;
	struct query host;

	x->lses = (size_t)s->N * s->H;
	x->n = x->lses * s->E;
	if ((s->E & (s->E - 1)) != 0)           /* no width that is transformed */
		cache_types = (struct cache_types){ kv_row_type_base(all.k),
			kv_row_type_base(all.v), 0 };
	cache_make(&x->cache, s);
	cache_types = all;
	x->q = floats(x->n, s->scale);
	x->rows = cache_on_device(d, &x->cache, s, 1);
	host = cache_query(s, x->q, x->cache.qpos);
	x->query = query_on_device(d, s, &host);
	x->o = d->ops->alloc(d->dev, x->n * 4);
	x->lse = d->ops->alloc(d->dev, x->lses * 4);
	return (struct attention){ .o = x->o, .lse = x->lse, .rows = &x->rows,
		.query = x->query };
}

/* Some entries of `rows` rows, the last one of each KV head among them */
static void
choose(struct device *d, struct one *x, struct attention *a, uint32_t rows)
{
	const uint32_t G = x->rows.heads, stride = (uint32_t)(x->n + 5000) / rows;
	uint32_t *at = calloc((size_t)G * stride, sizeof *at), g, i, entries;

	x->chosen = (struct chosen){ .stride = stride, .rows = rows, .n = calloc(G, sizeof *at) };
	for (g = 0; g < G; g++) {
		entries = x->rows.len[g] / rows + (x->rows.len[g] % rows > 0);
		for (i = 0; i < entries; i++)
			if (i + 1 == entries || (i * 7 + g) % 5 < 2)
				at[g * stride + x->chosen.n[g]++] = i;
	}
	x->chosen.at = to_device(d, at, (size_t)G * stride * sizeof *at);
	free(at);
	a->chosen = &x->chosen;
	a->lse = NULL;
}

static void
drop(struct device *d, struct one *x)
{
	d->ops->free(d->dev, x->chosen.at);
	free(x->chosen.n);
	x->chosen = (struct chosen){ .at = NULL };
	drop_query(d, &x->query);
	d->ops->free(d->dev, x->o);
	d->ops->free(d->dev, x->lse);
	cache_free_rows(d, &x->rows);
	cache_free(&x->cache);
	free(x->q);
}

/* What attend() or attend_chosen() gives of a call, beside what is there */
static void
check(struct device *d, size_t i, const struct one *x, const struct attention *a)
{
	float *o = from_device(d, x->o, x->n), *lse = from_device(d, x->lse, x->lses);
	float *alone, *alone_lse;

	if (a->chosen != NULL)
		d->ops->attend_chosen(d->dev, x->o, &a->query, a->rows, a->chosen);
	else
		d->ops->attend(d->dev, a->o, a->lse, &a->query, a->rows);
	alone = from_device(d, x->o, x->n);
	alone_lse = from_device(d, x->lse, x->lses);
	verdict(a->o == NULL || memcmp(o, alone, x->n * 4) == 0,
	    "attend_each, %s: text %zu is another one", d->name, i);
	verdict(a->lse == NULL || memcmp(lse, alone_lse, x->lses * 4) == 0,
	    "attend_each, %s: lse of text %zu is another one", d->name, i);
	free(o);
	free(lse);
	free(alone);
	free(alone_lse);
}

/* n texts; of every some-th one rows are chosen, if it has one query row and no window */
static void
test_texts(struct device *d, const struct shape *shape, size_t n, size_t some)
{
	struct one x[MOST_TEXTS] = { 0 };
	struct attention a[MOST_TEXTS];
	size_t i;

	for (i = 0; i < n; i++) {
		a[i] = make(d, &x[i], &shape[i]);
		if (some > 0 && i % some == 0 && shape[i].N == 1 && a[i].query.window == 0)
			choose(d, &x[i], &a[i], i % 3 == 0 ? 1 : 16);
	}
	a[0].lse = NULL;
	if (n > 2 && a[2].chosen == NULL)
		a[2].o = NULL;
	run_attend_each(d->ops, d->dev, a, (uint32_t)n);
	for (i = 0; i < n; i++)
		check(d, i, &x[i], &a[i]);
	for (i = 0; i < n; i++)
		drop(d, &x[i]);
}

/* Two texts for each kernel of decoding: rows of up to 128, 256 and 512 bytes, which are read once
 * for 4 query heads or for 8, of every type, without a window and with one */
static void
test_kernels(struct device *d)
{
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	struct shape every[MOST_TEXTS];
	uint32_t i, kind;

	for (i = 0; i < 2 * MOST_TEXTS; i++) {
		kind = i / 2;
		every[i % MOST_TEXTS] = (struct shape){ 1, kind / 9 % 2 ? 8 : 4, 1,
			(kind % 3 == 2 ? 32 : 64) << kind / 3 % 3, 60 + i, type[kind % 3], 1, LATE,
			kind / 18 * 50, kind / 18 * 5 };
		if ((i + 1) % MOST_TEXTS == 0)
			test_texts(d, every, MOST_TEXTS, 0);
	}
}

void
test_each(void)
{
	size_t n, some;
	int k;

	for (k = 0; k < devices; k++) {
		for (some = 0; some < 4; some++)
			for (n = 1; n <= COUNT(text); n += n == 1 ? 1 : COUNT(text) - 2)
				if (in_sample())
					test_texts(&device[k], text, n, some);
		test_kernels(&device[k]);
	}
}
