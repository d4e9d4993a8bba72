/* build_clusters.c - makes the clusters of a layer's keys, several KV heads in parallel: cLUS
 *
 * Each of up to G threads clusters one KV head after another, with a device of its own, so that
 * several heads are clustered at the same time. The clusters do not depend on the thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build_index.h"
#include "engine/key_products.h"
#include "methods/cluster.h"

/* Arrays of struct kv_clusters, as struct built_index keeps them */
enum { COUNT, END, LABEL, MEAN };

#define MAX_WORKERS 64
#define ROWS_PER_CLUSTER 80     /* number of clusters of a KV head: L / 80, as in ClusterKV */

/* The clusters of one KV head */
struct found {
	const char *keys;               /* from row sink on */
	uint32_t rows;
	uint32_t wanted;
	uint32_t n;                     /* clusters */
	uint32_t *label;                /* [rows] */
	char *mean;                     /* [n][E] of head->dtype, room for [wanted] */
	int code;
	const struct cluster_worker *by;
};

struct job {
	const struct index_source *l;
	const struct cluster_options *opt;
	struct found *head;             /* [G] */
	atomic_uint next;               /* next KV head to cluster */
};

struct cluster_worker {
	pthread_t id;
	struct job *job;
	struct key_products products;
};

static enum kv_row_type
key_type(const struct job *job)
{
	return kv_head_row_type(job->l->head, KV_KEYS, job->l->layer);
}

/* ---- the threads ---- */

uint32_t
cluster_workers(const struct kv_head *head, uint32_t threads)
{
	const uint32_t G = head->model.kv_heads, most = G < MAX_WORKERS ? G : MAX_WORKERS;

	return threads < most ? threads : most;
}

int
cluster_builder_init(struct cluster_builder *b, const struct device *devices, uint32_t n,
    const struct kv_head *head, struct engine_error *e)
{
	uint32_t i;

	*b = (struct cluster_builder){ engine_alloc(n, sizeof *b->worker, e), n };
	if (b->worker == NULL)
		return e->code;
	for (i = 0; i < n; i++)
		b->worker[i].products = (struct key_products){ .d = devices[i],
		    .width = head->model.head_width };
	return ENGINE_OK;
}

void
cluster_builder_free(struct cluster_builder *b)
{
	uint32_t i;

	for (i = 0; b->worker != NULL && i < b->n; i++)
		key_products_release(&b->worker[i].products);
	free(b->worker);
	*b = (struct cluster_builder){ 0 };
}

static void
cluster_head(struct cluster_worker *w, uint32_t g)
{
	const struct job *job = w->job;
	const struct kv_head *head = job->l->head;
	struct found *f = &job->head[g];
	struct cluster_input in = { .keys = f->keys, .rows = f->rows,
	    .width = head->model.head_width, .key_type = key_type(job), .dtype = head->dtype,
	    .clusters = f->wanted,
	    .iterations = job->opt->iterations,
	    .seed = cluster_seed(job->opt->seed, job->l->layer, g, job->opt->sink),
	    .products = key_products_make, .with = &w->products };

	f->by = w;
	w->products.type = in.key_type;
	f->code = f->wanted > 0 ? cluster_keys(&in, f->label, f->mean, &f->n) : CLUSTER_OK;
}

/* Clusters heads until none is left, or the device has failed. */
static void *
take_heads(void *arg)
{
	struct cluster_worker *w = arg;
	struct job *job = w->job;
	uint32_t g;

	while ((g = atomic_fetch_add(&job->next, 1)) < job->l->rows->heads) {
		cluster_head(w, g);
		if (job->head[g].code == CLUSTER_EDEVICE)
			break;
	}
	return NULL;
}

static void
run(struct cluster_builder *b, struct job *job)
{
	uint32_t i, started = 1;

	for (i = 0; i < b->n; i++)
		b->worker[i].job = job;
	while (started < b->n &&
	    pthread_create(&b->worker[started].id, NULL, take_heads, &b->worker[started]) == 0)
		started++;
	take_heads(&b->worker[0]);      /* all heads, if no thread could be started */
	while (started > 1)
		pthread_join(b->worker[--started].id, NULL);
}

