/* safetensors_export.c - converts a snapshot to a safetensors file */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/safetensors_convert.h"
#include "libkvfile/codec.h"

static int
write_bytes(const struct export *x, const void *data, size_t size, struct engine_error *e)
{
	if (size == 0 || fwrite(data, 1, size, x->to) == size)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EOUTPUT, "%s: %s", x->name, strerror(errno));
}

/* Writes n numbers as I64, little-endian; NONE as -1. */
#define NONE UINT32_MAX

static int
put_numbers(const struct export *x, const uint32_t *number, uint64_t n, struct engine_error *e)
{
	uint8_t piece[8 * 512];
	uint64_t at = 0;
	size_t k, i;

	for (; at < n; at += k) {
		k = n - at < 512 ? (size_t)(n - at) : 512;
		for (i = 0; i < 8 * k; i++)
			piece[i] = number[at + i / 8] == NONE ? 0xff : i % 8 < 4 ?
			    (uint8_t)(number[at + i / 8] >> i % 8 * 8) : 0;
		if (write_bytes(x, piece, 8 * k, e) != ENGINE_OK)
			return e->code;
	}
	return ENGINE_OK;
}

/* Writes `size` bytes of `fill`. */
static int
put_fill(const struct export *x, int fill, uint64_t size, struct engine_error *e)
{
	uint8_t piece[4096];
	size_t n;

	memset(piece, fill, sizeof piece);
	for (; size > 0; size -= n) {
		n = size < sizeof piece ? (size_t)size : sizeof piece;
		if (write_bytes(x, piece, n, e) != ENGINE_OK)
			return e->code;
	}
	return ENGINE_OK;
}

/* ---- sizes ---- */

static int
same_lists(const struct kv_rows *rows)
{
	uint32_t g;

	for (g = 1; g < rows->heads; g++)
		if (rows->count[g] != rows->count[0] || (rows->pos[g] != rows->pos[0] &&
		    memcmp(rows->pos[g], rows->pos[0], rows->count[0] * sizeof **rows->pos) != 0))
			return 0;
	return 1;
}

static int
measure_layer(struct export_layer *layer, struct kv_reader *r, struct engine_error *e)
{
	const struct kv_rows *rows;
	uint32_t g;

	if (engine_read(e, r, kv_load_rows(r, &rows)) != ENGINE_OK)
		return e->code;
	if ((layer->count = engine_alloc(rows->heads, sizeof *layer->count, e)) == NULL)
		return e->code;
	for (g = 0; g < rows->heads; g++) {
		layer->count[g] = rows->count[g];
		if (rows->count[g] > layer->most)
			layer->most = rows->count[g];
	}
	layer->one_list = same_lists(rows);
	return ENGINE_OK;
}

/* The kinds of sections that are exported, and those that only structure the stream */
#define EXPORTED (1u << KV_HEAD | 1u << KV_TOKS | 1u << KV_POSN | 1u << KV_KEYS | 1u << KV_VALS | \
    1u << KV_LGTS | 1u << KV_INDX | 1u << KV_ENDS | 1u << KV_PADD)

int
export_measure(struct export *x, struct kv_reader *r, struct engine_error *e)
{
	struct kv_section sec;
	int rc;

	x->head = *kv_reader_head(r);
	if (x->as_stored && x->head.residual != 0)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s has full rows behind quantised ones "
		    "(residual %u), so no tensor has their bytes: convert it without --as-stored",
		    kv_reader_name(r), x->head.residual);
	if (!x->as_stored) {
		x->head.residual = 0;
		memset(x->head.key_type, 0, sizeof x->head.key_type);
		memset(x->head.value_type, 0, sizeof x->head.value_type);
	}
	if ((x->layer = engine_alloc(x->head.model.layers, sizeof *x->layer, e)) == NULL)
		return e->code;
	while ((rc = kv_next(r, &sec)) == 1) {
		if (sec.kind == KV_TOKS)
			x->tokens = kv_token_count(&sec);
		x->logits |= sec.kind == KV_LGTS;
		x->left |= 1u << sec.kind & ~EXPORTED;
		if (sec.kind == KV_POSN && measure_layer(&x->layer[sec.layer], r, e) != ENGINE_OK)
			return e->code;
		if (sec.kind != KV_POSN && (rc = kv_skip(r)) < 0)
			break;
	}
	return engine_read(e, r, rc);
}

