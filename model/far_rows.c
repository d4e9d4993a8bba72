/* far_rows.c - slots for the rows of layers that are elsewhere, and what moves in and out of them
 *
 * The list that attention goes through is in the order of the rows, not of the slots: sums are those
 * that it makes where all rows are on the device, bit by bit. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/far_rows.h"
#include "model/layer_rows.h"

/* A thread that reads the rows of layers in the order in which they were begun. A layer is in the
 * queue once at most. */
struct far_reader {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, done;
	uint32_t *queue;                /* [L] layers, a ring */
	uint64_t begun, ended;          /* how many so far */
	uint64_t *number;               /* [L] of the layer's last one, counted from 1 */
	int stop;
};

static void free_reader(struct far_rows *);
static void start_reader(struct far_rows *);

struct far_rows *
far_rows_new(const struct ops *ops, struct dev *dev, struct row_store *store, uint32_t layers,
    uint32_t heads, uint32_t width, enum kv_dtype dtype, uint32_t slots)
{
	struct far_rows *f = calloc(1, sizeof *f);
	const size_t row = width * kv_dtype_size(dtype);

	if (f == NULL)
		return NULL;
	*f = (struct far_rows){ .ops = ops, .dev = dev, .store = store, .L = layers, .G = heads,
	    .E = width, .slots = slots, .dtype = dtype, .chosen = { .stride = slots, .rows = 1 } };
	f->layer = calloc(layers, sizeof *f->layer);
	f->free = calloc(slots, sizeof *f->free);
	f->chosen.n = calloc(heads, sizeof *f->chosen.n);
	f->chosen.at = ops->alloc(dev, (size_t)heads * slots * sizeof *f->chosen.at);
	if (!ops->shares_memory)
		f->staging = malloc(2 * slots * row);
	if (f->layer == NULL || f->free == NULL || f->chosen.n == NULL || f->chosen.at == NULL ||
	    (!ops->shares_memory && f->staging == NULL)) {
		far_rows_free(f);
		return NULL;
	}
	if (ops->shares_memory)
		start_reader(f);
	return f;
}

static void
free_layer(struct far_rows *f, struct far_layer *y)
{
	uint32_t g;

	layer_rows_free(&y->near, f->ops, f->dev);
	for (g = 0; y->in != NULL && g < f->G; g++) {
		free(y->in[g].row);
		free(y->in[g].slot);
	}
	free(y->in);
	free(y->new);
	free(y->row);
	free(y->slot);
	free(y->n);
	free(y->list);
	free(y->stored);
	*y = (struct far_layer){ .stored = NULL };
}

void
far_rows_free(struct far_rows *f)
{
	uint32_t l;

	if (f == NULL)
		return;
	free_reader(f);
	for (l = 0; f->layer != NULL && l < f->L; l++)
		free_layer(f, &f->layer[l]);
	f->ops->free(f->dev, f->chosen.at);
	free(f->chosen.n);
	free(f->layer);
	free(f->free);
	free(f->staging);
	free(f);
}

int
far_rows_has(const struct far_rows *f, uint32_t l)
{
	return f != NULL && f->layer[l].stored != NULL;
}

uint64_t
far_rows_bytes(const struct far_rows *f)
{
	return 2 * (uint64_t)f->slots * f->E * kv_dtype_size(f->dtype);
}

/* ---- memory ---- */

int
far_rows_add(struct far_rows *f, uint32_t l, const uint32_t *stored, uint32_t more)
{
	struct far_layer *y = &f->layer[l];
	uint32_t g, i;
	int ok;

	ok = layer_rows_init(&y->near, f->G, f->E, f->dtype) == KV_OK;
	y->stored = malloc(f->G * sizeof *y->stored);
	y->in = calloc(f->G, sizeof *y->in);
	y->new = calloc(f->G, sizeof *y->new);
	y->n = calloc(f->G, sizeof *y->n);
	y->row = malloc((size_t)f->G * f->slots * sizeof *y->row);
	y->slot = malloc((size_t)f->G * f->slots * sizeof *y->slot);
	y->list = calloc((size_t)f->G * f->slots, sizeof *y->list);
	ok &= y->stored != NULL && y->in != NULL && y->new != NULL && y->n != NULL &&
	    y->row != NULL && y->slot != NULL && y->list != NULL;
	for (g = 0; ok && g < f->G; g++) {
		y->in[g].row = malloc(f->slots * sizeof *y->in[g].row);
		y->in[g].slot = malloc(f->slots * sizeof *y->in[g].slot);
		ok = y->in[g].row != NULL && y->in[g].slot != NULL;
		for (i = 0; ok && i < f->slots; i++)
			y->in[g].slot[i] = i;
		y->stored[g] = stored[g];
		y->near.len[g] = f->slots;
	}
	if (ok && more <= UINT32_MAX - f->slots &&
	    layer_rows_resize(&y->near, f->ops, f->dev, f->slots + more, 0) == KV_OK)
		return KV_OK;
	free_layer(f, y);
	return KV_ENOMEM;
}

