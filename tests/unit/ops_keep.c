/* ops_keep.c - rank_rows, on devices that have it, and the rows that topk chooses by the ranks
 *
 * The scores must be those of the host to the bit. So they are computed here in f32, but over lists
 * that are padded, as torch does it, and by sorting. Lists are ragged, one may be empty; what lies
 * behind a list must stay. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

enum { MOST_HEADS = 9, BEHIND = 3 };
#define GUARD 12345.0f

struct shape {
	uint32_t G, R, n;               /* n: rows of the longest KV head */
	struct list_rule rule;
	uint32_t nan;                   /* 1: some numbers are none */
	uint32_t equal;                 /* 1: few different numbers, so that rows tie */
};

/* A layer on the host */
struct layer {
	uint64_t start[MOST_HEADS];
	uint32_t len[MOST_HEADS], scored[MOST_HEADS], first[MOST_HEADS], last[MOST_HEADS];
	size_t stride, rank_stride, total;
	float *lists, *rank;            /* rank: the oracle's, with guards */
	uint32_t *pos, nan[MOST_HEADS];
};

/* out[n] <- pooled x[n]: each window of a list with kernel / 2 neutral numbers at both ends */
static void
pool_padded(float *out, const float *x, uint32_t n, const struct list_rule *rule)
{
	const uint32_t half = rule->kernel / 2;
	const float none = rule->pool == POOL_MAX ? -INFINITY : 0;
	float *padded = malloc((n + 2 * half + 1) * sizeof *padded);
	uint32_t i, j;

	for (i = 0; i < n + 2 * half; i++)
		padded[i] = i < half || i >= half + n ? none : x[i - half];
	for (i = 0; i < n; i++) {
		out[i] = rule->kernel == 1 ? x[i] : none;
		for (j = 0; j < rule->kernel && rule->kernel > 1; j++)
			if (rule->pool == POOL_AVG)
				out[i] += padded[i + j];
			else if (padded[i + j] > out[i])
				out[i] = padded[i + j];
		if (rule->pool == POOL_AVG && rule->kernel > 1)
			out[i] /= (float)rule->kernel;
	}
	free(padded);
}

/* out[n] <- the R lists, one after another, as one */
static void
reduce_lists(float *out, const float *x, uint32_t n, uint32_t R, enum reduce how)
{
	uint32_t r, i;

	for (i = 0; i < n; i++) {
		out[i] = x[i];
		for (r = 1; r < R; r++)
			if (how != REDUCE_MAX)
				out[i] += x[(size_t)r * n + i];
			else if (x[(size_t)r * n + i] > out[i])
				out[i] = x[(size_t)r * n + i];
		if (how == REDUCE_MEAN && R > 1)
			out[i] /= (float)R;
	}
}

/* score[scored] of KV head g */
static void
score_head(float *score, const struct layer *l, const struct shape *s, uint32_t g)
{
	const uint32_t n = l->scored[g], R = s->rule.whole_layer ? s->G * s->R : s->R;
	const struct list_rule *rule = &s->rule;
	float *of = malloc(((size_t)n * R + 1) * sizeof *of);
	float *pooled = malloc(((size_t)n * R + 1) * sizeof *pooled);
	const float *lists = l->lists + (rule->whole_layer ? 0 : g * R * l->stride);
	uint32_t r, i, seen;
	double sum;

	for (r = 0; r < R; r++)
		memcpy(of + (size_t)r * n, lists + r * l->stride, n * sizeof *of);
	for (i = 0; rule->whole_layer && i < n; i++) {
		for (sum = 0, r = 0; r < R; r++)
			sum += of[(size_t)r * n + i];
		score[i] = (float)(sum / R);
	}
	if (!rule->whole_layer && rule->order == REDUCE_FIRST) {
		reduce_lists(pooled, of, n, R, rule->reduce);
		pool_padded(score, pooled, n, rule);
	} else if (!rule->whole_layer) {
		for (r = 0; r < R; r++)
			pool_padded(pooled + (size_t)r * n, of + (size_t)r * n, n, rule);
		reduce_lists(score, pooled, n, R, rule->reduce);
	}
	for (i = 0; i < n; i++) {
		seen = rule->next_position - l->pos[l->start[g] + i];
		if (rule->divisor != 0)
			score[i] /= (float)rule->divisor;
		else if (rule->next_position != 0)
			score[i] /= (float)(rule->sees != 0 && rule->sees < seen ?
			    rule->sees : seen);
	}
	free(of);
	free(pooled);
}

