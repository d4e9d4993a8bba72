/* per_query_head.c - a snapshot with rows of its own for each query head */
#include <stdlib.h>
#include <string.h>

#include "engine/copy_section.h"
#include "engine/per_query_head.h"
#include "libkvfile/codec.h"

struct pass {
	struct per_query_head *job;
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_log *log;             /* of the input */
	struct kv_section sec;          /* where r stands */
	uint32_t G, R;                  /* KV heads of the input; query heads of each */
	struct engine_error *e;
};

struct kv_head
per_query_head_of(const struct kv_head *head)
{
	struct kv_head to = *head;

	to.model.kv_heads = to.model.query_heads;
	return to;
}

static int
checked_write(const struct pass *p, int code)
{
	return engine_wrote(p->e, p->w, code);
}

static int
load(const struct pass *p, const void **content)
{
	return engine_read(p->e, p->r, kv_load(p->r, content));
}

/* ---- what a section has of each KV head ---- */

/* Writes the section: `lead` bytes, and then the part of each KV head, part[g] bytes long, once for
 * each of its query heads. */
static int
write_repeated(const struct pass *p, const char *content, size_t lead, const uint64_t *part)
{
	const size_t n = (size_t)p->G * p->R + 1;
	struct kv_span *span = engine_alloc(n, sizeof *span, p->e);
	const char *at = content + lead;
	size_t i;
	int rc;

	if (span == NULL)
		return p->e->code;
	span[0] = (struct kv_span){ content, lead };
	for (i = 1; i < n; i++) {
		span[i] = (struct kv_span){ at, part[(i - 1) / p->R] };
		if (i % p->R == 0)
			at += part[(i - 1) / p->R];
	}
	rc = checked_write(p, kv_write(p->w, p->sec.type, p->sec.layer, p->sec.element_size, span,
	    n));
	free(span);
	return rc;
}

/* Repeats KEYS, VALS or gate scores. */
static int
repeat_rows(const struct pass *p)
{
	const struct kv_rows *rows = kv_current_rows(p->r);
	uint64_t *part = engine_alloc(p->G, sizeof *part, p->e), all = 0;
	const void *content;
	uint32_t g;
	int rc;

	if (part == NULL)
		return p->e->code;
	for (g = 0; g < p->G; g++) {
		part[g] = p->sec.kind == KV_GATE ? rows->count[g] * sizeof(float) :
		    kv_head_bytes(kv_reader_head(p->r), p->sec.kind, p->sec.layer, rows->count[g]);
		all += part[g];
	}
	if ((rc = load(p, &content)) == ENGINE_OK)
		rc = write_repeated(p, content, p->sec.raw_size - all, part);
	free(part);
	return rc;
}

static int
repeat_positions(const struct pass *p)
{
	const uint32_t H = p->G * p->R;
	const struct kv_rows *rows;
	uint32_t *count = engine_alloc(H, sizeof *count, p->e), h;
	const uint32_t **pos = engine_alloc(H, sizeof *pos, p->e);
	struct kv_rows to = { H, count, pos };
	int rc = count != NULL && pos != NULL ?
	    engine_read(p->e, p->r, kv_load_rows(p->r, &rows)) : p->e->code;

	for (h = 0; rc == ENGINE_OK && h < H; h++) {
		count[h] = rows->count[h / p->R];
		pos[h] = rows->pos[h / p->R];
	}
	if (rc == ENGINE_OK)
		rc = checked_write(p, kv_write_rows(p->w, p->sec.layer, &to));
	free(count);
	free(pos);
	return rc;
}

/* Repeats the keys of tokens that are not stored; there is one query for each query head. */
static int
repeat_queries(const struct pass *p)
{
	const struct kv_head *head = kv_reader_head(p->r);
	const uint32_t H = p->G * p->R;
	struct kv_queries q;
	size_t size, h;
	char *own;
	int rc;

	if ((rc = engine_read(p->e, p->r, kv_load_queries(p->r, &q))) != ENGINE_OK)
		return rc;
	size = (size_t)q.n_own * head->model.head_width * kv_dtype_size(head->dtype);
	if ((own = engine_alloc(H, size + 1, p->e)) == NULL)
		return p->e->code;
	for (h = 0; h < H && size > 0; h++)
		memcpy(own + h * size, (const char *)q.own + h / p->R * size, size);
	q.own = own;
	rc = checked_write(p, kv_write_queries(p->w, p->sec.layer, &q));
	free(own);
	return rc;
}

