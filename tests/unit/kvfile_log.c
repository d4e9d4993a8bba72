/* kvfile_log.c - the event log: what kv_log_append() writes, and what kv_log_next() says of it */

#include "kvfile_sample.h"

#include <stdlib.h>
#include <string.h>

#define G 2
#define HEADS 4                 /* of two layers */

static uint32_t rows[HEADS];    /* after the last event */

/* Appends an event after which the heads of layers l0 to l1-1 have the rows in `after`. */
static int
event(struct kv_log_content *c, enum kv_event_kind kind, uint32_t n, uint32_t l0, uint32_t l1,
    const uint32_t after[HEADS])
{
	struct kv_event e = { kind, 0, n, l0, l1, rows, after };
	int code = kv_log_append(c, &e, G);

	if (code == KV_OK)
		memcpy(rows + l0 * G, after + l0 * G, (l1 - l0) * G * sizeof *rows);
	return code;
}

static void
check_bytes(void)
{
	struct kv_log_content c = { .data = NULL }, again = { .data = NULL };

	event(&c, KV_EVENT_PREFILL, 4, 0, 2, (uint32_t[]){ 4, 4, 4, 4 });
	check(c.size == 24, "counts that say nothing: %zu bytes", c.size);
	event(&c, KV_EVENT_PREFILL, 1, 0, 2, (uint32_t[]){ 5, 5, 5, 5 });
	check(c.size == 48, "two chunks are two events: %zu bytes", c.size);
	event(&c, KV_EVENT_EVICT, 0, 0, 2, (uint32_t[]){ 5, 5, 5, 5 });
	check(c.size == 48, "an eviction that drops nothing: %zu bytes", c.size);
	event(&c, KV_EVENT_EVICT, 0, 1, 2, (uint32_t[]){ 5, 5, 5, 2 });
	check(c.size == 48 + 24 + 16, "counts of one layer: %zu bytes", c.size);
	event(&c, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 6, 6, 6, 3 });
	event(&c, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 7, 7, 7, 4 });
	check(c.size == 112, "decode steps are one event: %zu bytes", c.size);
	check(kv_log_copy(&again, c.data, c.size, G) == KV_OK && again.last == 88,
	    "a copy knows its last event: %zu", again.last);
	event(&again, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 8, 8, 8, 5 });
	check(again.size == 112 && ((uint8_t *)again.data)[88 + 8] == 3, "it goes on in a copy");
	event(&again, KV_EVENT_DECODE, 1, 0, 1, (uint32_t[]){ 9, 9, 8, 5 });
	check(again.size == 136, "other layers, another event: %zu", again.size);
	event(&again, KV_EVENT_DECODE, 1, 0, 1, (uint32_t[]){ 10, 9, 8, 5 });
	check(again.size == 136 + 40, "a row less, another event: %zu", again.size);
	event(&again, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 11, 10, 9, 6 });
	event(&again, KV_EVENT_DECODE, 1, 1, 2, (uint32_t[]){ 11, 10, 10, 7 });
	check(again.size == 176 + 48, "the same last layer is not enough: %zu", again.size);
	event(&again, KV_EVENT_RUN, 9, 0, 2, (uint32_t[]){ 11, 10, 10, 7 });
	check(again.size == 224 + 24 + 32 && ((uint8_t *)again.data)[224] == KV_EVENT_PREFILL &&
	    ((uint8_t *)again.data)[224 + 12] == 1, "a run is a prefill with counts: %zu",
	    again.size);
	event(&again, KV_EVENT_DECODE, 1, 1, 2, (uint32_t[]){ 11, 10, 11, 8 });
	check(again.size == 280 + 24, "decoding does not go on across a run: %zu", again.size);
	free(c.data);
	free(again.data);
}

static void
check_ran(void)
{
	struct kv_log_content c = { .data = NULL };

	memset(rows, 0, sizeof rows);
	check(kv_log_ran(&c, 0, G) == 0, "nothing has run");
	event(&c, KV_EVENT_PREFILL, 7, 0, 2, (uint32_t[]){ 7, 7, 7, 7 });
	event(&c, KV_EVENT_PREFILL, 3, 1, 2, (uint32_t[]){ 7, 7, 10, 8 });
	event(&c, KV_EVENT_EVICT, 0, 0, 2, (uint32_t[]){ 0, 1, 2, 0 });
	event(&c, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 1, 2, 3, 1 });
	check(kv_log_ran(&c, 0, G) == 8, "one layer");
	check(kv_log_ran(&c, 1, G) == 11, "more in the other");
	event(&c, KV_EVENT_RUN, 5, 0, 2, (uint32_t[]){ 1, 2, 3, 1 });
	check(kv_log_ran(&c, 1, G) == 11, "what is not stored does not count");
	event(&c, KV_EVENT_EVICT, 0, 1, 2, (uint32_t[]){ 1, 2, 0, 0 });
	event(&c, KV_EVENT_PREFILL, 2, 0, 2, (uint32_t[]){ 3, 4, 2, 2 });
	check(kv_log_ran(&c, 0, G) == 10, "it goes on");
	check(kv_log_ran(&c, 1, G) == 2, "it begins anew behind an empty layer");
	free(c.data);
}

