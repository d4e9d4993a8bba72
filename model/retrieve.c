/* retrieve.c - sparse attention while decoding: reads only the rows which matter to the query
 *
 * All methods are one path over the ops: candidates are scored, topk() takes the best
 * (retrieve_rank.c), and attend_chosen() attends to these. Only shadow attends to a copy, because
 * keys are rebuilt in it.
 *
 * Bytes are counted where it is decided what is read: of an index all that is scored, of keys and
 * values the rows that enter the softmax. (The copy of a chunk's keys that are rebuilt is not:
 * gather() makes it, but the method does not need it.)
 *
 * Audit and overlap bring lists of what was chosen to the host, and wait for the device: retrieval
 * has no steps that a GPU repeats from a recording (generate.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/retrieve_internal.h"

/* Lists begin at multiples of so many elements, 128 bytes: a GPU writes and reads lines of that. */
#define ALIGNED 32

static const struct {
	const char *name, *alias;      /* alias: of the paper; "": it is the same */
	enum kv_kind needs;
} methods[RETRIEVE_METHODS] = {
	[RETRIEVE_FIER] = { "fier", "", KV_BITS },
	[RETRIEVE_QUEST] = { "quest", "", KV_PAGE },
	[RETRIEVE_QUEST_EVAL] = { "quest-eval", "", KV_PAGE },
	[RETRIEVE_CLUSTER] = { "cluster", "clusterkv", KV_CLUS },
	[RETRIEVE_SHADOW] = { "shadow", "shadowkv", KV_LOWR },
	[RETRIEVE_SPECONTEXT] = { "specontext", "", KV_UNKNOWN },
};

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
	    .H = query_heads, .G = heads, .E = width, .dtype = dtype, .freq = freq,
	    .best = { .rows = 1 }, .copy = { .heads = heads, .width = width, .dtype = dtype } };
	t->stats = calloc((size_t)layers * heads, sizeof *t->stats);
	t->n = calloc(heads, sizeof *t->n);
	t->always = calloc(heads, sizeof *t->always);
	t->seen = calloc(heads, sizeof *t->seen);
	t->chosen.n = calloc(heads, sizeof *t->chosen.n);
	t->best.n = calloc(heads, sizeof *t->best.n);
	t->copy.start = calloc(heads, sizeof *t->copy.start);
	t->copy.len = calloc(heads, sizeof *t->copy.len);
	t->copy.capacity = calloc(heads, sizeof *t->copy.capacity);
	t->last = (struct last_pages){ .rows = { .n = calloc(heads, sizeof *t->last.rows.n),
	    .rows = 1 }, .pages = { .start = calloc(heads, sizeof *t->last.pages.start),
	    .len = calloc(heads, sizeof *t->last.pages.len),
	    .capacity = calloc(heads, sizeof *t->last.pages.capacity), .heads = heads,
	    .width = width } };
	t->before.chose = calloc((size_t)layers * heads, sizeof *t->before.chose);
	if (!t->before.chose || !t->stats || !t->n || !t->always || !t->seen ||
	    !t->chosen.n || !t->best.n || !t->copy.start || !t->copy.len || !t->copy.capacity ||
	    !t->last.rows.n || !t->last.pages.start || !t->last.pages.len ||
	    !t->last.pages.capacity) {
		retrieval_free(t);
		return NULL;
	}
	return t;
}

/* All that retrieval_reserve() makes but the copy. */
static void
free_lists(struct retrieval *t)
{
	t->ops->free(t->dev, t->score);
	t->ops->free(t->dev, t->joint);
	t->ops->free(t->dev, t->candidate);
	t->ops->free(t->dev, t->chosen.at);
	t->ops->free(t->dev, t->best.at);
	free(t->logits);
	free(t->list);
	free(t->best_list);
	t->score = t->joint = t->candidate = t->logits = NULL;
	t->chosen.at = t->best.at = t->list = t->best_list = NULL;
	t->stride = 0;
}

static void
free_copy(struct retrieval *t)
{
	t->ops->free(t->dev, t->copy.k);
	t->ops->free(t->dev, t->copy.v);
	t->ops->free(t->dev, t->copy.pos);
	t->copy.k = t->copy.v = NULL;
	t->copy.pos = NULL;
	memset(t->copy.capacity, 0, t->G * sizeof *t->copy.capacity);
}

void
retrieval_free(struct retrieval *t)
{
	if (t == NULL)
		return;
	free_lists(t);
	if (t->copy.capacity != NULL)
		free_copy(t);
	retrieve_ahead_free(t);
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
	free(t->copy.start);
	free(t->copy.len);
	free(t->copy.capacity);
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
	return t->stats;
}

