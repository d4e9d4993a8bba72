/* build_clusters.c - the clusters of a layer's keys, KV heads side by side
 *
 * Each of up to G threads takes one KV head after another and has a device of its own, so that
 * products, comparisons and sums of several heads go on at the same time; threads beyond G are
 * shared out among these devices. What a head gets does not depend on who makes it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "methods/cluster.h"
#include "engine/indexing.h"
#include "engine/key_products.h"
#include "cli/tool.h"

#define MAX_WORKERS 64
#define ROWS_PER_CLUSTER 80     /* ClusterKV's number of clusters, for each KV head: L / 80 */

/* What is found for one KV head. */
struct found {
	const char *keys;               /* from row sink on */
	uint32_t rows;
	uint32_t wanted;
	uint32_t n;                     /* clusters */
	uint32_t *label;                /* [rows] */
	char *mean;                     /* [n][E] of the dtype of the keys */
	int code;
};

struct job {
	const struct indexing_layer *l;
	const struct clustering_options *opt;
	struct found *head;             /* [G] */
	atomic_uint next;               /* KV head that nobody has taken */
};

struct worker {
	pthread_t id;
	struct job *job;
	struct products products;       /* stays open from one layer to the next */
};

static struct worker worker[MAX_WORKERS];
static uint32_t workers;

static void
cluster_head(struct job *job, struct products *products, uint32_t g)
{
	const struct kv_head *head = job->l->head;
	struct found *f = &job->head[g];
	struct cluster_input in = { .keys = f->keys, .rows = f->rows,
	    .width = head->model.head_width, .dtype = head->dtype, .clusters = f->wanted,
	    .iterations = job->opt->iterations,
	    .seed = cluster_seed(job->opt->seed, job->l->layer, g, job->opt->sink),
	    .products = products_make, .with = products };

	f->code = f->wanted > 0 ? cluster_keys(&in, f->label, f->mean, &f->n) : CLUSTER_OK;
}

static void *
take_heads(void *arg)
{
	struct worker *w = arg;
	uint32_t g;

	while ((g = atomic_fetch_add(&w->job->next, 1)) < w->job->l->rows->heads)
		cluster_head(w->job, &w->products, g);
	return NULL;
}

static void
hire(const struct kv_head *head)
{
	const uint32_t G = head->model.kv_heads, all = processors();
	const uint32_t most = G < MAX_WORKERS ? G : MAX_WORKERS;
	uint32_t i;

	workers = all < most ? all : most;
	for (i = 0; i < workers; i++)
		products_open(&worker[i].products, all / workers + (i < all % workers),
		    head->model.head_width, head->dtype);
}

void
clusters_end(void)
{
	while (workers > 0)
		products_close(&worker[--workers].products);
}

static void
run(struct job *job)
{
	uint32_t i, started = 1;

	if (workers == 0)
		hire(job->l->head);
	for (i = 0; i < workers; i++)
		worker[i].job = job;
	while (started < workers &&
	    pthread_create(&worker[started].id, NULL, take_heads, &worker[started]) == 0)
		started++;
	take_heads(&worker[0]);         /* and where no thread could be had, all of them */
	while (started > 1)
		pthread_join(worker[--started].id, NULL);
}

static void
start(struct job *job)
{
	const struct indexing_layer *l = job->l;
	const size_t row = l->head->model.head_width * kv_dtype_size(l->head->dtype);
	const uint32_t sink = job->opt->sink;
	size_t first = 0;
	struct found *f;
	uint32_t g, S;

	job->head = must_alloc(l->rows->heads, sizeof *job->head);
	for (g = 0; g < l->rows->heads; g++, first += S) {
		S = l->rows->count[g];
		f = &job->head[g];
		if (S <= sink)
			continue;
		f->keys = (const char *)l->keys + (first + sink) * row;
		f->rows = S - sink;
		f->wanted = job->opt->count != 0 ? job->opt->count : S / ROWS_PER_CLUSTER;
		f->wanted = f->wanted > 1 ? f->wanted : 1;
		f->wanted = f->wanted < f->rows ? f->wanted : f->rows;
		f->label = must_alloc(f->rows, sizeof *f->label);
		f->mean = must_alloc(f->wanted, row);
	}
}

static void
check(const struct job *job)
{
	const struct indexing_layer *l = job->l;
	const struct found *f;
	uint32_t g;

	for (g = 0; g < l->rows->heads; g++) {
		f = &job->head[g];
		if (f->code == CLUSTER_EKEY)
			die(EXIT_RUN, "%s: layer %u head %u row %u: the key is not finite",
			    l->file, l->layer, g, job->opt->sink + f->n);
		if (f->code != CLUSTER_OK)
			die(EXIT_RUN, "out of memory");
	}
}

/* The content, and an end to what it is made from. */
static struct content
put_together(struct job *job)
{
	const struct indexing_layer *l = job->l;
	const size_t row = l->head->model.head_width * kv_dtype_size(l->head->dtype);
	const size_t G = l->rows->heads;
	size_t front = KV_INDEX_HEAD + 8 * G, means = 0, g;
	struct content c;
	uint8_t *p;
	uint32_t t;

	for (g = 0; g < G; g++) {
		front += 4 * (size_t)job->head[g].rows;
		means += job->head[g].n * row;
	}
	front = round64(front);
	c.size = front + means;
	c.data = must_alloc(c.size, 1);
	put32(c.data, 1);
	put32(c.data + 16, job->opt->sink);
	for (g = 0, p = c.data + KV_INDEX_HEAD; g < G; g++, p += 4) {
		put32(p, job->head[g].n);
		put32(p + 4 * G, l->rows->count[g]);
	}
	for (g = 0, p += 4 * G; g < G; g++)
		for (t = 0; t < job->head[g].rows; t++, p += 4)
			put32(p, job->head[g].label[t]);
	for (g = 0, p = c.data + front; g < G; p += job->head[g++].n * row) {
		if (job->head[g].n > 0)
			memcpy(p, job->head[g].mean, job->head[g].n * row);
		free(job->head[g].label);
		free(job->head[g].mean);
	}
	free(job->head);
	return c;
}

struct content
clusters_content(const struct indexing_layer *l, const struct clustering_options *opt)
{
	struct job job = { .l = l, .opt = opt };

	start(&job);
	run(&job);
	check(&job);
	return put_together(&job);
}
