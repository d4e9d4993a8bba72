/* merge_documents.c - makes one snapshot of documents that were prefilled apart
 *
 * All documents are read in parallel, section by section. Carried over are positions, keys, values
 * and, if every document has them under the same label, norms of value outputs, gate scores and
 * scores, which belong to single rows. All else belongs to one document: its queries, statistics
 * and logits, attention mass, indexes of its keys, and its event log. */
#include <stdlib.h>
#include <string.h>

#include "engine/merge_documents.h"
#include "engine/reposition.h"
#include "libkvfile/codec.h"
#include "methods/methods.h"
#include "model/model.h"

/* The kinds of values of rows that are carried over */
static const enum kv_kind carried[] = { KV_VNRM, KV_GATE, KV_SCOR };
enum { CARRIED = sizeof carried / sizeof *carried };

struct document {
	struct kv_reader *r;
	const struct kv_head *head;
	uint32_t from;                  /* rows at lower positions are left out */
	uint32_t shift;                 /* the distance by which its rows move */
	struct kv_section sec;          /* where r stands */
	/* of the current layer */
	const struct kv_rows *rows;
	uint32_t *first;                /* [G] the first row of each KV head that stays */
	struct kv_values values[CARRIED];       /* a copy; label NULL: there are none */
	const char *content;            /* of KEYS or VALS */
	char *rotated;                  /* keys after rotation; NULL: as they are */
};

/* ---- which documents go together ---- */

static int
check_same_kind(const struct document *a, const struct document *b, struct engine_error *e)
{
	const char *a_name = kv_reader_name(a->r), *b_name = kv_reader_name(b->r);
	char fields[900];

	if (kv_model_diff(&a->head->model, &b->head->model, a_name, b_name, fields,
	    sizeof fields) != 0)
		return engine_fail(e, ENGINE_EMODEL, "%s and %s are not of one model: %s", a_name,
		    b_name, fields);
	if (a->head->dtype != b->head->dtype || !kv_head_same_rows(a->head, b->head))
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s and %s store their rows in "
		    "different types: kv-quantize one of them", a_name, b_name);
	return ENGINE_OK;
}

/* A longrope model rotates the keys of a short text by other factors than those of a long one. */
static int
check_length(const struct merge_documents *m, const struct kv_head *head, struct engine_error *e)
{
	const uint32_t limit = head->model.rope_original_max_position;
	uint32_t i;

	for (i = 0; head->model.rope_type == KV_ROPE_LONGROPE && i < m->n; i++)
		if (m->document[i].head->next_position <= limit && head->next_position > limit)
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: this model (longrope) "
			    "scales RoPE differently beyond %u tokens, and the merged text has "
			    "%u: merge fewer documents", kv_reader_name(m->document[i].r), limit,
			    head->next_position);
	return ENGINE_OK;
}

/* head->documents <- where document i and those that it has been merged from begin. */
static int
add_documents(const struct document *d, uint32_t prefix, uint32_t i, struct kv_head *head,
    struct engine_error *e)
{
	const struct kv_documents *own = &d->head->documents;
	struct kv_documents *to = &head->documents;
	uint32_t k;

	if (to->n + own->n + (i > 0) >= KV_DOCUMENTS_MOST)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: more than %d documents",
		    kv_reader_name(d->r), KV_DOCUMENTS_MOST);
	if (i > 0)
		to->start[to->n++] = prefix + d->shift;
	for (k = 0; k < own->n; k++)
		if (i == 0 || own->start[k] > prefix)
			to->start[to->n++] = own->start[k] + d->shift;
	return ENGINE_OK;
}

