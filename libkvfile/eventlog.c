/* eventlog.c - the event log: the history of the rows (4.12)
 *
 * Every reader checks each event by itself, kv_events_check(). kv_log_next() checks, on
 * request, that the events are consistent with each other and with the snapshot. */

#include "codec.h"
#include "content.h"
#include "bytes.h"

#include <stdlib.h>

#define EVENT 24                /* bytes of an event without its counts */
#define COUNTS 1                /* flag: counts follow */

/* The 24 bytes. */
struct fields {
	uint32_t kind, position, n, flags, l0, l1;
};

static struct fields
get_fields(const uint8_t *p)
{
	return (struct fields){ get32(p), get32(p + 4), get32(p + 8), get32(p + 12),
	    get32(p + 16), get32(p + 20) };
}

/* At most 24 + 2^3 * 2^12 * 2^12 once the layers are known to be right. */
static uint64_t
event_size(const uint8_t *p, uint32_t kv_heads)
{
	struct fields f = get_fields(p);

	return EVENT + ((f.flags & COUNTS) ? 8 * (uint64_t)(f.l1 - f.l0) * kv_heads : 0);
}

/* KV_EVENT_RUN if it adds no row. */
static enum kv_event_kind
event_kind(const uint8_t *p, uint32_t kv_heads)
{
	const struct fields f = get_fields(p);
	const uint8_t *end = p + event_size(p, kv_heads);

	if (f.kind == KV_EVENT_EVICT || (f.flags & COUNTS) == 0)
		return (enum kv_event_kind)f.kind;
	for (p += EVENT; p < end; p += 8)
		if (get32(p) != get32(p + 4))
			return (enum kv_event_kind)f.kind;
	return KV_EVENT_RUN;
}

/* ---- an event by itself ---- */

static int
may_follow(uint32_t kind, uint32_t n, uint32_t before, uint32_t after)
{
	if (kind == KV_EVENT_EVICT)
		return after <= before;
	if (kind == KV_EVENT_RUN)
		return after == before;
	return after >= before && after - before <= n;
}

static int
check_counts(const uint8_t *p, uint32_t kv_heads, uint64_t number, struct kv_message *why)
{
	struct fields f = get_fields(p);
	uint32_t before, after, l, g;

	for (p += EVENT, l = f.l0; l < f.l1; l++)
		for (g = 0; g < kv_heads; g++, p += 8) {
			before = get32(p);
			after = get32(p + 4);
			if (!may_follow(f.kind, f.n, before, after))
				return kv_bad(why, "event %llu: layer %u head %u: %u rows before "
				    "it, %u after it", (ull)number, l, g, before, after);
		}
	return KV_OK;
}

static int
check_event(const struct kv_model *m, const uint8_t *p, uint64_t left, uint64_t number,
    struct kv_message *why)
{
	struct fields f = get_fields(p);

	if (f.kind < KV_EVENT_PREFILL || f.kind > KV_EVENT_EVICT)
		return kv_bad(why, "event %llu: kind %u is not known", (ull)number, f.kind);
	if ((f.flags & ~(uint32_t)COUNTS) != 0)
		return kv_bad(why, "event %llu: a flag that must be zero is not", (ull)number);
	if ((f.n == 0) != (f.kind == KV_EVENT_EVICT))
		return kv_bad(why, "event %llu: %u rows run cannot be right", (ull)number, f.n);
	if (f.l0 >= f.l1 || f.l1 > m->layers)
		return kv_bad(why, "event %llu: layers %u to %u of %u", (ull)number, f.l0, f.l1,
		    m->layers);
	if (f.kind == KV_EVENT_EVICT && f.flags == 0)
		return kv_bad(why, "event %llu: an eviction without counts", (ull)number);
	if (left < event_size(p, m->kv_heads))
		return kv_bad(why, "event %llu: ends in its counts", (ull)number);
	return f.flags != 0 ? check_counts(p, m->kv_heads, number, why) : KV_OK;
}

int
kv_events_check(const struct kv_head *head, const uint8_t *data, uint64_t size,
    struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	uint64_t at, i;

	for (at = 0, i = 0; at < size; at += event_size(data + at, m->kv_heads), i++) {
		if (size - at < EVENT)
			return kv_bad(why, "event %llu: only %llu bytes", (ull)i,
			    (ull)(size - at));
		if (check_event(m, data + at, size - at, i, why) != KV_OK)
			return why->code;
	}
	return KV_OK;
}

/* ---- reading ---- */

struct kv_log {
	uint32_t layers, kv_heads;
	uint64_t heads;                 /* their product */
	uint32_t *rows;                 /* [L][G] from the snapshot */
	uint32_t *before, *after;       /* [L][G] of the event at hand */
	uint64_t tokens;                /* ids in TOKS */
	uint8_t *data;                  /* of eVNt; NULL: there is none */
	size_t size, at;
	uint64_t number;                /* of the event at `at` */
	char name[400];                 /* of the snapshot */
	struct kv_message error;
};