/* ---- the event log ---- */

/* to[L][H] <- from[L][G] */
static void
repeat_counts(const struct pass *p, uint32_t *to, const uint32_t *from, uint32_t layers)
{
	size_t i;

	for (i = 0; i < (size_t)layers * p->G * p->R; i++)
		to[i] = from[i / p->R];
}

static int
write_events(const struct pass *p, uint32_t *before, uint32_t *after)
{
	const struct kv_model *m = &kv_reader_head(p->r)->model;
	struct kv_log_content to = { .data = NULL };
	struct kv_span span;
	struct kv_event event;
	int code, rc = ENGINE_OK;

	while (rc == ENGINE_OK && (code = kv_log_next(p->log, &event)) == 1) {
		repeat_counts(p, before, event.before, m->layers);
		repeat_counts(p, after, event.after, m->layers);
		event.before = before;
		event.after = after;
		if (kv_log_append(&to, &event, m->query_heads) != KV_OK)
			rc = engine_fail(p->e, ENGINE_ERUN, "no memory for the event log");
	}
	if (rc == ENGINE_OK && code < 0)
		rc = engine_fail(p->e, ENGINE_EDAMAGED, "%s: %s", kv_reader_name(p->r),
		    kv_log_error(p->log));
	span = (struct kv_span){ to.data, to.size };
	if (rc == ENGINE_OK)
		rc = checked_write(p, kv_write(p->w, p->sec.type, p->sec.layer,
		    p->sec.element_size, &span, 1));
	free(to.data);
	return rc;
}

static int
repeat_log(const struct pass *p)
{
	const struct kv_model *m = &kv_reader_head(p->r)->model;
	const size_t heads = (size_t)m->layers * m->query_heads;
	uint32_t *before = engine_alloc(heads, sizeof *before, p->e);
	uint32_t *after = engine_alloc(heads, sizeof *after, p->e);
	int rc = before != NULL && after != NULL ? write_events(p, before, after) : p->e->code;

	free(before);
	free(after);
	return rc;
}

/* ---- all sections ---- */

static int
pass_section(const struct pass *p)
{
	switch (p->sec.kind) {
	case KV_POSN:
		return repeat_positions(p);
	case KV_OBSQ:
		return repeat_queries(p);
	case KV_GATE:
	case KV_KEYS:
	case KV_VALS:
		return repeat_rows(p);
	case KV_EVNT:
		return repeat_log(p);
	case KV_PROV:
		return ENGINE_OK;               /* inherited */
	case KV_UNKNOWN:
		return copy_unknown_section(p->r, p->w, &p->sec, 1, &p->job->notice, p->e);
	default:
		if (p->sec.kind == KV_SCOR || p->sec.kind == KV_NCAU ||
		    kv_kind_is(p->sec.kind, KV_INDEX)) {
			p->job->left |= 1U << p->sec.kind;
			return ENGINE_OK;
		}
		return copy_section(p->r, p->w, p->e);  /* of query heads, or of the text */
	}
}

int
per_query_head(struct per_query_head *job, struct kv_reader *r, struct kv_writer *w,
    struct engine_error *e)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	struct pass p = { .job = job, .r = r, .w = w, .G = m->kv_heads,
	    .R = m->query_heads / m->kv_heads, .e = e };
	int code = KV_OK, rc = ENGINE_OK;

	*e = (struct engine_error){ .code = ENGINE_OK };
	if ((p.log = kv_log_new(kv_reader_head(r))) == NULL)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	while (rc == ENGINE_OK && (code = kv_next(r, &p.sec)) > 0) {
		if ((code = kv_log_see(p.log, r, &p.sec)) < 0)
			break;
		rc = pass_section(&p);
		if (p.sec.kind == KV_VALS && job->step.call != NULL)
			job->step.call(job->step.with, p.sec.layer + 1);
	}
	kv_log_free(p.log);
	return rc != ENGINE_OK ? rc : engine_read(e, r, code);
}