/* l->rank, l->nan <- what rank_rows() must make */
static void
expected(struct layer *l, const struct shape *s)
{
	float *score = malloc((s->n + 1) * sizeof *score);
	uint32_t g, i;

	for (i = 0; i < s->G * l->rank_stride; i++)
		l->rank[i] = GUARD;
	for (g = 0; g < s->G; g++) {
		float *rank = l->rank + g * l->rank_stride;

		score_head(score, l, s, g);
		l->nan[g] = UINT32_MAX;
		for (i = l->scored[g]; i-- > 0;)
			if (isnan(score[i]))
				l->nan[g] = i;
		for (i = 0; i < l->len[g]; i++)
			rank[i] = i < l->first[g] || i >= l->last[g] ? INFINITY :
			    i < l->scored[g] ? score[i] : -INFINITY;
	}
	free(score);
}

static void
make_layer(struct layer *l, const struct shape *s)
{
	const uint32_t H = s->G * s->R;
	uint32_t g, i, n;

	*l = (struct layer){ .stride = s->n + 2, .rank_stride = s->n + BEHIND, .total = 1 };
	for (g = 0; g < s->G; g++) {
		n = s->rule.whole_layer || g == 0 ? s->n : g == 2 ? 0 : s->n - draw(s->n / 2 + 1);
		l->len[g] = n;
		l->start[g] = l->total;
		l->total += n + BEHIND;
		/* behind the scored rows all stay, but in a head where scores do not count */
		l->scored[g] = s->rule.whole_layer ? n - n / 8 : n - draw(n / 4 + 1);
		l->first[g] = n > 9 ? draw(5) : 0;
		l->last[g] = g == 1 ? n - n / 16 : l->scored[g] - (n > 90 ? draw(9) : 0);
		if (l->last[g] < l->first[g])
			l->last[g] = l->first[g];
	}
	l->lists = floats(H * l->stride, 1);
	for (i = 0; i < H * l->stride; i++)     /* so that sums are rounded, in f32 */
		l->lists[i] = ldexpf(l->lists[i], -(int)draw(20));
	for (i = 0; s->equal && i < H * l->stride; i++)
		l->lists[i] = (float)draw(3);
	for (i = 3; s->nan && i < H * l->stride; i += 1 + draw(200))
		l->lists[i] = NAN;
	l->pos = calloc(l->total, sizeof *l->pos);
	for (g = 0; g < s->G; g++)
		for (i = 0; i < l->len[g]; i++)
			l->pos[l->start[g] + i] = 2 * i + g;
	l->rank = malloc((s->G * l->rank_stride + 1) * sizeof *l->rank);
	expected(l, s);
}

static const float *rank_by;

static int
better(const void *a, const void *b)
{
	const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;

	if (rank_by[i] != rank_by[k])
		return rank_by[i] > rank_by[k] ? -1 : 1;
	return i < k ? -1 : 1;
}

static int
ascending(const void *a, const void *b)
{
	const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;

	return (i > k) - (i < k);
}

/* Half of the rows, or those that always stay, are those that sorting finds. rank: device */
static void
check_choice(struct device *d, const struct layer *l, const struct shape *s, const float *rank,
    const char *what)
{
	const size_t stride = s->n + BEHIND;
	uint32_t *by = malloc(stride * sizeof *by), *got, n[MOST_HEADS], g, i, always;
	struct chosen chosen = { .at = d->ops->alloc(d->dev, s->G * stride * sizeof *by),
		.stride = stride, .n = n, .rows = 1 };

	for (g = 0; g < s->G; g++) {
		always = l->first[g] + l->len[g] - l->last[g];
		n[g] = l->len[g] / 2 > always ? l->len[g] / 2 : always;
	}
	d->ops->topk(d->dev, &chosen, rank, l->rank_stride, (struct counts){ l->len, 0 }, s->G);
	got = malloc(s->G * stride * sizeof *got);
	d->ops->get(d->dev, got, chosen.at, s->G * stride * sizeof *got);
	for (g = 0; g < s->G; g++) {
		for (i = 0; i < l->len[g]; i++)
			by[i] = i;
		rank_by = l->rank + g * l->rank_stride;
		qsort(by, l->len[g], sizeof *by, better);
		qsort(by, n[g], sizeof *by, ascending);
		verdict(memcmp(got + g * stride, by, n[g] * sizeof *by) == 0,
		    "%s, %s: rows of KV head %u that stay", what, d->name, g);
	}
	d->ops->free(d->dev, chosen.at);
	free(got);
	free(by);
}

