/* safetensors_import.c - converts a safetensors file to a snapshot */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/safetensors_convert.h"
#include "libkvfile/codec.h"

#define BAD(x, e, fmt, ...) \
	engine_fail(e, ENGINE_EDAMAGED, "%s: " fmt, (x)->name, ##__VA_ARGS__)

static const struct tensor *
find(const struct import *x, uint32_t l, const char *what)
{
	char name[40];

	snprintf(name, sizeof name, "layers.%u.%s", l, what);
	return safetensors_find(x->from, name);
}

static int
is_i64(const struct tensor *t)
{
	return t->type != NULL && strcmp(t->type, "I64") == 0;
}

/* Returns number i of an I64 tensor, which need not be aligned. */
static int64_t
number(const struct tensor *t, uint64_t i)
{
	const uint8_t *p = (const uint8_t *)t->data + 8 * i;
	uint64_t v = 0;
	int k;

	for (k = 7; k >= 0; k--)
		v = v << 8 | p[k];
	return (int64_t)v;
}

/* ---- shapes ---- */

/* Checks tokens: [T] or [1][T]. */
static int
check_tokens(const struct import *x, struct engine_error *e)
{
	const struct tensor *t = safetensors_find(x->from, "tokens");
	const int64_t V = x->head.model.vocabulary;
	uint64_t i, n;

	if (t == NULL || !is_i64(t) || t->ndim < 1 || t->ndim > 2 ||
	    (t->ndim == 2 && t->dim[0] != 1) || (n = t->dim[t->ndim - 1]) == 0)
		return BAD(x, e,
		    "want tokens, I64 [1][T], with all ids that the sequence has seen");
	for (i = 0; i < n; i++)
		if (number(t, i) < 0 || number(t, i) >= V)
			return BAD(x, e, "tokens: number %" PRIu64 " is %" PRId64 ": want ids "
			    "below %" PRId64, i, number(t, i), V);
	return ENGINE_OK;
}

/* The first tensor of elements: all others have its type. NULL: all rows are quantised. */
static const struct tensor *
first_elements(const struct import *x)
{
	uint32_t l;

	for (l = 0; l < x->head.model.layers; l++) {
		if (!kv_row_type_quantised(kv_head_row_type(&x->head, KV_KEYS, l)))
			return find(x, l, "keys");
		if (!kv_row_type_quantised(kv_head_row_type(&x->head, KV_VALS, l)))
			return find(x, l, "values");
	}
	return NULL;
}

/* Checks keys or values. */
static int
check_rows(const struct import *x, uint32_t l, enum kv_kind kind, uint64_t S,
    struct engine_error *e)
{
	const enum kv_row_type type = kv_head_row_type(&x->head, kind, l);
	const int quantised = kv_row_type_quantised(type);
	const uint64_t G = x->head.model.kv_heads;
	const uint64_t E = quantised ? kv_head_row_bytes(&x->head, kind, l) :
	    x->head.model.head_width;
	const char *what = kind == KV_KEYS ? "keys" : "values";
	const struct tensor *t = find(x, l, what);

	if (kind == KV_VALS && x->head.model.latent_rank != 0)
		return t == NULL ? ENGINE_OK : BAD(x, e, "there is layers.%u.values, and values "
		    "are channels of the keys (latent attention)", l);
	if (t == NULL)
		return BAD(x, e, "there is no layers.%u.%s, and the model has %u layers", l, what,
		    x->head.model.layers);
	if (quantised && (t->type == NULL || strcmp(t->type, "U8") != 0))
		return BAD(x, e, "layers.%u.%s is %s, and kv-snapshot has %s for it: want U8, or "
		    "no row_types", l, what, t->type, kv_row_type_name(type));
	if (!quantised && (t->dtype == 0 || t->dtype != x->head.dtype))
		return BAD(x, e, "layers.%u.%s is %s, and %s %s: want one of BF16, F16, "
		    "F32 for all", l, what, t->type, first_elements(x)->name,
		    first_elements(x)->type);
	if (t->ndim != 4 || t->dim[0] != 1 || t->dim[1] != G || t->dim[2] != S || t->dim[3] != E)
		return BAD(x, e, "layers.%u.%s: want [1][%" PRIu64 "][%" PRIu64 "][%" PRIu64 "]", l,
		    what, G, S, E);
	return ENGINE_OK;
}

static int
check_layer(const struct import *x, uint32_t l, struct engine_error *e)
{
	const struct tensor *keys = find(x, l, "keys"), *pos = find(x, l, "positions");
	const uint64_t S = keys != NULL && keys->ndim == 4 ? keys->dim[2] : 0;

	if (S >= UINT32_MAX)
		return BAD(x, e, "layers.%u.keys: too many rows", l);
	if (check_rows(x, l, KV_KEYS, S, e) != ENGINE_OK ||
	    check_rows(x, l, KV_VALS, S, e) != ENGINE_OK)
		return e->code;
	if (pos != NULL && (!is_i64(pos) || pos->ndim != 2 || pos->dim[1] != S ||
	    (pos->dim[0] != 1 && pos->dim[0] != x->head.model.kv_heads)))
		return BAD(x, e, "layers.%u.positions: want I64 [1][%" PRIu64 "], or a list for "
		    "each of %u KV heads", l, S, x->head.model.kv_heads);
	return ENGINE_OK;
}

static int
check_logits(const struct import *x, struct engine_error *e)
{
	const struct tensor *t = safetensors_find(x->from, "logits");

	if (t != NULL &&
	    (t->dtype != KV_F32 || t->bytes / sizeof(float) != x->head.model.vocabulary))
		return BAD(x, e, "logits: want F32 [1][%u], those of the last token",
		    x->head.model.vocabulary);
	return ENGINE_OK;
}

/* Refuses unknown tensors, which would be lost. */
static int
check_names(const struct import *x, struct engine_error *e)
{
	size_t i, n = safetensors_count(x->from);
	const struct tensor *t;
	char what[16], again[60];
	unsigned l;

	for (i = 0; i < n; i++) {
		t = safetensors_at(x->from, i);
		again[0] = '\0';
		if (sscanf(t->name, "layers.%u.%15[a-z]", &l, what) == 2 &&
		    l < x->head.model.layers && (strcmp(what, "keys") == 0 ||
		    strcmp(what, "values") == 0 || strcmp(what, "positions") == 0))
			snprintf(again, sizeof again, "layers.%u.%s", l, what);
		if (strcmp(t->name, again) != 0 && strcmp(t->name, "tokens") != 0 &&
		    strcmp(t->name, "logits") != 0)
			return BAD(x, e, "%s is no tensor of a cache of %u layers", t->name,
			    x->head.model.layers);
	}
	return ENGINE_OK;
}

/* ---- the head ---- */

/* Returns 1 + the greatest position in all layers */
static uint32_t
next_position(const struct import *x)
{
	const struct tensor *pos, *keys;
	int64_t most = -1, p;
	uint64_t i;
	uint32_t l;

	for (l = 0; l < x->head.model.layers; l++) {
		if ((pos = find(x, l, "positions")) == NULL) {
			keys = find(x, l, "keys");
			most = (int64_t)keys->dim[2] - 1 > most ? (int64_t)keys->dim[2] - 1 : most;
			continue;
		}
		for (i = 0; i < pos->dim[0] * pos->dim[1]; i++)
			if ((p = number(pos, i)) > most)
				most = p;
	}
	return most < (int64_t)UINT32_MAX - 1 ? (uint32_t)(most + 1) : UINT32_MAX;
}

int
import_head(struct import *x, const struct kv_head *like, struct engine_error *e)
{
	const char *text = safetensors_metadata(x->from, "kv-snapshot");
	const struct tensor *elements;
	char why[400];
	uint32_t l;
	int rc;

	if (text == NULL && like == NULL)
		return BAD(x, e, "its metadata has no kv-snapshot, so its model is unknown: name a "
		    "snapshot of the same model with --like");
	if (text != NULL && (rc = kv_head_from_json(&x->head, text, strlen(text), why,
	    sizeof why)) != KV_OK)
		return engine_fail(e, rc == KV_EVERSION ? ENGINE_EUNSUPPORTED : ENGINE_EDAMAGED,
		    "%s: metadata kv-snapshot: %s", x->name, why);
	if (text == NULL) {
		x->head = *like;
		memset(x->head.key_type, 0, sizeof x->head.key_type);
		memset(x->head.value_type, 0, sizeof x->head.value_type);
	} else if (like != NULL && kv_model_diff(&x->head.model, &like->model, "file", "--like",
	    why, sizeof why) != 0) {
		return engine_fail(e, ENGINE_EMODEL, "%s: it is of another model than --like: %s",
		    x->name, why);
	}
	if (find(x, 0, "keys") == NULL)
		return BAD(x, e, "there is no layers.0.keys: it is no cache");
	if ((elements = first_elements(x)) != NULL)
		x->head.dtype = elements->dtype;
	for (l = 0; l < x->head.model.layers; l++)
		if (check_layer(x, l, e) != ENGINE_OK)
			return e->code;
	if (check_tokens(x, e) != ENGINE_OK || check_logits(x, e) != ENGINE_OK)
		return e->code;
	if (text == NULL && (x->head.next_position = next_position(x)) == 0)
		return BAD(x, e, "it has no row");
	return check_names(x, e);
}

/* ---- writing ---- */

/* The rows of a layer, and the tensor's data for one list of positions */
struct layer {
	uint32_t *pos;                  /* [G][S] */
	uint32_t *count;                /* [G] */
	const uint32_t **list;          /* [G] */
	uint64_t S;
};

/* Reads list g of the positions, and counts those before the first -1. */
static int
take_list(const struct import *x, struct layer *a, const struct tensor *t, uint32_t l, uint32_t g,
    struct engine_error *e)
{
	const int64_t next = x->head.next_position;
	uint32_t *pos = a->pos + g * a->S, n = 0;
	const uint64_t base = t != NULL && t->dim[0] > 1 ? g * a->S : 0;
	uint64_t i;
	int64_t p;

	for (i = 0; i < a->S; i++) {
		if ((p = t != NULL ? number(t, base + i) : (int64_t)i) == -1)
			continue;
		if (n < i)
			return BAD(x, e,
			    "layers.%u.positions: KV head %u: there are rows after a -1", l, g);
		if (p < 0 || p >= next || (i > 0 && p <= pos[i - 1]))
			return BAD(x, e, "layers.%u.positions: KV head %u: row %" PRIu64 " is at "
			    "position %" PRId64 ": want them to ascend, and to be below "
			    "next_position, %" PRId64, l, g, i, p, next);
		pos[n++] = (uint32_t)p;
	}
	a->count[g] = n;
	a->list[g] = pos;
	return ENGINE_OK;
}

static int
write_rows(const struct import *x, struct kv_writer *w, struct layer *a, uint32_t l,
    struct engine_error *e)
{
	const uint32_t G = x->head.model.kv_heads;
	const struct tensor *t = find(x, l, "positions");
	uint32_t g;

	for (g = 0; g < G; g++)
		if (take_list(x, a, t, l, g, e) != ENGINE_OK)
			return e->code;
	if (kv_write_rows(w, l, &(struct kv_rows){ G, a->count, a->list }) != KV_OK)
		return engine_fail_writer(e, w);
	return ENGINE_OK;
}

/* Writes keys or values, without the padding after the rows of each KV head. */
static int
write_tensor(const struct import *x, struct kv_writer *w, const struct layer *a, uint32_t l,
    enum kv_kind kind, struct engine_error *e)
{
	const struct tensor *t = find(x, l, kind == KV_KEYS ? "keys" : "values");
	const uint32_t G = x->head.model.kv_heads;
	const unsigned element = kv_row_element(kv_head_row_type(&x->head, kind, l));
	const size_t row = kv_head_row_bytes(&x->head, kind, l);
	struct kv_span *span = engine_alloc(G, sizeof *span, e);
	uint32_t g;
	int rc;

	if (span == NULL)
		return e->code;
	for (g = 0; t != NULL && g < G; g++)
		span[g] = (struct kv_span){ (const char *)t->data + g * a->S * row,
		    a->count[g] * row };
	rc = kv_write(w, kv_kind_type(kind), l, element, span, G);
	free(span);
	if (rc == KV_EINVAL)            /* codes that are no rows of the type */
		return BAD(x, e, "%s", kv_writer_error(w));
	return rc == KV_OK ? ENGINE_OK : engine_fail_writer(e, w);
}

static int
write_layer(const struct import *x, struct kv_writer *w, uint32_t l, struct engine_error *e)
{
	const uint32_t G = x->head.model.kv_heads;
	struct layer a = { .S = find(x, l, "keys")->dim[2] };
	int rc = ENGINE_ERUN;

	a.pos = engine_alloc(G * a.S, sizeof *a.pos, e);
	a.count = engine_alloc(G, sizeof *a.count, e);
	a.list = engine_alloc(G, sizeof *a.list, e);
	if (a.pos != NULL && a.count != NULL && a.list != NULL)
		rc = write_rows(x, w, &a, l, e);
	if (rc == ENGINE_OK)
		rc = write_tensor(x, w, &a, l, KV_KEYS, e);
	if (rc == ENGINE_OK)
		rc = write_tensor(x, w, &a, l, KV_VALS, e);
	free(a.pos);
	free(a.count);
	free(a.list);
	return rc;
}

static int
write_tokens(const struct import *x, struct kv_writer *w, struct engine_error *e)
{
	const struct tensor *t = safetensors_find(x->from, "tokens");
	const uint64_t n = t->dim[t->ndim - 1];
	uint32_t *id = engine_alloc(n, sizeof *id, e);
	uint64_t i;
	int rc;

	if (id == NULL)
		return e->code;
	for (i = 0; i < n; i++)
		id[i] = (uint32_t)number(t, i);
	rc = kv_write_tokens(w, &(struct kv_tokens){ n, id });
	free(id);
	return rc == KV_OK ? ENGINE_OK : engine_fail_writer(e, w);
}

int
import_write(const struct import *x, struct kv_writer *w, struct engine_error *e)
{
	const struct tensor *logits = safetensors_find(x->from, "logits");
	int rc = write_tokens(x, w, e);
	uint32_t l;

	for (l = 0; rc == ENGINE_OK && l < x->head.model.layers; l++) {
		rc = write_layer(x, w, l, e);
		if (rc == ENGINE_OK && x->step.call != NULL)
			x->step.call(x->step.with, l + 1);
	}
	if (rc == ENGINE_OK && logits != NULL && kv_write_logits(w, logits->data) != KV_OK)
		rc = engine_fail_writer(e, w);
	return rc;
}
