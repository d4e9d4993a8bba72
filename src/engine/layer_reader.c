/* layer_reader.c - reads a snapshot for computing with it, one layer in memory at a time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/layer_reader.h"
#include "libkvfile/codec.h"

int
layer_reader_init(struct layer_reader *s, struct kv_reader *r, struct engine_error *e)
{
	const struct kv_head *head = kv_reader_head(r);
	const uint32_t G = head->model.kv_heads;

	*s = (struct layer_reader){ .r = r, .head = head, .on_device = { .heads = G,
	    .width = head->model.head_width, .dtype = head->dtype,
	    .v_in_k = head->model.latent_rank != 0 } };
	s->on_device.start = engine_alloc(G, sizeof *s->on_device.start, e);
	s->on_device.len = engine_alloc(G, sizeof *s->on_device.len, e);
	return s->on_device.start != NULL && s->on_device.len != NULL ? ENGINE_OK : e->code;
}

int
layer_reader_want_index(struct layer_reader *s, const struct device *d, enum kv_kind kind,
    struct engine_error *e)
{
	const struct kv_model *m = &s->head->model;

	if (index_init(&s->index, d->ops, d->dev, m->kv_heads, m->head_width, s->head->dtype) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for an index");
	s->index_device = d;
	s->kind = kind;
	return ENGINE_OK;
}

void
layer_reader_want_scores(struct layer_reader *s)
{
	s->scores_only = 1;
}

/* ---- sections of a layer ---- */

/* Gets the content of the current section, valid until the reader goes on; NULL when it is
 * empty. */
static int
load(struct layer_reader *s, const void **content, struct engine_error *e)
{
	const int rc = kv_load(s->r, content);

	return engine_read(e, s->r, rc);
}

/* Returns memory, which has *capacity bytes; where that is less than size, frees it and returns
 * other memory. NULL after a failure. */
static void *
room(void *memory, size_t *capacity, size_t size, struct engine_error *e)
{
	if (size <= *capacity && memory != NULL)
		return memory;
	free(memory);
	*capacity = 0;
	if ((memory = engine_alloc(size, 1, e)) != NULL)
		*capacity = size;
	return memory;
}

/* Are rows of a section numbers in memory? Where full ones are behind quantised ones. */
static int
is_widened(const struct kv_head *head, enum kv_kind kind, uint32_t l)
{
	return head->residual != 0 && kv_row_type_quantised(kv_head_row_type(head, kind, l));
}

/* The type that rows of a section have in memory */
static enum kv_row_type
type_in_memory(const struct kv_head *head, enum kv_kind kind, uint32_t l)
{
	const enum kv_row_type type = kv_head_row_type(head, kind, l);

	return is_widened(head, kind, l) ? KV_ROW_F32 : type;
}

/* to[rows][E] <- the content of a section */
static void
widen(const struct layer_reader *s, enum kv_kind kind, float *to, const char *content)
{
	const struct kv_rows *rows = s->rows;
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		kv_head_rows_to_f32(to, s->head, kind, s->layer, content, rows->count[g], 0,
		    rows->count[g]);
		content += kv_head_bytes(s->head, kind, s->layer, rows->count[g]);
		to += (size_t)rows->count[g] * s->head->model.head_width;
	}
}

static size_t
widened_size(const struct layer_reader *s)
{
	return kv_rows_total(s->rows) * s->head->model.head_width * sizeof(float);
}

/* Copies the keys, because the reader drops them when it goes on to the values. */
static int
take_keys(struct layer_reader *s, size_t size, struct engine_error *e)
{
	const int widened = is_widened(s->head, KV_KEYS, s->layer);
	const void *content;

	if (load(s, &content, e) != ENGINE_OK)
		return e->code;
	s->key_memory = room(s->key_memory, &s->key_capacity, widened ? widened_size(s) : size, e);
	if (s->key_memory == NULL)
		return e->code;
	if (widened)
		widen(s, KV_KEYS, (float *)(void *)s->key_memory, content);
	else if (size > 0)
		memcpy(s->key_memory, content, size);
	s->keys = s->key_memory;
	return ENGINE_OK;
}

static int
take_values(struct layer_reader *s, struct engine_error *e)
{
	const void *content;

	if (load(s, &content, e) != ENGINE_OK)
		return e->code;
	s->values = s->on_device.v_in_k ? s->keys : content;
	if (s->on_device.v_in_k)
		return ENGINE_OK;
	if (!is_widened(s->head, KV_VALS, s->layer))
		return ENGINE_OK;
	s->value_memory = room(s->value_memory, &s->value_capacity, widened_size(s), e);
	if (s->value_memory == NULL)
		return e->code;
	widen(s, KV_VALS, (float *)(void *)s->value_memory, content);
	s->values = s->value_memory;
	return ENGINE_OK;
}

static int
take_rows(struct layer_reader *s, struct engine_error *e)
{
	const int rc = kv_load_rows(s->r, &s->rows);
	uint64_t total = 0;
	uint32_t g;

	if (rc < 0)
		return engine_fail_reader(e, s->r, rc);
	for (g = 0; g < s->rows->heads; total += s->rows->count[g++]) {
		s->on_device.start[g] = total;
		s->on_device.len[g] = s->rows->count[g];
	}
	s->row_bytes += total * (rows_k_bytes(&s->on_device) +
	    (s->on_device.v_in_k ? 0 : rows_v_bytes(&s->on_device)));
	return ENGINE_OK;
}

