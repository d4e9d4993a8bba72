/* row_lists.c - a number for each row of a cache, on the host */
#include <stdlib.h>
#include <string.h>

#include "cache/row_lists.h"

struct row_lists *
row_lists_new(const struct kv_model *m, enum kv_kind kind, const char *label)
{
	struct row_lists *s = calloc(1, sizeof *s);
	uint32_t l;

	if (s == NULL)
		return NULL;
	*s = (struct row_lists){ .kind = kind, .label = label, .layers = m->layers,
	    .heads = m->kv_heads, .at = calloc(m->layers, sizeof *s->at),
	    .whole = malloc(m->layers) };
	for (l = 0; s->at != NULL && s->whole != NULL && l < s->layers; l++) {
		s->whole[l] = 1;
		if ((s->at[l] = calloc(s->heads, sizeof *s->at[l])) == NULL)
			break;
	}
	if (l == s->layers)
		return s;
	row_lists_free(s);
	return NULL;
}

void
row_lists_free(struct row_lists *s)
{
	uint32_t l;

	if (s == NULL)
		return;
	for (l = 0; s->at != NULL && l < s->layers; l++)
		if (s->at[l] != NULL) {
			row_lists_clear(s, l);
			free(s->at[l]);
		}
	free(s->at);
	free(s->whole);
	free(s);
}

int
row_lists_resize(struct row_lists *s, uint32_t l, const struct layer_rows *rows,
    const uint64_t *start, uint64_t total)
{
	float *old = s->at[l][0], *to = malloc((total + 1) * sizeof *to);
	uint32_t g;

	if (to == NULL)
		return MODEL_ENOMEM;
	for (g = 0; g < rows->heads; g++) {
		if (rows->len[g] > 0)
			memcpy(to + start[g], s->at[l][g], rows->len[g] * sizeof *to);
		s->at[l][g] = to + start[g];
	}
	free(old);
	return 0;
}

void
row_lists_clear(struct row_lists *s, uint32_t l)
{
	free(s->at[l][0]);
	memset(s->at[l], 0, s->heads * sizeof *s->at[l]);
	s->whole[l] = 1;
}

int
row_lists_wanted(const struct row_lists *s)
{
	return s != NULL && !s->paused;
}

void
row_lists_put(struct row_lists *s, uint32_t l, const struct layer_rows *rows, uint32_t back,
    const float *numbers, uint32_t N)
{
	uint32_t g, i;

	for (g = 0; g < rows->heads; g++)
		for (i = 0; i < N; i++)
			s->at[l][g][rows->len[g] - back + i] = numbers[(size_t)i * rows->heads + g];
}

void
row_lists_keep(struct row_lists *s, uint32_t l, uint32_t g, const uint32_t *keep, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		s->at[l][g][i] = s->at[l][g][keep[i]];
}

void
row_lists_pack(const struct row_lists *s, uint32_t l, const struct layer_rows *rows,
    float *packed)
{
	uint32_t g;

	for (g = 0; g < rows->heads; packed += rows->len[g++])
		if (rows->len[g] > 0)
			memcpy(packed, s->at[l][g], rows->len[g] * sizeof *packed);
}

int
row_lists_load(struct row_lists *s, uint32_t l, const struct layer_rows *rows,
    struct kv_reader *r)
{
	const struct kv_rows *there = kv_current_rows(r);
	struct kv_values v;
	const float *from;
	uint32_t g;
	const int rc = kv_load_values(r, &v);

	if (rc != KV_OK)
		return rc;
	if (strcmp(v.label, s->label) != 0)
		return KV_OK;
	for (g = 0, from = v.value; g < rows->heads; from += there->count[g++])
		if (rows->len[g] > 0)
			memcpy(s->at[l][g], from, rows->len[g] * sizeof *from);
	s->whole[l] = 1;
	return KV_OK;
}

int
row_lists_save(const struct row_lists *s, uint32_t l, const struct layer_rows *rows,
    struct kv_writer *w)
{
	struct kv_values v = { .label = s->label };
	float *packed;
	uint32_t g;
	int rc;

	for (g = 0; g < rows->heads; g++)
		v.n += rows->len[g];
	if ((packed = malloc(v.n * sizeof *packed + 1)) == NULL)
		return KV_ENOMEM;
	row_lists_pack(s, l, rows, packed);
	v.value = packed;
	rc = kv_write_values(w, s->kind, l, &v);
	free(packed);
	return rc;
}

uint32_t
row_lists_missing(const struct row_lists *s, uint32_t layers)
{
	uint32_t l;

	for (l = 0; s != NULL && l < layers && s->whole[l]; l++)
		;
	return s != NULL ? l : layers;
}
