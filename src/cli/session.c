/* session.c - the model folder that -m names, on the device that --device names */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/model_overrides.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "libkvfile/codec.h"
#include "model/adapter.h"
#include "model/gate.h"
#include "model/folder.h"
#include "model/retrieval_head.h"

/* Stores the identity of the tokenizer: the folder's; or the snapshot's (NULL: none) if one of
 * the two has none. */
static void
identify_tokenizer(struct session *s, const struct kv_reader *snapshot)
{
	const char *theirs = snapshot != NULL ? kv_reader_head(snapshot)->model.tokenizer : NULL;
	char *ours = s->model->id.tokenizer;

	if (theirs != NULL && (s->tokenizer == NULL || strcmp(theirs, NO_TOKENIZER) == 0))
		memcpy(ours, theirs, sizeof NO_TOKENIZER);
	else if (s->tokenizer == NULL)
		memcpy(ours, NO_TOKENIZER, sizeof NO_TOKENIZER);
	else
		tokenizer_fingerprint(s->tokenizer, ours);
}

/* Returns what products round activations to; NULL: they do not. */
static const char *
rounded_to(int bf16, int int8)
{
	return bf16 && int8 ? "bf16 int8" : bf16 ? "bf16" : int8 ? "int8" : NULL;
}

/* --products. A GPU always rounds activations; only the CPU has the choice. With weights in blocks
 * also products of few rows round them, unless f32 is asked for. */
static void
choose_products(struct model *m)
{
	const char *type = settings.products;
	const int automatic = type == NULL || strcmp(type, "auto") == 0;
	const int f32 = !automatic && strcmp(type, "f32") == 0;
	const int bf16 = !automatic && strcmp(type, "bf16") == 0;

	settings.products = NULL;
	if (!automatic && !f32 && !bf16)
		die(EXIT_USAGE, "--products: '%s' is not auto, f32 or bf16", type);
	if (m->ops->products_in_bf16 == NULL)
		return;
	if (bf16 || (automatic && (m->id.weights_dtype == KV_BF16 || m->has_blocks)))
		m->products_in_bf16 = m->ops->products_in_bf16(m->dev, 1);
	m->ops->products_in_bf16(m->dev, 0);
	if (bf16 && !m->products_in_bf16)
		die(EXIT_RUN, "--products bf16: this processor has no AVX512-BF16");
	if (m->ops->blocks_in_f32 != NULL)
		m->ops->blocks_in_f32(m->dev, f32);
	settings.products = rounded_to(m->products_in_bf16, m->has_blocks && !f32);
	if (settings.products != NULL)
		sign_text("products", settings.products);
	note("products of prompts: in %s", m->products_in_bf16 ? "bf16" : "f32");
	if (m->has_blocks)
		note("products of up to 64 rows with weights in blocks: in %s",
		    f32 ? "f32" : "int8");
}

/* Progress while weights are hashed for their fingerprint. */
static void
tell_reading(void *with, uint64_t done, uint64_t total)
{
	int *begun = with;

	if (!*begun)
		progress_start("read weights", total, "B");
	*begun = 1;
	progress(done);
}

static int
open_model(struct session *s, char *err, size_t errlen)
{
	const double begin = seconds();
	int begun = 0, rc;
	struct weights_reading reading = { .threads = processors(), .known = settings.fingerprints,
	    .call = tell_reading, .with = &begun };

	rc = model_open(settings.model, overrides_of_model(settings.model), &reading, s->device.ops,
	    s->device.dev, &s->model, err, errlen);
	if (begun)
		progress_end();
	if (rc != 0)
		return rc;
	s->model->reading.call = NULL;
	if (s->model->reading.bytes > 0)
		note("weights: %.1f MiB read for their fingerprint in %.2f s",
		    (double)s->model->reading.bytes / (1 << 20), seconds() - begin);
	else
		note("weights: their fingerprint is known");
	return 0;
}