/* ---- a layer ---- */

/* Returns the bytes of a mean. */
static size_t
mean_size(const struct job *job)
{
	return job->l->head->model.head_width * kv_dtype_size(job->l->head->dtype);
}

/* Allocates the arrays of the index: count, end, label, mean. */
static int
start(struct job *job, struct built_index *out, struct engine_error *e)
{
	const struct kv_rows *rows = job->l->rows;
	const uint32_t sink = job->opt->sink, G = rows->heads;
	const size_t row = kv_head_row_bytes(job->l->head, KV_KEYS, job->l->layer);
	const size_t mean = mean_size(job);
	size_t first = 0, labels = 0, means = 0;
	struct found *f;
	uint32_t g, S;

	if ((job->head = engine_alloc(G, sizeof *job->head, e)) == NULL)
		return e->code;
	for (g = 0; g < G; g++, first += S) {
		S = rows->count[g];
		f = &job->head[g];
		if (S <= sink)
			continue;
		f->keys = (const char *)job->l->keys + (first + sink) * row;
		f->rows = S - sink;
		f->wanted = job->opt->count != 0 ? job->opt->count : S / ROWS_PER_CLUSTER;
		f->wanted = f->wanted > 1 ? f->wanted : 1;
		f->wanted = f->wanted < f->rows ? f->wanted : f->rows;
		labels += f->rows;
		means += f->wanted;
	}
	if ((out->memory[COUNT] = engine_alloc(G, sizeof(uint32_t), e)) == NULL ||
	    (out->memory[END] = engine_alloc(G, sizeof(uint32_t), e)) == NULL ||
	    (out->memory[LABEL] = engine_alloc(labels, sizeof(uint32_t), e)) == NULL ||
	    (out->memory[MEAN] = engine_alloc(means, mean, e)) == NULL)
		return e->code;
	for (g = 0, labels = means = 0; g < G; labels += f->rows, means += f->wanted, g++) {
		f = &job->head[g];
		f->label = (uint32_t *)out->memory[LABEL] + labels;
		f->mean = (char *)out->memory[MEAN] + means * mean;
	}
	return ENGINE_OK;
}

static int
check(const struct job *job, struct engine_error *e)
{
	const struct index_source *l = job->l;
	const struct found *f;
	uint32_t g;

	for (g = 0; g < l->rows->heads; g++) {
		f = &job->head[g];
		if (f->code == CLUSTER_EKEY)
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u head %u row %u: the key "
			    "is not finite", l->file, l->layer, g, job->opt->sink + f->n);
		if (f->code == CLUSTER_EDEVICE) {
			*e = f->by->products.error;
			return e->code;
		}
		if (f->code != CLUSTER_OK)
			return engine_fail(e, ENGINE_ERUN, "out of memory");
	}
	return ENGINE_OK;
}

/* Packs the arrays, closing the gaps after heads with fewer clusters than wanted. */
static void
put_together(const struct job *job, struct built_index *out)
{
	uint32_t *count = out->memory[COUNT], *end = out->memory[END], g;
	const size_t row = mean_size(job);
	char *mean = out->memory[MEAN];

	for (g = 0; g < job->l->rows->heads; mean += job->head[g++].n * row) {
		count[g] = job->head[g].n;
		end[g] = job->l->rows->count[g];
		memmove(mean, job->head[g].mean, job->head[g].n * row);
	}
	out->index.clusters = (struct kv_clusters){ job->opt->sink, count, end, out->memory[LABEL],
	    out->memory[MEAN] };
}

int
build_clusters(struct built_index *out, struct cluster_builder *b, const struct index_source *l,
    const struct cluster_options *opt, struct engine_error *e)
{
	struct job job = { .l = l, .opt = opt };
	int rc;

	*out = (struct built_index){ .index.kind = KV_CLUS };
	if ((rc = start(&job, out, e)) == ENGINE_OK) {
		run(b, &job);
		rc = check(&job, e);
	}
	if (rc == ENGINE_OK)
		put_together(&job, out);
	free(job.head);
	return rc;
}
