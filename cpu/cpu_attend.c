/* cpu_attend.c - attention and attention mass, cut into items of work
 *
 * An item is one KV head, a block of query rows of the call with all the query heads that
 * read that KV head (GQA), and a range of the head's rows. Prefill has enough blocks of query
 * rows to occupy the threads. Decoding has one, so there the rows of the cache are split
 * (split-KV, as FlashDecoding), and the results of the splits, each normalised by its own sum,
 * are combined by their log-sum-exp. Scratch is linear in N and in the number of items; the
 * loops over keys are in simd_attend.c.
 *
 * Because positions ascend, the rows that a query sees are a range of the KV head's rows: without a
 * window a prefix. Its ends are all that the inner loops need to know about positions. Within a
 * window, items are cut from the first row that the block sees, so that the work grows
 * with the window and not with the cache.
 *
 * attend_chosen() is the same with one query row that sees all, and a list of rows: the same
 * splits and sums, so a list of all rows gives the bytes of attend(). */
#include <math.h>

#include "cpu/cpu_attend.h"

#define QUERY_ROWS 128           /* query rows x query heads of one item; at least one row */
#define ITEMS 256                /* the cache is split until there are about so many items */
#define SPLIT_MIN 512            /* rows of a split at least */

/* Rows of KV head g that are read */
static size_t
rows_of(const struct plan *p, size_t g)
{
	return p->chosen == NULL ? p->rows->len[g] : cpu_chosen_rows(p->chosen, p->rows, g);
}

/* How many of the len ascending positions are <= limit */
static uint32_t
seen_rows(const uint32_t *pos, uint32_t len, uint32_t limit)
{
	uint32_t low = 0, mid;

	while (low < len) {
		mid = low + (len - low) / 2;
		if (pos[mid] <= limit)
			low = mid + 1;
		else
			len = mid;
	}
	return low;
}

/* Query row n sees rows *from .. *end-1 of those of KV head g that are read. */
static void
visible_rows(const struct plan *p, size_t g, size_t n, uint32_t *from, uint32_t *end)
{
	const struct query *q = p->query;
	const uint32_t *pos = p->rows->pos + p->rows->start[g];

	*from = 0;
	if (p->chosen != NULL) {
		*end = (uint32_t)rows_of(p, g);
		return;
	}
	*end = seen_rows(pos, p->rows->len[g], q->pos[n]);
	if (q->window > 0 && q->pos[n] >= q->window)
		*from = seen_rows(pos, *end, q->pos[n] - q->window);
}

void
cpu_visible_range(const struct plan *p, size_t g, size_t n, size_t count, uint32_t *from,
    uint32_t *end)
{
	uint32_t other;

	visible_rows(p, g, n, from, &other);
	visible_rows(p, g, n + count - 1, &other, end);
}

/* Rows of KV head g that are cut into items: all, also those behind the last query row, where the
 * window leaves out none, and else the most that a block of query rows sees. So a window that holds
 * the whole text gives the bytes that none gives. */
static size_t
range_to_cut(const struct plan *p, size_t g)
{
	size_t n, most = 0;
	uint32_t from = 0, end;

	if (p->query->window > 0 && p->N > 0 && p->chosen == NULL)
		visible_rows(p, g, p->N - 1, &from, &end);
	if (from == 0)
		return rows_of(p, g);
	for (n = 0; n < p->N; n += p->block) {
		cpu_visible_range(p, g, n, p->N - n < p->block ? p->N - n : p->block, &from, &end);
		most = end > from + most ? end - from : most;
	}
	return most;
}

/* Cuts the rows for so many items without that, of which the longest reads so many rows. */
static void
cut(struct plan *p, size_t longest, size_t items)
{
	p->split_rows = round_up(longest * items / ITEMS + 1, KEY_TILE);
	if (p->split_rows < SPLIT_MIN)
		p->split_rows = SPLIT_MIN;
	if (items >= ITEMS || p->split_rows >= longest)
		p->split_rows = round_up(longest + 1, KEY_TILE);
	p->splits = longest > p->split_rows ? (longest + p->split_rows - 1) / p->split_rows : 1;
}

