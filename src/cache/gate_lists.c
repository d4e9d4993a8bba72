/* gate_lists.c - the scores of a gate, a number for each row of a cache */
#include <stdlib.h>
#include <string.h>

#include "cache/gate_lists.h"

struct gate_lists *
gate_lists_new(const struct gate *gate)
{
	const uint32_t L = gate->model->id.layers, G = gate->model->id.kv_heads;
	struct gate_lists *s = calloc(1, sizeof *s);
	uint32_t l;

	if (s == NULL)
		return NULL;
	s->gate = gate;
	s->at = calloc(L, sizeof *s->at);
	s->whole = malloc(L);
	for (l = 0; s->at != NULL && s->whole != NULL && l < L; l++) {
		s->whole[l] = 1;
		if ((s->at[l] = calloc(G, sizeof *s->at[l])) == NULL)
			break;
	}
	if (l == L)
		return s;
	gate_lists_free(s);
	return NULL;
}

void
gate_lists_free(struct gate_lists *s)
{
	uint32_t l;

	if (s == NULL)
		return;
	for (l = 0; s->at != NULL && l < s->gate->model->id.layers; l++)
		if (s->at[l] != NULL) {
			gate_lists_clear(s, l);
			free(s->at[l]);
		}
	free(s->at);
	free(s->whole);
	free(s);
}

int
gate_lists_resize(struct gate_lists *s, uint32_t l, const struct layer_rows *rows,
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
gate_lists_clear(struct gate_lists *s, uint32_t l)
{
	free(s->at[l][0]);
	memset(s->at[l], 0, s->gate->model->id.kv_heads * sizeof *s->at[l]);
	s->whole[l] = 1;
}

void
gate_lists_pause(struct gate_lists *s, int paused)
{
	if (s != NULL)
		s->paused = paused;
}

void
gate_lists_expect(struct gate_lists *s, uint32_t l, const struct layer_rows *rows,
    const float *scores, uint32_t N)
{
	uint32_t g, i;

	for (g = 0; g < rows->heads; g++)
		for (i = 0; i < N; i++)
			s->at[l][g][rows->len[g] + i] = scores[(size_t)i * rows->heads + g];
}

void
gate_lists_keep(struct gate_lists *s, uint32_t l, uint32_t g, const uint32_t *keep, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		s->at[l][g][i] = s->at[l][g][keep[i]];
}

void
gate_lists_pack(const struct gate_lists *s, uint32_t l, const struct layer_rows *rows,
    float *packed)
{
	uint32_t g;

	for (g = 0; g < rows->heads; packed += rows->len[g++])
		if (rows->len[g] > 0)
			memcpy(packed, s->at[l][g], rows->len[g] * sizeof *packed);
}

int
gate_lists_load(struct gate_lists *s, uint32_t l, const struct layer_rows *rows,
    struct kv_reader *r)
{
	const struct kv_rows *there = kv_current_rows(r);
	struct kv_values v;
	const float *from;
	uint32_t g;
	const int rc = kv_load_values(r, &v);

	if (rc != KV_OK)
		return rc;
	if (strcmp(v.label, s->gate->label) != 0)
		return KV_OK;
	for (g = 0, from = v.value; g < rows->heads; from += there->count[g++])
		if (rows->len[g] > 0)
			memcpy(s->at[l][g], from, rows->len[g] * sizeof *from);
	s->whole[l] = 1;
	return KV_OK;
}

int
gate_lists_save(const struct gate_lists *s, uint32_t l, const struct layer_rows *rows,
    struct kv_writer *w)
{
	struct kv_values v = { .label = s->gate->label };
	float *packed;
	uint32_t g;
	int rc;

	for (g = 0; g < rows->heads; g++)
		v.n += rows->len[g];
	if ((packed = malloc(v.n * sizeof *packed + 1)) == NULL)
		return KV_ENOMEM;
	gate_lists_pack(s, l, rows, packed);
	v.value = packed;
	rc = kv_write_values(w, KV_GATE, l, &v);
	free(packed);
	return rc;
}
