/* retrieval.c - sparse attention while decoding: reads only the rows that matter to the query
 *
 * All methods are one path over the ops: candidates are scored, topk() selects the best
 * (retrieval_choose.c), and attention reads these. The differences are in a file for each method
 * (retrievals.h). Offloaded layers: retrieval_offloaded.c. Counts of what was read:
 * retrieval_count.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ops/compose.h"
#include "ops/layer_rows.h"
#include "retrieval/retrieval_internal.h"

static const struct {
	const char *name, *alias;
	enum kv_kind needs;
	const struct retrieval_method *method;
} methods[RETRIEVE_METHODS] = {
#define RETRIEVAL(NAME, symbol, word, alias, needs, about) \
	[RETRIEVE_##NAME] = { word, alias, needs, &retrieval_##symbol },
#include "retrieval/retrievals.h"
#undef RETRIEVAL
};

const struct retrieval_method *
retrieval_method(enum retrieve_method method)
{
	return methods[method].method;
}

const char *
retrieve_name(enum retrieve_method method)
{
	return methods[method].name;
}

const char *
retrieve_alias(enum retrieve_method method)
{
	return methods[method].alias;
}

int
retrieve_named(const char *name)
{
	int i;

	for (i = 0; *name != '\0' && i < RETRIEVE_METHODS; i++)
		if (strcasecmp(methods[i].name, name) == 0 ||
		    strcasecmp(methods[i].alias, name) == 0)
			return i;
	return -1;
}

enum kv_kind
retrieve_needs(enum retrieve_method method)
{
	return methods[method].needs;
}

unsigned
retrieve_kinds(enum retrieve_method method)
{
	const enum kv_kind kind = retrieve_needs(method);

	return kind != KV_UNKNOWN ? 1u << kind : 0;
}

/* Returns how many choices a layer has. */
static uint32_t
choices(const struct retrieval_options *o, uint32_t query_heads, uint32_t heads)
{
	return o->per == PER_QUERY_HEAD ? query_heads : heads;
}

/* ---- life ---- */

struct retrieval *
retrieval_new(const struct ops *ops, struct dev *dev, const struct retrieval_options *opt,
    uint32_t layers, uint32_t query_heads, uint32_t heads, uint32_t width, enum kv_dtype dtype,
    const double *freq)
{
	struct retrieval *t = calloc(1, sizeof *t);

	if (t == NULL)
		return NULL;
	*t = (struct retrieval){ .ops = ops, .dev = dev, .opt = *opt, .L = layers,
	    .method = retrieval_method(opt->method),
	    .H = query_heads, .G = heads, .E = width, .dtype = dtype, .freq = freq,
	    .lists = choices(opt, query_heads, heads), .best = { .rows = 1 },
	    .each = { .united.rows = 1, .placed.rows = 1 } };
	t->stats = calloc((size_t)layers * heads, sizeof *t->stats);
	t->n = calloc(t->lists, sizeof *t->n);
	t->always = calloc(t->lists, sizeof *t->always);
	t->seen = calloc(t->lists, sizeof *t->seen);
	t->chosen.n = calloc(t->lists, sizeof *t->chosen.n);
	t->best.n = calloc(t->lists, sizeof *t->best.n);
	t->each.rows.start = calloc(t->lists, sizeof *t->each.rows.start);
	t->each.rows.len = calloc(t->lists, sizeof *t->each.rows.len);
	t->each.united.n = calloc(heads, sizeof *t->each.united.n);
	t->last = (struct last_pages){ .rows = { .n = calloc(heads, sizeof *t->last.rows.n),
	    .rows = 1 }, .pages = { .start = calloc(heads, sizeof *t->last.pages.start),
	    .len = calloc(heads, sizeof *t->last.pages.len),
	    .capacity = calloc(heads, sizeof *t->last.pages.capacity), .heads = heads,
	    .width = width } };
	t->before.chose = calloc((size_t)layers * heads, sizeof *t->before.chose);
	if (layer_rows_init(&t->copy, heads, width, dtype) != KV_OK || !t->before.chose ||
	    !t->stats || !t->n || !t->always || !t->seen || !t->chosen.n || !t->best.n ||
	    !t->each.rows.start || !t->each.rows.len || !t->each.united.n ||
	    !t->last.rows.n || !t->last.pages.start || !t->last.pages.len ||
	    !t->last.pages.capacity) {
		retrieval_free(t);
		return NULL;
	}
	return t;
}

/* Frees all that retrieval_reserve() allocates, except the copy. */
static void
free_lists(struct retrieval *t)
{
	t->ops->free(t->dev, t->score);
	t->ops->free(t->dev, t->joint);
	t->ops->free(t->dev, t->candidate);
	t->ops->free(t->dev, t->chosen.at);
	t->ops->free(t->dev, t->best.at);
	retrieve_free_each(t);
	free(t->logits);
	free(t->list);
	free(t->best_list);
	t->score = t->joint = t->candidate = t->logits = NULL;
	t->chosen.at = t->best.at = t->list = t->best_list = NULL;
	t->stride = 0;
}