int
cpu_attend_plan(struct dev *d, struct plan *p, const struct query *query,
    const struct layer_rows *rows, const struct chosen *chosen)
{
	const size_t N = query->N, H = query->H;
	size_t longest = 0, M, g, n;

	if (chosen != NULL && (!cpu_one_query_row(d, query) || !cpu_can_be_chosen(d, rows, chosen)))
		return 0;
	if (rows->heads == 0 || rows->width == 0 || H % rows->heads != 0 ||
	    rows_k_bytes(rows) == 0 || rows_v_bytes(rows) == 0) {
		cpu_fail(d, "attention: %zu query heads over %u KV heads of width %u", H,
		    rows->heads, rows->width);
		return 0;
	}
	*p = (struct plan){ .simd = d->simd, .vnni = d->vnni, .query = query, .rows = rows,
		.chosen = chosen, .N = N, .H = H, .R = H / rows->heads, .E = rows->width };
	p->block = p->R < QUERY_ROWS ? QUERY_ROWS / p->R : 1;
	p->blocks = (N + p->block - 1) / p->block;
	for (g = 0; g < rows->heads; g++)
		longest = (n = range_to_cut(p, g)) > longest ? n : longest;
	cut(p, longest, p->blocks * rows->heads);
	M = p->block * p->R;
	p->floats = round_up(M * p->E, 16) + M * PADDED(p->E) + M * 16 + 3 * round_up(M, 16) +
	    p->E * KEY_TILE + KEY_TILE * PADDED(p->E) + SCORE_ROWS * KEY_TILE +
	    VNNI_FLOATS(p->E, M);
	if (chosen != NULL && chosen->rows > 1)
		p->floats += p->split_rows;
	return 1;
}

void
cpu_start_job(const struct plan *p, struct attend_job *j, float *scratch, size_t g, size_t n0)
{
	const struct layer_rows *c = p->rows;
	const float *q;
	float *to;
	const size_t E = p->E, N = p->N - n0 < p->block ? p->N - n0 : p->block, M = N * p->R;
	const size_t width = p->R * E;
	const float scale = (float)(1 / sqrt((double)E));
	uint32_t *from, *seen, first, last;
	size_t n, r, e;

	*j = (struct attend_job){ .k_type = kv_row_type_base(rows_k_type(c)),
		.v_type = kv_row_type_base(rows_v_type(c)), .k_bytes = rows_k_bytes(c),
		.v_bytes = rows_v_bytes(c), .E = E, .M = M, .softcap = p->query->softcap,
		.few = (p->apart ? p->R : M) <= SKINNY_ROWS && E % 16 == 0 };
	if (c->k != NULL)                      /* NULL: no rows at all */
		j->k = (const char *)c->k + c->start[g] * j->k_bytes;
	if (c->v != NULL)
		j->v = (const char *)c->v + c->start[g] * j->v_bytes;
	j->o = scratch;
	j->kt = j->o + M * PADDED(E);
	j->vt = j->kt + E * KEY_TILE;
	j->s = j->vt + KEY_TILE * PADDED(E);
	j->codes = j->s + SCORE_ROWS * KEY_TILE;
	j->l = (float *)j->codes + VNNI_FLOATS(E, M);
	j->m = j->l + M * 16;
	seen = (uint32_t *)(j->m + round_up(M, 16));
	from = seen + round_up(M, 16);
	scratch = (float *)from + round_up(M, 16);
	for (n = 0; n < N; n++) {
		visible_rows(p, g, n0 + n, &first, &last);
		for (r = 0; r < p->R; r++) {
			from[n * p->R + r] = first;
			seen[n * p->R + r] = last;
		}
		q = p->query->q + ((n0 + n) * p->H + g * p->R) * E;
		to = scratch + n * width;
		for (e = 0; e < width; e++)
			to[e] = q[e] * scale;
	}
	if (cpu_transformed(rows_k_type(c)))
		p->simd->transform(scratch, E, M);
	j->first = from[0];
	j->last = last;
	j->from = from;
	j->seen = seen;
	j->q = scratch;
}

/* j->at <- the numbers of the chosen rows that the job reads. Where an entry has several rows,
 * the numbers are written behind the queries in the thread's scratch. */
static void
list_rows(const struct plan *p, struct attend_job *j, size_t g)
{
	const struct chosen *c = p->chosen;
	uint32_t *list = (uint32_t *)(j->q + round_up(j->M * j->E, 16));
	const uint32_t *at = c->at + g * c->stride;
	size_t i;

	j->at = c->rows == 1 && j->first < j->last ? at + j->first : list;
	if (c->rows == 1)
		return;
	for (i = j->first; i < j->last; i++)
		list[i - j->first] = (uint32_t)(at[i / c->rows] * c->rows + i % c->rows);
}