void
retrieval_stats_add(struct retrieval_stats *sum, const struct retrieval_stats *more)
{
	sum->steps += more->steps;
	sum->rows += more->rows;
	sum->of_rows += more->of_rows;
	sum->index_bytes += more->index_bytes;
	sum->key_bytes += more->key_bytes;
	sum->value_bytes += more->value_bytes;
	sum->of_bytes += more->of_bytes;
	sum->recall += more->recall;
	sum->mass += more->mass;
	sum->pairs += more->pairs;
	sum->overlap += more->overlap;
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
	t->best.at = t->ops->alloc(t->dev, t->G * stride * sizeof *t->best.at);
	t->best.stride = stride;
	return t->logits && t->best.at ? KV_OK : KV_ENOMEM;
}

/* More bits for each KV head; those that are set stay. */
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

/* What only audit and overlap need */
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

static int
reserve_lists(struct retrieval *t, size_t stride)
{
	const float always = INFINITY;
	uint32_t g;

	free_lists(t);
	t->score = t->ops->alloc(t->dev, t->H * stride * sizeof *t->score);
	t->joint = t->ops->alloc(t->dev, t->G * stride * sizeof *t->joint);
	t->candidate = t->ops->alloc(t->dev, t->G * stride * sizeof *t->candidate);
	t->chosen.at = t->ops->alloc(t->dev, t->G * stride * sizeof *t->chosen.at);
	t->chosen.stride = stride;
	if (!t->score || !t->joint || !t->candidate || !t->chosen.at ||
	    reserve_host(t, stride) != KV_OK) {
		free_lists(t);
		return KV_ENOMEM;
	}
	for (g = 0; g < t->G; g++)
		t->ops->put(t->dev, t->joint + g * stride, &always, sizeof always);
	t->stride = stride;
	return KV_OK;
}

/* Gives the copy a capacity of so many rows of each KV head. */
static int
reserve_copy(struct retrieval *t, uint64_t rows)
{
	size_t row = t->E * kv_dtype_size(t->dtype);
	uint32_t g;

	if (t->copy.k != NULL && rows <= t->copy.capacity[0])
		return KV_OK;
	free_copy(t);
	t->copy.k = t->ops->alloc(t->dev, t->G * rows * row);
	t->copy.v = t->ops->alloc(t->dev, t->G * rows * row);
	t->copy.pos = t->ops->alloc(t->dev, t->G * rows * sizeof *t->copy.pos);
	if (t->copy.k == NULL || t->copy.v == NULL || t->copy.pos == NULL) {
		free_copy(t);
		return KV_ENOMEM;
	}
	for (g = 0; g < t->G; g++) {
		t->copy.start[g] = g * rows;
		t->copy.capacity[g] = (uint32_t)rows;
	}
	return KV_OK;
}

/* Room for last pages of u rows. */
static int
reserve_last_pages(struct retrieval *t, uint32_t u)
{
	struct last_pages *l = &t->last;

	if (u > l->rows.stride) {
		t->ops->free(t->dev, l->rows.at);
		free(l->list);
		l->list = calloc((size_t)t->G * u, sizeof *l->list);
		l->rows.at = t->ops->alloc(t->dev, (size_t)t->G * u * sizeof *l->rows.at);
		l->rows.stride = l->list != NULL && l->rows.at != NULL ? u : 0;
	}
	return l->rows.stride >= u ? reserve_copy(t, u) : KV_ENOMEM;
}

int
retrieval_reserve(struct retrieval *t, const struct layer_rows *rows, const struct layer_index *x)
{
	const uint32_t *capacity = rows->capacity != NULL ? rows->capacity : rows->len;
	uint64_t most, part;
	uint32_t g;

	for (g = 0, most = 0; g < t->G; g++)
		most = capacity[g] > most ? capacity[g] : most;
	if (most + 1 > t->stride &&
	    reserve_lists(t, (most + most / 8 + ALIGNED) / ALIGNED * ALIGNED) != KV_OK)
		return KV_ENOMEM;
	if (t->opt.method == RETRIEVE_QUEST_EVAL && index_has(x, KV_PAGE))
		return reserve_last_pages(t, x->pages.rows);
	if (t->opt.method != RETRIEVE_SHADOW || !index_has(x, KV_LOWR))
		return KV_OK;
	/* what is always read, and the budget */
	part = (uint64_t)x->n_exact * x->low.chunk + t->opt.budget;
	if (most > x->low.n)
		part += most - x->low.n;
	return reserve_copy(t, part < most ? part : most);
}

