/* evict_snapshot.c - copies a snapshot without the rows that an evictor drops */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/copy_section.h"
#include "engine/evict_snapshot.h"
#include "engine/kept_rows.h"
#include "libkvfile/codec.h"

/* A section between POSN and sCOR, held back because the rows to keep, and so the new POSN, are
 * known only after sCOR */
struct waiting {
	struct kv_section sec;
	void *content;
	size_t values;          /* offset of the values in content; KV_PER_ROW */
	struct waiting *next;
};

/* The current layer */
struct evicted_layer {
	int chosen;             /* kept is valid, POSN is written */
	int whole;              /* every row is kept */
	struct kept kept;
	struct waiting *waiting, **tail;        /* tail NULL: no layer has begun */
};

/* The reading that writes */
struct pass {
	struct snapshot_evictor *v;
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_section sec;          /* where r stands */
	struct engine_error *e;
};

static int
is_compact(const struct snapshot_evictor *v)
{
	return v->reposition.freq != NULL;
}

/* ---- reading and writing, with the message of the one that fails ---- */

static int
checked_read(const struct pass *p, int code)
{
	return engine_read(p->e, p->r, code);
}

static int
checked_write(const struct pass *p, int code)
{
	return engine_wrote(p->e, p->w, code);
}

static int
write_spans(const struct pass *p, const struct kv_span *spans, size_t n)
{
	return checked_write(p, kv_write(p->w, p->sec.type, p->sec.layer, p->sec.element_size,
	    spans, n));
}

/* ---- the current layer ---- */

static void
forget_waiting(struct evicted_layer *l)
{
	struct waiting *x;

	while ((x = l->waiting) != NULL) {
		l->waiting = x->next;
		free(x->content);
		free(x);
	}
	l->tail = &l->waiting;
}

static void
begin_layer(struct evicted_layer *l)
{
	forget_waiting(l);
	kept_free(&l->kept);
	*l = (struct evicted_layer){ .tail = &l->waiting };
}

void
evict_snapshot_free(struct snapshot_evictor *v)
{
	reposition_free(&v->reposition);
	if (v->layer != NULL) {
		forget_waiting(v->layer);
		kept_free(&v->layer->kept);
	}
	free(v->layer);
	free(v->before);
	free(v->after);
	v->layer = NULL;
	v->before = v->after = NULL;
}

/* Are rows dropped in the section's layer? For a section outside of layers: in the snapshot, of
 * which it is certain in advance only that a rate of 1 drops none. */
static int
rows_changed(const struct snapshot_evictor *v, const struct kv_section *sec)
{
	return sec->layer != KV_NO_LAYER ? !v->layer->whole : !evictor_keeps_all(v->evictor);
}

/* ---- sections that wait ---- */

static int
fill_waiting(const struct pass *p, struct waiting *x)
{
	const void *content;
	struct kv_values v;

	x->sec = p->sec;
	if (checked_read(p, kv_load(p->r, &content)) != ENGINE_OK ||
	    (x->content = engine_alloc(p->sec.raw_size, 1, p->e)) == NULL)
		return p->e->code;
	if (p->sec.raw_size > 0)
		memcpy(x->content, content, p->sec.raw_size);
	if (!kv_kind_is(p->sec.kind, KV_PER_ROW))
		return ENGINE_OK;
	if (checked_read(p, kv_load_values(p->r, &v)) != ENGINE_OK)
		return p->e->code;
	x->values = p->sec.raw_size - v.n * sizeof *v.value;
	return ENGINE_OK;
}

static int
wait_for_choice(const struct pass *p)
{
	struct evicted_layer *l = p->v->layer;
	struct waiting *x = engine_alloc(1, sizeof *x, p->e);

	if (x == NULL)
		return p->e->code;
	*l->tail = x;
	l->tail = &x->next;
	return fill_waiting(p, x);
}