int
merge_head(struct merge_documents *m, struct kv_head *head, struct engine_error *e)
{
	uint64_t next = 0;
	uint32_t i;

	if ((m->document = engine_alloc(m->n, sizeof *m->document, e)) == NULL)
		return e->code;
	*head = *kv_reader_head(m->reader[0]);
	head->documents.n = 0;
	for (i = 0; i < m->n; i++) {
		struct document *d = &m->document[i];
		const uint32_t prefix = i > 0 ? m->prefix : 0;

		d->r = m->reader[i];
		d->head = kv_reader_head(d->r);
		if (check_same_kind(&m->document[0], d, e) != ENGINE_OK)
			return e->code;
		if (d->head->next_position <= m->prefix)
			return engine_fail(e, ENGINE_EOPTION, "--prefix %u: %s has %u tokens, and "
			    "none after them", m->prefix, kv_reader_name(d->r),
			    d->head->next_position);
		d->shift = (uint32_t)next - prefix;
		d->from = prefix + (i > 0 ? m->drop_first : 0);
		if (add_documents(d, prefix, i, head, e) != ENGINE_OK ||
		    (d->first = engine_alloc(head->model.kv_heads, sizeof *d->first, e)) == NULL)
			return e->code;
		if ((next += d->head->next_position - prefix) > UINT32_MAX)
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: positions end at 2^32",
			    kv_reader_name(d->r));
	}
	head->next_position = (uint32_t)next;
	return check_length(m, head, e);
}

static void
free_values(struct document *d)
{
	int i;

	for (i = 0; i < CARRIED; i++) {
		free((void *)d->values[i].label);       /* the values follow it */
		d->values[i].label = NULL;
	}
}

void
merge_free(struct merge_documents *m)
{
	uint32_t i;

	for (i = 0; m->document != NULL && i < m->n; i++) {
		free_values(&m->document[i]);
		free(m->document[i].first);
		free(m->document[i].rotated);
	}
	free(m->document);
	m->document = NULL;
}

/* ---- reading ---- */

static int
kind_at(enum kv_kind kind)
{
	int i;

	for (i = 0; i < CARRIED && carried[i] != kind; i++)
		;
	return i;
}

/* Copies the values of rows at which d stands. */
static int
take_values(struct document *d, int i, struct engine_error *e)
{
	struct kv_values v;
	char *copy;

	if (engine_read(e, d->r, kv_load_values(d->r, &v)) != ENGINE_OK)
		return e->code;
	if ((copy = engine_alloc(KV_SCORE_LABEL + v.n * sizeof *v.value, 1, e)) == NULL)
		return e->code;
	memcpy(copy, v.label, strlen(v.label) + 1);
	if (v.n > 0)
		memcpy(copy + KV_SCORE_LABEL, v.value, v.n * sizeof *v.value);
	d->values[i] = (struct kv_values){ copy, v.n, (const float *)(copy + KV_SCORE_LABEL) };
	return ENGINE_OK;
}

/* Reads d up to its next section of this kind, which must come; KV_ENDS: to the end. */
static int
read_to(struct merge_documents *m, struct document *d, enum kv_kind kind, struct engine_error *e)
{
	int code, i;

	while ((code = kv_next(d->r, &d->sec)) > 0) {
		if (d->sec.kind == kind)
			return ENGINE_OK;
		if ((i = kind_at(d->sec.kind)) < CARRIED) {
			if (take_values(d, i, e) != ENGINE_OK)
				return e->code;
		} else if (d->sec.kind != KV_PROV)
			m->left |= 1u << d->sec.kind;
	}
	return engine_read(e, d->r, code);
}

/* ---- tokens ---- */

static int
check_prefix(const struct merge_documents *m, uint32_t i, const struct kv_tokens *a,
    const struct kv_tokens *b, struct engine_error *e)
{
	const char *name = kv_reader_name(m->document[i].r);
	uint32_t k;

	if (m->prefix > 0 && b->n != m->document[i].head->next_position)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "--prefix %u: %s has %llu tokens, and "
		    "the next one is at position %u: its rows were renumbered, or are of selected "
		    "tokens", m->prefix, name, (unsigned long long)b->n,
		    m->document[i].head->next_position);
	for (k = 0; k < m->prefix; k++)
		if (a->id[k] != b->id[k])
			return engine_fail(e, ENGINE_EOPTION, "--prefix %u: token %u is %u in %s "
			    "and %u in %s", m->prefix, k, a->id[k], kv_reader_name(
			    m->document[0].r), b->id[k], name);
	return ENGINE_OK;
}