static void
open_all(struct session *s, const struct kv_reader *like, enum tokenizer_need need)
{
	char err[1024];

	s->adapter = NULL;
	s->head = NULL;
	s->gate = NULL;
	s->warned = 0;
	session_find_folder();
	must_model(model_folder_without_config(settings.model, err, sizeof err), err);
	s->tokenizer = need == TOKENIZER_NEEDED ? session_tokenizer() :
	    session_tokenizer_if_there(settings.model, "ids need none");
	s->device = device_open();
	must_model(open_model(s, err, sizeof err), err);
	overrides_sign();
	choose_products(s->model);
	identify_tokenizer(s, like);
	if (like != NULL)
		model_expect_snapshot(s->model, &kv_reader_head(like)->model);
}

void
session_open_any(struct session *s, const struct kv_reader *like, enum tokenizer_need need)
{
	report_enter(REPORT_LOAD);
	open_all(s, like, need);
	report_leave();
}

/* Warns once, for the first of several snapshots. */
static void
warn_samples(struct session *s, const char *name)
{
	if (s->model->id.weights_rule != WEIGHTS_SAMPLED || s->warned)
		return;
	s->warned = 1;
	warning("%s: its fingerprint of the weights is of samples only, as in older versions",
	    name);
}

/* Fails for a snapshot that has rows for each query head where the model was opened for one with
 * rows for each KV head, or the other way round; returns ENGINE_OK for others. */
static int
refuse_other_layout(const struct session *s, const struct kv_reader *snapshot,
    struct engine_error *e)
{
	const struct kv_model *ours = &s->model->id;
	struct kv_model theirs = kv_reader_head(snapshot)->model;
	const int by_query_head = theirs.kv_heads == theirs.query_heads;
	char err[64];

	if (theirs.kv_heads == ours->kv_heads || (!by_query_head && s->model->kv_copies < 2))
		return ENGINE_OK;
	theirs.kv_heads = ours->kv_heads;
	if (kv_model_diff(&theirs, ours, "", "", err, sizeof err) != 0)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EMODEL, "%s has rows for each %s head, and another snapshot "
	    "for each %s head: use kv-convert --per-query-head on all or none",
	    kv_reader_name(snapshot), by_query_head ? "query" : "KV", by_query_head ? "KV" :
	    "query");
}

int
session_fit(struct session *s, const struct kv_reader *snapshot, struct engine_error *e)
{
	char err[512];
	int rc;

	identify_tokenizer(s, snapshot);
	rc = model_name_weights(s->model, &kv_reader_head(snapshot)->model, err, sizeof err);
	if (rc != 0)
		return engine_fail_model(e, rc, err);
	if (kv_model_diff(&kv_reader_head(snapshot)->model, &s->model->id, "snapshot", "model", err,
	    sizeof err) == 0) {
		warn_samples(s, kv_reader_name(snapshot));
		return ENGINE_OK;
	}
	if (refuse_other_layout(s, snapshot, e) != ENGINE_OK)
		return e->code;
	return engine_fail(e, ENGINE_EMODEL, "%s is not of the model %s: %s",
	    kv_reader_name(snapshot), settings.model, err);
}

void
session_open(struct session *s, const struct kv_reader *snapshot, enum tokenizer_need need)
{
	struct engine_error e;

	session_open_any(s, snapshot, need);
	if (snapshot != NULL)
		must(session_fit(s, snapshot, &e), &e);
}

static void
warn_made_for(const char *dir, int by_samples)
{
	if (by_samples)
		warning("%s: its fingerprint of the model's weights is of samples only, as in "
		    "older versions", dir);
}

void
session_adapter(struct session *s, const char *dir)
{
	char err[1024];
	int rc;

	report_enter(REPORT_LOAD);
	rc = adapter_open(dir, s->model, overrides_given(), &s->adapter, err, sizeof err);
	report_leave();
	must_model(rc, err);
	overrides_sign();
	warn_made_for(dir, s->adapter->by_samples);
}

/* A head with its own embedding depends on what ids mean, thus on the tokenizer. */
static void
check_tokenizer_of_head(const struct session *s, const char *dir)
{
	struct tokenizer *t = session_tokenizer_if_there(dir, "not compared with the model's");
	char theirs[33], ours[33];

	if (t == NULL)
		return;
	tokenizer_fingerprint(t, theirs);
	tokenizer_close(t);
	if (s->tokenizer != NULL)
		tokenizer_fingerprint(s->tokenizer, ours);
	else
		memcpy(ours, s->model->id.tokenizer, sizeof ours);
	if (strcmp(ours, theirs) != 0 && strcmp(ours, NO_TOKENIZER) != 0)
		die(EXIT_MODEL, "%s: trained for tokenizer %s, and that of %s is %s", dir, theirs,
		    settings.model, ours);
}

