/* retrieval_trial.c - what retrieval with the index of a snapshot would read, and lose
 *
 * A stored query at position p has seen the rows up to p, and so it does here: the lengths of the
 * KV heads are cut to that, the index is taken back to what it was with so many rows, and it
 * grows again from query to query as it does while decoding. Clusters and factors do not grow:
 * of clusters the rows from p on leave, and factors of rows that a query does not see cannot be
 * left out, so such a query is not tried. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "engine/compare.h"
#include "cli/json.h"
#include "cli/opt_retrieve.h"
#include "engine/retrieval_trial.h"

struct trial {
	struct layerwise s;
	struct device d;
	struct retrieval_options options;
	struct retrieval *retrieval;
	uint32_t L, H, G, R, E;
	uint32_t *tried;                        /* [L] queries */
	uint32_t left_out;                      /* of a layer, at most */
	struct attention_compared *lost;        /* [L][H]: seen, whole, lost; mass is not known */

	struct area q, qpos, o, freq;
	float *full, *read;                     /* [H][E] what a query gets */
	uint32_t *end;                          /* [G] of the clusters */
};

/* ---- a layer ---- */

/* How many of the n ascending positions are <= last. */
static uint32_t
seen_rows(const uint32_t *pos, uint32_t n, uint32_t last)
{
	uint32_t low = 0, mid;

	while (low < n) {
		mid = low + (n - low) / 2;
		if (pos[mid] <= last)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

/* The layer as the query at this position sees it. */
static void
show_rows(struct trial *t, uint32_t position)
{
	struct layerwise *s = &t->s;
	uint32_t g;

	for (g = 0; g < t->G; g++) {
		s->there.len[g] = seen_rows(s->rows->pos[g], s->rows->count[g], position);
		s->index.end[g] = t->end[g] < s->there.len[g] ? t->end[g] : s->there.len[g];
	}
}

/* Entries and labels of rows that are not there are forgotten; labels behind are zero (index.h). */
static void
take_index_back(struct trial *t)
{
	struct layer_index *x = &t->s.index;
	struct labels *l = &x->page_label;
	uint32_t g, n, pages;

	for (g = 0; g < t->G; g++) {
		n = t->s.there.len[g];
		if (index_has(x, INDEX_BITS) && x->bits.len[g] > n / x->bits.rows)
			x->bits.len[g] = n / x->bits.rows;
		if (!index_has(x, INDEX_PAGES))
			continue;
		pages = n > 0 ? (n - 1) / x->pages.rows : 0;
		if (x->pages.len[g] > n / x->pages.rows)
			x->pages.len[g] = n / x->pages.rows;
		if (l->n[g] <= pages)
			continue;
		t->d.ops->clear(t->d.dev, l->at + g * l->stride + pages,
		    (l->n[g] - pages) * sizeof *l->at);
		l->n[g] = pages;
	}
}

/* What the query loses, for each query head. */
static void
compare_outputs(struct trial *t, struct attention_compared *lost)
{
	struct attention_compared one;
	uint32_t h, e;
	double x, y;

	for (h = 0; h < t->H; h++) {
		if (t->s.there.len[h / t->R] == 0)
			continue;
		one = (struct attention_compared){ .seen = 1 };
		for (e = h * t->E; e < (h + 1) * t->E; e++) {
			x = t->full[e];
			y = x - t->read[e];
			one.whole += x * x;
			one.lost += y * y;
		}
		attention_add(&lost[h], &one);
	}
}

static void
try_query(struct trial *t, uint32_t l, uint32_t n)
{
	const struct ops *ops = t->d.ops;
	struct layer_rows *rows = &t->s.there;
	const float *q = (float *)t->q.at + (size_t)n * t->H * t->E;
	const uint32_t *qpos = (uint32_t *)t->qpos.at + n;
	size_t size = (size_t)t->H * t->E * sizeof *t->full;

	ops->attend(t->d.dev, t->o.at, NULL, q, rows, qpos, 1, t->H);
	ops->get(t->d.dev, t->full, t->o.at, size);
	if (l >= t->options.dense)
		index_extend(&t->s.index, rows);
	retrieve(t->retrieval, l, t->o.at, q, rows, &t->s.index, qpos);
	ops->get(t->d.dev, t->read, t->o.at, size);
	device_check(&t->d);
	compare_outputs(t, t->lost + (size_t)l * t->H);
	t->tried[l]++;
}

/* Rows that are rebuilt from factors must all be seen. */
static int
sees_enough(const struct trial *t, uint32_t l)
{
	const struct layer_index *x = &t->s.index;

	return l < t->options.dense || !index_has(x, INDEX_LOW_RANK) ||
	    t->s.there.len[0] >= x->low.n;
}

static void
try_layer(struct trial *t, uint32_t l)
{
	struct layerwise *s = &t->s;
	const struct queries *q = &s->queries;
	uint32_t n;

	layerwise_next(s, l);
	if (q->n == 0)
		die(EXIT_RUN, "%s: layer %u has no observation queries to try retrieval with: make "
		    "the snapshot with kv-prefill --observe", kv_reader_name(s->r), l);
	retrieving_fit(kv_reader_name(s->r), l, &s->index);
	layerwise_upload(s, &t->d);
	device_upload(&t->d, &t->q, q->q, (size_t)q->n * t->H * t->E * sizeof *q->q);
	device_upload(&t->d, &t->qpos, q->pos, q->n * sizeof *q->pos);
	if (retrieval_reserve(t->retrieval, &s->there, &s->index) != 0)
		die(EXIT_RUN, "no memory for retrieval");
	memcpy(t->end, s->index.end, t->G * sizeof *t->end);
	for (n = 0; n < q->n; n++) {
		show_rows(t, q->pos[n]);
		if (n == 0)
			take_index_back(t);
		if (sees_enough(t, l))
			try_query(t, l, n);
	}
	if (q->n - t->tried[l] > t->left_out)
		t->left_out = q->n - t->tried[l];
}

/* ---- all of it ---- */

static void
trial_open(struct trial *t, const char *path)
{
	const struct kv_model *m;
	double *freq;

	memset(t, 0, sizeof *t);
	t->options = retrieving_options();
	t->options.audit = 1;
	layerwise_open(&t->s, path);
	m = &t->s.head->model;
	t->L = m->layers;
	t->H = m->query_heads;
	t->G = m->kv_heads;
	t->R = t->H / t->G;
	t->E = m->head_width;
	t->d = device_open();
	layerwise_want_index(&t->s, &t->d, retrieve_needs(t->options.method));
	freq = must_alloc(t->E / 2, sizeof *freq);
	model_rope_frequencies(m, freq);
	device_upload(&t->d, &t->freq, freq, t->E / 2 * sizeof *freq);
	free(freq);
	t->retrieval = retrieval_new(t->d.ops, t->d.dev, &t->options, t->L, t->H, t->G, t->E,
	    t->s.head->dtype, t->freq.at);
	if (t->retrieval == NULL)
		die(EXIT_RUN, "no memory for retrieval");
	t->tried = must_alloc(t->L, sizeof *t->tried);
	t->lost = must_alloc((size_t)t->L * t->H, sizeof *t->lost);
	t->full = must_alloc((size_t)t->H * t->E, sizeof *t->full);
	t->read = must_alloc((size_t)t->H * t->E, sizeof *t->read);
	t->end = must_alloc(t->G, sizeof *t->end);
	device_room(&t->d, &t->o, (size_t)t->H * t->E * sizeof *t->full);
}

static void
trial_close(struct trial *t)
{
	retrieval_free(t->retrieval);
	device_release(&t->d, &t->q);
	device_release(&t->d, &t->qpos);
	device_release(&t->d, &t->o);
	device_release(&t->d, &t->freq);
	layerwise_close(&t->s, &t->d);
	device_close(&t->d);
	free(t->tried);
	free(t->lost);
	free(t->full);
	free(t->read);
	free(t->end);
}

/* ---- sums ---- */

/* What is printed of a KV head, a layer, or several layers. Bytes and rows are sums over steps and
 * KV heads, as recall and mass are. */
struct tried {
	struct retrieval_stats read;
	double error;                   /* NaN: not known */
};

/* Of KV heads g0 to g1-1 of a layer. */
static struct tried
tried_heads(const struct trial *t, uint32_t l, uint32_t g0, uint32_t g1)
{
	struct attention_compared lost = { 0 };
	struct tried sum = { 0 };
	uint32_t h;

	for (h = g0 * t->R; h < g1 * t->R; h++)
		attention_add(&lost, &t->lost[(size_t)l * t->H + h]);
	for (; g0 < g1; g0++)
		retrieving_add(&sum.read, &retrieval_stats(t->retrieval)[(size_t)l * t->G + g0]);
	sum.error = output_error(&lost);
	return sum;
}

static struct tried
tried_layer(const struct trial *t, uint32_t l)
{
	return tried_heads(t, l, 0, t->G);
}

/* The error is the mean of those of the layers: they differ in scale. */
static struct tried
tried_layers(const struct trial *t, uint32_t from)
{
	struct tried sum = { 0 }, one;
	uint32_t l, n = 0;

	for (l = from; l < t->L; l++) {
		one = tried_layer(t, l);
		retrieving_add(&sum.read, &one.read);
		if (!isnan(one.error)) {
			sum.error += one.error;
			n++;
		}
	}
	sum.error = n > 0 ? sum.error / n : NAN;
	return sum;
}

/* ---- text ---- */

/* head: NULL where there is no such column. */
static void
print_tried(const struct tried *x, const char *layer, const char *head)
{
	const struct retrieval_stats *s = &x->read;
	double n = (double)s->steps;

	if (s->steps == 0)
		printf("%9s %9s %9s %9s %9s %9s %9s %9s %9s", "-", "-", "-", "-", "-", "-", "-",
		    "-", "-");
	else
		printf("%9.1f %9.1f %8.2f%% %8.2f%% %9.3g %9.0f %9.0f %9.0f %8.2f%%",
		    (double)s->rows / n, (double)s->of_rows / n, 100 * s->recall / n,
		    100 * s->mass / n, x->error, (double)s->index_bytes / n,
		    (double)s->key_bytes / n, (double)s->value_bytes / n, 100 * retrieving_share(s));
	printf("  %5s", layer);
	if (head != NULL)
		printf("  %4s", head);
	putchar('\n');
}

static void
print_head(const struct trial *t)
{
	const struct retrieval_options *o = &t->options;

	printf("snapshot  %s: %" PRIu64 " tokens, %s\n", kv_reader_name(t->s.r), t->s.n_tokens,
	    kv_dtype_name(t->s.head->dtype));
	printf("retrieve  %s, %" PRIu32 " rows, %s; layers below %" PRIu32 " read all\n",
	    retrieve_name(o->method), o->budget, retrieving_reduce(), o->dense);
	printf("queries   %" PRIu32, t->tried[t->L - 1]);
	if (t->left_out > 0)
		printf(", without %" PRIu32 " that do not see all rows of the factors", t->left_out);
	putchar('\n');
}

static void
print_text(const struct trial *t, int heads)
{
	struct tried x = tried_layers(t, 0);
	uint32_t first = t->options.dense, l, g;
	char layer[24], head[16];

	print_head(t);
	printf("%9s %9s %9s %9s %9s %9s %9s %9s %9s  %5s%s\n", "rows", "of", "recall", "mass",
	    "error", "index", "keys", "values", "read", "layer", heads ? "  head" : "");
	print_tried(&x, "all", heads ? "all" : NULL);
	if (first > 0 && first < t->L) {
		x = tried_layers(t, first);
		snprintf(layer, sizeof layer, "%" PRIu32 "-%" PRIu32, first, t->L - 1);
		print_tried(&x, layer, heads ? "all" : NULL);
	}
	for (l = 0; l < t->L; l++) {
		snprintf(layer, sizeof layer, "%" PRIu32, l);
		for (g = 0; g < (heads ? t->G : 1); g++) {
			x = heads ? tried_heads(t, l, g, g + 1) : tried_layer(t, l);
			snprintf(head, sizeof head, "%" PRIu32, g);
			print_tried(&x, layer, heads ? head : NULL);
		}
	}
}

/* ---- JSON: the keys of kv-decode's report ---- */

static json_t *
tried_json(const struct tried *x)
{
	const struct retrieval_stats *s = &x->read;
	double n = (double)s->steps;            /* 0: all means are NaN, which is null */
	json_t *o = json_object();

	put_real(o, "rows", (double)s->rows / n);
	put_real(o, "of_rows", (double)s->of_rows / n);
	put_real(o, "index_bytes", (double)s->index_bytes / n);
	put_real(o, "key_bytes", (double)s->key_bytes / n);
	put_real(o, "value_bytes", (double)s->value_bytes / n);
	put_real(o, "of_bytes", (double)s->of_bytes / n);
	put_real(o, "share", retrieving_share(s));
	put_real(o, "recall", s->recall / n);
	put_real(o, "mass", s->mass / n);
	put_real(o, "output_error", x->error);
	return o;
}

static json_t *
layer_json(const struct trial *t, uint32_t l)
{
	struct tried x = tried_layer(t, l);
	json_t *o = tried_json(&x), *heads = json_array(), *head, *list, *query;
	struct attention_compared *lost = t->lost + (size_t)l * t->H;
	uint32_t g, r;

	put_count(o, "layer", l);
	put_count(o, "queries", t->tried[l]);
	for (g = 0; g < t->G; g++) {
		x = tried_heads(t, l, g, g + 1);
		head = tried_json(&x);
		list = json_array();
		for (r = 0; r < t->R; r++) {
			query = json_object();
			put_real(query, "output_error", output_error(&lost[g * t->R + r]));
			json_array_append_new(list, query);
		}
		put(head, "query_heads", list);
		json_array_append_new(heads, head);
	}
	put(o, "heads", heads);
	return o;
}

static void
print_trial_json(const struct trial *t)
{
	const struct retrieval_options *r = &t->options;
	struct tried all = tried_layers(t, 0), some = tried_layers(t, r->dense);
	json_t *o = json_object(), *layers = json_array();
	uint32_t l;

	put(o, "snapshot", json_string(kv_reader_name(t->s.r)));
	put(o, "dtype", json_string(kv_dtype_name(t->s.head->dtype)));
	put_count(o, "tokens", t->s.n_tokens);
	put(o, "retrieve", json_string(retrieve_name(r->method)));
	put_count(o, "budget", r->budget);
	put(o, "reduce", json_string(retrieving_reduce()));
	put_count(o, "dense_layers", r->dense);
	put(o, "all", tried_json(&all));
	put(o, "retrieving", tried_json(&some));
	for (l = 0; l < t->L; l++)
		json_array_append_new(layers, layer_json(t, l));
	put(o, "layers", layers);
	print_json(o);
}

void
try_retrieval(const char *path, int heads)
{
	struct trial t;
	uint32_t l;

	trial_open(&t, path);
	progress_start("retrieve", t.L, "layers");
	for (l = 0; l < t.L; l++) {
		try_layer(&t, l);
		progress(l + 1);
	}
	layerwise_finish(&t.s);
	progress_end();
	if (settings.json)
		print_trial_json(&t);
	else
		print_text(&t, heads);
	trial_close(&t);
}
