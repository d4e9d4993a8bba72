/* head_keys.c - a retrieval head's state for one sequence
 *
 * Keys lag behind features by one token: the key of the token at position p is made from its
 * embedding and the features of the token before. So it, and the query, can be made before p runs.
 * A prompt needs no queries: the keys of a tile are made when the next tile begins, or at the
 * end. */
#include <stdlib.h>
#include <string.h>

#include "ops/layer_rows.h"
#include "retrieval/head_keys.h"

enum { HEAD_ROWS = 256 };                       /* keys that are made at once */

/* ---- life ---- */

struct head_keys *
head_keys_new(const struct retrieval_head *h, enum kv_dtype dtype)
{
	struct head_keys *t = calloc(1, sizeof *t);
	const struct ops *o = h->model->ops;
	struct dev *d = h->model->dev;

	if (t == NULL)
		return NULL;
	t->head = h;
	t->id = h->id;
	t->e = o->alloc(d, (size_t)HEAD_ROWS * h->D * sizeof *t->e);
	t->f = o->alloc(d, (size_t)HEAD_ROWS * h->D * sizeof *t->f);
	t->k = o->alloc(d, (size_t)HEAD_ROWS * h->G * h->E * sizeof *t->k);
	t->q = o->alloc(d, (size_t)h->H * h->E * sizeof *t->q);
	t->pos = o->alloc(d, HEAD_ROWS * sizeof *t->pos);
	if (layer_rows_init(&t->keys, h->G, h->E, dtype) == KV_OK && t->e != NULL &&
	    t->f != NULL && t->k != NULL && t->q != NULL && t->pos != NULL)
		return t;
	head_keys_free(t);
	return NULL;
}

void
head_keys_free(struct head_keys *t)
{
	const struct ops *o;
	struct dev *d;

	if (t == NULL)
		return;
	o = t->head->model->ops;
	d = t->head->model->dev;
	layer_rows_free(&t->keys, o, d);
	o->free(d, t->feature);
	o->free(d, t->e);
	o->free(d, t->f);
	o->free(d, t->k);
	o->free(d, t->q);
	o->free(d, t->pos);
	free(t);
}

uint64_t
head_keys_row_bytes(const struct retrieval_head *h, enum kv_dtype dtype)
{
	return h->G * (h->E * (uint64_t)kv_dtype_size(dtype) + sizeof(uint32_t));
}

/* Features are those of the rows that run, and of one before them. */
static uint64_t
feature_rows(uint64_t rows)
{
	return rows + 1;
}

uint64_t
head_keys_feature_bytes(const struct retrieval_head *h, uint64_t rows)
{
	return h->has_features ? feature_rows(rows) * h->D * sizeof(float) : 0;
}

/* ---- room ---- */

static int
resize_features(struct head_keys *t, uint32_t room)
{
	const struct ops *o = t->head->model->ops;
	struct dev *d = t->head->model->dev;
	const size_t row = t->head->D * sizeof(float);
	float *to = o->alloc(d, room * row);

	if (to == NULL)
		return KV_ENOMEM;
	if (t->started > t->first)
		o->copy(d, to, t->feature, (t->started - t->first) * row);
	o->free(d, t->feature);
	t->feature = to;
	t->room = room;
	return KV_OK;
}

int
head_keys_reserve(struct head_keys *t, uint64_t tokens, uint32_t rows)
{
	const uint64_t have = t->keys.capacity[0], more = have + have / 2;
	const uint64_t features = feature_rows(rows);
	const struct model *m = t->head->model;

	if (tokens > UINT32_MAX || features > UINT32_MAX)
		return KV_ENOMEM;
	if (tokens > have && layer_rows_resize(&t->keys, m->ops, m->dev,
	    (uint32_t)(more > tokens && more <= UINT32_MAX ? more : tokens), 1) != KV_OK)
		return KV_ENOMEM;
	if (!t->head->has_features || features <= t->room)
		return KV_OK;
	return resize_features(t, (uint32_t)features);
}

/* ---- features ---- */

