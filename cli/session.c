/* session.c - the model folder that -m names, on the device that --device names */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/forward.h"
#include "cli/session.h"
#include "cli/tool.h"
#include "model/snapshot.h"

static int
status_of_tokenizer(int code)
{
	switch (code) {
	case TOKENIZER_EINVALID:     return EXIT_DAMAGED;
	case TOKENIZER_EUNSUPPORTED: return EXIT_UNSUPPORTED;
	default:                     return EXIT_RUN;
	}
}

static int
status_of(int code)
{
	switch (code) {
	case MODEL_EINVALID:     return EXIT_DAMAGED;
	case MODEL_EUNSUPPORTED: return EXIT_UNSUPPORTED;
	default:                 return EXIT_RUN;
	}
}

struct tokenizer *
session_tokenizer(void)
{
	struct tokenizer *t;
	char err[512];
	int rc = tokenizer_open(settings.model, &t, err, sizeof err);

	if (rc != 0)
		die(status_of_tokenizer(rc), "%s", err);
	return t;
}

void
session_open(struct session *e, const struct kv_reader *snapshot)
{
	char err[1024];
	int rc;

	e->tokenizer = session_tokenizer();
	e->device = device_open();
	rc = model_open(settings.model, e->device.ops, e->device.dev, &e->model, err, sizeof err);
	if (rc != 0)
		die(status_of(rc), "%s", err);
	tokenizer_fingerprint(e->tokenizer, e->model->id.tokenizer);
	if (tokenizer_size(e->tokenizer) > e->model->id.vocabulary)
		die(EXIT_DAMAGED, "%s: the tokenizer has %u ids, the model %u", settings.model,
		    tokenizer_size(e->tokenizer), e->model->id.vocabulary);
	if (snapshot != NULL && kv_model_diff(&kv_reader_head(snapshot)->model, &e->model->id,
	    "snapshot", "model", err, sizeof err) != 0)
		die(EXIT_MODEL, "%s is not of the model %s: %s", kv_reader_name(snapshot),
		    settings.model, err);
}

/* ---- does it fit? ---- */

/* What ops hold for themselves at most besides activations in 16 bits: parts of attention, the
 * workspace of matrix products, rows that move. */
#define OWN_SCRATCH ((uint64_t)64 << 20)

struct unit {
	const char *name;
	double bytes;
};

/* The one that suits a sum of so many bytes. */
static struct unit
unit_of(uint64_t sum)
{
	return sum >> 30 > 0 ? (struct unit){ "GiB", 1 << 30 } : (struct unit){ "MiB", 1 << 20 };
}

/* Dies when the device says that it has not so much. */
static void
refuse_too_much(struct session *e, const struct demand *d)
{
	const struct kv_model *id = &e->model->id;
	const uint64_t widest = id->ffn > id->hidden ? id->ffn : id->hidden;
	uint64_t weights = e->model->matrix_bytes + e->model->constant_bytes;
	uint64_t cache = d->rows * cache_row_bytes(e->model, d->dtype, d->mass);
	uint64_t activations = workspace_bytes(e->model, d->at_once) +
	    d->stream * id->hidden * sizeof(float);
	uint64_t scratch = OWN_SCRATCH + d->at_once * widest * 2;
	uint64_t all = weights + cache + activations + scratch;
	struct unit u = unit_of(all);
	size_t room, total;

	e->beside = activations + scratch;
	e->device.ops->mem_info(e->device.dev, &room, &total);
	device_check(&e->device);
	if (room == SIZE_MAX || all <= room)
		return;
	die(EXIT_RUN, "%s: needs %.1f %s: weights %.1f, cache of %" PRIu64 " tokens %.1f, "
	    "activations %.1f, scratch %.1f; %.1f %s are free", e->device.ops->name,
	    (double)all / u.bytes, u.name, (double)weights / u.bytes, d->tokens,
	    (double)cache / u.bytes, (double)activations / u.bytes, (double)scratch / u.bytes,
	    (double)room / u.bytes, u.name);
}

void
session_load(struct session *e, const struct demand *d)
{
	char err[1024];
	int rc;

	refuse_too_much(e, d);
	if ((rc = model_bind(e->model, err, sizeof err)) != 0)
		die(status_of(rc), "%s", err);
}

void
session_rest(const struct session *e, const char *snapshot)
{
	const uint64_t weights = e->model->matrix_bytes + e->model->constant_bytes;
	struct unit u = unit_of(e->beside);
	size_t room, total;

	e->device.ops->mem_info(e->device.dev, &room, &total);
	device_check(&e->device);
	if (room == SIZE_MAX || e->beside <= room)
		return;
	die(EXIT_RUN, "%s: needs %.1f %s for activations and scratch; of %.1f, weights have %.1f, "
	    "the rows of %s and other programs %.1f, %.1f are free", e->device.ops->name,
	    (double)e->beside / u.bytes, u.name, (double)total / u.bytes,
	    (double)weights / u.bytes, snapshot, (double)(total - room - weights) / u.bytes,
	    (double)room / u.bytes);
}

void
session_load_rows(const struct session *e, struct kv_reader *r, struct cache *c,
    struct observation *obs)
{
	int rc = snapshot_load(r, c, obs);

	if (rc == KV_ENOMEM)
		session_no_room(e, kv_reader_name(r));
	if (rc < 0)
		input_failed(r, rc);
	session_rest(e, kv_reader_name(r));
}

void
session_no_room(const struct session *e, const char *what)
{
	const uint64_t weights = e->model->matrix_bytes + e->model->constant_bytes;
	size_t room, total;
	struct unit u;

	e->device.ops->mem_info(e->device.dev, &room, &total);
	if (room == SIZE_MAX)
		die(EXIT_RUN, "no memory for %s", what);
	u = unit_of(total);
	die(EXIT_RUN, "%s: no room for %s: of %.1f %s, weights have %.1f, %.1f are free",
	    e->device.ops->name, what, (double)total / u.bytes, u.name, (double)weights / u.bytes,
	    (double)room / u.bytes);
}

void
session_close(struct session *e)
{
	model_free(e->model);
	tokenizer_close(e->tokenizer);
	device_close(&e->device);
}

void
parse_ids(const char *name, const char *text, size_t len, uint32_t vocabulary, struct ids *out)
{
	const char *p = text, *end = text + len;
	size_t line = 1;

	for (;;) {
		uint64_t id = 0;
		const char *word;

		for (; p < end && isspace((unsigned char)*p); p++)
			line += *p == '\n';
		if (p == end)
			return;
		for (word = p; p < end && isdigit((unsigned char)*p) && id < vocabulary; p++)
			id = id * 10 + (uint64_t)(*p - '0');
		if (p == word || (p < end && !isspace((unsigned char)*p)) || id >= vocabulary)
			die(EXIT_DAMAGED, "%s: line %zu: \"%.*s\" is not a token id below %u",
			    name, line, (int)strcspn(word, " \t\r\n\f\v"), word, vocabulary);
		if (out->n == out->cap) {
			out->cap = out->cap * 2 + 1024;
			out->ids = realloc(out->ids, out->cap * sizeof *out->ids);
			if (out->ids == NULL)
				die(EXIT_RUN, "no memory for %zu ids", out->cap);
		}
		out->ids[out->n++] = (uint32_t)id;
	}
}

double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