static int
merge_tokens(struct merge_documents *m, struct kv_writer *w, struct engine_error *e)
{
	struct kv_tokens first = { 0 }, own;
	struct kv_span *spans = engine_alloc(m->n, sizeof *spans, e);
	uint32_t i;
	int rc = spans != NULL ? ENGINE_OK : e->code;

	m->tokens = 0;
	for (i = 0; rc == ENGINE_OK && i < m->n; i++) {
		const uint32_t prefix = i > 0 ? m->prefix : 0;
		struct document *d = &m->document[i];

		if ((rc = read_to(m, d, KV_TOKS, e)) != ENGINE_OK ||
		    (rc = engine_read(e, d->r, kv_load_tokens(d->r, &own))) != ENGINE_OK)
			break;
		if (i == 0) {
			first = own;
			m->same_first = own.id[0];
		}
		if (own.id[0] != m->same_first)
			m->same_first = UINT32_MAX;
		rc = check_prefix(m, i, &first, &own, e);
		spans[i] = (struct kv_span){ own.id + prefix, (own.n - prefix) * sizeof *own.id };
		m->tokens += own.n - prefix;
	}
	if (rc == ENGINE_OK)
		rc = engine_wrote(e, w, kv_write(w, kv_kind_type(KV_TOKS), KV_NO_LAYER, 4, spans,
		    m->n));
	free(spans);
	return rc;
}

/* ---- a layer ---- */

static uint32_t
staying(const struct document *d, uint32_t g)
{
	return d->rows->count[g] - d->first[g];
}

/* Writes the rows of all documents, head after head, at their new positions. */
static int
write_positions(struct merge_documents *m, struct kv_writer *w, uint32_t l, struct engine_error *e)
{
	const uint32_t G = m->document[0].head->model.kv_heads;
	uint32_t *count = engine_alloc(G, sizeof *count, e), g, i, k;
	const uint32_t **list = engine_alloc(G, sizeof *list, e);
	uint32_t *pos = NULL, *at;
	uint64_t rows = 0;
	int rc = count != NULL && list != NULL ? ENGINE_OK : e->code;

	for (i = 0; rc == ENGINE_OK && i < m->n; i++)
		for (g = 0; g < G; g++)
			count[g] += staying(&m->document[i], g);
	for (g = 0; rc == ENGINE_OK && g < G; g++)
		rows += count[g];
	if (rc == ENGINE_OK && (pos = engine_alloc(rows + 1, sizeof *pos, e)) == NULL)
		rc = e->code;
	for (g = 0, at = pos; rc == ENGINE_OK && g < G; g++) {
		list[g] = at;
		for (i = 0; i < m->n; i++) {
			const struct document *d = &m->document[i];

			for (k = d->first[g]; k < d->rows->count[g]; k++)
				*at++ = d->rows->pos[g][k] + d->shift;
		}
	}
	m->rows += rows;
	if (rc == ENGINE_OK)
		rc = engine_wrote(e, w, kv_write_rows(w, l, &(struct kv_rows){ G, count, list }));
	free(count);
	free(list);
	free(pos);
	return rc;
}

/* Do all documents have values of this kind, made in the same way? */
static int
all_have(const struct merge_documents *m, int kind)
{
	const char *label = m->document[0].values[kind].label;
	uint32_t i;

	for (i = 0; i < m->n; i++)
		if (label == NULL || m->document[i].values[kind].label == NULL ||
		    strcmp(label, m->document[i].values[kind].label) != 0)
			return 0;
	return 1;
}

/* to <- the values of the rows that stay, list after list. Returns their number. */
static uint64_t
collect_values(const struct merge_documents *m, int kind, uint32_t lists, const uint64_t *start,
    float *to, uint32_t g)
{
	uint64_t n = 0;
	uint32_t r, i;

	for (r = 0; r < lists; r++)
		for (i = 0; i < m->n; i++) {
			const struct document *d = &m->document[i];

			memcpy(to + n, d->values[kind].value + start[i] + (uint64_t)r *
			    d->rows->count[g] + d->first[g], staying(d, g) * sizeof *to);
			n += staying(d, g);
		}
	return n;
}