int
far_rows_take(struct far_rows *f, uint32_t l, const struct layer_rows *from, uint32_t more)
{
	const uint32_t *stored = f->store->count + (size_t)l * f->G;
	const size_t row = f->E * kv_dtype_size(f->dtype);
	struct layer_rows *to = &f->layer[l].near;
	uint32_t g, n, most = 0;
	uint64_t dst, src;

	for (g = 0; g < f->G; g++)
		most = from->len[g] - stored[g] > most ? from->len[g] - stored[g] : most;
	if (far_rows_add(f, l, stored, most + more) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < f->G; g++) {
		if ((n = from->len[g] - stored[g]) == 0)
			continue;
		dst = to->start[g] + to->len[g];
		src = from->start[g] + stored[g];
		f->ops->copy(f->dev, (char *)to->k + dst * row, (char *)from->k + src * row, n * row);
		f->ops->copy(f->dev, (char *)to->v + dst * row, (char *)from->v + src * row, n * row);
		f->ops->copy(f->dev, to->pos + dst, from->pos + src, n * sizeof *to->pos);
		to->len[g] += n;
	}
	return KV_OK;
}

int
far_rows_reserve(struct far_rows *f, uint32_t more)
{
	uint32_t l, g;
	uint64_t most, need;

	for (l = 0; l < f->L; l++) {
		struct layer_rows *r = &f->layer[l].near;

		for (g = 0, most = 0; far_rows_has(f, l) && g < f->G; g++)
			most = r->len[g] > most ? r->len[g] : most;
		need = most + more;
		if (most == 0 || need <= r->capacity[0])
			continue;
		need += most / 2;
		if (need > UINT32_MAX ||
		    layer_rows_resize(r, f->ops, f->dev, (uint32_t)need, 0) != KV_OK)
			return KV_ENOMEM;
	}
	return KV_OK;
}

/* ---- rows ---- */

/* Merges the rows of a KV head that a step reads with those of the step before, both ascending: y->new[g]
 * of them are to be read. y->list has where each is. */
static void
place_rows(struct far_rows *f, struct far_layer *y, uint32_t g, const uint32_t *row, uint32_t n)
{
	const size_t at = (size_t)g * f->slots;
	uint32_t *list = y->list + at, *new_row = y->row + at, *new_slot = y->slot + at;
	struct residents *in = &y->in[g];
	uint32_t i, j, left = 0, new = 0, stored;

	for (stored = 0; stored < n && row[stored] < y->stored[g]; stored++)
		;
	for (i = j = 0; i < stored || j < in->n; ) {
		if (j == in->n || (i < stored && row[i] < in->row[j])) {
			new_row[new++] = row[i];
			list[i++] = UINT32_MAX;         /* its slot is not known yet */
		} else if (i == stored || row[i] > in->row[j]) {
			f->free[left++] = in->slot[j++];
		} else {
			list[i++] = in->slot[j++];
		}
	}
	while (j < f->slots)                            /* those that were free already */
		f->free[left++] = in->slot[j++];
	for (i = j = 0; i < stored; i++)
		if (list[i] == UINT32_MAX) {
			list[i] = new_slot[j] = f->free[j];
			j++;
		}
	memcpy(in->row, row, stored * sizeof *row);
	memcpy(in->slot, list, stored * sizeof *list);
	memcpy(in->slot + stored, f->free + new, (left - new) * sizeof *f->free);
	in->n = stored;
	for (i = stored; i < n; i++)
		list[i] = f->slots + (row[i] - y->stored[g]);
	y->new[g] = new;
	y->n[g] = n;
}