struct kv_log *
kv_log_new(const struct kv_head *head)
{
	struct kv_log *log = calloc(1, sizeof *log);

	if (log == NULL)
		return NULL;
	log->layers = head->model.layers;
	log->kv_heads = head->model.kv_heads;
	log->heads = (uint64_t)log->layers * log->kv_heads;
	log->rows = calloc(log->heads, sizeof *log->rows);
	log->before = calloc(log->heads, sizeof *log->before);
	log->after = calloc(log->heads, sizeof *log->after);
	if (log->rows == NULL || log->before == NULL || log->after == NULL) {
		kv_log_free(log);
		return NULL;
	}
	return log;
}

void
kv_log_free(struct kv_log *log)
{
	if (log == NULL)
		return;
	free(log->rows);
	free(log->before);
	free(log->after);
	free(log->data);
	free(log);
}

static int
see_events(struct kv_log *log, struct kv_reader *r, const struct kv_section *sec)
{
	const char *name = kv_reader_name(r);
	const void *content;
	int code = kv_load(r, &content);

	if (code != KV_OK)
		return code;
	memcpy(log->name, name, strnlen(name, sizeof log->name - 1));
	log->size = (size_t)sec->raw_size;
	log->data = malloc(log->size);
	if (log->data == NULL)
		return KV_ENOMEM;
	memcpy(log->data, content, log->size);
	return KV_OK;
}

int
kv_log_see(struct kv_log *log, struct kv_reader *r, const struct kv_section *sec)
{
	const struct kv_rows *rows;
	int code;

	if (sec->kind == KV_TOKS)
		log->tokens = kv_token_count(sec);
	else if (sec->kind == KV_EVNT)
		return see_events(log, r, sec);
	else if (sec->kind == KV_POSN) {
		code = kv_load_rows(r, &rows);
		if (code != KV_OK)
			return code;
		memcpy(log->rows + (size_t)sec->layer * log->kv_heads, rows->count,
		    log->kv_heads * sizeof *rows->count);
	}
	return KV_OK;
}

uint64_t
kv_log_count(const struct kv_log *log, int kind)
{
	uint64_t n = 0;
	size_t at;

	for (at = 0; at < log->size; at += event_size(log->data + at, log->kv_heads))
		n += kind == 0 ||
		    event_kind(log->data + at, log->kv_heads) == (enum kv_event_kind)kind;
	return n;
}

uint64_t
kv_log_tokens(const struct kv_log *log)
{
	return log->tokens;
}

static int
check_end(struct kv_log *log)
{
	uint64_t i;

	if (log->size == 0)
		return 0;
	for (i = 0; i < log->heads; i++)
		if (log->after[i] != log->rows[i])
			return kv_bad(&log->error, "%s: eVNt: layer %u head %u: %u rows after the "
			    "last event, %u in the snapshot", log->name,
			    (uint32_t)(i / log->kv_heads), (uint32_t)(i % log->kv_heads),
			    log->after[i], log->rows[i]);
	return 0;
}

/* Sets the rows of layers l0 to l1-1 after the event at p; the others do not change. */
static int
step(struct kv_log *log, const uint8_t *p)
{
	struct fields f = get_fields(p);
	uint64_t i = (uint64_t)f.l0 * log->kv_heads, end = (uint64_t)f.l1 * log->kv_heads;
	uint32_t stated, had;

	for (p += EVENT; i < end; i++, p += 8) {
		had = stated = log->before[i];
		if (f.flags & COUNTS) {
			stated = get32(p);
			log->after[i] = get32(p + 4);
		} else
			log->after[i] = had + f.n;
		if (stated != had)
			return kv_bad(&log->error, "%s: eVNt: event %llu: layer %u head %u: %u "
			    "rows before it, %u after the event before", log->name,
			    (ull)log->number, (uint32_t)(i / log->kv_heads),
			    (uint32_t)(i % log->kv_heads), stated, had);
		if (f.kind != KV_EVENT_EVICT && log->after[i] < had)
			return kv_bad(&log->error, "%s: eVNt: event %llu: layer %u head %u: more "
			    "than 2^32 rows", log->name, (ull)log->number,
			    (uint32_t)(i / log->kv_heads), (uint32_t)(i % log->kv_heads));
	}
	return KV_OK;
}

int
kv_log_next(struct kv_log *log, struct kv_event *e)
{
	const uint8_t *p;
	struct fields f;

	if (log->error.code != KV_OK)
		return log->error.code;
	if (log->at == log->size)
		return check_end(log);
	p = log->data + log->at;
	f = get_fields(p);
	memcpy(log->before, log->after, log->heads * sizeof *log->after);
	if (step(log, p) != KV_OK)
		return log->error.code;
	*e = (struct kv_event){ event_kind(p, log->kv_heads), f.position, f.n, f.l0, f.l1,
	    log->before, log->after };
	log->at += (size_t)event_size(p, log->kv_heads);
	log->number++;
	return 1;
}