static int
write_values(struct merge_documents *m, struct kv_writer *w, uint32_t l, int kind,
    struct engine_error *e)
{
	const struct kv_model *model = &m->document[0].head->model;
	const uint32_t lists = kv_values_lists(carried[kind], model);
	struct kv_values v = { m->document[0].values[kind].label, 0, NULL };
	uint64_t *start = engine_alloc(m->n, sizeof *start, e), n = 0;
	uint32_t g, i;
	float *value;
	int rc;

	for (i = 0; i < m->n; i++)
		n += m->document[i].values[kind].n;
	value = start != NULL ? engine_alloc(n + 1, sizeof *value, e) : NULL;
	rc = value != NULL ? ENGINE_OK : e->code;
	for (g = 0; rc == ENGINE_OK && g < model->kv_heads; g++) {
		v.n += collect_values(m, kind, lists, start, value + v.n, g);
		for (i = 0; i < m->n; i++)
			start[i] += (uint64_t)lists * m->document[i].rows->count[g];
	}
	v.value = value;
	if (rc == ENGINE_OK)
		rc = engine_wrote(e, w, kv_write_values(w, carried[kind], l, &v));
	free(start);
	free(value);
	return rc;
}

/* Writes the values that all documents have, and forgets all. */
static int
write_all_values(struct merge_documents *m, struct kv_writer *w, uint32_t l,
    struct engine_error *e)
{
	uint32_t d;
	int i, rc = ENGINE_OK;

	for (i = 0; rc == ENGINE_OK && i < CARRIED; i++) {
		if (all_have(m, i))
			rc = write_values(m, w, l, i, e);
		else
			for (d = 0; d < m->n; d++)
				if (m->document[d].values[i].label != NULL)
					m->left |= 1u << carried[i];
	}
	for (d = 0; d < m->n; d++)
		free_values(&m->document[d]);
	return rc;
}

/* Rotates the keys of KV head g that stay; to[their number] is scratch. */
static int
rotate_head(const struct document *d, char *keys, uint32_t l, uint32_t g, const double *freq,
    uint32_t *to)
{
	const struct kv_model *m = &d->head->model;
	const enum kv_row_type type = kv_head_row_type(d->head, KV_KEYS, l);
	const uint32_t *from = d->rows->pos[g] + d->first[g], n = staying(d, g);
	uint32_t i;

	for (i = 0; i < n; i++)
		to[i] = from[i] + d->shift;
	return rotate_keys(keys + d->first[g] * kv_row_bytes(type, m->head_width), from, to, freq,
	    kv_rope_first(m), kv_rope_dims(m, l), n, m->head_width, type);
}

/* Rotates the keys of layer l in d->rotated to their new positions. */
static int
rotate_layer(struct document *d, uint32_t l, struct engine_error *e)
{
	const struct kv_model *m = &d->head->model;
	double *freq = engine_alloc(m->head_width, sizeof *freq, e);
	uint32_t *to = engine_alloc(kv_rows_total(d->rows) + 1, sizeof *to, e), g;
	char *keys = d->rotated;
	int rc = freq != NULL && to != NULL ? 0 : ROTATE_ENOMEM;

	if (rc == 0)
		(void)model_layer_frequencies(m, l, freq);
	for (g = 0; rc == 0 && g < m->kv_heads; g++) {
		rc = rotate_head(d, keys, l, g, freq, to);
		keys += kv_head_bytes(d->head, KV_KEYS, l, d->rows->count[g]);
	}
	free(freq);
	free(to);
	return rotated(e, rc, kv_reader_name(d->r), l, kv_head_row_type(d->head, KV_KEYS, l));
}

/* Loads KEYS or VALS of layer l of a document. */
static int
load_tensor(struct merge_documents *m, struct document *d, enum kv_kind kind, uint32_t l,
    struct engine_error *e)
{
	const void *content;