static void
check_refusals(void)
{
	struct kv_log_content c = { .data = NULL };

	memset(rows, 0, sizeof rows);
	event(&c, KV_EVENT_PREFILL, 4, 0, 2, (uint32_t[]){ 4, 4, 4, 4 });
	check(event(&c, KV_EVENT_EVICT, 0, 0, 2, (uint32_t[]){ 4, 4, 5, 4 }) == KV_EINVAL,
	    "an eviction that adds a row");
	check(event(&c, KV_EVENT_DECODE, 1, 0, 2, (uint32_t[]){ 5, 6, 5, 5 }) == KV_EINVAL,
	    "two rows of one token");
	check(event(&c, KV_EVENT_PREFILL, 1, 0, 2, (uint32_t[]){ 5, 5, 3, 5 }) == KV_EINVAL,
	    "a prefill that drops a row");
	check(event(&c, KV_EVENT_PREFILL, 0, 0, 2, (uint32_t[]){ 4, 4, 4, 4 }) == KV_EINVAL,
	    "a prefill of nothing");
	check(event(&c, KV_EVENT_DECODE, 1, 1, 1, (uint32_t[]){ 4, 4, 4, 4 }) == KV_EINVAL,
	    "no layer");
	check(event(&c, KV_EVENT_RUN, 3, 0, 2, (uint32_t[]){ 4, 5, 4, 4 }) == KV_EINVAL,
	    "a run that stores a row");
	check(event(&c, KV_EVENT_RUN, 3, 0, 2, (uint32_t[]){ 4, 3, 4, 4 }) == KV_EINVAL,
	    "a run that drops a row");
	check(event(&c, KV_EVENT_RUN, 0, 0, 2, (uint32_t[]){ 4, 4, 4, 4 }) == KV_EINVAL,
	    "a run of nothing");
	check(c.size == 24, "nothing of it is written: %zu bytes", c.size);
	free(c.data);
}

/* Writes the sample with this log before its provenance. */
static void
write_logged(const char *file, const struct kv_log_content *c)
{
	struct kv_span span = { c->data, c->size };
	struct kv_writer *w = NULL;
	struct kv_section sec;
	struct kv_reader *r = NULL;
	int code = sample_write(path("plain.kv"), &small_sample);

	check(code == KV_OK && kv_open(path("plain.kv"), &r) == KV_OK &&
	    kv_create(file, kv_reader_head(r), 0, &w) == KV_OK, "sample");
	while ((code = kv_next(r, &sec)) == 1) {
		if (strcmp(sec.type, "pROv") == 0)
			code = kv_write(w, "eVNt", KV_NO_LAYER, 4, &span, 1);
		if (code >= 0)
			code = kv_copy(r, w);
		if (!check(code >= 0, "%s: %s", sec.type, kv_writer_error(w)))
			break;
	}
	check(kv_commit(w) == KV_OK, "%s", kv_writer_error(w));
	kv_writer_free(w);
	kv_close(r);
}

/* All events and the runs among them; the last value of kv_log_next(). */
static int
read_log(const char *file, uint64_t *events, uint64_t *runs, uint32_t last[HEADS], char *text)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_log *log;
	struct kv_event e;
	int code = kv_open(file, &r);

	log = kv_log_new(kv_reader_head(r));
	while (code >= 0 && (code = kv_next(r, &sec)) == 1)
		code = kv_log_see(log, r, &sec);
	check(code == 0, "%s", kv_reader_error(r));
	*events = kv_log_count(log, 0);
	*runs = 0;
	while ((code = kv_log_next(log, &e)) == 1) {
		memcpy(last, e.after, HEADS * sizeof *last);
		*runs += e.kind == KV_EVENT_RUN;
	}
	check(*runs == kv_log_count(log, KV_EVENT_RUN), "runs, counted and listed");
	check(kv_log_next(log, &e) == code, "the same again");
	snprintf(text, 1024, "%s", kv_log_error(log));
	kv_log_free(log);
	kv_close(r);
	return code;
}

static void
check_reading(void)
{
	struct kv_log_content c = { .data = NULL };
	uint32_t final[HEADS], last[HEADS], wrong[HEADS];
	uint64_t events, runs;
	char text[1024];

	memset(rows, 0, sizeof rows);
	memcpy(final, small_sample.rows, sizeof final);
	event(&c, KV_EVENT_PREFILL, 100, 0, 1, (uint32_t[]){ 100, 100, 0, 0 });
	event(&c, KV_EVENT_PREFILL, 100, 1, 2, (uint32_t[]){ 100, 100, 100, 100 });
	event(&c, KV_EVENT_RUN, 7, 1, 2, (uint32_t[]){ 100, 100, 100, 100 });
	event(&c, KV_EVENT_EVICT, 0, 0, 2, final);
	write_logged(path("log.kv"), &c);
	check(read_log(path("log.kv"), &events, &runs, last, text) == 0, "%s", text);
	check(runs == 1, "a run is known again: %llu", (unsigned long long)runs);
	check(events == 4 && memcmp(last, final, sizeof last) == 0, "the rows at the end");
	memcpy(wrong, final, sizeof wrong);
	wrong[2]--;
	event(&c, KV_EVENT_EVICT, 0, 1, 2, wrong);
	write_logged(path("log.kv"), &c);
	check(read_log(path("log.kv"), &events, &runs, last, text) == KV_ECORRUPT &&
	    strstr(text, "layer 1 head 0") != NULL, "other rows than in POSN: %s", text);
	rows[2]++;
	event(&c, KV_EVENT_DECODE, 2, 0, 2, (uint32_t[]){ rows[0] + 2, rows[1] + 2, rows[2] + 1,
	    rows[3] + 2 });
	write_logged(path("log.kv"), &c);
	check(read_log(path("log.kv"), &events, &runs, last, text) == KV_ECORRUPT &&
	    strstr(text, "event 5: layer 1 head 0") != NULL, "other rows than before: %s", text);
	free(c.data);
}

int
main(void)
{
	check_bytes();
	check_ran();
	check_refusals();
	check_reading();
	return check_done();
}