/* Drops features that no key needs any more. One row is left, or all are. */
static void
drop_features(struct head_keys *t)
{
	const struct ops *o = t->head->model->ops;
	const uint32_t keys = t->keys.len[0], from = keys > 0 ? keys - 1 : 0;
	const uint32_t gone = from - t->first;
	const size_t row = t->head->D;
	uint32_t stay;

	if (from <= t->first)
		return;
	stay = t->started > from ? t->started - from : 0;
	if (stay > gone)
		return;                         /* the copy would overlap */
	if (stay > 0)
		o->copy(t->head->model->dev, t->feature, t->feature + gone * row,
		    stay * row * sizeof *t->feature);
	t->first = from;
}

void
head_keys_note(struct head_keys *t, uint32_t l, const float *x, uint32_t position, uint32_t N)
{
	const struct retrieval_head *h = t->head;
	unsigned i;

	for (i = 0; h->has_features && i < HEAD_FEATURES && h->feature_layer[i] != l; i++)
		;
	if (!h->has_features || i == HEAD_FEATURES)
		return;
	if (i == 0) {
		drop_features(t);
		t->started = position + N;
	}
	h->model->ops->matmul(h->model->dev, t->feature + (size_t)(position - t->first) * h->D, x,
	    &h->fc[i], NULL, N, i > 0);
	if (i + 1 == HEAD_FEATURES)
		t->done = position + N;
}

/* ---- queries and keys ---- */

/* t->e, t->f <- the inputs of the projections of tokens id[N] from position p on: their normalised
 * embeddings, and the normalised features of the tokens before them */
static void
prepare_tokens(struct head_keys *t, const uint32_t *id, uint32_t p, uint32_t N)
{
	const struct retrieval_head *h = t->head;
	const struct ops *o = h->model->ops;
	struct dev *d = h->model->dev;

	o->embed(d, t->e, &h->embed, id, N);
	o->rmsnorm(d, t->e, t->e, h->norm.w, N, h->D, h->norm.eps);
	t->prepared = N;
	if (h->has_features && p > 0)
		o->rmsnorm(d, t->f, t->feature + (size_t)(p - 1 - t->first) * h->D,
		    h->feature_norm.w, N, h->D, h->feature_norm.eps);
}

/* y[N][w->out] <- the projection of rows at .. at+N-1 of t->e and t->f, at positions from p on,
 * with rotary embedding; heads: of y */
static void
project_tokens(struct head_keys *t, float *y, const struct mat *w, const struct mat *w_feature,
    uint32_t at, uint32_t p, uint32_t N, uint32_t heads)
{
	const struct retrieval_head *h = t->head;
	const struct ops *o = h->model->ops;
	struct dev *d = h->model->dev;

	o->matmul(d, y, t->e + (size_t)at * h->D, w, NULL, N, 0);
	if (h->has_features && p > 0)
		o->matmul(d, y, t->f + (size_t)at * h->D, w_feature, NULL, N, 1);
	o->rope(d, y, t->pos + at, &h->rope, N, heads, h->E);
}

static void
append_keys(struct head_keys *t, const uint32_t *id, uint32_t p, uint32_t N)
{
	const struct retrieval_head *h = t->head;
	const struct ops *o = h->model->ops;
	uint32_t pos[HEAD_ROWS], i;

	for (i = 0; i < N; i++)
		pos[i] = p + i;
	o->put(h->model->dev, t->pos, pos, N * sizeof *pos);
	prepare_tokens(t, id + p, p, N);
	project_tokens(t, t->k, &h->k, &h->k_feature, 0, p, N, h->G);
	o->append(h->model->dev, &t->keys, t->k, NULL, t->pos, N);
}

uint32_t
head_keys_extend(struct head_keys *t, const uint32_t *id, size_t n)
{
	const int features = t->head->has_features;
	const uint64_t end = features && t->done + (uint64_t)1 < n ? t->done + (uint64_t)1 : n;
	uint32_t p, N;

	for (p = t->keys.len[0]; p < end; p += N) {
		N = end - p < HEAD_ROWS ? (uint32_t)(end - p) : HEAD_ROWS;
		if (p == 0 && features)
			N = 1;                  /* no token is before it */
		append_keys(t, id, p, N);
	}
	return p;
}