static int
take_index(struct layer_reader *s, struct engine_error *e)
{
	struct kv_index index;
	const int rc = kv_load_index(s->r, &index);

	if (rc < 0)
		return engine_fail_reader(e, s->r, rc);
	if (index_load(&s->index, &index, &s->on_device) != 0)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u: no memory for its %s",
		    kv_reader_name(s->r), s->layer, index_words(s->kind));
	return ENGINE_OK;
}

static int
take_sinks(struct layer_reader *s, struct engine_error *e)
{
	const float *sinks;
	const int rc = kv_load_sinks(s->r, &sinks);

	if (rc != KV_OK)
		return engine_read(e, s->r, rc);
	return queries_take_sinks(&s->queries, sinks, s->head, e);
}

static int
take_queries(struct layer_reader *s, struct engine_error *e)
{
	struct kv_queries stored;
	const int rc = kv_load_queries(s->r, &stored);

	if (rc < 0)
		return engine_fail_reader(e, s->r, rc);
	return queries_take(&s->queries, &stored, s->head, stored.n, e);
}

/* Copies the scores, because the reader drops them when it goes on to the keys. */
static int
take_scores(struct layer_reader *s, struct engine_error *e)
{
	struct kv_values scores;
	const int rc = kv_load_values(s->r, &scores);

	if (rc < 0)
		return engine_fail_reader(e, s->r, rc);
	s->score_memory = room(s->score_memory, &s->score_capacity,
	    scores.n * sizeof *s->score_memory, e);
	if (s->score_memory == NULL)
		return e->code;
	if (scores.n > 0)
		memcpy(s->score_memory, scores.value, scores.n * sizeof *s->score_memory);
	if (s->score_label[0] == '\0')
		snprintf(s->score_label, sizeof s->score_label, "%s", scores.label);
	s->score = s->score_memory;
	return ENGINE_OK;
}

/* Skips keys or values, which are not wanted. */
static int
skip(struct layer_reader *s, struct engine_error *e)
{
	const int rc = kv_skip(s->r);

	return engine_read(e, s->r, rc);
}

static int
take_section(struct layer_reader *s, const struct kv_section *sec, struct engine_error *e)
{
	switch (sec->kind) {
	case KV_TOKS:
		s->n_tokens = kv_token_count(sec);
		return ENGINE_OK;
	case KV_POSN:
		return take_rows(s, e);
	case KV_SCOR:
		return s->scores_only ? take_scores(s, e) : ENGINE_OK;
	case KV_SINK:
		return s->scores_only ? ENGINE_OK : take_sinks(s, e);
	case KV_OBSQ:
		return s->scores_only ? ENGINE_OK : take_queries(s, e);
	case KV_KEYS:
		return s->scores_only ? skip(s, e) : take_keys(s, sec->raw_size, e);
	case KV_VALS:
		return s->scores_only ? skip(s, e) : take_values(s, e);
	default:
		return s->index_device != NULL && sec->kind == s->kind ? take_index(s, e) :
		    ENGINE_OK;
	}
}

/* ---- layers ---- */

int
layer_reader_next(struct layer_reader *s, uint32_t l, struct engine_error *e)
{
	struct kv_section sec = { .kind = KV_UNKNOWN, .layer = KV_NO_LAYER };
	int rc;

	queries_forget(&s->queries);
	if (s->index_device != NULL)
		index_drop(&s->index, s->kind);
	s->layer = l;
	s->score = NULL;
	s->on_device.k_type = type_in_memory(s->head, KV_KEYS, l);
	s->on_device.v_type = type_in_memory(s->head, KV_VALS, l);
	while (sec.kind != KV_VALS || sec.layer != l) {
		if ((rc = kv_next(s->r, &sec)) < 0)
			return engine_fail_reader(e, s->r, rc);
		if (rc == 0)
			return engine_fail(e, ENGINE_EDAMAGED, "%s: layer %u is missing",
			    kv_reader_name(s->r), l);
		if (take_section(s, &sec, e) != ENGINE_OK)
			return e->code;
	}
	return ENGINE_OK;
}

int
layer_reader_upload(struct layer_reader *s, const struct device *d, struct engine_error *e)
{
	struct layer_rows *to = &s->on_device;
	const uint64_t total = kv_rows_total(s->rows);

	if ((to->pos = area_positions(d, &s->area_positions, s->rows, e)) == NULL)
		return e->code;
	if (area_share(d, &s->area_keys, &to->k, s->keys, total * rows_k_bytes(to), e) !=
	    ENGINE_OK)
		return e->code;
	to->v = to->k;
	if (to->v_in_k)
		return ENGINE_OK;
	return area_share(d, &s->area_values, &to->v, s->values, total * rows_v_bytes(to), e);
}

int
layer_reader_finish(struct layer_reader *s, struct engine_error *e)
{
	struct kv_section sec;
	int rc;

	while ((rc = kv_next(s->r, &sec)) == 1)
		continue;
	return engine_read(e, s->r, rc);
}

void
layer_reader_free(struct layer_reader *s, const struct device *d)
{
	if (d != NULL) {
		area_release(d, &s->area_keys);
		area_release(d, &s->area_values);
		area_release(d, &s->area_positions);
	}
	if (s->index_device != NULL)
		index_free(&s->index);
	queries_forget(&s->queries);
	free(s->key_memory);
	free(s->value_memory);
	free(s->score_memory);
	free(s->on_device.start);
	free(s->on_device.len);
}

int
layer_reader_place(const struct layer_reader *s, struct engine_error *e)
{
	const struct engine_error cause = *e;

	if (e->code != ENGINE_ENOROOM)
		return e->code;
	return engine_fail(e, cause.code, "%s: layer %u: %.900s", kv_reader_name(s->r),
	    s->layer, cause.text);
}