/* ---- what was read ---- */

/* Rows of the candidates that were chosen of KV head g: a last one that is cut short is one of
 * them, or not among t->seen. */
static uint64_t
chosen_rows(const struct retrieval *t, uint32_t g)
{
	const uint32_t u = t->chosen.rows, part = t->seen[g] % u;

	return (uint64_t)t->chosen.n[g] * u - (part > 0 ? u - part : 0);
}

static void
count_whole(struct retrieval *t, uint32_t l, const struct layer_rows *rows)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	uint64_t row = t->E * kv_dtype_size(t->dtype);
	uint32_t g;

	for (g = 0; g < t->G; g++, s++) {
		s->steps++;
		s->rows += rows->len[g];
		s->of_rows += rows->len[g];
		s->key_bytes += rows->len[g] * row;
		s->value_bytes += rows->len[g] * row;
		s->of_bytes += 2 * rows->len[g] * row;
		s->recall += 1;
		s->mass += 1;
	}
}

/* Bytes of the index, and of keys that are scored in its stead or not rebuilt from it, that were
 * read for KV head g; rows: of the chosen candidates. */
static void
count_index(struct retrieval_stats *s, const struct retrieval *t, uint32_t g,
    const struct layer_rows *rows, const struct layer_index *x, uint64_t n_rows)
{
	uint64_t esize = kv_dtype_size(t->dtype), row = t->E * esize, rebuilt;

	switch (t->opt.method) {
	case RETRIEVE_FIER:
		s->index_bytes += x->bits.len[g] * (uint64_t)x->bits.bytes;
		s->key_bytes += (rows->len[g] - x->bits.len[g] * (uint64_t)x->bits.rows +
		    n_rows) * row;
		break;
	case RETRIEVE_QUEST:
		s->index_bytes += x->pages.len[g] * (uint64_t)x->pages.bytes;
		s->key_bytes += n_rows * row;
		break;
	case RETRIEVE_QUEST_EVAL:
		s->index_bytes += t->n[g] * (uint64_t)x->pages.bytes;
		s->key_bytes += n_rows * row;
		break;
	case RETRIEVE_CLUSTER:
		s->index_bytes += x->mean.len[g] * row + rows->len[g] * (uint64_t)4;
		s->key_bytes += n_rows * row;
		break;
	case RETRIEVE_SHADOW:
		rebuilt = (uint64_t)(t->chosen.n[g] - t->always[g]) * x->low.chunk;
		s->index_bytes += x->landmark.len[g] * row + rebuilt * x->low.rank * esize +
		    (rebuilt > 0) * row * x->low.rank;
		s->key_bytes += (n_rows - rebuilt) * row;
		break;
	case RETRIEVE_SPECONTEXT:               /* the first layer that chooses counts for all */
		s->index_bytes += t->ahead.bytes;
		s->key_bytes += n_rows * row;
	}
}

static void
count(struct retrieval *t, uint32_t l, const struct layer_rows *rows, const struct layer_index *x)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	uint64_t row = t->E * kv_dtype_size(t->dtype), n;
	uint32_t g;

	for (g = 0; g < t->G; g++, s++) {
		s->steps++;
		n = chosen_rows(t, g);
		s->rows += n;
		s->of_rows += rows->len[g];
		s->value_bytes += n * row;
		s->of_bytes += 2 * rows->len[g] * row;
		count_index(s, t, g, rows, x, n);
	}
	t->ahead.bytes = 0;
}

/* ---- audit, overlap ---- */

/* list[] <- the rows of the chosen candidates of KV head g. Returns how many. */
static uint32_t
list_rows(struct retrieval *t, const struct layer_rows *rows, uint32_t g)
{
	uint32_t n = t->chosen.n[g], u = t->chosen.rows, i, j, row, out = 0, *at = t->best_list;

	t->ops->get(t->dev, at, t->chosen.at + g * t->chosen.stride, n * sizeof *at);
	for (i = 0; i < n; i++)
		for (j = 0; j < u && (row = at[i] * u + j) < rows->len[g]; j++)
			t->list[out++] = row;
	return out;
}

/* The share of its softmax that a query head gives to the n listed rows. */
static double
softmax_share(const float *logit, uint32_t len, const uint32_t *list, uint32_t n)
{
	double most = -INFINITY, all = 0, part = 0;
	uint32_t i;

	for (i = 0; i < len; i++)
		most = logit[i] > most ? logit[i] : most;
	for (i = 0; i < len; i++)
		all += exp(logit[i] - most);
	for (i = 0; i < n; i++)
		part += exp(logit[list[i]] - most);
	return part / all;
}