/* Writes a section that was held back, without the values of dropped rows. */
static int
write_waiting(const struct pass *p, struct waiting *x)
{
	const struct kv_model *m = &kv_reader_head(p->r)->model;
	const struct evicted_layer *l = p->v->layer;
	const int per_row = kv_kind_is(x->sec.kind, KV_PER_ROW);
	struct kv_span span = { x->content, x->sec.raw_size };

	if (per_row)            /* the values are at the end of the content */
		span.size = x->values + sizeof(float) *
		    host_values((void *)((char *)x->content + x->values), kv_current_rows(p->r),
		    &l->kept, kv_values_lists(x->sec.kind, m));
	if (per_row || !rows_changed(p->v, &x->sec) || kv_is_safe(x->sec.type))
		return checked_write(p, kv_write(p->w, x->sec.type, x->sec.layer,
		    x->sec.element_size, &span, 1));
	notice(&p->v->notice, "dropped the unknown section %s, which depends on the rows that "
	    "changed", x->sec.type);
	return ENGINE_OK;
}

static int
release_waiting(const struct pass *p)
{
	struct waiting *x;
	int rc = ENGINE_OK;

	for (x = p->v->layer->waiting; x != NULL && rc == ENGINE_OK; x = x->next)
		rc = write_waiting(p, x);
	forget_waiting(p->v->layer);
	return rc;
}

/* ---- choosing ---- */

static int
no_scores(const struct kv_reader *r, uint32_t layer, struct engine_error *e)
{
	return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no scores: run kv-score first",
	    kv_reader_name(r), layer);
}

/* in <- the input for choosing the layer's rows. r stands at its sCOR, or at POSN if scores are not
 * needed. */
static int
layer_input(struct evict_input *in, const struct snapshot_evictor *v, struct kv_reader *r,
    const struct kv_section *sec, struct engine_error *e)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_values scores;
	int code = KV_OK;

	*in = (struct evict_input){ .layer = sec->layer, .layers = head->model.layers,
	    .next_position = head->next_position, .tokens = (uint32_t)v->tokens,
	    .rows = kv_current_rows(r) };
	if (sec->kind == KV_SCOR) {
		if ((code = kv_load_values(r, &scores)) >= 0) {
			in->score = scores.value;
			in->spread_known = label_spread(scores.label, &in->spread);
		}
	} else
		code = kv_load_rows(r, &in->rows);
	return engine_read(e, r, code);
}

/* Writes the POSN of the kept rows. */
static int
write_kept_rows(const struct pass *p, const struct kv_rows *old)
{
	const struct reposition *moved = is_compact(p->v) ? &p->v->reposition : NULL;
	struct kv_rows rows;
	int rc;

	if (kept_positions(&rows, old, &p->v->layer->kept, moved, p->e) != ENGINE_OK)
		return p->e->code;
	rc = checked_write(p, kv_write_rows(p->w, p->sec.layer, &rows));
	kept_positions_free(&rows);
	return rc;
}

/* Bytes of keys and values of so many rows of a KV head */
static uint64_t
bytes_of_rows(const struct pass *p, uint32_t rows)
{
	const struct kv_head *head = kv_reader_head(p->r);

	return kv_head_bytes(head, KV_KEYS, p->sec.layer, rows) +
	    kv_head_bytes(head, KV_VALS, p->sec.layer, rows);
}

/* *mean <- with --first-stage, and scores, the norms of the layer's rows, to be freed; else
 * NULL. */