const char *
kv_log_error(const struct kv_log *log)
{
	return log->error.text;
}

/* ---- writing ---- */

int
kv_log_copy(struct kv_log_content *c, const void *content, size_t size, uint32_t kv_heads)
{
	size_t at;

	c->data = malloc(size);
	if (c->data == NULL)
		return KV_ENOMEM;
	memcpy(c->data, content, size);
	c->size = size;
	for (at = 0; at < size; at += (size_t)event_size((uint8_t *)c->data + at, kv_heads))
		c->last = at;
	return KV_OK;
}

/* Returns whether the eviction at p, with fields f, leaves its layers without a row, so that a
 * text begins anew. A sliding window of one token empties only some of them. */
static int
empties(const uint8_t *p, const struct fields *f, uint32_t kv_heads)
{
	uint64_t n = (uint64_t)(f->l1 - f->l0) * kv_heads;

	for (p += EVENT; n > 0; n--, p += 8)
		if (get32(p + 4) > 0)
			return 0;
	return 1;
}

uint64_t
kv_log_ran(const struct kv_log_content *c, uint32_t layer, uint32_t kv_heads)
{
	const uint8_t *p = c->data;
	uint64_t ran = 0;
	struct fields f;
	size_t at;

	for (at = 0; at < c->size; at += (size_t)event_size(p + at, kv_heads)) {
		f = get_fields(p + at);
		if (layer < f.l0 || layer >= f.l1)
			continue;
		if (f.kind != KV_EVENT_EVICT)
			ran += event_kind(p + at, kv_heads) != KV_EVENT_RUN ? f.n : 0;
		else if (empties(p + at, &f, kv_heads))
			ran = 0;
	}
	return ran;
}

/* Extends the last event by one that says the same of the same layers. */
static int
joins(struct kv_log_content *c, const struct kv_event *e)
{
	struct fields f;
	uint8_t *last;

	if (c->size == 0 || e->kind != KV_EVENT_DECODE)
		return 0;
	last = (uint8_t *)c->data + c->last;
	f = get_fields(last);
	if (f.kind != KV_EVENT_DECODE || f.flags != 0 || f.l0 != e->l0 || f.l1 != e->l1 ||
	    f.n > UINT32_MAX - e->n)
		return 0;
	put32(last + 4, e->position);
	put32(last + 8, f.n + e->n);
	return 1;
}

void
kv_log_place(const struct kv_log_content *c, struct kv_log_place *place)
{
	struct fields f = { .n = 0 };

	if (c->size > 0)
		f = get_fields((const uint8_t *)c->data + c->last);
	*place = (struct kv_log_place){ c->size, c->last, f.position, f.n };
}

/* The last event may have been extended. */
void
kv_log_return(struct kv_log_content *c, const struct kv_log_place *place)
{
	uint8_t *last = (uint8_t *)c->data + place->last;

	c->size = place->size;
	c->last = place->last;
	if (c->size == 0)
		return;
	put32(last + 4, place->position);
	put32(last + 8, place->n);
}

static int
append_event(struct kv_log_content *c, const struct kv_event *e, size_t first, size_t end)
{
	size_t i, size = EVENT + 8 * (end - first);
	uint8_t *p;

	if (size > SIZE_MAX - c->size || (p = realloc(c->data, c->size + size)) == NULL)
		return KV_ENOMEM;
	c->data = p;
	c->last = c->size;
	c->size += size;
	p += c->last;
	put32(p, (uint32_t)(e->kind == KV_EVENT_RUN ? KV_EVENT_PREFILL : e->kind));
	put32(p + 4, e->position);
	put32(p + 8, e->n);
	put32(p + 12, first < end ? COUNTS : 0);
	put32(p + 16, e->l0);
	put32(p + 20, e->l1);
	for (i = first, p += EVENT; i < end; i++, p += 8) {
		put32(p, e->before[i]);
		put32(p + 4, e->after[i]);
	}
	return KV_OK;
}

int
kv_log_append(struct kv_log_content *c, const struct kv_event *e, uint32_t kv_heads)
{
	size_t first = (size_t)e->l0 * kv_heads, end = (size_t)e->l1 * kv_heads, i;
	int same = 1, all_grew = 1;

	if (e->l0 >= e->l1 || (e->n == 0) != (e->kind == KV_EVENT_EVICT))
		return KV_EINVAL;
	for (i = first; i < end; i++) {
		if (!may_follow(e->kind, e->n, e->before[i], e->after[i]))
			return KV_EINVAL;
		same &= e->before[i] == e->after[i];
		all_grew &= e->after[i] - e->before[i] == e->n;
	}
	if (e->kind == KV_EVENT_EVICT)
		return same ? KV_OK : append_event(c, e, first, end);
	if (!all_grew)
		return append_event(c, e, first, end);
	return joins(c, e) ? KV_OK : append_event(c, e, first, first);
}