/* *lse <- log(exp(*lse) + exp(sink)). Returns the part of this sum that *lse had. */
static float
add_sink(float *lse, float sink)
{
	const float top = *lse > sink ? *lse : sink, rows = expf(*lse - top);
	const float sum = rows + expf(sink - top);

	*lse = top + logf(sum);
	return rows / sum;
}

/* o[E] and lse (each NULL = not wanted) <- query row m of a job that has run, normalised; sink: of
 * its head, NULL: none */
static void
finish_job(const struct plan *p, const struct attend_job *j, size_t m, float *o, float *lse,
    const float *sink)
{
	const float *from = j->o + m * PADDED(j->E);
	float sum = 0, scale, all = -INFINITY;
	size_t i;

	for (i = 0; i < 16; i++)
		sum += j->l[m * 16 + i];
	scale = sum == 0 ? 0 : 1 / sum;
	if (sum != 0 && (lse != NULL || sink != NULL))
		all = j->m[m] + logf(sum);
	if (sink != NULL)
		scale *= add_sink(&all, *sink);
	if (lse != NULL)
		*lse = all;
	for (i = 0; o != NULL && i < j->E; i++)
		o[i] = from[i] * scale;
	if (o != NULL && cpu_transformed(rows_v_type(p->rows)) && p->rows->recent == NULL)
		p->simd->transform(o, j->E, 1);
}

/* The sink of query row `at` / H, head `at` % H; NULL: none */
static const float *
sink_of(const struct plan *p, size_t at)
{
	return p->query->sinks == NULL ? NULL : p->query->sinks + at % p->H;
}

/* A block of query rows of one KV head over one split of its rows. The last query rows, which
 * see most, come first: the threads then end at about the same time. */
static void
attend_item(void *arg, size_t item, int thread)
{
	const struct call *a = arg;
	const struct plan *p = a->plan;
	const size_t c = item % p->splits, g = item / p->splits % p->rows->heads;
	const size_t n0 = (p->blocks - 1 - item / p->splits / p->rows->heads) * p->block;
	float *o = a->o, *lse = a->lse;
	struct attend_job j;
	size_t m, at;

	if (p->splits > 1) {
		o = o == NULL ? NULL : a->part_o + c * p->N * p->H * p->E;
		lse = a->part_lse + c * p->N * p->H;
	}
	cpu_start_job(p, &j, a->scratch + (size_t)thread * p->floats, g, n0);
	if (o == NULL)                  /* for attention mass, whose scores are in f32 */
		j.v = NULL;
	else
		cpu_use_vnni(p->vnni, &j);
	j.first += c * p->split_rows;
	if (j.last > j.first + p->split_rows)
		j.last = j.first + p->split_rows;
	if (p->chosen != NULL)
		list_rows(p, &j, g);
	memset(j.o, 0, j.M * PADDED(j.E) * sizeof *j.o);
	memset(j.l, 0, j.M * 16 * sizeof *j.l);
	for (m = 0; m < j.M; m++)
		j.m[m] = -INFINITY;
	if (p->rows->recent != NULL)
		cpu_attend_recent(p->simd, p->vnni, p->rows, g, &j);
	else
		p->simd->attend(&j);
	for (m = 0; m < j.M; m++) {
		at = (n0 + m / p->R) * p->H + g * p->R + m % p->R;
		finish_job(p, &j, m, o == NULL ? NULL : o + at * p->E,
		    lse == NULL ? NULL : lse + at,
		    p->splits > 1 ? NULL : sink_of(p, at));
	}
}