static int
take_norms(const struct pass *p, const struct evict_input *in, float **mean)
{
	const struct kv_model *m = &kv_reader_head(p->r)->model;
	const struct waiting *x = p->v->layer->waiting;

	*mean = NULL;
	if (p->v->evictor->options.first_stage == 0 || in->score == NULL)
		return ENGINE_OK;
	while (x != NULL && x->sec.kind != KV_VNRM)
		x = x->next;
	if (x == NULL)
		return engine_fail(p->e, ENGINE_ERUN, "%s: layer %u has no norms of value outputs, "
		    "which --first-stage needs: make the snapshot with kv-prefill --value-norms",
		    kv_reader_name(p->r), p->sec.layer);
	if (strcmp(x->content, "l1") != 0)
		return engine_fail(p->e, ENGINE_ERUN, "%s: layer %u: norms of value outputs are "
		    "%s, and --first-stage weighs by l1", kv_reader_name(p->r), p->sec.layer,
		    (const char *)x->content);
	if ((*mean = engine_alloc(kv_rows_total(in->rows), sizeof **mean, p->e)) == NULL)
		return p->e->code;
	mean_norms(*mean, (const void *)((const char *)x->content + x->values), in->rows,
	    m->query_heads / m->kv_heads);
	return ENGINE_OK;
}

static int
choose(const struct pass *p)
{
	struct snapshot_evictor *v = p->v;
	struct evicted_layer *l = v->layer;
	struct evict_input in;
	uint64_t stay = 0;
	float *norms;
	size_t at;
	uint32_t g;
	int rc;

	if (layer_input(&in, v, p->r, &p->sec, p->e) != ENGINE_OK ||
	    take_norms(p, &in, &norms) != ENGINE_OK)
		return p->e->code;
	in.norms = norms;
	rc = evictor_choose(v->evictor, &in, &l->kept, p->e);
	free(norms);
	if (rc != ENGINE_OK)
		return rc;
	for (g = 0; g < l->kept.heads; g++) {
		at = (size_t)p->sec.layer * in.rows->heads + g;
		v->before[at] = in.rows->count[g];
		v->after[at] = l->kept.count[g];
		stay += l->kept.count[g];
		v->bytes_before += bytes_of_rows(p, in.rows->count[g]);
		v->bytes_after += bytes_of_rows(p, l->kept.count[g]);
	}
	v->rows_before += kv_rows_total(in.rows);
	v->rows_after += stay;
	l->whole = stay == kv_rows_total(in.rows);
	l->chosen = 1;
	if (write_kept_rows(p, in.rows) != ENGINE_OK)
		return p->e->code;
	return release_waiting(p);
}

/* ---- sections of a layer ---- */

/* Writes the kept rows of KEYS or VALS. */
static int
write_kept_content(const struct pass *p)
{
	const size_t size = kv_head_row_bytes(kv_reader_head(p->r), p->sec.kind, p->sec.layer);
	struct kv_span *spans;
	const void *content;
	size_t n;
	int rc;

	if (checked_read(p, kv_load(p->r, &content)) != ENGINE_OK ||
	    kept_spans(&spans, &n, content, size, kv_current_rows(p->r), &p->v->layer->kept,
	    p->e) != ENGINE_OK)
		return p->e->code;
	rc = write_spans(p, spans, n);
	free(spans);
	return rc;
}

/* Writes the kept keys, rotated to their new positions. */
static int
write_turned_keys(const struct pass *p)
{
	const struct kv_head *head = kv_reader_head(p->r);
	const struct kept *kept = &p->v->layer->kept;
	const size_t size = kv_head_row_bytes(head, KV_KEYS, p->sec.layer);
	struct kv_span span = { NULL, 0 };
	const void *content;
	uint32_t g;
	void *keys;
	int rc;

	for (g = 0; g < kept->heads; g++)
		span.size += kept->count[g] * size;
	if (checked_read(p, kv_load(p->r, &content)) != ENGINE_OK ||
	    (keys = engine_alloc(span.size, 1, p->e)) == NULL)
		return p->e->code;
	span.data = keys;
	rc = reposition_keys(&p->v->reposition, p->sec.layer, keys, content,
	    kv_head_row_type(head, KV_KEYS, p->sec.layer), kv_current_rows(p->r), kept,
	    kv_reader_name(p->r), p->e);
	if (rc == ENGINE_OK)
		rc = write_spans(p, &span, 1);
	free(keys);
	return rc;
}