static void
check_device(struct device *d, const struct layer *l, const struct shape *s, const char *what)
{
	const size_t n = s->G * l->rank_stride, H = s->G * s->R;
	float *rank, *lists, *got = malloc((n + 1) * sizeof *got);
	uint32_t len[MOST_HEADS], nan[MOST_HEADS], *nans, i;
	uint64_t start[MOST_HEADS];
	struct layer_rows rows = { .start = start, .len = len, .heads = s->G };
	struct ranking r = { .stride = l->stride, .H = (uint32_t)H, .rule = s->rule,
		.scored = l->scored, .first = l->first, .last = l->last };

	for (i = 0; i < n; i++)
		got[i] = GUARD;
	rank = to_device(d, got, n * sizeof *got);
	nans = to_device(d, got, MOST_HEADS * sizeof *nans);
	memcpy(len, l->len, sizeof len);
	memcpy(start, l->start, sizeof start);
	rows.pos = to_device(d, l->pos, l->total * sizeof *l->pos);
	r.lists = lists = to_device(d, l->lists, H * l->stride * sizeof *lists);
	d->ops->rank_rows(d->dev, rank, l->rank_stride, nans, &r, &rows);
	d->ops->get(d->dev, got, rank, n * sizeof *got);
	d->ops->get(d->dev, nan, nans, s->G * sizeof *nan);
	verdict(d->ops->sync(d->dev) == NULL, "%s, %s: %s", what, d->name, d->ops->sync(d->dev));
	verdict(memcmp(nan, l->nan, s->G * sizeof *nan) == 0, "%s, %s: rows that are not numbers",
	    what, d->name);
	for (i = 0; i < n; i++)
		verdict(got[i] == l->rank[i] || (isnan(got[i]) && isnan(l->rank[i])),
		    "%s, %s: KV head %zu row %zu has rank %.9g, must be %.9g", what, d->name,
		    i / l->rank_stride, i % l->rank_stride, got[i], l->rank[i]);
	if (!s->nan)
		check_choice(d, l, s, rank, what);
	d->ops->free(d->dev, rows.pos);
	d->ops->free(d->dev, lists);
	d->ops->free(d->dev, nans);
	d->ops->free(d->dev, rank);
	free(got);
}

static void
test_shape(const struct shape s)
{
	struct layer l;
	char what[120];
	int k;

	snprintf(what, sizeof what, "rank_rows of %u x %u heads, %u rows, kernel %u, pool %d, "
	    "reduce %d, order %d, divisor %u, next %u%s", s.G, s.R, s.n, s.rule.kernel,
	    (int)s.rule.pool, (int)s.rule.reduce, (int)s.rule.order, s.rule.divisor,
	    s.rule.next_position, s.rule.whole_layer ? ", whole layer" : "");
	make_layer(&l, &s);
	for (k = 0; k < devices; k++)
		if (device[k].ops->rank_rows != NULL)
			check_device(&device[k], &l, &s, what);
	free(l.lists);
	free(l.pos);
	free(l.rank);
}

/* Every rule, for a few kernels */
static void
test_rules(void)
{
	static const unsigned kernel[] = { 1, 5, 7, 301 };
	size_t i;
	int rule;

	for (i = 0; i < sizeof kernel / sizeof *kernel; i++)
		for (rule = 0; rule < 12; rule++)
			test_shape((struct shape){ 3, 1 + rule % 4, 200, { .kernel = kernel[i],
			    .pool = rule % 2 ? POOL_MAX : POOL_AVG,
			    .reduce = (enum reduce)(rule / 4),
			    .order = rule / 2 % 2 ? REDUCE_FIRST : POOL_FIRST,
			    .divisor = rule % 5 == 0 ? 7 : 0 }, .equal = rule % 3 == 0 });
}

void
test_keep(void)
{
	const struct list_rule sums = { .kernel = 1, .reduce = REDUCE_SUM };
	const struct list_rule snapkv = { .kernel = 5 }, layer = { .whole_layer = 1 };
	uint32_t n;

	test_rules();
	for (n = 0; n < 4; n++)
		test_shape((struct shape){ 4, 2, n, snapkv, 0, 0 });
	for (n = 255; n <= 257; n++)
		test_shape((struct shape){ MOST_HEADS, 3, n, sums, 0, 0 });
	test_shape((struct shape){ 2, 4, 20000, snapkv, 0, 0 });
	test_shape((struct shape){ 2, 4, 700, snapkv, 1, 0 });
	test_shape((struct shape){ 2, 3, 700, { .kernel = 3, .pool = POOL_MAX }, 1, 0 });
	test_shape((struct shape){ 4, 2, 300, { .kernel = 1, .next_position = 999 }, 0, 0 });
	test_shape((struct shape){ 3, 1, 300, { .kernel = 1, .next_position = 650, .sees = 90 },
	    0, 0 });
	test_shape((struct shape){ 5, 3, 513, layer, 0, 0 });
	test_shape((struct shape){ 3, 3, 100, layer, 1, 0 });
}