void
export_free(struct export *x)
{
	uint32_t l;

	for (l = 0; x->layer != NULL && l < x->head.model.layers; l++)
		free(x->layer[l].count);
	free(x->layer);
	x->layer = NULL;
}

/* ---- the header ---- */

/* A growing header, and the offset after the data so far */
struct header {
	json_t *all;
	uint64_t at;
	int failed;
};

static void
add_tensor(struct header *h, const char *name, const char *type, json_t *shape, uint64_t bytes)
{
	json_t *t = json_pack("{s:s, s:o, s:[I,I]}", "dtype", type, "shape", shape, "data_offsets",
	    (json_int_t)h->at, (json_int_t)(h->at + bytes));

	h->failed |= t == NULL || json_object_set_new(h->all, name, t) != 0;
	h->at += bytes;
}

static const char *
type_name(enum kv_dtype dtype)
{
	return dtype == KV_F32 ? "F32" : dtype == KV_F16 ? "F16" : "BF16";
}

static void
describe_positions(const struct export *x, struct header *h, uint32_t l)
{
	const struct export_layer *layer = &x->layer[l];
	const uint64_t lists = layer->one_list ? 1 : x->head.model.kv_heads;
	char name[40];

	snprintf(name, sizeof name, "layers.%u.positions", l);
	add_tensor(h, name, "I64", json_pack("[I,I]", (json_int_t)lists, (json_int_t)layer->most),
	    lists * layer->most * 8);
}

static void
describe_rows(const struct export *x, struct header *h, uint32_t l, enum kv_kind kind)
{
	const int quantised = kv_row_type_quantised(kv_head_row_type(&x->head, kind, l));
	const uint64_t G = x->head.model.kv_heads, row = kv_head_row_bytes(&x->head, kind, l);
	const uint64_t S = x->layer[l].most, E = quantised ? row : x->head.model.head_width;
	char name[40];

	snprintf(name, sizeof name, "layers.%u.%s", l, kind == KV_KEYS ? "keys" : "values");
	add_tensor(h, name, quantised ? "U8" : type_name(x->head.dtype), json_pack("[i,I,I,I]", 1,
	    (json_int_t)G, (json_int_t)S, (json_int_t)E), G * S * row);
}

static void
describe_all(const struct export *x, struct header *h)
{
	const struct kv_model *m = &x->head.model;
	uint32_t l;

	add_tensor(h, "tokens", "I64", json_pack("[i,I]", 1, (json_int_t)x->tokens), x->tokens * 8);
	for (l = 0; l < m->layers; l++)
		describe_positions(x, h, l);
	if (x->logits)
		add_tensor(h, "logits", "F32", json_pack("[i,I]", 1, (json_int_t)m->vocabulary),
		    (uint64_t)m->vocabulary * 4);
	for (l = 0; l < m->layers; l++) {
		describe_rows(x, h, l, KV_KEYS);
		if (m->latent_rank == 0)
			describe_rows(x, h, l, KV_VALS);
	}
}