	free(d->rotated);
	d->rotated = NULL;
	if (read_to(m, d, kind, e) != ENGINE_OK ||
	    engine_read(e, d->r, kv_load(d->r, &content)) != ENGINE_OK)
		return e->code;
	d->content = content;
	if (kind == KV_VALS || d->shift == 0 || d->sec.raw_size == 0)
		return ENGINE_OK;
	if ((d->rotated = engine_alloc(d->sec.raw_size, 1, e)) == NULL)
		return e->code;
	memcpy(d->rotated, content, d->sec.raw_size);
	return rotate_layer(d, l, e);
}

static int
write_tensor(struct merge_documents *m, struct kv_writer *w, enum kv_kind kind, uint32_t l,
    struct engine_error *e)
{
	const struct kv_head *head = m->document[0].head;
	const size_t row = kv_head_row_bytes(head, kind, l);
	const uint32_t G = head->model.kv_heads;
	struct kv_span *span = engine_alloc((size_t)G * m->n, sizeof *span, e);
	size_t *start = span != NULL ? engine_alloc(m->n, sizeof *start, e) : NULL;
	uint32_t g, i;
	int rc = start != NULL ? ENGINE_OK : e->code;

	for (g = 0; rc == ENGINE_OK && g < G; g++)
		for (i = 0; i < m->n; i++) {
			const struct document *d = &m->document[i];
			const char *from = d->rotated != NULL ? d->rotated : d->content;

			span[g * m->n + i].size = staying(d, g) * row;
			if (staying(d, g) * row > 0)    /* values in keys have no bytes */
				span[g * m->n + i].data = from + start[i] + d->first[g] * row;
			start[i] += d->rows->count[g] * row;
		}
	if (rc == ENGINE_OK)
		rc = engine_wrote(e, w, kv_write(w, kv_kind_type(kind), l, kv_row_element(
		    kv_head_row_type(head, kind, l)), span, (size_t)G * m->n));
	free(span);
	free(start);
	return rc;
}

static int
merge_rows(struct merge_documents *m, struct kv_writer *w, uint32_t l, struct engine_error *e)
{
	const uint32_t G = m->document[0].head->model.kv_heads;
	uint32_t i, g;

	for (i = 0; i < m->n; i++) {
		struct document *d = &m->document[i];

		if (read_to(m, d, KV_POSN, e) != ENGINE_OK ||
		    engine_read(e, d->r, kv_load_rows(d->r, &d->rows)) != ENGINE_OK)
			return e->code;
		for (g = 0; g < G; g++)
			d->first[g] = kv_rows_before(d->rows->pos[g], d->rows->count[g], d->from);
	}
	return write_positions(m, w, l, e);
}

static int
merge_tensor(struct merge_documents *m, struct kv_writer *w, enum kv_kind kind, uint32_t l,
    struct engine_error *e)
{
	uint32_t i;

	for (i = 0; i < m->n; i++)
		if (load_tensor(m, &m->document[i], kind, l, e) != ENGINE_OK)
			return e->code;
	if (kind == KV_KEYS && write_all_values(m, w, l, e) != ENGINE_OK)
		return e->code;
	return write_tensor(m, w, kind, l, e);
}

int
merge_write(struct merge_documents *m, struct kv_writer *w, struct engine_error *e)
{
	const uint32_t L = m->document[0].head->model.layers;
	uint32_t l, i;

	if (merge_tokens(m, w, e) != ENGINE_OK)
		return e->code;
	for (l = 0; l < L; l++) {
		if (merge_rows(m, w, l, e) != ENGINE_OK ||
		    merge_tensor(m, w, KV_KEYS, l, e) != ENGINE_OK ||
		    merge_tensor(m, w, KV_VALS, l, e) != ENGINE_OK)
			return e->code;
		if (m->step.call != NULL)
			m->step.call(m->step.with, l + 1);
	}
	for (i = 0; i < m->n; i++)
		if (read_to(m, &m->document[i], KV_ENDS, e) != ENGINE_OK)
			return e->code;
	return ENGINE_OK;
}