/* o[E] and lse of one query row of one head, the item, from those of its splits */
static void
combine_splits(void *arg, size_t item, int thread)
{
	const struct call *a = arg;
	const struct plan *p = a->plan;
	const size_t NH = p->N * p->H, E = p->E;
	const float *part = a->part_lse + item;
	const float *sink = sink_of(p, item);
	float *o = a->o == NULL ? NULL : a->o + item * E, top = -INFINITY, sum = 0, weight, lse;
	size_t c, e;

	(void)thread;
	for (c = 0; c < p->splits; c++)
		top = part[c * NH] > top ? part[c * NH] : top;
	for (e = 0; o != NULL && e < E; e++)
		o[e] = 0;
	for (c = 0; c < p->splits; c++) {
		if (part[c * NH] == -INFINITY)
			continue;                      /* nothing seen here; a NaN is not skipped */
		weight = expf(part[c * NH] - top);
		sum += weight;
		for (e = 0; o != NULL && e < E; e++)
			o[e] += weight * a->part_o[(c * NH + item) * E + e];
	}
	lse = sum == 0 ? -INFINITY : top + logf(sum);
	weight = sink == NULL ? 1 : add_sink(&lse, *sink);
	for (e = 0; o != NULL && e < E && sum != 0; e++)
		o[e] = o[e] / sum * weight;
	if (a->lse != NULL)
		a->lse[item] = lse;
}

/* Scratch of attend(): of the threads, and the results of the splits where there are several */
size_t
cpu_attend_floats(struct dev *d, const struct plan *p, int want_o)
{
	size_t parts = p->splits > 1 ? p->splits * p->N * p->H : 0;

	return d->threads * p->floats + parts * (want_o ? 1 + p->E : 1);
}

void
cpu_attend_call(struct call *a)
{
	const struct plan *p = a->plan;
	const size_t NH = p->N * p->H;

	a->part_lse = a->scratch + a->d->threads * p->floats;
	a->part_o = a->part_lse + p->splits * NH;
	cpu_run(a->d, attend_item, a, p->blocks * p->rows->heads * p->splits,
	    NH * p->E * p->split_rows);
	if (p->splits > 1)
		cpu_run(a->d, combine_splits, a, NH, p->splits * NH * p->E);
}

void
cpu_attend(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *rows)
{
	struct plan p;
	struct call a = { .d = d, .plan = &p, .o = o, .lse = lse };

	if (d->error[0] != '\0' || query->N == 0 || !cpu_attend_plan(d, &p, query, rows, NULL))
		return;
	a.scratch = cpu_scratch(d, cpu_attend_floats(d, &p, o != NULL) * sizeof *a.scratch);
	if (a.scratch != NULL)
		cpu_attend_call(&a);
}

/* Cuts the rows as a call for query row n alone does, with no row behind it. */
static void
cut_for_one(struct plan *p, size_t n)
{
	size_t longest = 0, g;
	uint32_t from, end;

	for (g = 0; g < p->rows->heads; g++) {
		visible_rows(p, g, n, &from, &end);
		longest = end > from + longest ? end - from : longest;
	}
	cut(p, longest, p->rows->heads);
}

/* Is the call for query row n cut where that for row `first` is? A window moves the first row. */
static int
cut_alike(const struct plan *p, size_t first, size_t n)
{
	struct plan a = *p, b = *p;
	uint32_t from, other, end;
	size_t g;

	cut_for_one(&a, first);
	cut_for_one(&b, n);
	for (g = 0; g < p->rows->heads; g++) {
		visible_rows(p, g, first, &from, &end);
		visible_rows(p, g, n, &other, &end);
		if (from != other)
			return 0;
	}
	return a.splits == 1 && b.splits == 1 ? 1 : a.split_rows == b.split_rows;
}

/* Query rows that are cut alike are one call: the sums of a query row are its own. */
int
cpu_attend_apart(struct dev *d, const struct attention *a)
{
	const size_t N = a->query.N, H = a->query.H;
	struct query query = a->query;
	struct plan p, all;
	struct call c = { .d = d, .plan = &p };
	size_t n, first;

	if (a->rows->recent != NULL)
		return 0;
	if (d->error[0] != '\0' || N == 0 || !cpu_attend_plan(d, &all, &a->query, a->rows, NULL))
		return 1;
	for (first = 0; first < N; first = n) {
		for (n = first + 1; n < N && cut_alike(&all, first, n); n++)
			;
		query.N = (uint32_t)(n - first);
		query.q = a->query.q + first * H * all.E;
		query.pos = a->query.pos + first;
		if (!cpu_attend_plan(d, &p, &query, a->rows, NULL))
			return 1;
		p.apart = 1;
		cut_for_one(&p, query.N - 1);
		c.o = a->o == NULL ? NULL : a->o + first * H * all.E;
		c.lse = a->lse == NULL ? NULL : a->lse + first * H;
		c.scratch = cpu_scratch(d, cpu_attend_floats(d, &p, c.o != NULL) *
		    sizeof *c.scratch);
		if (c.scratch == NULL)
			return 1;
		cpu_attend_call(&c);
	}
	return 1;
}

