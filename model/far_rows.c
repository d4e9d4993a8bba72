/* far_rows.c - slots for the rows of layers that are elsewhere, and what moves in and out of them
 *
 * The list that attention goes through is in the order of the rows, not of the slots: sums are those
 * that it makes where all rows are on the device, bit by bit. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/far_device.h"
#include "model/far_fetch.h"
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
    uint32_t heads, uint32_t width, enum kv_dtype dtype, int ahead)
{
	struct far_rows *f = calloc(1, sizeof *f);

	if (f == NULL)
		return NULL;
	*f = (struct far_rows){ .ops = ops, .dev = dev, .store = store, .L = layers, .G = heads,
	    .E = width, .dtype = dtype, .chosen.rows = 1 };
	f->layer = calloc(layers, sizeof *f->layer);
	f->chosen.n = calloc(heads, sizeof *f->chosen.n);
	if (f->layer == NULL || f->chosen.n == NULL) {
		far_rows_free(f);
		return NULL;
	}
	if (ahead && ops->shares_memory)
		start_reader(f);
	return f;
}

static void
free_layer(struct far_rows *f, struct far_layer *y)
{
	uint32_t g;

	far_device_free(f, y);
	layer_rows_free(&y->near, f->ops, f->dev);
	for (g = 0; y->in != NULL && g < f->G; g++) {
		free(y->in[g].row);
		free(y->in[g].slot);
	}
	free(y->last.start);
	free(y->last.len);
	free(y->in);
	free(y->new);
	free(y->new_keys);
	free(y->row);
	free(y->slot);
	free(y->n);
	free(y->place);
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
	free(f->order);
	far_fetch_free(f);
	free(f);
}

int
far_rows_has(const struct far_rows *f, uint32_t l)
{
	return f != NULL && f->layer[l].stored != NULL;
}

/* ---- memory ---- */

int
far_rows_add(struct far_rows *f, uint32_t l)
{
	f->layer[l].stored = calloc(f->G, sizeof *f->layer[l].stored);
	return f->layer[l].stored != NULL ? KV_OK : KV_ENOMEM;
}

int
far_rows_slots(struct far_rows *f, uint64_t slots)
{
	const size_t heads = (size_t)f->L * f->G;
	uint32_t most = 1, i;
	size_t h;

	for (h = 0; h < heads; h++)
		most = f->store->count[h] > most ? f->store->count[h] : most;
	f->slots = slots < most ? (uint32_t)slots : most;
	f->free = calloc(f->slots, sizeof *f->free);
	f->order = calloc(f->slots, sizeof *f->order);
	if (f->free == NULL || f->order == NULL)
		return KV_ENOMEM;
	for (i = 0; i < f->slots; i++)
		f->order[i] = i;
	return KV_OK;
}

/* Lists of the rows of a step, of layer y and on the device, for as many as there are in near. What was in
 * them is gone. */
static int
reserve_lists(struct far_rows *f, struct far_layer *y)
{
	const size_t stride = y->near.capacity[0], all = f->G * stride;

	if (y->slots.k != NULL)
		return far_device_lists(f, y);
	free(y->place);
	y->place = calloc(all, sizeof *y->place);
	if (stride > f->chosen.stride) {
		f->ops->free(f->dev, f->chosen.at);
		f->chosen.at = f->ops->alloc(f->dev, all * sizeof *f->chosen.at);
		f->chosen.stride = f->chosen.at != NULL ? stride : 0;
	}
	return y->place != NULL && f->chosen.at != NULL ? KV_OK : KV_ENOMEM;
}

/* What a layer whose slots the host fills has for each KV head, and for each slot */
static int
alloc_slots(struct far_rows *f, struct far_layer *y)
{
	const size_t all = (size_t)f->G * f->slots;
	uint32_t g, i;
	int ok;

	y->in = calloc(f->G, sizeof *y->in);
	y->new = calloc(f->G, sizeof *y->new);
	y->new_keys = calloc(f->G, sizeof *y->new_keys);
	y->n = calloc(f->G, sizeof *y->n);
	y->row = malloc(all * sizeof *y->row);
	y->slot = malloc(all * sizeof *y->slot);
	ok = far_fetch_reserve(f) == KV_OK && y->in != NULL && y->new != NULL &&
	    y->new_keys != NULL && y->n != NULL && y->row != NULL && y->slot != NULL;
	for (g = 0; ok && g < f->G; g++) {
		y->in[g].row = malloc(f->slots * sizeof *y->in[g].row);
		y->in[g].slot = malloc(f->slots * sizeof *y->in[g].slot);
		ok = y->in[g].row != NULL && y->in[g].slot != NULL;
		for (i = 0; ok && i < f->slots; i++)
			y->in[g].slot[i] = i;
	}
	return ok ? KV_OK : KV_ENOMEM;
}