/* Copies KEYS or VALS, or their kept rows. */
static int
pass_tensor(const struct pass *p)
{
	if (!p->v->layer->chosen)
		return no_scores(p->r, p->sec.layer, p->e);
	if (is_compact(p->v) && p->sec.kind == KV_KEYS)
		return write_turned_keys(p);
	return p->v->layer->whole ? copy_section(p->r, p->w, p->e) : write_kept_content(p);
}

/* Copies what no choice of rows changes: learned sinks, observation queries. */
static int
pass_unchanged(const struct pass *p)
{
	return p->v->layer->chosen ? copy_section(p->r, p->w, p->e) : wait_for_choice(p);
}

/* Copies an index, qSTa, values of rows, or an unknown section. An index is made from the keys of
 * its layer (kv-snapshot(5), 4.14), so it is skipped if a row of the layer is dropped. */
static int
pass_other(const struct pass *p)
{
	const struct evicted_layer *l = p->v->layer;

	if (kv_kind_is(p->sec.kind, KV_INDEX)) {
		if (l->whole && !is_compact(p->v))
			return copy_section(p->r, p->w, p->e);
		p->v->indexes_dropped |= 1u << p->sec.kind;
	} else if (is_compact(p->v) && p->sec.kind != KV_QSTA &&
	    !kv_kind_is(p->sec.kind, KV_PER_ROW)) {
		notice(&p->v->notice, "dropped the unknown section %s, which may depend on the "
		    "positions that changed", p->sec.type);
	} else if (kv_kind_is(p->sec.kind, KV_PER_ROW) || (l->tail != NULL && !l->chosen)) {
		if (wait_for_choice(p) != ENGINE_OK)
			return p->e->code;
		return l->chosen ? release_waiting(p) : ENGINE_OK;
	} else
		return copy_unknown_section(p->r, p->w, &p->sec, rows_changed(p->v, &p->sec),
		    &p->v->notice, p->e);
	return ENGINE_OK;
}

/* ---- all of them ---- */

/* Writes eVNt, which is after all layers, with this eviction added. */
static int
write_log(const struct pass *p)
{
	const struct kv_head *head = kv_reader_head(p->r);
	const struct kv_model *m = &head->model;
	const struct snapshot_evictor *v = p->v;
	struct kv_event e = { KV_EVENT_EVICT,
	    is_compact(v) ? v->reposition.next : head->next_position, 0, 0, m->layers, v->before,
	    v->after };
	struct kv_log_content log = { .data = NULL };
	struct kv_span span;
	const void *content;
	int rc;

	if (checked_read(p, kv_load(p->r, &content)) != ENGINE_OK)
		return p->e->code;
	if (kv_log_copy(&log, content, p->sec.raw_size, m->kv_heads) != KV_OK ||
	    kv_log_append(&log, &e, m->kv_heads) != KV_OK)
		rc = engine_fail(p->e, ENGINE_ERUN, "no memory for the event log");
	else {
		span = (struct kv_span){ log.data, log.size };
		rc = write_spans(p, &span, 1);
	}
	free(log.data);
	return rc;
}

/* Copies a section of a layer, or one outside of layers. */
static int
pass_section(const struct pass *p)
{
	struct snapshot_evictor *v = p->v;

	switch (p->sec.kind) {
	case KV_TOKS:
		v->tokens = kv_token_count(&p->sec);
		return copy_section(p->r, p->w, p->e);
	case KV_POSN:
		begin_layer(v->layer);
		return evictor_needs_scores(v->evictor, p->sec.layer) ? ENGINE_OK : choose(p);
	case KV_SINK:
		return pass_unchanged(p);
	case KV_OBSQ:
		return v->keep_queries ? pass_unchanged(p) : ENGINE_OK;
	case KV_SCOR:
		return v->layer->chosen ? ENGINE_OK : choose(p);
	case KV_KEYS:
	case KV_VALS:
		return pass_tensor(p);
	case KV_LGTS:
		return copy_section(p->r, p->w, p->e);
	case KV_EVNT:
		return write_log(p);
	case KV_PROV:
		return ENGINE_OK;               /* inherited */
	default:
		return pass_other(p);
	}
}