const float *
head_keys_query(struct head_keys *t)
{
	const struct retrieval_head *h = t->head;

	project_tokens(t, t->q, &h->q, &h->q_feature, t->prepared - 1, t->keys.len[0] - 1, 1, h->H);
	return t->q;
}

/* ---- going back ---- */

int
head_keys_feature(const struct head_keys *t, float **feature)
{
	const struct retrieval_head *h = t->head;

	*feature = NULL;
	if (!h->has_features || t->done <= t->first)
		return KV_OK;
	if ((*feature = malloc(h->D * sizeof **feature)) == NULL)
		return KV_ENOMEM;
	h->model->ops->get(h->model->dev, *feature,
	    t->feature + (size_t)(t->done - 1 - t->first) * h->D, h->D * sizeof **feature);
	return KV_OK;
}

void
head_keys_cut(struct head_keys *t, size_t n, const float *feature)
{
	const struct retrieval_head *h = t->head;
	uint32_t g;

	for (g = 0; g < t->keys.heads; g++)
		if (t->keys.len[g] > n)
			t->keys.len[g] = (uint32_t)n;
	t->started = t->done = (uint32_t)n;
	t->first = t->done - 1;
	if (feature != NULL)
		h->model->ops->put(h->model->dev, t->feature, feature, h->D * sizeof *feature);
}

/* ---- snapshots ---- */

int
head_keys_load(struct head_keys *t, const struct kv_head_keys *from)
{
	const struct retrieval_head *h = t->head;
	const struct ops *o = h->model->ops;
	struct layer_rows *r = &t->keys;
	const size_t row = r->width * kv_dtype_size(r->dtype);
	uint32_t *pos, g, i;

	t->id = strcmp(from->id, h->sampled_id) == 0 ? h->sampled_id : h->id;
	if (strcmp(from->id, t->id) != 0 || from->heads != h->G || from->width != h->E ||
	    from->n_feature != (h->has_features ? h->D : 0))
		return KV_EINVAL;
	if (head_keys_reserve(t, from->n, 1) != KV_OK ||
	    (pos = malloc(from->n * sizeof *pos)) == NULL)
		return KV_ENOMEM;
	for (i = 0; i < from->n; i++)
		pos[i] = i;
	for (g = 0; g < r->heads; g++) {
		o->put(h->model->dev, (char *)r->k + r->start[g] * row,
		    (const char *)from->key + (size_t)g * from->n * row, from->n * row);
		o->put(h->model->dev, r->pos + r->start[g], pos, from->n * sizeof *pos);
		r->len[g] = from->n;
	}
	free(pos);
	if (h->has_features)
		o->put(h->model->dev, t->feature, from->feature, h->D * sizeof *from->feature);
	t->first = from->n - 1;
	t->started = t->done = from->n;
	return KV_OK;
}

int
head_keys_save(const struct head_keys *t, struct kv_writer *w)
{
	const struct retrieval_head *h = t->head;
	const struct ops *o = h->model->ops;
	const struct layer_rows *r = &t->keys;
	const uint32_t n = r->len[0], D = h->has_features ? h->D : 0;
	const size_t row = r->width * kv_dtype_size(r->dtype);
	struct kv_head_keys to = { .heads = h->G, .width = h->E, .n = n, .n_feature = D };
	char *key = malloc((size_t)h->G * n * row + 1);
	float *feature = malloc(D * sizeof *feature + 1);
	int rc = KV_ENOMEM;
	uint32_t g;

	if (key != NULL && feature != NULL) {
		strcpy(to.id, t->id);
		to.key = key;
		to.feature = feature;
		for (g = 0; g < r->heads; g++)
			o->get(h->model->dev, key + (size_t)g * n * row,
			    (const char *)r->k + r->start[g] * row, n * row);
		if (D > 0)
			o->get(h->model->dev, feature, t->feature + (size_t)(n - 1 - t->first) * D,
			    D * sizeof *feature);
		rc = kv_write_head_keys(w, &to);
	}
	free(key);
	free(feature);
	return rc;
}