void
retrieval_free(struct retrieval *t)
{
	if (t == NULL)
		return;
	free_lists(t);
	layer_rows_free(&t->copy, t->ops, t->dev);
	specontext_free(t);
	free(t->offload_bytes);
	t->ops->free(t->dev, t->last.rows.at);
	free(t->last.list);
	free(t->last.rows.n);
	free(t->last.pages.start);
	free(t->last.pages.len);
	free(t->last.pages.capacity);
	free(t->before.bits);
	free(t->before.chose);
	free(t->stats);
	free(t->n);
	free(t->always);
	free(t->seen);
	free(t->chosen.n);
	free(t->best.n);
	free(t->each.rows.start);
	free(t->each.rows.len);
	free(t->each.united.n);
	free(t);
}

const struct retrieval_options *
retrieval_options(const struct retrieval *t)
{
	return &t->opt;
}

const struct retrieval_stats *
retrieval_stats(const struct retrieval *t)
{
	retrieve_count_fetched(t);
	return t->stats;
}

void
retrieval_stats_add(struct retrieval_stats *sum, const struct retrieval_stats *more)
{
	sum->steps += more->steps;
	sum->rows += more->rows;
	sum->of_rows += more->of_rows;
	sum->head_rows += more->head_rows;
	sum->index_bytes += more->index_bytes;
	sum->key_bytes += more->key_bytes;
	sum->value_bytes += more->value_bytes;
	sum->of_bytes += more->of_bytes;
	sum->recall += more->recall;
	sum->mass += more->mass;
	sum->pairs += more->pairs;
	sum->overlap += more->overlap;
	sum->fetched_bytes += more->fetched_bytes;
}

double
retrieval_stats_share(const struct retrieval_stats *s)
{
	return (double)(s->index_bytes + s->key_bytes + s->value_bytes) / (double)s->of_bytes;
}

const struct chosen *
retrieval_chosen(const struct retrieval *t)
{
	return t->whole ? NULL : &t->chosen;
}

/* ---- memory ---- */

static int
reserve_audit(struct retrieval *t, size_t stride)
{
	t->logits = malloc(t->H * stride * sizeof *t->logits);
	t->best.at = t->ops->alloc(t->dev, t->lists * stride * sizeof *t->best.at);
	t->best.stride = stride;
	return t->logits && t->best.at ? KV_OK : KV_ENOMEM;
}

/* Gives each KV head bits for `stride` rows, and keeps those that are set. */
static int
reserve_last_read(struct retrieval *t, size_t stride)
{
	const size_t heads = (size_t)t->L * t->G, words = stride / 32;
	uint32_t *bits;
	size_t i;

	if (words <= t->before.words)
		return KV_OK;
	if ((bits = calloc(heads * words, sizeof *bits)) == NULL)
		return KV_ENOMEM;
	for (i = 0; t->before.words > 0 && i < heads; i++)
		memcpy(bits + i * words, t->before.bits + i * t->before.words,
		    t->before.words * sizeof *bits);
	free(t->before.bits);
	t->before.bits = bits;
	t->before.words = words;
	return KV_OK;
}

/* Allocates host lists, which only audit and overlap need. */
static int
reserve_host(struct retrieval *t, size_t stride)
{
	if (!t->opt.audit && !t->opt.overlap)
		return KV_OK;
	t->list = malloc(stride * sizeof *t->list);
	t->best_list = malloc(stride * sizeof *t->best_list);
	if (t->list == NULL || t->best_list == NULL ||
	    (t->opt.audit && reserve_audit(t, stride) != KV_OK) ||
	    (t->opt.overlap && reserve_last_read(t, stride) != KV_OK))
		return KV_ENOMEM;
	return KV_OK;
}

size_t
retrieve_stride(uint64_t n)
{
	enum { ALIGNED = 32 };          /* 128 bytes: a cache line of a GPU */

	return (size_t)(n + ALIGNED) / ALIGNED * ALIGNED;
}

/* Does a step rank entries, or keys? Other methods choose by scores of their own. */
static int
ranks(const struct retrieval_options *o)
{
	return o->audit || retrieval_method(o->method)->rank != NULL;
}

/* Returns the stride for KV heads of so many rows: some may follow. */
static size_t
roomy_stride(uint64_t rows)
{
	return retrieve_stride(rows + rows / 8);
}

uint64_t
retrieval_list_bytes(const struct retrieval_options *o, uint32_t query_heads, uint32_t heads,
    uint32_t head_heads, uint64_t rows, uint64_t text)
{
	const uint64_t lists = choices(o, query_heads, heads);
	uint64_t of_rows = 2 * lists;           /* candidate, chosen */

	if (ranks(o))
		of_rows += query_heads + lists; /* score, joint */
	if (o->audit)
		of_rows += lists;               /* best */
	if (o->per == PER_QUERY_HEAD)
		of_rows += 1 + (o->offload ? lists : 0);        /* united, placed */
	of_rows *= roomy_stride(rows);
	if (o->method == RETRIEVE_SPECONTEXT)
		of_rows += (head_heads + lists) * retrieve_stride(text);
	return of_rows * sizeof(float);
}