void
session_head(struct session *s, const char *dir)
{
	char err[1024];
	int rc;

	report_enter(REPORT_LOAD);
	rc = retrieval_head_open(dir, s->model, overrides_given(), &s->head, err, sizeof err);
	must_model(rc, err);
	overrides_sign();
	warn_made_for(dir, s->head->by_samples);
	check_tokenizer_of_head(s, dir);
	report_leave();
	sign_text("head", s->head->id);
}

void
session_gate(struct session *s, const char *dir)
{
	char err[1024];
	int rc;

	report_enter(REPORT_LOAD);
	rc = gate_open(dir, s->model, overrides_given(), &s->gate, err, sizeof err);
	report_leave();
	must_model(rc, err);
	overrides_sign();
	warn_made_for(dir, s->gate->by_samples);
	sign_text("gate", s->gate->label);
}

/* Not must(): these messages name what does not fit. */
static void
must_fit(int rc, const struct engine_error *e)
{
	if (rc != ENGINE_OK)
		die(EXIT_RUN, "%s", e->text);
}

void
session_load(struct session *s, const struct memory_demand *d)
{
	struct memory_demand all = *d;
	struct engine_error e;
	char err[1024];
	int rc;

	if (s->adapter != NULL)
		all.adapter = s->adapter->bytes;
	if (s->gate != NULL)
		all.gate = s->gate->bytes;
	all.head = s->head;
	s->plan = memory_plan(s->model, &all);
	must_fit(memory_plan_check(&s->plan, s->model, &e), &e);
	report_enter(REPORT_LOAD);
	rc = model_bind(s->model, err, sizeof err);
	if (rc == 0 && s->adapter != NULL)
		rc = adapter_bind(s->adapter, err, sizeof err);
	if (rc == 0 && s->head != NULL)
		rc = retrieval_head_bind(s->head, err, sizeof err);
	if (rc == 0 && s->gate != NULL)
		rc = gate_bind(s->gate, err, sizeof err);
	report_leave();
	must_model(rc, err);
}

void
session_rest(const struct session *s, const char *snapshot)
{
	struct engine_error e;

	must_fit(memory_plan_check_rest(&s->plan, s->model, snapshot, &e), &e);
}

void
session_close(struct session *s)
{
	gate_free(s->gate);
	retrieval_head_free(s->head);
	adapter_free(s->adapter);
	model_free(s->model);
	tokenizer_close(s->tokenizer);
	device_close(&s->device);
}

void
encode_text(const struct tokenizer *t, const char *name, const char *text, size_t len,
    unsigned flags, uint32_t vocabulary, int status, struct ids *out)
{
	size_t i = out->n;
	char err[512];
	int rc = tokenizer_encode(t, text, len, flags, out, err, sizeof err);

	if (rc != 0)
		die(rc == TOKENIZER_ENOMEM ? EXIT_RUN : status, "%s: %s", name, err);
	if (err[0] != '\0')
		warning("%s: %s", name, err);
	/* a tokenizer may know more tokens than the model: only ids that occur are checked */
	for (; i < out->n; i++)
		if (out->ids[i] >= vocabulary)
			die(status, "%s: token %zu has the id %u, the model has %u", name, i + 1,
			    out->ids[i], vocabulary);
}

void
refuse_no_token(const char *name, const struct ids *ids)
{
	if (ids->n == 0)
		die(EXIT_DAMAGED, "%s: there is no token", name);
}

unsigned
text_behind(const struct tokenizer *t, struct kv_reader *snapshot)
{
	const struct kv_tokens tokens = input_tokens(snapshot);

	return tokenizer_behind(t, tokens.id, tokens.n);
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

void
session_note_steps(const struct session *s, uint64_t launches, int capture_failed)
{
	if (launches > 0)
		note("%" PRIu64 " steps launched from a captured graph", launches);
	if (capture_failed)
		note("no step is launched from a captured graph: %s",
		    s->device.ops->describe(s->device.dev));
}