/* How many numbers two ascending lists of n have in common. */
static uint32_t
in_both(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	uint32_t i = 0, j = 0, both = 0;

	while (i < n && j < n) {
		both += a[i] == b[j];
		if (a[i] < b[j])
			i++;
		else if (a[i] > b[j])
			j++;
		else
			i++, j++;
	}
	return both;
}

/* Compares what was chosen with what the true logits would have chosen. */
static void
audit(struct retrieval *t, uint32_t l, const struct query *query, const struct layer_rows *rows)
{
	struct retrieval_stats *s = &t->stats[(size_t)l * t->G];
	uint32_t R = t->H / t->G, g, h, k;
	double share;

	t->ops->key_scores(t->dev, t->score, t->stride, query, rows);
	t->ops->get(t->dev, t->logits, t->score, t->H * t->stride * sizeof *t->logits);
	t->ops->group_reduce(t->dev, t->joint + 1, t->score, t->stride, rows->len, t->H, t->G,
	    t->opt.reduce);
	for (g = 0; g < t->G; g++)
		t->best.n[g] = (uint32_t)chosen_rows(t, g);
	t->ops->topk(t->dev, &t->best, t->joint + 1, t->stride, rows->len, t->G);
	for (g = 0; g < t->G; g++, s++) {
		if ((k = list_rows(t, rows, g)) == 0) {
			s->recall += 1;
			s->mass += 1;
			continue;
		}
		t->ops->get(t->dev, t->best_list, t->best.at + g * t->best.stride,
		    k * sizeof *t->best_list);
		s->recall += (double)in_both(t->list, t->best_list, k) / k;
		for (share = 0, h = g * R; h < (g + 1) * R; h++)
			share += softmax_share(t->logits + h * t->stride, rows->len[g], t->list,
			    k);
		s->mass += share / R;
	}
}

/* bits[] <- the n listed rows, and no others. Returns how many of them were there before. */
static uint32_t
replace_rows(uint32_t *bits, size_t words, const uint32_t *list, uint32_t n)
{
	uint32_t i, both = 0;

	for (i = 0; i < n; i++)
		both += bits[list[i] / 32] >> list[i] % 32 & 1;
	memset(bits, 0, words * sizeof *bits);
	for (i = 0; i < n; i++)
		bits[list[i] / 32] |= 1u << list[i] % 32;
	return both;
}

/* Compares what was chosen with what the step before has chosen, row by row: the last page or
 * chunk may have grown since. */
static void
compare_steps(struct retrieval *t, uint32_t l, const struct layer_rows *rows)
{
	struct last_read *before = &t->before;
	uint32_t g, n, both;
	size_t i;
	int chose;

	for (g = 0; g < t->G; g++) {
		i = (size_t)l * t->G + g;
		chose = !t->whole && t->chosen.n[g] > 0 && t->chosen.n[g] < t->n[g];
		if (chose) {
			n = list_rows(t, rows, g);
			both = replace_rows(before->bits + i * before->words, before->words,
			    t->list, n);
			if (before->chose[i]) {
				t->stats[i].pairs++;
				t->stats[i].overlap += (double)both / n;
			}
		}
		before->chose[i] = (uint8_t)chose;
	}
}

void
retrieve(struct retrieval *t, uint32_t l, float *o, const struct query *query,
    const struct layer_rows *rows, const struct layer_index *x)
{
	const struct ops *ops = t->ops;
	struct layer_rows seen = *rows;
	uint32_t g;

	for (g = 0; g < t->G && rows->len[g] <= t->opt.budget; g++)
		;
	if ((t->whole = l < t->opt.dense || g == t->G || query->window != 0)) {
		ops->attend(t->dev, o, NULL, query, rows);
		count_whole(t, l, rows);
		if (t->opt.overlap)
			compare_steps(t, l, rows);
		return;
	}
	retrieve_choose(t, query, rows, x);
	seen.len = t->seen;
	if (t->opt.method == RETRIEVE_SHADOW) {
		ops->gather(t->dev, &t->copy, rows, &t->chosen);
		ops->rebuild(t->dev, &t->copy, &t->chosen, &x->low, t->freq);
		ops->attend(t->dev, o, NULL, query, &t->copy);
	} else {
		ops->attend_chosen(t->dev, o, query, &seen, &t->chosen);
	}
	count(t, l, rows, x);
	if (t->opt.audit)
		audit(t, l, query, rows);
	if (t->opt.overlap)
		compare_steps(t, l, rows);
}