/* Allocates what ranking needs; joint[0] of each list is always read. */
static int
reserve_ranks(struct retrieval *t, size_t stride)
{
	const float always = INFINITY;
	uint32_t c;

	t->score = t->ops->alloc(t->dev, t->H * stride * sizeof *t->score);
	t->joint = t->ops->alloc(t->dev, t->lists * stride * sizeof *t->joint);
	for (c = 0; t->joint != NULL && c < t->lists; c++)
		t->ops->put(t->dev, t->joint + c * stride, &always, sizeof always);
	return t->score && t->joint ? KV_OK : KV_ENOMEM;
}

static int
reserve_lists(struct retrieval *t, size_t stride)
{
	free_lists(t);
	t->candidate = t->ops->alloc(t->dev, t->lists * stride * sizeof *t->candidate);
	t->chosen.at = t->ops->alloc(t->dev, t->lists * stride * sizeof *t->chosen.at);
	t->chosen.stride = stride;
	if (!t->candidate || !t->chosen.at ||
	    (ranks(&t->opt) && reserve_ranks(t, stride) != KV_OK) ||
	    reserve_host(t, stride) != KV_OK || retrieve_reserve_each(t, stride) != KV_OK) {
		free_lists(t);
		return KV_ENOMEM;
	}
	t->stride = stride;
	return KV_OK;
}

int
retrieve_reserve_copy(struct retrieval *t, uint64_t rows)
{
	if (t->copy.k != NULL && rows <= t->copy.capacity[0])
		return KV_OK;
	layer_rows_free(&t->copy, t->ops, t->dev);
	if (layer_rows_init(&t->copy, t->G, t->E, t->dtype) != KV_OK)
		return KV_ENOMEM;
	/* only for the room: a scale of 4 bytes is larger than what few channels save */
	if (kv_row_bytes(KV_ROW_INT8, t->E) > rows_k_bytes(&t->copy))
		t->copy.k_type = t->copy.v_type = KV_ROW_INT8;
	return layer_rows_resize(&t->copy, t->ops, t->dev, (uint32_t)rows, 0);
}

void
retrieve_copy_as(struct retrieval *t, const struct layer_rows *rows)
{
	t->copy.k_type = rows->k_type;
	t->copy.v_type = rows->v_type;
}

uint64_t
retrieval_most(const struct layer_rows *rows)
{
	const uint32_t *capacity = rows->capacity != NULL ? rows->capacity : rows->len;
	uint64_t most = 0;
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		most = capacity[g] > most ? capacity[g] : most;
	return most;
}

int
retrieval_reserve(struct retrieval *t, const struct layer_rows *rows, const struct layer_index *x)
{
	const uint64_t most = retrieval_most(rows);

	if (most + 1 > t->stride && reserve_lists(t, roomy_stride(most)) != KV_OK)
		return KV_ENOMEM;
	if (t->method->reserve == NULL || !index_has(x, retrieve_needs(t->opt.method)))
		return KV_OK;
	return t->method->reserve(t, x, most);
}

/* ---- a step ---- */

struct attention
retrieve_begin(struct retrieval *t, uint32_t l, float *o, const struct query *query,
    const struct layer_rows *rows, const struct layer_index *x)
{
	struct attention a = { .o = o, .query = *query, .rows = rows };

	t->whole = retrieve_is_whole(t, l, rows->len, query->window);
	if (offload_has(t->offload, l))
		return retrieve_offloaded(t, l, o, query, rows, x);
	if (t->whole)
		return a;
	rows = retrieve_each(t, rows);
	retrieve_choose(t, query, rows, x);
	if (t->method->attend != NULL)
		return t->method->attend(t, o, query, rows, &t->chosen, x);
	t->view = *rows;
	t->view.len = t->seen;
	a.rows = &t->view;
	a.chosen = &t->chosen;
	return a;
}

void
retrieve_end(struct retrieval *t, uint32_t l, const struct query *query,
    const struct layer_rows *rows, const struct layer_index *x)
{
	if (t->whole)
		retrieve_count_whole(t, l, rows);
	else
		retrieve_count(t, l, rows, x);
	if (t->opt.audit && !t->whole && !offload_has(t->offload, l))
		retrieve_audit(t, l, query, rows);
	if (t->opt.overlap)
		retrieve_compare_steps(t, l, rows);
}

void
retrieve(struct retrieval *t, uint32_t l, float *o, const struct query *query,
    const struct layer_rows *rows, const struct layer_index *x)
{
	const struct attention a = retrieve_begin(t, l, o, query, rows, x);

	run_attend_each(t->ops, t->dev, &a, a.rows != NULL);
	retrieve_end(t, l, query, rows, x);
}