/* Reads new rows of a KV head into their slots. */
static int
read_rows(struct far_rows *f, uint32_t l, uint32_t g)
{
	const struct far_layer *y = &f->layer[l];
	const struct layer_rows *r = &y->near;
	const size_t row = r->width * kv_dtype_size(r->dtype), at = (size_t)g * f->slots;
	char *k = (char *)r->k + r->start[g] * row, *v = (char *)r->v + r->start[g] * row;
	char *from_k = f->staging, *from_v = f->staging != NULL ? f->staging + f->slots * row : NULL;
	uint32_t i, slot;
	int rc;

	if (f->ops->shares_memory)
		return row_store_read(f->store, l, g, y->row + at, y->slot + at, y->new[g], k, v);
	rc = row_store_read(f->store, l, g, y->row + at, y->slot + at, y->new[g], from_k, from_v);
	for (i = 0; rc == KV_OK && i < y->new[g]; i++) {
		slot = y->slot[at + i];
		f->ops->put(f->dev, k + slot * row, from_k + slot * row, row);
		f->ops->put(f->dev, v + slot * row, from_v + slot * row, row);
	}
	return rc;
}

static void
read_layer(struct far_rows *f, uint32_t l)
{
	uint32_t g;

	for (g = 0; g < f->G; g++)
		if (f->layer[l].new[g] > 0 && read_rows(f, l, g) != KV_OK)
			return;                         /* the store knows */
}

/* ---- reading while the device works ---- */

static void *
read_all(void *arg)
{
	struct far_rows *f = arg;
	struct far_reader *r = f->reader;
	uint32_t l;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (r->ended == r->begun && !r->stop)
			pthread_cond_wait(&r->more, &r->lock);
		if (r->stop)
			break;
		l = r->queue[r->ended % f->L];
		pthread_mutex_unlock(&r->lock);
		read_layer(f, l);
		pthread_mutex_lock(&r->lock);
		r->ended++;
		pthread_cond_signal(&r->done);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void
free_memory(struct far_reader *r)
{
	pthread_cond_destroy(&r->more);
	pthread_cond_destroy(&r->done);
	pthread_mutex_destroy(&r->lock);
	free(r->queue);
	free(r->number);
	free(r);
}

/* Without memory, or a thread, f->reader stays NULL: rows are read when they are waited for. */
static void
start_reader(struct far_rows *f)
{
	struct far_reader *r = calloc(1, sizeof *r);

	if (r == NULL)
		return;
	r->queue = calloc(f->L, sizeof *r->queue);
	r->number = calloc(f->L, sizeof *r->number);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->more, NULL);
	pthread_cond_init(&r->done, NULL);
	f->reader = r;                                  /* the thread looks there */
	if (r->queue != NULL && r->number != NULL &&
	    pthread_create(&r->thread, NULL, read_all, f) == 0)
		return;
	f->reader = NULL;
	free_memory(r);
}

/* What was begun and not ended is not read. */
static void
free_reader(struct far_rows *f)
{
	struct far_reader *r = f->reader;

	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = 1;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	free_memory(r);
	f->reader = NULL;
}

void
far_rows_begin(struct far_rows *f, uint32_t l, const uint32_t *row, size_t stride, const uint32_t *n)
{
	struct far_reader *r = f->reader;
	uint32_t g;

	for (g = 0; g < f->G; g++)
		place_rows(f, &f->layer[l], g, row + g * stride, n[g]);
	f->layer[l].begun = 1;
	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->queue[r->begun % f->L] = l;
	r->number[l] = ++r->begun;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
}

const struct chosen *
far_rows_end(struct far_rows *f, uint32_t l)
{
	struct far_layer *y = &f->layer[l];
	struct far_reader *r = f->reader;
	int failed;

	if (r != NULL) {
		pthread_mutex_lock(&r->lock);
		while (r->ended < r->number[l])
			pthread_cond_wait(&r->done, &r->lock);
		failed = f->store->error[0] != '\0';
		pthread_mutex_unlock(&r->lock);
	} else {
		read_layer(f, l);
		failed = f->store->error[0] != '\0';
	}
	y->begun = 0;
	if (failed)
		return NULL;
	memcpy(f->chosen.n, y->n, f->G * sizeof *y->n);
	f->ops->put(f->dev, f->chosen.at, y->list, (size_t)f->G * f->slots * sizeof *y->list);
	return &f->chosen;
}