/* Several calls share the threads: their items stand one behind the other. */
struct one {
	struct plan plan;
	struct call call;
	size_t end, combine_end;     /* of its items of attention, and of those of its splits */
};

/* The call that has the item, whose number within that it becomes */
static const struct one *
find_one(const struct one *one, size_t *item, int combines)
{
	size_t first = 0, end;

	for (;; one++, first = end) {
		end = combines ? one->combine_end : one->end;
		if (*item < end)
			break;
	}
	*item -= first;
	return one;
}

static void
attend_item_of(void *arg, size_t item, int thread)
{
	const struct one *one = find_one(arg, &item, 0);

	attend_item((void *)&one->call, item, thread);
}

static void
combine_splits_of(void *arg, size_t item, int thread)
{
	const struct one *one = find_one(arg, &item, 1);

	combine_splits((void *)&one->call, item, thread);
}

/* Scratch of the threads, which serves all calls, one after the other, and then of the splits
 * of each; 0 after remembering a failure. */
static size_t
each_floats(struct dev *d, const struct attention *a, uint32_t n, size_t *threads)
{
	struct plan p;
	size_t splits = 0;
	uint32_t i;

	*threads = 0;
	for (i = 0; i < n; i++) {
		if (!cpu_attend_plan(d, &p, &a[i].query, a[i].rows, a[i].chosen))
			return 0;
		if (*threads < d->threads * p.floats)
			*threads = d->threads * p.floats;
		splits += cpu_attend_floats(d, &p, a[i].o != NULL) - d->threads * p.floats;
	}
	return *threads + splits;
}

/* The calls, whose scratch has each_floats() */
static void
place_calls(struct dev *d, struct one *one, float *scratch, const struct attention *a, uint32_t n,
    size_t threads)
{
	float *parts = scratch + threads;
	size_t end = 0, combine_end = 0, NH;
	uint32_t i;

	for (i = 0; i < n; i++, one++) {
		struct plan *p = &one->plan;

		cpu_attend_plan(d, p, &a[i].query, a[i].rows, a[i].chosen);
		p->floats = threads / d->threads;       /* a thread takes items of any call */
		NH = p->N * p->H;
		one->call = (struct call){ .d = d, .plan = p, .o = a[i].o, .lse = a[i].lse,
		    .scratch = scratch, .part_lse = parts, .part_o = parts + p->splits * NH };
		parts += cpu_attend_floats(d, p, a[i].o != NULL) - d->threads * p->floats;
		one->end = end += p->blocks * p->rows->heads * p->splits;
		one->combine_end = combine_end += p->splits > 1 ? NH : 0;
	}
}

/* A token of each of many texts is little work for each, too little to share out text by text. */
int
cpu_attend_each(struct dev *d, const struct attention *a, uint32_t n)
{
	const size_t calls = round_up(n * sizeof(struct one), 64);
	size_t floats, threads, cost = 0;
	struct one *one;
	uint32_t i;

	if (d->error[0] != '\0' || n == 0 || (floats = each_floats(d, a, n, &threads)) == 0 ||
	    (one = cpu_scratch(d, calls + floats * sizeof(float))) == NULL)
		return 1;
	place_calls(d, one, (float *)((char *)one + calls), a, n, threads);
	for (i = 0; i < n; i++)
		cost += one[i].plan.N * one[i].plan.H * one[i].plan.E * one[i].plan.split_rows;
	cpu_run(d, attend_item_of, one, one[n - 1].end, cost);
	if (one[n - 1].combine_end > 0)
		cpu_run(d, combine_splits_of, one, one[n - 1].combine_end, cost);
	return 1;
}

void
cpu_attend_chosen(struct dev *d, float *o, const struct query *query,
    const struct layer_rows *rows, const struct chosen *chosen)
{
	struct plan p;
	struct call a = { .d = d, .plan = &p, .o = o };

	if (d->error[0] != '\0' || !cpu_attend_plan(d, &p, query, rows, chosen))
		return;
	if ((a.scratch = cpu_scratch(d, cpu_attend_floats(d, &p, 1) * sizeof *a.scratch)) != NULL)
		cpu_attend_call(&a);
}
