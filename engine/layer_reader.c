/* layer_reader.c - a snapshot that is read for computing with it, one layer in memory at a time */
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "engine/layer_reader.h"
#include "cli/tool.h"

void
layerwise_open(struct layerwise *s, const char *path)
{
	uint32_t G;

	memset(s, 0, sizeof *s);
	s->r = input_open(path);
	s->head = kv_reader_head(s->r);
	G = s->head->model.kv_heads;
	s->there = (struct layer_rows){ .heads = G, .width = s->head->model.head_width,
	    .dtype = s->head->dtype, .start = must_alloc(G, sizeof *s->there.start),
	    .len = must_alloc(G, sizeof *s->there.len) };
}

void
layerwise_want_index(struct layerwise *s, const struct device *d, enum index_kind kind)
{
	const struct kv_model *m = &s->head->model;

	s->index_device = d;
	s->kind = kind;
	if (index_init(&s->index, d->ops, d->dev, m->kv_heads, m->head_width, s->head->dtype) != 0)
		die(EXIT_RUN, "no memory for an index");
}

static void
take_tokens(struct layerwise *s, uint64_t size)
{
	const uint8_t *content = input_load(s->r);
	uint64_t i;

	s->n_tokens = size / sizeof *s->tokens;
	s->tokens = must_alloc(s->n_tokens, sizeof *s->tokens);
	for (i = 0; i < s->n_tokens; i++)
		s->tokens[i] = get32(content + 4 * i);
}

/* The reader forgets them when it goes on to the values. */
static void
take_keys(struct layerwise *s, size_t size)
{
	const void *content = input_load(s->r);

	if (size > s->key_room || s->key_memory == NULL) {
		free(s->key_memory);
		s->key_memory = must_alloc(size, 1);
		s->key_room = size;
	}
	if (size > 0)
		memcpy(s->key_memory, content, size);
	s->keys = s->key_memory;
}

static void
take_rows(struct layerwise *s)
{
	uint64_t total = 0;
	uint32_t g;

	s->rows = input_rows(s->r);
	for (g = 0; g < s->rows->heads; total += s->rows->count[g++]) {
		s->there.start[g] = total;
		s->there.len[g] = s->rows->count[g];
	}
}

static void
take_index(struct layerwise *s)
{
	if (index_load(&s->index, s->kind, input_load(s->r), &s->there) != 0)
		die(EXIT_RUN, "%s: layer %u: no memory for its %s", kv_reader_name(s->r), s->layer,
		    index_words(s->kind));
}

static void
take_section(struct layerwise *s, const struct kv_section *sec)
{
	const void *content;

	if (strcmp(sec->type, "TOKS") == 0)
		take_tokens(s, sec->raw_size);
	else if (strcmp(sec->type, "POSN") == 0)
		take_rows(s);
	else if (s->index_device != NULL && strcmp(sec->type, index_type(s->kind)) == 0)
		take_index(s);
	else if (strcmp(sec->type, "oBSq") == 0) {
		content = input_load(s->r);
		queries_take(&s->queries, content, s->head, queries_stored(content));
	} else if (strcmp(sec->type, "KEYS") == 0)
		take_keys(s, sec->raw_size);
	else if (strcmp(sec->type, "VALS") == 0)
		s->values = input_load(s->r);
}

void
layerwise_next(struct layerwise *s, uint32_t l)
{
	struct kv_section sec = { .layer = KV_NO_LAYER };

	queries_forget(&s->queries);
	if (s->index_device != NULL)
		index_drop(&s->index, s->kind);
	s->layer = l;
	while (strcmp(sec.type, "VALS") != 0 || sec.layer != l) {
		if (!input_next(s->r, &sec))
			die(EXIT_DAMAGED, "%s: layer %u is missing", kv_reader_name(s->r), l);
		take_section(s, &sec);
	}
}

void
layerwise_upload(struct layerwise *s, const struct device *d)
{
	size_t size = kv_rows_total(s->rows) * s->there.width * kv_dtype_size(s->there.dtype);

	s->there.pos = device_positions(d, &s->area_positions, s->rows);
	if (device_shares_memory(d)) {          /* ops only read them, whatever the type says */
		s->there.k = (void *)(uintptr_t)s->keys;
		s->there.v = (void *)(uintptr_t)s->values;
		return;
	}
	s->there.k = device_upload(d, &s->area_keys, s->keys, size);
	s->there.v = device_upload(d, &s->area_values, s->values, size);
}

void
layerwise_finish(struct layerwise *s)
{
	struct kv_section sec;

	while (input_next(s->r, &sec))
		continue;
}

void
layerwise_close(struct layerwise *s, const struct device *d)
{
	if (d != NULL) {
		device_release(d, &s->area_keys);
		device_release(d, &s->area_values);
		device_release(d, &s->area_positions);
	}
	if (s->index_device != NULL)
		index_free(&s->index);
	queries_forget(&s->queries);
	free(s->tokens);
	free(s->key_memory);
	free(s->there.start);
	free(s->there.len);
	kv_close(s->r);
}