int
evict_snapshot(struct snapshot_evictor *v, struct kv_reader *r, struct kv_writer *w,
    struct engine_error *e)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	const size_t heads = (size_t)m->layers * m->kv_heads;
	struct pass p = { .v = v, .r = r, .w = w, .e = e };
	int code;

	if ((v->layer = engine_alloc(1, sizeof *v->layer, e)) == NULL ||
	    (v->before = engine_alloc(heads, sizeof *v->before, e)) == NULL ||
	    (v->after = engine_alloc(heads, sizeof *v->after, e)) == NULL)
		return e->code;
	while ((code = kv_next(r, &p.sec)) > 0) {
		if (pass_section(&p) != ENGINE_OK)
			return e->code;
		if (p.sec.kind == KV_VALS && v->step.call != NULL)
			v->step.call(v->step.with, p.sec.layer + 1);
	}
	return checked_read(&p, code);
}

/* ---- reading ahead ---- */

/* Handles a layer that is shown: counts the rows that would be kept, or does nothing. */
static int
show_layer(struct snapshot_evictor *v, const struct evict_input *in, uint32_t *longest,
    struct engine_error *e)
{
	struct kept kept;
	uint32_t g;

	if (longest == NULL)
		return evictor_look(v->evictor, in, e);
	if (evictor_choose(v->evictor, in, &kept, e) != ENGINE_OK)
		return e->code;
	for (g = 0; g < kept.heads; g++)
		*longest = kept.count[g] > *longest ? kept.count[g] : *longest;
	kept_free(&kept);
	return ENGINE_OK;
}

/* Handles a section in a reading that does not write. *shown: its layer has been shown. */
static int
see_section(struct snapshot_evictor *v, struct kv_reader *r, const struct kv_section *sec,
    int *shown, uint32_t *longest, struct engine_error *e)
{
	const int is_posn = sec->kind == KV_POSN;
	struct evict_input in;
	int code;

	if (sec->kind == KV_TOKS)
		v->tokens = kv_token_count(sec);
	if (is_posn)
		*shown = 0;
	if ((is_posn && !evictor_needs_scores(v->evictor, sec->layer)) ||
	    (sec->kind == KV_SCOR && !*shown)) {
		*shown = 1;
		if (layer_input(&in, v, r, sec, e) != ENGINE_OK)
			return e->code;
		return show_layer(v, &in, longest, e);
	}
	if (sec->kind != KV_KEYS && sec->kind != KV_VALS)
		return ENGINE_OK;
	if (!*shown)
		return no_scores(r, sec->layer, e);
	code = kv_skip(r);
	return engine_read(e, r, code);
}

static int
read_ahead(struct snapshot_evictor *v, struct kv_reader *r, uint32_t *longest,
    struct engine_error *e)
{
	struct kv_section sec;
	int code, shown = 0;

	while ((code = kv_next(r, &sec)) > 0)
		if (see_section(v, r, &sec, &shown, longest, e) != ENGINE_OK)
			return e->code;
	return engine_read(e, r, code);
}

int
evict_snapshot_look(struct snapshot_evictor *v, struct kv_reader *r, struct engine_error *e)
{
	return read_ahead(v, r, NULL, e);
}

int
evict_snapshot_renumber(struct snapshot_evictor *v, struct kv_reader *r, struct engine_error *e)
{
	uint32_t longest = 0;

	if (read_ahead(v, r, &longest, e) != ENGINE_OK)
		return e->code;
	return reposition_init(&v->reposition, &kv_reader_head(r)->model, longest, e);
}