/* Writes the header; its length is a multiple of 8, so that the data after it is aligned. */
static int
put_header(const struct export *x, struct engine_error *e)
{
	struct header h = { json_object(), 0, 0 };
	char *head = NULL, *text = NULL;
	uint8_t length[8];
	uint64_t size, i;
	int rc;

	if (kv_head_to_json(&x->head, &head) != KV_OK || json_object_set_new(h.all, "__metadata__",
	    json_pack("{s:s, s:s}", "format", "pt", "kv-snapshot", head)) != 0)
		h.failed = 1;
	describe_all(x, &h);
	free(head);
	if (!h.failed)
		text = json_dumps(h.all, JSON_COMPACT);
	json_decref(h.all);
	if (text == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the header");
	size = (strlen(text) + 7) / 8 * 8;
	for (i = 0; i < 8; i++)
		length[i] = (uint8_t)(size >> i * 8);
	rc = write_bytes(x, length, sizeof length, e);
	if (rc == ENGINE_OK)
		rc = write_bytes(x, text, strlen(text), e);
	if (rc == ENGINE_OK)
		rc = put_fill(x, ' ', size - strlen(text), e);
	free(text);
	return rc;
}

/* ---- the data ---- */

static int
put_tokens(const struct export *x, struct kv_reader *r, struct engine_error *e)
{
	const void *part;
	size_t size;

	do {
		if (engine_read(e, r, kv_read(r, &part, &size)) != ENGINE_OK ||
		    put_numbers(x, part, size / 4, e) != ENGINE_OK)
			return e->code;
	} while (size > 0);
	return ENGINE_OK;
}

static int
put_positions(const struct export *x, struct kv_reader *r, uint32_t l, struct engine_error *e)
{
	const struct export_layer *layer = &x->layer[l];
	const uint32_t none = NONE;
	const struct kv_rows *rows;
	uint32_t g, i;

	if (engine_read(e, r, kv_load_rows(r, &rows)) != ENGINE_OK)
		return e->code;
	for (g = 0; g < (layer->one_list ? 1 : rows->heads); g++) {
		if (put_numbers(x, rows->pos[g], rows->count[g], e) != ENGINE_OK)
			return e->code;
		for (i = rows->count[g]; i < layer->most; i++)
			if (put_numbers(x, &none, 1, e) != ENGINE_OK)
				return e->code;
	}
	return ENGINE_OK;
}

static int
put_logits(const struct export *x, struct kv_reader *r, struct engine_error *e)
{
	const float *logits;

	if (engine_read(e, r, kv_load_logits(r, &logits)) != ENGINE_OK)
		return e->code;
	return write_bytes(x, logits, x->head.model.vocabulary * sizeof *logits, e);
}

int
export_begin(struct export *x, struct kv_reader *r, struct engine_error *e)
{
	struct kv_section sec;
	int rc = put_header(x, e), got = 1;

	while (rc == ENGINE_OK && (got = kv_next(r, &sec)) == 1) {
		if (sec.kind == KV_TOKS)
			rc = put_tokens(x, r, e);
		else if (sec.kind == KV_POSN)
			rc = put_positions(x, r, sec.layer, e);
		else if (sec.kind == KV_LGTS)
			rc = put_logits(x, r, e);
		else
			rc = engine_read(e, r, kv_skip(r));
	}
	return rc != ENGINE_OK ? rc : engine_read(e, r, got);
}

/* The content of a section, read part by part */
struct parts {
	struct kv_reader *r;
	const char *at;
	size_t there;
};

/* *at <- some of the next `want` bytes, *n: how many. */
static int
next_bytes(struct parts *p, uint64_t want, const char **at, size_t *n, struct engine_error *e)
{
	if (p->there == 0 &&
	    engine_read(e, p->r, kv_read(p->r, (const void **)&p->at, &p->there)) != ENGINE_OK)
		return e->code;
	*n = want < p->there ? (size_t)want : p->there;
	if (*n == 0)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: it has changed", kv_reader_name(p->r));
	*at = p->at;
	p->at += *n;
	p->there -= *n;
	return ENGINE_OK;
}

/* to[size] <- the next bytes */
static int
take_bytes(struct parts *p, char *to, size_t size, struct engine_error *e)
{
	const char *at = NULL;
	size_t have, some = 0;

	for (have = 0; have < size; have += some) {
		if (next_bytes(p, size - have, &at, &some, e) != ENGINE_OK)
			return e->code;
		memcpy(to + have, at, some);
	}
	return ENGINE_OK;
}

/* Writes n rows as they are. */
static int
put_elements(const struct export *x, struct parts *p, uint64_t n, size_t row,
    struct engine_error *e)
{
	uint64_t left = n * row;
	const char *at = NULL;
	size_t some = 0;

	for (; left > 0; left -= some)
		if (next_bytes(p, left, &at, &some, e) != ENGINE_OK ||
		    write_bytes(x, at, some, e) != ENGINE_OK)
			return e->code;
	return ENGINE_OK;
}

/* Writes n quantised rows as elements of dtype. */
static int
put_quantised(const struct export *x, struct parts *p, uint64_t n, enum kv_row_type type,
    struct engine_error *e)
{
	const size_t E = x->head.model.head_width, size = kv_row_bytes(type, E);
	char row[(KV_ROW_WIDTH_MOST + 1) * sizeof(float)];
	float numbers[KV_ROW_WIDTH_MOST];

	for (; n > 0; n--) {
		if (take_bytes(p, row, size, e) != ENGINE_OK)
			return e->code;
		kv_rows_to_f32(numbers, row, type, E, 1);
		kv_from_f32(row, numbers, x->head.dtype, E);
		if (write_bytes(x, row, E * kv_dtype_size(x->head.dtype), e) != ENGINE_OK)
			return e->code;
	}
	return ENGINE_OK;
}

/* Writes the rows of a KV head that are groups of KIVI's keys. */
static int
put_groups(const struct export *x, struct parts *p, enum kv_row_type type, uint32_t rows,
    struct engine_error *e)
{
	const size_t E = x->head.model.head_width, group = KV_GROUP_ROWS * kv_row_bytes(type, E);
	const size_t n = KV_GROUP_ROWS * E;
	float *numbers = engine_alloc(n, 2 * sizeof *numbers, e);
	char *bytes = (char *)(numbers + n);
	uint32_t row;
	int rc = numbers != NULL ? ENGINE_OK : e->code;

	for (row = 0; rc == ENGINE_OK && row < rows; row += KV_GROUP_ROWS) {
		if ((rc = take_bytes(p, bytes, group, e)) != ENGINE_OK)
			break;
		kv_group_to_f32(numbers, bytes, type, E);
		kv_from_f32(bytes, numbers, x->head.dtype, n);
		rc = write_bytes(x, bytes, n * kv_dtype_size(x->head.dtype), e);
	}
	free(numbers);
	return rc;
}

/* Writes the rows of a KV head that are quantised, and the full ones behind them, as elements of
 * dtype. */
static int
put_coded_and_full(const struct export *x, struct parts *p, enum kv_kind kind, uint32_t l,
    uint32_t count, struct engine_error *e)
{
	const struct kv_head *head = kv_reader_head(p->r);
	const enum kv_row_type type = kv_head_row_type(head, kind, l);
	const uint32_t coded = kv_head_coded(head, kind, l, count);
	const size_t full = head->model.head_width * kv_dtype_size(head->dtype);
	const int rc = kind == KV_KEYS && kv_row_type_kivi(type) ?
	    put_groups(x, p, type, coded, e) : put_quantised(x, p, coded, type, e);

	return rc != ENGINE_OK ? rc : put_elements(x, p, count - coded, full, e);
}

/* Writes KEYS or VALS, part by part, with zeros after the rows of KV heads that have fewer than
 * others. */
static int
put_tensor(const struct export *x, struct kv_reader *r, enum kv_kind kind, uint32_t l,
    struct engine_error *e)
{
	const enum kv_row_type type = kv_head_row_type(kv_reader_head(r), kind, l);
	const int as_stored = type == kv_head_row_type(&x->head, kind, l);
	const struct export_layer *layer = &x->layer[l];
	const size_t row = kv_head_row_bytes(&x->head, kind, l);
	struct parts p = { .r = r };
	uint32_t g;

	for (g = 0; g < x->head.model.kv_heads; g++) {
		if ((as_stored ? put_elements(x, &p, layer->count[g], row, e) :
		    put_coded_and_full(x, &p, kind, l, layer->count[g], e)) != ENGINE_OK)
			return e->code;
		if (put_fill(x, 0, (layer->most - layer->count[g]) * (uint64_t)row, e) != ENGINE_OK)
			return e->code;
	}
	return ENGINE_OK;
}

int
export_rows(struct export *x, struct kv_reader *r, struct engine_error *e)
{
	struct kv_section sec;
	int rc = ENGINE_OK, got = 1;

	while (rc == ENGINE_OK && (got = kv_next(r, &sec)) == 1) {
		if (sec.kind == KV_KEYS || (sec.kind == KV_VALS && x->head.model.latent_rank == 0))
			rc = put_tensor(x, r, sec.kind, sec.layer, e);
		if (sec.kind == KV_VALS && x->step.call != NULL)
			x->step.call(x->step.with, sec.layer + 1);
	}
	return rc != ENGINE_OK ? rc : engine_read(e, r, got);
}