/* Gives a layer that was added its memory, for so many rows of each KV head behind the slots. */
static int
open_layer(struct far_rows *f, uint32_t l, const uint32_t *stored, uint64_t behind)
{
	const int device = f->ops->fetch_chosen != NULL && row_store_has(f->store, l);
	struct far_layer *y = &f->layer[l];
	uint32_t g;

	memcpy(y->stored, stored, f->G * sizeof *stored);
	y->last.start = calloc(f->G, sizeof *y->last.start);
	y->last.len = calloc(f->G, sizeof *y->last.len);
	if (layer_rows_init(&y->near, f->G, f->E, f->dtype) != KV_OK || y->last.start == NULL ||
	    y->last.len == NULL || behind > UINT32_MAX - f->slots ||
	    layer_rows_resize(&y->near, f->ops, f->dev, f->slots + (uint32_t)behind, 0) != KV_OK ||
	    (device ? far_device_open(f, l) : alloc_slots(f, y)) != KV_OK || reserve_lists(f, y) != KV_OK) {
		free_layer(f, y);
		return KV_ENOMEM;
	}
	for (g = 0; g < f->G; g++)
		y->near.len[g] = f->slots;
	return KV_OK;
}

/* The most that a KV head has from first[g] on, of n[g]. */
static uint32_t
most_from(const struct far_rows *f, const uint32_t *first, const uint32_t *n)
{
	uint32_t g, most = 0;

	for (g = 0; g < f->G; g++)
		most = n[g] - first[g] > most ? n[g] - first[g] : most;
	return most;
}

int
far_rows_take(struct far_rows *f, uint32_t l, const uint32_t *first, const struct layer_rows *from,
    uint32_t more)
{
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const uint64_t behind = (uint64_t)most_from(f, first, from->len) + more;
	struct layer_rows *to = &f->layer[l].near;
	uint32_t g, n;
	uint64_t dst, src;

	if (far_rows_add(f, l) != KV_OK || row_store_take(f->store, l, from) != KV_OK ||
	    open_layer(f, l, first, behind) != KV_OK)
		return KV_ENOMEM;
	for (g = 0; g < f->G; g++) {
		if ((n = from->len[g] - first[g]) == 0)
			continue;
		dst = to->start[g] + to->len[g];
		src = from->start[g] + first[g];
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

		for (g = 0, most = 0; r->len != NULL && g < f->G; g++)
			most = r->len[g] > most ? r->len[g] : most;
		need = most + more;
		if (most == 0 || need <= r->capacity[0])
			continue;
		need += most / 2;
		if (need > UINT32_MAX ||
		    layer_rows_resize(r, f->ops, f->dev, (uint32_t)need, 0) != KV_OK ||
		    reserve_lists(f, &f->layer[l]) != KV_OK)
			return KV_ENOMEM;
	}
	return KV_OK;
}

const struct layer_rows *
far_rows_last(struct far_rows *f, uint32_t l)
{
	struct far_layer *y = &f->layer[l];
	struct layer_rows all = y->near;
	uint32_t g;

	all.start = y->last.start;
	all.len = y->last.len;
	all.capacity = NULL;
	for (g = 0; g < f->G; g++) {
		all.start[g] = y->near.start[g] + f->slots - y->stored[g];
		all.len[g] = y->near.len[g] - f->slots + y->stored[g];
	}
	y->last = all;
	return &y->last;
}

/* ---- rows ---- */

static int
has_key(const struct far_keys *k, uint32_t g, uint32_t row)
{
	return k->exact == NULL || k->exact[(size_t)g * k->chunks + row / k->rows] != 0;
}

/* Merges the rows of a KV head that a step reads with those of the step before, both ascending: y->new[g]
 * of them are to be read. y->place has where each is. */
static void
place_rows(struct far_rows *f, struct far_layer *y, uint32_t g, const uint32_t *row, uint32_t n)
{
	const size_t at = (size_t)g * f->slots;
	uint32_t *list = y->place + g * (size_t)y->near.capacity[0];
	uint32_t *new_row = y->row + at, *new_slot = y->slot + at;
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
	for (i = y->new_keys[g] = 0; i < new; i++)
		y->new_keys[g] += has_key(&y->keys, g, new_row[i]);
}

/* Reads new rows of a KV head into their slots. */
static int
read_rows(struct far_rows *f, uint32_t l, uint32_t g)
{
	enum { AT_ONCE = 256 };
	const struct far_layer *y = &f->layer[l];
	const uint32_t *row = y->row + (size_t)g * f->slots, *slot = y->slot + (size_t)g * f->slots;
	uint32_t key_row[AT_ONCE], key_slot[AT_ONCE], i, n;
	int rc;

	if (y->new_keys[g] == y->new[g])
		return far_fetch(f, l, g, row, slot, y->new[g], 1, 1);
	rc = far_fetch(f, l, g, row, slot, y->new[g], 0, 1);
	for (i = 0; rc == KV_OK && y->new_keys[g] > 0 && i < y->new[g]; ) {
		for (n = 0; n < AT_ONCE && i < y->new[g]; i++)
			if (has_key(&y->keys, g, row[i])) {
				key_row[n] = row[i];
				key_slot[n++] = slot[i];
			}
		rc = far_fetch(f, l, g, key_row, key_slot, n, 1, 0);
	}
	return rc;
}

static void
read_layer(struct far_rows *f, uint32_t l)
{
	uint32_t g;

	for (g = 0; g < f->G; g++)
		if (f->layer[l].new[g] > 0 && read_rows(f, l, g) != KV_OK)
			break;                          /* the store knows */
	far_fetch_end(f, l);
}

/* The rows of a KV head from `first` on, n of them, become the first ones behind the slots: from host
 * memory, */
static void
put_head(struct far_rows *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct layer_rows *near = &f->layer[l].near;
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const size_t to = (near->start[g] + f->slots) * row;
	const size_t from = (f->store->first[(size_t)l * f->G + g] + first) * row;

	f->ops->put(f->dev, (char *)near->k + to, (char *)f->store->kept_keys[l] + from, n * row);
	f->ops->put(f->dev, (char *)near->v + to, (char *)f->store->kept_values[l] + from, n * row);
}

/* or from wherever they are. */
static int
bring_head(struct far_rows *f, uint32_t l, uint32_t g, uint32_t first, uint32_t n)
{
	const struct far_layer *y = &f->layer[l];
	uint32_t *row = y->row + (size_t)g * f->slots, *slot = y->slot + (size_t)g * f->slots;
	uint32_t at, part, i;
	int rc = KV_OK;

	for (at = 0; rc == KV_OK && at < n; at += part) {
		part = n - at < f->slots ? n - at : f->slots;
		for (i = 0; i < part; i++) {
			row[i] = first + at + i;
			slot[i] = f->slots + at + i;
		}
		rc = far_fetch(f, l, g, row, slot, part, 1, 1);
		far_fetch_end(f, l);
	}
	return rc;
}

int
far_rows_bring(struct far_rows *f, uint32_t l, const uint32_t *first, const struct layer_rows *rows,
    uint32_t more)
{
	const uint32_t *count = f->store->count + (size_t)l * f->G;
	struct layer_rows *near = &f->layer[l].near;
	uint32_t g, n;
	int rc = open_layer(f, l, first, (uint64_t)most_from(f, first, count) + more);

	for (g = 0; rc == KV_OK && g < f->G; g++) {
		if ((n = count[g] - first[g]) == 0)
			continue;
		if (far_rows_on_device(f, l))
			put_head(f, l, g, first[g], n);
		else
			rc = bring_head(f, l, g, first[g], n);
		f->ops->copy(f->dev, near->pos + near->start[g] + f->slots,
		    rows->pos + rows->start[g] + first[g], n * sizeof *near->pos);
		near->len[g] += n;
	}
	return rc;
}

int
far_rows_get(struct far_rows *f, uint32_t l, uint32_t g, enum kv_kind kind, void *to)
{
	const struct far_layer *y = &f->layer[l];
	const size_t row = f->E * kv_dtype_size(f->dtype);
	const char *from = kind == KV_KEYS ? y->near.k : y->near.v;
	const int rc = row_store_read_first(f->store, l, g, kind, y->stored[g], to);

	if (rc == KV_OK && y->near.len[g] > f->slots)
		f->ops->get(f->dev, (char *)to + y->stored[g] * row,
		    from + (y->near.start[g] + f->slots) * row, (y->near.len[g] - f->slots) * row);
	return rc;
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
far_rows_begin(struct far_rows *f, uint32_t l, const uint32_t *row, size_t stride, const uint32_t *n,
    const struct far_keys *keys)
{
	struct far_layer *y = &f->layer[l];
	struct far_reader *r = f->reader;
	uint32_t g;

	y->keys = keys != NULL ? *keys : (struct far_keys){ .exact = NULL };
	for (g = 0; g < f->G; g++)
		place_rows(f, y, g, row + g * stride, n[g]);
	y->begun = 1;
	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->queue[r->begun % f->L] = l;
	r->number[l] = ++r->begun;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
}

void
far_rows_place(struct far_rows *f, uint32_t l, const struct layer_rows *rows)
{
	const struct far_layer *y = &f->layer[l];
	const struct layer_rows *near = &y->near;
	uint32_t g, i;

	for (g = 0; g < f->G; g++)
		for (i = 0; i < y->new[g]; i++) {
			const size_t at = (size_t)g * f->slots + i;

			f->ops->copy(f->dev, near->pos + near->start[g] + y->slot[at],
			    rows->pos + rows->start[g] + y->row[at], sizeof *near->pos);
		}
}

const struct chosen *
far_rows_end(struct far_rows *f, uint32_t l)
{
	struct far_layer *y = &f->layer[l];
	struct far_reader *r = f->reader;
	uint32_t g;
	int failed;

	if (far_rows_on_device(f, l)) {
		far_device_wait(f, y);
		y->begun = 0;
		return &y->list;
	}
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
	for (g = 0; g < f->G; g++)
		f->ops->put(f->dev, f->chosen.at + g * f->chosen.stride,
		    y->place + g * (size_t)y->near.capacity[0], y->n[g] * sizeof *y->place);
	return &f->chosen;
}

uint64_t
far_rows_fetched(const struct far_rows *f, uint32_t l, uint32_t g)
{
	const struct far_layer *y = &f->layer[l];

	return ((uint64_t)y->new[g] + y->new_keys[g]) * f->E * kv_dtype_size(f->dtype);
}
